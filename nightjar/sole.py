"""One job a checkpoint: a lock that its process holds, and that the system lets go of however the process ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rules.errors import NightjarError


class AlreadyRunningError(NightjarError):
    """Another job runs on the same checkpoint."""


@contextmanager
def sole_job(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint's lock inside the block. Raises AlreadyRunningError where another process does."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(checkpoint).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _refusal(checkpoint) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def refuse_running(checkpoint: Path) -> None:
    """Raise AlreadyRunningError where a job runs on the checkpoint."""
    if _lock_file(checkpoint).exists():
        with sole_job(checkpoint):
            pass


def _lock_file(checkpoint: Path) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.lock")


def _refusal(checkpoint: Path) -> AlreadyRunningError:
    holder = _lock_file(checkpoint).read_text() or "unknown"
    return AlreadyRunningError(
        f"a job already runs on it (process {holder})",
        where=f"checkpoint {checkpoint}",
        remedy="Stop that one first (it ends cleanly on SIGTERM), or set checkpoint_dir to another folder",
    )
