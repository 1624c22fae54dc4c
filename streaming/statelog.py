"""A bucket's durable state: an append-only log of columnar deltas, merged in levels, and a small value on top.

How it works: each micro-batch appends one entry. When a level holds FAN_OUT entries they become one of the next level,
without the events that no rule can need any more; an entry all of whose events are past that is dropped unread. An
entry above LARGEST_MERGED bytes is merged no more, so nothing is ever rewritten whole; what merges around it is older
and newer than it, so that the order of entries says nothing of what is newest (see Ledger.restore). The head says which
entries there are and which versions each holds, so that an engine that has seen some of them reads only the others.

What it does not do: talk to a state store; `Entries` is all it asks of one.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.engine import Delta

FAN_OUT = 8
# Merging costs reading and writing the entries over a socket: beyond this a batch would wait for it.
LARGEST_MERGED = 512 << 10
# An engine further behind than this many batches is made anew.
REMEMBERED = 64
_SETTLED = 1 << 30  # the level of entries that take part in no merge
FIRST_INSTANT = -(1 << 55)  # some year before any event, within what Arrow can show
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Entries(Protocol):
    """Where entries are kept, by number."""

    def get(self, number: int) -> bytes:
        """The entry that was put under this number."""

    def put(self, number: int, value: bytes) -> None:
        """Keep an entry."""

    def remove(self, number: int) -> None:
        """Forget an entry."""


@dataclass(frozen=True)
class Entry:
    """One entry of the log: its number, level, last batch version, size in bytes, and the latest event time in µs."""

    number: int
    level: int
    last: int
    size: int
    latest: int


@dataclass(frozen=True)
class Head:
    """The small value: how many batches there were, each recent one's token, and the entries.

    clock: µs, how far arrival had come; counts: what was seen since the checkpoint began; unread: numbers of entries
    that hold no delta but events (wire.events_schema) that the next batch takes in with its own; failed: rule id,
    version and measure of every failure that was told.
    A token is drawn anew by every attempt at a batch, so that an engine which took part in an attempt that failed is
    told from one that is where the log is.
    """

    version: int = 0
    next_number: int = 0
    tokens: dict[int, str] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    clock: int = FIRST_INSTANT
    counts: dict[str, int] = field(default_factory=dict)
    unread: tuple[int, ...] = ()
    failed: tuple[tuple[str, int, str], ...] = ()

    def to_bytes(self) -> bytes:
        """The head as the state store keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes | None) -> Head:
        """The head from what the state store kept; a new one from None."""
        if value is None:
            return cls()
        read = json.loads(value)
        tokens = {int(version): token for version, token in read["tokens"].items()}
        entries = tuple(Entry(**entry) for entry in read["entries"])
        unread = tuple(read.get("unread", ()))
        failed = tuple((rule_id, version, measure) for rule_id, version, measure in read.get("failed", ()))
        return cls(**{**read, "tokens": tokens, "entries": entries, "unread": unread, "failed": failed})

    def holds(self, version: int, token: str) -> bool:
        """Whether an engine that is at this version by this token has seen a beginning of this log."""
        return self.tokens.get(version) == token

    def missing(self, version: int) -> list[Entry]:
        """The entries that hold what an engine at `version` has not seen, oldest first."""
        return [entry for entry in self.entries if entry.last > version]


class StateLog:
    """The log of one bucket. event_time: the column of the events' time."""

    def __init__(self, entries: Entries, event_time: str) -> None:
        self._entries = entries
        self._event_time = event_time

    def read(self, entry: Entry) -> Delta:
        """What an entry holds."""
        return read(self._entries.get(entry.number))

    def append(
        self,
        head: Head,
        delta: Delta,
        horizon: int,
        clock: int = FIRST_INSTANT,
        counts: Mapping[str, int] | None = None,
    ) -> Head:
        """Keep a batch's delta, merge what is due, and return the new head.

        horizon, clock: µs, as the engine's after the batch.
        """
        version, number, log = head.version + 1, head.next_number, list(head.entries)
        for entry in [entry for entry in log if entry.latest < horizon]:
            self._remove(entry, log)
        if delta.events.num_rows or delta.announcements.num_rows:
            log.append(self._write(number, 0, version, delta))
            number += 1
        level = 0
        while len(due := [entry for entry in log if entry.level == level]) >= FAN_OUT:
            merged = concat([self.read(entry) for entry in due], self._event_time, horizon)
            at = log.index(due[0])
            for entry in due:
                self._remove(entry, log)
            log.insert(at, self._write(number, level + 1, due[-1].last, merged))
            number += 1
            level += 1
        tokens = {**head.tokens, version: uuid.uuid4().hex[:12]}
        tokens.pop(version - REMEMBERED, None)
        return Head(version, number, tokens, tuple(log), max(head.clock, clock), dict(counts or {}))

    def _remove(self, entry: Entry, log: list[Entry]) -> None:
        self._entries.remove(entry.number)
        log.remove(entry)

    def _write(self, number: int, level: int, last: int, delta: Delta) -> Entry:
        value = write(delta)
        self._entries.put(number, value)
        times = [delta.events.column(self._event_time), delta.announcements.column("event_time")]
        latest = max((pc.max(column).cast(pa.int64()).as_py() for column in times if len(column)), default=0)
        return Entry(number, _SETTLED if len(value) > LARGEST_MERGED else level, last, len(value), latest)


def concat(deltas: list[Delta], event_time: str, horizon: int) -> Delta:
    """Deltas in their order as one, without events before `horizon` (µs); of each alert the last announcement."""
    # entries may be older than a field of the stream (see Engine.restore)
    events = pa.concat_tables([delta.events for delta in deltas], promote_options="default")
    said = pa.concat_tables([delta.announcements for delta in deltas])
    since = pa.scalar(max(horizon, FIRST_INSTANT)).cast(pa.timestamp("us", "UTC"))
    events = events.filter(pc.greater_equal(events.column(event_time), since))
    numbered = said.append_column("#", pa.array(np.arange(said.num_rows)))
    last = numbered.group_by(["event_id", "rule_id", "rule_version"]).aggregate([("#", "max")]).column("#_max")
    return Delta(events, said.take(np.sort(last.to_numpy())))


def write(delta: Delta) -> bytes:
    """A delta as bytes: two Arrow IPC streams one after the other, after the length of the first."""
    parts: list[bytes] = []
    for table in (delta.events, delta.announcements):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table)
        parts.append(sink.getvalue().to_pybytes())
    return struct.pack(">Q", len(parts[0])) + parts[0] + parts[1]


def read(value: bytes) -> Delta:
    """The delta that `write` wrote."""
    (length,) = struct.unpack_from(">Q", value)
    view = memoryview(value)
    streams = view[8 : 8 + length], view[8 + length :]
    return Delta(*(pa.ipc.open_stream(pa.py_buffer(part)).read_all() for part in streams))
