"""Purpose: at most one holder of a folder in an object store, whichever host it is on, and no writes of earlier ones.

How it works: each holder has an epoch, one more than the holder before it. It claims the epoch by creating an object of
that number, which the store lets one succeed in. While it lives it rewrites a second object; whoever finds that one
unchanged for a while may claim the next epoch. A holder may be paused and come back, so a lease alone proves nothing:
every writer checks that no later epoch has been claimed (`Fence.check`) after it has read what its write depends on,
and what it then writes is ignored or the same as its successor's; docs/explanation/decisions says why.

What it does not do: compare the clocks of hosts. Silence is measured by whoever waits.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import structlog

from nightjar.rules.errors import NightjarError
from nightjar.storage.objects import ObjectPath, StorageError

_log = structlog.get_logger(__name__)

_CLAIMS, _ALIVE, _RELEASED = "epochs", "alive", "released"
_BEAT_SECONDS = 3.0
# After so long without a beat the holder is taken for dead. Fencing makes a wrong guess harmless.
SILENCE_SECONDS = 20.0
_LOOK_SECONDS = 0.5


class LostLeaseError(NightjarError):
    """Another process has taken over."""


class HeldError(Exception):
    """Another process holds the lease; the text names it."""


@dataclass(frozen=True)
class Fence:
    """A holder's epoch. It goes with the work to all processes that write."""

    folder: ObjectPath
    epoch: int

    @property
    def name(self) -> str:
        """The epoch as the name of a file or folder; names sort as epochs do."""
        return f"{self.epoch:08d}"

    def check(self) -> None:
        """Raise LostLeaseError if a later epoch has been claimed."""
        for later in (self.folder / _CLAIMS).after(self.name):
            raise LostLeaseError(
                f"another process has taken over ({_described(_claim(later))}); this one stops",
                where=str(self.folder.parent),
                remedy="If it was paused for long, nothing is wrong; else stop one of the two",
            )


@contextmanager
def held(folder: ObjectPath) -> Iterator[Fence]:
    """Hold the lease whose objects are in this folder.

    Raises:
        HeldError: another process holds it.
    """
    fence = Fence(folder, _free_epoch(folder))
    if not (folder / _CLAIMS / fence.name).create(json.dumps(_myself()).encode()):
        raise HeldError("another process that has just started")
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(folder / _ALIVE / fence.name, ended), name="lease", daemon=True)
    beating.start()
    _remove_earlier(fence)
    try:
        yield fence
    finally:
        ended.set()
        beating.join()
        try:
            (folder / _RELEASED / fence.name).write_bytes(b"released")
        except StorageError as failure:  # the next holder waits until this one is silent
            _log.warning("the lease cannot be released", reason=str(failure))


def refuse_held(folder: ObjectPath) -> None:
    """Raise HeldError if a process holds the lease."""
    _free_epoch(folder)


def _free_epoch(folder: ObjectPath) -> int:
    """The epoch that may be claimed; waits until the holder of the one before has been silent for long enough."""
    last = max((each.name for each in (folder / _CLAIMS).iterdir()), default=None)
    if last is None:
        return 1
    holder = _claim(folder / _CLAIMS / last)
    before, until = _content(folder / _ALIVE / last), time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < until and not ((folder / _RELEASED / last).is_file() or _is_gone(holder)):
        time.sleep(_LOOK_SECONDS)
        if _content(folder / _ALIVE / last) != before:
            raise HeldError(_described(holder))
    return int(last) + 1


def _remove_earlier(fence: Fence) -> None:
    """Remove the objects of epochs before this one, which nobody looks at any more."""
    for kind in (_CLAIMS, _ALIVE, _RELEASED):
        for each in (fence.folder / kind).iterdir():
            if each.name < fence.name:
                each.unlink(missing_ok=True)


def _beat(file: ObjectPath, ended: threading.Event) -> None:
    number = 0
    while True:
        number += 1
        try:
            file.write_bytes(str(number).encode())
        except StorageError as failure:
            _log.warning("the lease cannot be renewed", reason=str(failure))
        if ended.wait(_BEAT_SECONDS):
            return


def _content(file: ObjectPath) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _claim(file: ObjectPath) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _myself() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "space": _process_space(),
        "started": psutil.Process().create_time(),
    }


def _described(holder: dict[str, Any]) -> str:
    return f"process {holder.get('process', 'unknown')} on {holder.get('host', 'an unknown host')}"


def _is_gone(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this very machine and container, and has ended."""
    if not holder.get("space") or holder["space"] != _process_space():
        return False
    try:
        return bool(psutil.Process(int(holder["process"])).create_time() != holder["started"])
    except (psutil.NoSuchProcess, KeyError, ValueError):
        return True


def _process_space() -> str:
    """Names this boot of this machine and, in a container, its own processes; empty where the system has no names."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  the name is no path
    except OSError:
        return ""
