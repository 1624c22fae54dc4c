"""Purpose: the history of a bucket that it has not retained: how it is stored, and how the bucket takes it in.

How it works: an export (export_history.py) writes the events as entries of the bucket's log (statelog.py) into the
bucket's folder, and a list of them. No head refers to them. The answer ACTIVE of the version that waited for them names
the export. In the batch that brings this answer, each bucket that serves the version adds the entries to its log, gives
them to its engine, and lowers its horizon. So they are in the state once Spark commits the batch, and until then not,
as everything else of the batch.

Late events from before the horizon, which otherwise have no effect, are held from the moment at which a bucket knows
that a version waits: the export may have missed them. They are taken in with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.engine import Delta
from rules.engine.ledger import NO_ANNOUNCEMENTS
from rules.engine.store import ARRIVAL, LATE, MICROSECONDS, SEQ
from rules.engine.strings import StringTable
from rules.streams import Stream
from streaming.bucket import Bucket
from streaming.payloads import from_ipc, to_ipc
from streaming.state_files import STATE_LOST, BucketFiles, of_export
from streaming.statelog import LARGEST_MERGED, SETTLED, Entry, Head, StateLog, latest, write

# A worker reads a whole entry into memory.
ROWS_AN_ENTRY = 50_000
LIST = "list"


@dataclass(frozen=True)
class Exported:
    """The list of an export's entries for one bucket.

    since: event time (µs) from which on they are complete; first: the first position among arrivals that they may have.
    """

    since: int
    first: int
    entries: tuple[Entry, ...]


class ExportWriter:
    """Writes one bucket's entries. name: of the export; first: the position of the first event among arrivals."""

    def __init__(self, files: BucketFiles, stream: Stream, name: str, since: int, first: int) -> None:
        self._files, self._stream, self._name = files, stream, name
        self._since, self._first, self._next = since, first, first
        self._ids = StringTable()
        self._waiting: list[pa.Table] = []
        self._entries: list[Entry] = []

    def take(self, events: pa.Table) -> None:
        """Events in order of arrival (the stream's fields, arrival_time), of which the first of each id is kept."""
        fresh = first_arrivals(self._ids, events, self._stream, self._next)
        self._next += fresh.num_rows
        self._waiting.append(fresh)
        if sum(table.num_rows for table in self._waiting) >= ROWS_AN_ENTRY:
            self._write()

    def close(self) -> int:
        """Write the rest, and the list; returns the number of events."""
        self._write()
        listed = Exported(self._since, self._first, tuple(self._entries))
        self._files.put(of_export(self._name, LIST), msgspec.msgpack.encode(listed))
        return self._next - self._first

    def _write(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = pa.concat_tables(self._waiting), []
        for at in range(0, waiting.num_rows, ROWS_AN_ENTRY):
            delta = Delta(waiting.slice(at, ROWS_AN_ENTRY), NO_ANNOUNCEMENTS)
            name, value = of_export(self._name, str(len(self._entries))), write(delta)
            self._files.put(name, value)
            level = SETTLED if len(value) > LARGEST_MERGED else 0
            self._entries.append(Entry(name, level, 0, len(value), latest(delta, self._stream.event_time)))


def first_arrivals(known: StringTable, events: pa.Table, stream: Stream, begin: int) -> pa.Table:
    """The events whose ids are not among the `known` ones yet, the first of each, as an engine's delta has them.

    The ids are known afterwards.
    events: in order of arrival. begin: the position of the first among arrivals.
    """
    before = known.count
    codes, first = np.unique(known.intern(events.column(stream.event_id).combine_chunks()), return_index=True)
    fresh = events.take(pa.array(first[codes >= before]))
    arrival, time = (fresh.column(name).cast(pa.int64()) for name in (ARRIVAL, stream.event_time))
    late = pc.greater(pc.subtract(arrival, time), stream.allowed_lateness)
    seq = pa.array(range(begin, begin + fresh.num_rows), pa.int64())
    return fresh.select([*stream.fields, ARRIVAL]).append_column(SEQ, seq).append_column(LATE, late)


def take_in(bucket: Bucket, name: str, head: Head, version: int, files: BucketFiles) -> tuple[Head, Delta]:
    """Take in an export in the batch of this version: the head to append the batch to, and what to append besides.

    Raises RuntimeError (STATE_LOST) if its files are missing.
    """
    listed = of_export(name, LIST)
    try:
        export = msgspec.msgpack.decode(files.get(listed), type=Exported)
    except msgspec.DecodeError as failure:
        raise RuntimeError(f"{STATE_LOST}: {listed}: {failure}") from failure
    log, engine = StateLog(files, bucket.stream.event_time), bucket.engine
    arrived = bucket.stream.schema.append(pa.field(ARRIVAL, MICROSECONDS))
    numbered = arrived.append(pa.field(SEQ, pa.int64())).append(pa.field(LATE, pa.bool_()))
    delta = engine.prime(
        Delta(
            _together(numbered, bucket.stream, (log.read(entry).events for entry in export.entries)), NO_ANNOUNCEMENTS
        ),
        _together(arrived, bucket.stream, (from_ipc(files.get(entry)) for entry in head.held)),
        export.since,
    )
    entries = tuple(replace(entry, last=version) for entry in export.entries)
    primed = replace(
        head, entries=(*head.entries, *entries), horizon=min(head.horizon, engine.horizon), held=(), primed=True,
        first=min(head.first, export.first),
    )  # fmt: skip
    return primed, delta


def _together(schema: pa.Schema, stream: Stream, tables: Iterable[pa.Table]) -> pa.Table:
    """The tables as one of this schema; they may be older than a field of the stream."""
    found = (stream.completed(table).select(schema.names).cast(schema) for table in tables)
    return pa.concat_tables([schema.empty_table(), *found])


def held(bucket: Bucket, dead: pa.Table, head: Head, files: BucketFiles) -> tuple[str, ...]:
    """The names of the held events after a batch: with its own, while a version waits; none otherwise.

    dead: its late events from before the horizon that it began with.
    """
    if not bucket.awaits_history:
        return ()
    times = dead.column(bucket.stream.event_time).cast(pa.int64())
    wanted = dead.filter(pc.greater_equal(times, bucket.engine.needed_since))
    return (*head.held, files.put_new(to_ipc(wanted))) if wanted.num_rows else head.held
