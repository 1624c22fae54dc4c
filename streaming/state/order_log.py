"""Purpose: which records were evaluated together, and in which order, while a real-time batch runs.

How it works: Spark writes a real-time batch's offsets at its end, but the batch's alerts leave before. What decides
them is the order in which records were evaluated. So a *group*, the records that are evaluated at once, is appended to
the log of its batch, on disk, before any result of it leaves the engine. After a crash Spark reads the batch's records
again, and the engine evaluates the logged groups in their order before anything else: the same state, and the same
records under the same ids and revisions. Once the batch is committed, the buckets' heads have its state, and its log
is removed.

Between two batches the engine reads events itself (real_time/between_batches.py), whose groups are the next batch's:
its log may begin before the batch is committed. If that never is, the next run repeats the batch, and what was read
after it belongs to it. If a batch ends before its tasks have brought what the engine had read by then, Spark's offsets
are behind the state, and the next batch's log begins with how far the state is *ahead*.

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
from typing import Any, NamedTuple, Self

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
    """The log of the batch of one version (see statelog.Head), open for writing; what earlier runs logged for it, or
    for the batch after it, is in `groups`.

    ahead: topic -> partition -> the offset after the last record that the state before the batch has, where it is after
    Spark's.
    """

    def __init__(self, folder: Path, version: int) -> None:
        """Open or create it, with what the log of the batch after it has."""
        self._folder, self._version = folder, version
        file = folder / _name(version)
        text = file.read_bytes() if file.exists() else b""
        groups, complete, self.ahead = _read(text)
        self.groups = tuple(groups)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.truncate(self._file, complete)
        os.lseek(self._file, 0, os.SEEK_END)
        self._run_id = groups[-1].run_id if groups else None
        _sync_folder(folder)
        self._take_in(folder / _name(version + 1))

    def _take_in(self, later: Path) -> None:
        """Append the groups of a later log, and remove it. A crash in between leaves some in both."""
        if not later.exists():
            return
        known = {(group.run_id, group.emitted_at) for group in self.groups}
        groups = _read(later.read_bytes()).groups
        new = [group for group in groups if (group.run_id, group.emitted_at) not in known]
        for group in new:
            self.append(group)
        self.sync()
        self.groups += tuple(new)
        later.unlink()
        _sync_folder(self._folder)

    def remove_earlier(self) -> None:
        """Remove the logs of earlier batches, which are committed."""
        for file in self._folder.glob(f"{_NAME}*"):
            if file.name != _name(self._version):
                file.unlink()

    def begin_ahead(self, ahead: Offsets) -> None:
        """Write how far the state before the batch is ahead; it counts once `sync` has returned."""
        self._write(_line({"ahead": ahead}))

    def append(self, group: Group) -> None:
        """Write a group; it counts once `sync` has returned."""
        lines = b""
        if group.run_id != self._run_id:
            lines = _line({"run_id": group.run_id})
            self._run_id = group.run_id
        self._write(lines + _line({"emitted_at": group.emitted_at, "ranges": group.ranges}))

    def _write(self, lines: bytes) -> None:
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
    """Follows the logs of the batch that runs and of the one after it, and knows how far their groups have read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version = 0
        self._read: dict[int, tuple[int, bytes]] = {}
        """Where the last line begins that was read of a version's log, and that line."""
        self._ends: dict[str, dict[int, int]] = {}
        self._last = self._took = 0

    def after(self, version: int) -> Offsets:
        """Topic -> partition -> the offset after the last record in a group that is not committed. version: of the
        batch that runs."""
        if version != self._version:
            self._version, self._read, self._ends = version, {}, {}
            self._last = self._took = 0
        for number in (version, version + 1):
            self._follow(number)
        return self._ends

    def _follow(self, number: int) -> None:
        """Read what a log has more than before."""
        begin, last = self._read.get(number, (0, b""))
        try:
            with (self._folder / _name(number)).open("rb") as file:
                file.seek(begin)
                text = file.read()
                if not text.startswith(last):  # it was taken in by the log before it, and has begun again
                    file.seek(0)
                    begin, last, text = 0, b"", file.read()
        except FileNotFoundError:
            return
        groups, complete, ahead = _read(text[len(last) :])
        lines = text[: len(last) + complete]
        at = lines.rfind(b"\n", 0, -1) + 1
        self._read[number] = begin + at, lines[at:]
        self._know(ahead)
        for group in groups:
            self._took += min(max(0, group.emitted_at - (self._last or group.emitted_at)), _LONGEST)
            self._last = group.emitted_at
            self._know({topic: {number: end for number, (_, end) in of.items()} for topic, of in group.ranges.items()})

    def _know(self, ends: Offsets) -> None:
        for topic, of in ends.items():
            self._ends.setdefault(topic, {}).update(of)

    def took(self, version: int) -> int:
        """How long it took to evaluate what is logged (µs), at most. What a job was down in between does not count."""
        self.after(version)
        return self._took


def _name(version: int) -> str:
    return f"{_NAME}{version}"


def _line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


class _Text(NamedTuple):
    """What the complete lines of a log have."""

    groups: list[Group]
    complete: int
    """How many bytes these lines have."""
    ahead: Offsets


def _read(text: bytes) -> _Text:
    groups, complete, run_id, ahead = list[Group](), 0, "", dict[str, dict[int, int]]()
    for value, end in _values(text):
        complete = end
        if "run_id" in value:
            run_id = value["run_id"]
        elif "ahead" in value:
            ahead = {topic: {int(p): offset for p, offset in of.items()} for topic, of in value["ahead"].items()}
        else:
            ranges = {topic: {int(p): (a, b) for p, (a, b) in of.items()} for topic, of in value["ranges"].items()}
            groups.append(Group(run_id, value["emitted_at"], ranges))
    return _Text(groups, complete, ahead)


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
