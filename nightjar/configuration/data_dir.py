"""Creates the folder of all local data, accessible to its owner only."""

from pathlib import Path

import structlog

_OTHERS = 0o077


def prepare(folder: Path) -> None:
    """Create it, readable by its owner only. If it exists and is open to others, log a warning and leave it."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    elif folder.stat().st_mode & _OTHERS:
        structlog.get_logger().warning(
            "data_dir_open_to_others",
            folder=str(folder),
            mode=f"{folder.stat().st_mode & 0o777:o}",
            remedy="chmod 700: it holds events, checkpoints and passwords",
        )
