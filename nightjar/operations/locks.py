"""Locks that allow one job per checkpoint, one writer per lake and one notifier per outbox.

On a file system it is a lock that the OS releases however the process ends; in an object store, a lease
(nightjar/storage/lease.py).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from nightjar.rules.errors import NightjarError
from nightjar.storage.lease import Fence, HeldError, held, refuse_held
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath

_LEASE = "_lease"
_A_JOB = "a job is already running on it"
_STOP_JOB = "Stop that one first (it ends cleanly on SIGTERM), or set checkpoint_dir to another folder"


class AlreadyRunningError(NightjarError):
    """Another process is using the same folder."""


@contextmanager
def sole_job(checkpoint: AnyPath) -> Iterator[Fence | None]:
    """Hold the checkpoint's lock inside the block; in an object store the job's writers check the fence.

    Raises:
        AlreadyRunningError: another job holds it.
    """
    with _sole(checkpoint, f"checkpoint {checkpoint}", _A_JOB, _STOP_JOB) as fence:
        yield fence


@contextmanager
def sole_writer(lake: AnyPath) -> Iterator[Fence | None]:
    """Hold the lake's lock inside the block; in an object store its writers check the fence.

    Raises:
        AlreadyRunningError: another archive or backfill holds it.
    """
    remedy = "Wait until it has finished; it may be an Airflow run"
    with _sole(lake, f"lake {lake}", "an archive or backfill is already running on it", remedy) as fence:
        yield fence


@contextmanager
def sole_notifier(outbox: Path) -> Iterator[None]:
    """Hold the outbox' lock inside the block.

    Raises:
        AlreadyRunningError: another notifier holds it.
    """
    remedy = "Stop that one first, or set outbox to another file"
    with _sole(outbox, f"outbox {outbox}", "a notifier is already running on it", remedy):
        yield


def refuse_running(checkpoint: AnyPath) -> None:
    """Raise AlreadyRunningError if a job is running on the checkpoint."""
    if isinstance(checkpoint, ObjectPath):
        try:
            refuse_held(checkpoint / _LEASE)
        except HeldError as other:
            raise AlreadyRunningError(
                f"{_A_JOB} ({other})", where=f"checkpoint {checkpoint}", remedy=_STOP_JOB
            ) from None
    elif _lock_file(checkpoint).exists():
        with sole_job(checkpoint):
            pass


def _lock_file(checkpoint: Path) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.lock")


@contextmanager
def _sole(folder: AnyPath, where: str, what: str, remedy: str) -> Iterator[Fence | None]:
    if isinstance(folder, ObjectPath):
        with ExitStack() as cleanup:
            try:
                fence = cleanup.enter_context(held(folder / _LEASE))
            except HeldError as other:
                raise AlreadyRunningError(f"{what} ({other})", where=where, remedy=remedy) from None
            yield fence
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = _lock_file(folder)
    with path.open("a+") as lock:
        if not locked(lock):
            holder = path.read_text() or "unknown"
            raise AlreadyRunningError(f"{what} (process {holder})", where=where, remedy=remedy)
        yield None


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
