"""Purpose: the history of a bucket that it has not retained: how it is stored, and how the bucket takes it in.

How it works: an export (priming/export_history.py) writes the events as entries of the bucket's log (state/statelog.py)
into the bucket's folder, and a list of them. No head refers to them. The answer ACTIVE of the version that waited for
them names the export. In the batch that brings this answer, each bucket that serves the version adds the entries to its
log, gives them to its engine, and lowers its horizon. So they are in the state once Spark commits the batch, and until
then not, as everything else of the batch.

Late events from before the horizon, which otherwise have no effect, are held from the moment at which a bucket knows
that a version waits: the export may have missed them. They are taken in with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nightjar.rules.engine import Delta, Engine
from nightjar.rules.engine.folding import MOST_LATE
from nightjar.rules.engine.folds import concatenated
from nightjar.rules.engine.ledger import NO_ANNOUNCEMENTS
from nightjar.rules.engine.past import Past, PastFolder
from nightjar.rules.engine.plan import Fold
from nightjar.rules.engine.store import ARRIVAL, LATE, LONG_AGO, SEQ
from nightjar.rules.engine.strings import Int64Array, StringTable
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet
from nightjar.streaming.buckets.bucket import Bucket
from nightjar.streaming.buckets.payloads import from_ipc, to_ipc
from nightjar.streaming.state.state_files import STATE_LOST, BucketFiles, of_export
from nightjar.streaming.state.statelog import (
    FIRST_INSTANT,
    LARGEST_MERGED,
    SETTLED,
    Entry,
    Head,
    StateLog,
    latest,
    read,
    write,
)

# A worker reads a whole entry into memory.
ROWS_AN_ENTRY = 50_000
LIST = "list"
Truths = NDArray[np.bool_]


@dataclass(frozen=True)
class Lack:
    """What a bucket lacks, in event times (µs)."""

    since: int
    """The first single event that it lacks, as all up to `horizon`."""
    horizon: int
    always: Mapping[int, int] = field(default_factory=dict)
    """The offset by partition before which the bucket has no event at all."""
    steps: Mapping[Fold, int] = field(default_factory=dict)
    """By fold, since when it lacks steps, as all up to `complete`."""
    complete: Mapping[Fold, int] = field(default_factory=dict)
    until: int = FIRST_INSTANT
    """Events before it are for steps, whatever single events are needed for."""
    settled: int = FIRST_INSTANT
    """The stream evaluates no event before it any more: what is lacking is what later ones need."""

    @property
    def earliest(self) -> int:
        """The first that it lacks, as such or for steps."""
        return min([self.since, *self.steps.values()])

    @property
    def latest(self) -> int:
        """From there on it lacks nothing, but for the events before `always`."""
        return max([self.horizon, *(min(self.complete[fold], self.until) for fold in self.steps)])

    def rows(self, times: Int64Array, unread: Truths) -> Truths:
        """Which events are lacking as such. times: of each, µs; unread: those before the offsets of `always`."""
        return (times >= self.since) & ((times < self.horizon) | unread)

    def folded(self, times: Int64Array, unread: Truths) -> dict[Fold, Truths]:
        """Which events each fold lacks."""
        return {
            fold: (times >= since) & (times < self.until) & ((times < self.complete[fold]) | unread)
            for fold, since in self.steps.items()
        }

    def unread(self, events: pa.Table) -> Truths:
        """Which events are before the offsets of `always`."""
        found: Truths = np.zeros(events.num_rows, np.bool_)
        for partition, end in self.always.items():
            partitions, offsets = (events.column(name).to_numpy() for name in ("partition", "offset"))
            found |= (partitions == partition) & (offsets < end)
        return found


@dataclass(frozen=True)
class Exported:
    """The list of an export's entries for one bucket."""

    since: int
    """Event time (µs) from which on they are complete."""
    first: int
    """The first position among arrivals that they may have."""
    entries: tuple[Entry, ...]
    ends: dict[int, int] = field(default_factory=dict)
    """The offset by partition up to which they are complete."""
    steps: tuple[str, ...] = ()
    """The files that hold steps of folds."""
    folds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """See rules.engine.past.Past.spans."""
    until: int = FIRST_INSTANT
    settled: int = FIRST_INSTANT
    """See Lack."""


class ExportWriter:
    """Writes one bucket's entries. name: of the export; first: the position of the first event among arrivals; ends: of
    the events, see Exported."""

    def __init__(
        self, files: BucketFiles, stream: Stream, name: str, lack: Lack, *, first: int, ends: Mapping[int, int]
    ) -> None:
        self._files, self._stream, self._name = files, stream, name
        self._lack, self._first, self._next, self._ends = lack, first, first, ends
        self._ids = StringTable()
        self._waiting: list[pa.Table] = []
        self._entries: list[Entry] = []
        self._past = PastFolder(stream, [*lack.steps], MOST_LATE * stream.allowed_lateness)
        self.events = 0

    def take(self, events: pa.Table) -> None:
        """Events in order of arrival (the stream's fields, arrival_time, partition, offset), of which the first of each
        id is kept, as far as they are lacking."""
        lack, unread = self._lack, self._lack.unread(events)
        times = events.column(self._stream.event_time).cast(pa.int64()).to_numpy()
        rows, folded = lack.rows(times, unread), lack.folded(times, unread)
        lacking = np.flatnonzero(np.logical_or.reduce([rows, *folded.values()]))
        first = lacking[first_of_ids(self._ids, events.column(self._stream.event_id).take(pa.array(lacking)))]
        self.events += len(first)
        fresh = events.take(pa.array(first))
        if len(first) and folded:
            self._past.add(fresh, {fold: wanted[first] for fold, wanted in folded.items()})
        kept = numbered(fresh.filter(pa.array(rows[first])), self._stream, self._next)
        self._next += kept.num_rows
        self._waiting.append(kept)
        if sum(table.num_rows for table in self._waiting) >= ROWS_AN_ENTRY:
            self._write()

    def close(self) -> int:
        """Write the rest, and the list; returns the number of events."""
        self._write()
        steps, nothing = list[str](), Engine(self._stream, RuleSet()).snapshot()
        for key, table in self._past.folded().items():
            for at in range(0, table.num_rows, ROWS_AN_ENTRY):
                steps.append(of_export(self._name, f"steps-{len(steps)}"))
                self._files.put(steps[-1], write(replace(nothing, folds={key: table.slice(at, ROWS_AN_ENTRY)})))
        lack = self._lack
        folds = {fold.name: (since, min(lack.complete[fold], lack.until)) for fold, since in lack.steps.items()}
        entries, ends = tuple(self._entries), dict(self._ends)
        listed = Exported(lack.since, self._first, entries, ends, tuple(steps), folds, lack.until, lack.settled)
        self._files.put(of_export(self._name, LIST), msgspec.msgpack.encode(listed))
        return self.events

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
    return numbered(events.take(pa.array(first_of_ids(known, events.column(stream.event_id)))), stream, begin)


def first_of_ids(known: StringTable, ids: pa.ChunkedArray) -> Int64Array:
    """The indices of the ids that are not among the `known` ones yet, the first of each. They are known afterwards."""
    before = known.count
    codes, first = np.unique(known.intern(ids.combine_chunks()), return_index=True)
    return first[codes >= before]


def numbered(events: pa.Table, stream: Stream, begin: int) -> pa.Table:
    """Events as an engine's delta has them. begin: the position of the first among arrivals."""
    arrival, time = (events.column(name).cast(pa.int64()) for name in (ARRIVAL, stream.event_time))
    late = pc.greater(pc.subtract(arrival, time), stream.allowed_lateness)
    seq = pa.array(range(begin, begin + events.num_rows), pa.int64())
    return events.select([*stream.fields, ARRIVAL]).append_column(SEQ, seq).append_column(LATE, late)


@dataclass(frozen=True)
class Taken:
    """An export that was taken in: the head to append the batch to, what to append besides, and files not needed any
    more."""

    head: Head
    delta: Delta
    gone: list[str]


def take_in(bucket: Bucket, name: str, head: Head, version: int, files: BucketFiles) -> Taken:
    """Take in an export in the batch of this version. Raises RuntimeError (STATE_LOST) if its files are missing."""
    listed = of_export(name, LIST)
    try:
        export = msgspec.msgpack.decode(files.get(listed), type=Exported)
    except msgspec.DecodeError as failure:
        raise RuntimeError(f"{STATE_LOST}: {listed}: {failure}") from failure
    log, engine = StateLog(files, bucket.stream.event_time), bucket.engine
    arrived = bucket.stream.schema.append(pa.field(ARRIVAL, INSTANT))
    in_entries = arrived.append(pa.field(SEQ, pa.int64())).append(pa.field(LATE, pa.bool_()))
    folds = concatenated((read(files.get(each)).folds for each in export.steps), LONG_AGO)
    fresh = [_unknown(engine, log, entry, version) for entry in export.entries]
    delta = engine.prime(
        Delta(_together(in_entries, bucket.stream, (events for _, events in fresh)), NO_ANNOUNCEMENTS),
        _together(arrived, bucket.stream, (_after(from_ipc(files.get(entry)), export.ends) for entry in head.held)),
        export.since,
        Past(name, export.folds, folds, export.until),
        settled=export.settled,
    )
    entries = tuple(replace(entry, last=version) for entry, _ in fresh)
    gone = [before.name for before, (after, _) in zip(export.entries, fresh, strict=True) if before.name != after.name]
    primed = msgspec.structs.replace(
        head,
        entries=(*head.entries, *entries),
        horizon=min(head.horizon, engine.horizon),
        held=(),
        primed=True,
        first=min(head.first, export.first),
    )
    return Taken(primed, delta, [listed, *export.steps, *gone])


def _unknown(engine: Engine, log: StateLog, entry: Entry, version: int) -> tuple[Entry, pa.Table]:
    """The events of an entry whose ids the engine does not know, and an entry that has these alone: whoever reads the
    state again could not tell which of two events of one id had been there before."""
    delta = log.read(entry)
    events = engine.unknown(delta.events)
    if events.num_rows < delta.events.num_rows:
        entry = log.write_ahead(version, replace(delta, events=events))
    return entry, events


def _after(events: pa.Table, ends: Mapping[int, int]) -> pa.Table:
    """Those of the held events that an export does not have."""
    partitions = events.column("partition").to_numpy()
    known = np.array([ends.get(partition, 0) for partition in partitions.tolist()], np.int64)
    return events.filter(pa.array(events.column("offset").to_numpy() >= known))


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
