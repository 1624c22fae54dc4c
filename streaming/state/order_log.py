"""Purpose: which records were evaluated together, and in which order, while a real-time batch runs.

How it works: Spark writes a real-time batch's offsets at its end, but the batch's alerts leave before. What decides
them is the order in which records were evaluated. So a *group*, the records that are evaluated at once, is appended to
the log of its batch, on disk, before any result of it leaves the engine. After a crash Spark reads the batch's records
again, and the engine evaluates the logged groups in their order before anything else: the same state, and the same
records under the same ids and revisions. Once the batch is committed, the buckets' heads have its state, and its log
is removed.

A line is a checksum and JSON, so the last line, which a crash may have torn, is not mistaken for a group: nothing of
a group whose line is incomplete has left.

What it does not do: hold records. Kafka does.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nightjar.rules.errors import NightjarError
from nightjar.streaming.state.metadata import Offsets

_NAME = "order-"
# A group is evaluated in less (µs): a longer time between two is not that of the first.
_LONGEST = 60_000_000

# Of a group, by topic and partition: the offset of its first record, and the one after its last.
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True)
class Group:
    """Records that are evaluated at once."""

    run_id: str
    """The run that evaluated them first, whose clocks count."""
    emitted_at: int
    """When, µs."""
    ranges: Ranges

    def places(self) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
        """Topic and partition, and their range."""
        return (((topic, number), found) for topic, of in self.ranges.items() for number, found in of.items())


class OrderLog:
    """The log of the batch of one version (see statelog.Head), open for writing; what an earlier run logged is in
    `groups`."""

    def __init__(self, folder: Path, version: int) -> None:
        """Open or create it, and remove those of earlier batches, which are committed."""
        for file in folder.glob(f"{_NAME}*"):
            if file.name != _name(version):
                file.unlink()
        file = folder / _name(version)
        text = file.read_bytes() if file.exists() else b""
        groups, complete = _read(text)
        self.groups = tuple(groups)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.truncate(self._file, complete)
        os.lseek(self._file, 0, os.SEEK_END)
        self._run_id = groups[-1].run_id if groups else None
        _sync_folder(folder)

    def append(self, group: Group) -> None:
        """Write a group; it counts once `sync` has returned."""
        lines = b""
        if group.run_id != self._run_id:
            lines = _line({"run_id": group.run_id})
            self._run_id = group.run_id
        lines += _line({"emitted_at": group.emitted_at, "ranges": group.ranges})
        if os.write(self._file, lines) != len(lines):
            raise OSError("the order log could not be written: is the disk full?")

    def sync(self) -> None:
        """Wait until what was appended is on the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LoggedPositions:
    """Follows the log of the running batch, and knows how far its groups have read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version, self._read = 0, 0
        self._ends: dict[str, dict[int, int]] = {}
        self._last = self._took = 0

    def after(self, version: int) -> Offsets:
        """Topic -> partition -> the offset after the last record in a group of the batch of this version."""
        if version != self._version:
            self._version, self._read, self._ends = version, 0, {}
            self._last = self._took = 0
        try:
            with (self._folder / _name(version)).open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return {}
        groups, complete = _read(text)
        self._read += complete
        for group in groups:
            self._took += min(max(0, group.emitted_at - (self._last or group.emitted_at)), _LONGEST)
            self._last = group.emitted_at
            for topic, of in group.ranges.items():
                self._ends.setdefault(topic, {}).update({partition: end for partition, (_, end) in of.items()})
        return self._ends

    def took(self, version: int) -> int:
        """How long it took to evaluate what is logged (µs), at most. What a job was down in between does not count."""
        self.after(version)
        return self._took


def _name(version: int) -> str:
    return f"{_NAME}{version}"


def _line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _read(text: bytes) -> tuple[list[Group], int]:
    """The groups of the complete lines, and how many bytes these have."""
    groups, complete, run_id = list[Group](), 0, ""
    for value, end in _values(text):
        complete = end
        if "run_id" in value:
            run_id = value["run_id"]
        else:
            ranges = {topic: {int(p): (a, b) for p, (a, b) in of.items()} for topic, of in value["ranges"].items()}
            groups.append(Group(run_id, value["emitted_at"], ranges))
    return groups, complete


def _values(text: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """The value of each complete line, and where it ends.

    Raises:
        NightjarError: a line that is not the last one is damaged.
    """
    at = 0
    while (end := text.find(b"\n", at)) >= 0:
        checksum, _, value = text[at:end].partition(b" ")
        if checksum != b"%08x" % zlib.crc32(value):
            if text.find(b"\n", end + 1) < 0:
                return
            raise NightjarError(
                "the order log of the checkpoint is damaged",
                where=f"byte {at}",
                remedy="`nightjar stream rebuild` writes a new checkpoint from the lake",
            )
        yield json.loads(value), end + 1
        at = end + 1


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
