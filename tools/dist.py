"""Writes dist/nightjar-VERSION.zip: nightjar's code, for executors of a cluster (the setting `code_archive`).

The same code gives the same archive, byte by byte.
"""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

from nightjar.installation import package_files

PROJECT = Path(__file__).resolve().parents[1]

# The earliest that the format knows.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(folder: Path = PROJECT / "dist") -> Path:
    """Write the archive into the folder; returns its path."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    archive = folder / f"nightjar-{declared['project']['version']}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for file in package_files():
            entry = zipfile.ZipInfo(file.relative_to(PROJECT).as_posix(), _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            written.writestr(entry, file.read_bytes())
    return archive


if __name__ == "__main__":
    print(build().relative_to(PROJECT))  # noqa: T201
