"""Locks that allow one job per checkpoint and one writer per lake; the OS releases them however the process ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rules.errors import NightjarError


class AlreadyRunningError(NightjarError):
    """Another process is using the same folder."""


@contextmanager
def sole_job(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint's lock inside the block. Raises AlreadyRunningError if another job holds it."""
    remedy = "Stop that one first (it ends cleanly on SIGTERM), or set checkpoint_dir to another folder"
    with _sole(checkpoint, f"checkpoint {checkpoint}", "a job is already running on it", remedy):
        yield


@contextmanager
def sole_writer(lake: Path) -> Iterator[None]:
    """Hold the lake's lock inside the block. Raises AlreadyRunningError if another archive or backfill holds it."""
    remedy = "Wait until it has finished; it may be an Airflow run"
    with _sole(lake, f"lake {lake}", "an archive or backfill is already running on it", remedy):
        yield


def refuse_running(checkpoint: Path) -> None:
    """Raise AlreadyRunningError if a job is running on the checkpoint."""
    if _lock_file(checkpoint).exists():
        with sole_job(checkpoint):
            pass


def _lock_file(checkpoint: Path) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.lock")


@contextmanager
def _sole(folder: Path, where: str, what: str, remedy: str) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = _lock_file(folder)
    with path.open("a+") as lock:
        if not locked(lock):
            holder = path.read_text() or "unknown"
            raise AlreadyRunningError(f"{what} (process {holder})", where=where, remedy=remedy)
        yield


def locked(lock: IO[str]) -> bool:
    """Lock an open file until it is closed and write this process's id into it; False if it is locked already."""
    # Not filelock: it does not name the holder, and how it treats the file has changed between releases.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return True
