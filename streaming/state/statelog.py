"""A bucket's durable state: an append-only log of columnar deltas, merged in levels, and a small value on top.

How it works: each micro-batch appends one entry, a real-time batch several. Every FAN_OUT batches each level that holds
FAN_OUT entries is merged into one entry of the next level, without the events and steps
(nightjar/rules/engine/steps.py) that no rule can need any more; an entry with only such is dropped unread. Buckets take
turns: if all merged in the same batch, it would be slow. An entry above LARGEST_MERGED bytes is not merged again, so
the log is never rewritten as a whole; entries on both sides of it are merged with each other, so the order of entries
is not the order of age (see Ledger.restore). The head lists the entries and their versions, so that an engine that has
seen some of them reads only the others. An entry never changes once it is written, and each attempt at a batch writes
it under a new name. A small one is in the head itself: most batches of a bucket write one file.

What it does not do: store anything; it is given `Entries` for that (state_files.py).
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine import Delta, Position
from nightjar.rules.engine.folds import STEP, concatenated
from nightjar.rules.engine.ledger import completed
from nightjar.rules.types import INSTANT

FAN_OUT = 8
# Merging costs reading and writing the entries: beyond this a batch would wait for it.
LARGEST_MERGED = 512 << 10
# Maximum bytes of an entry inside the head, which each batch rewrites.
LARGEST_IN_HEAD = 8 << 10
# An engine further behind than this many batches is rebuilt.
REMEMBERED = 64
SETTLED = 1 << 30  # the level of entries that are never merged
NOTHING = -1  # the version of a head before anything is written
FIRST_INSTANT = -(1 << 55)  # earlier than any event, within Arrow's range
# From this many events on, texts are dictionary-encoded if less than half of them are distinct: an engine then looks up
# each distinct text once per entry, not once per event. So many are looked at first: ids are not encoded in vain.
ENCODED_FROM = 1024
_REPEATED = 0.03  # the least share of them that repeats another, if less than half of some 30,000 are distinct
_LARGEST_TEXT = (1 << 31) - 1  # bytes that an Arrow array of strings can have
_KEY = b"steps"  # of a schema's metadata: the group-by and resolution of a table of steps
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Entries(Protocol):
    """Storage of entries, by name."""

    def get(self, name: str) -> bytes:
        """Read the entry of this name."""

    def put(self, name: str, value: bytes) -> None:
        """Store an entry."""


@dataclass(frozen=True)
class Entry:
    """One entry of the log."""

    name: str
    level: int
    last: int
    """The last version that it holds."""
    size: int
    """Bytes."""
    latest: int
    """The latest event time (µs) that it is needed for."""
    value: bytes = b""
    """The entry itself, if it is not a separate file."""
    stepped: int = FIRST_INSTANT
    """The begin of the latest step, µs."""
    events: int = 0
    """How many it holds; 0 in heads of releases that did not note it."""


class Head(msgspec.Struct, frozen=True):
    """The small value: the version of the last batch, and all that a bucket has beside the entries of its log.

    Every attempt at a batch has a new random token, which distinguishes an engine that took part in a failed attempt
    from one that is up to date with the log.
    """

    version: int = NOTHING
    """One more than the batch's number; 0: of a checkpoint's initial state; NOTHING: no state yet."""
    tokens: dict[int, str] = {}
    """Of recent versions."""
    entries: tuple[Entry, ...] = ()
    stale: tuple[str, ...] = ()
    """Entries of the previous head that this one no longer has; they are removed once this one is committed."""
    clock: int = FIRST_INSTANT
    """The stream's clock, µs."""
    settled: int = FIRST_INSTANT
    """The engine's, event time in µs."""
    horizon: int = FIRST_INSTANT
    """The engine's, event time in µs."""
    counts: dict[str, int] = {}
    """Since the checkpoint began."""
    unread: tuple[str, ...] = ()
    """Names of entries that hold no delta but events (events_schema) for the next batch to process with its own."""
    rules: str = ""
    """Name of the entry that holds the answers received since a start of the job."""
    failed: tuple[tuple[str, int, str], ...] = ()
    """Rule id, version and measure of each reported failure."""
    held: tuple[str, ...] = ()
    """Names of entries with late events (events_schema) from before the horizon, which came while a version waited for
    its history."""
    primed: bool = False
    """Whether history has been taken in (priming/priming.py)."""
    first: int = 0
    """The first position among arrivals that the history's events have; 0: none."""
    capped: tuple[tuple[str, int, int, int, int | None], ...] = ()
    """HourlyCap.entries."""
    folds: dict[str, tuple[int, int]] = {}
    """See rules.engine.Position.held."""
    tables: int = 0
    """The position up to which changes of tables are known (buckets/table_follower.py)."""
    # The names on disk of the next two are those of earlier releases.
    steps_version: int = msgspec.field(default=NOTHING, name="folded")
    """The version that last added steps."""
    folded: int = msgspec.field(default=FIRST_INSTANT, name="unfolded")
    """See rules.engine.Position, µs."""

    @property
    def position(self) -> Position:
        """How far the engine had come."""
        return Position(self.clock, self.settled, self.horizon, self.folds, self.folded)

    def to_bytes(self) -> bytes:
        """The head as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, value: bytes) -> Head:
        """The head that `to_bytes` wrote.

        Raises:
            msgspec.DecodeError: it is anything else.
        """
        return msgspec.msgpack.decode(value, type=cls)

    @property
    def names(self) -> set[str]:
        """The entries in use that are files."""
        return {*_files(self.entries), *self.unread, *self.held, *([self.rules] if self.rules else [])}

    def holds(self, version: int, token: str) -> bool:
        """Whether an engine with this version and token has seen a beginning of this log that it can continue from.

        Steps add up, and an entry may hold some that the engine has and some that it has not.
        """
        return self.tokens.get(version) == token and version >= self.steps_version

    def missing(self, version: int) -> list[Entry]:
        """The entries that hold what an engine at `version` has not seen, oldest first."""
        return [entry for entry in self.entries if entry.last > version]


def _files(entries: Iterable[Entry]) -> set[str]:
    return {entry.name for entry in entries if not entry.value}


class StateLog:
    """The log of one bucket. event_time: the column of the events' time; number: the bucket's, which sets its turn."""

    def __init__(self, entries: Entries, event_time: str, number: int = 0) -> None:
        self._entries = entries
        self._event_time = event_time
        self._number = number

    def read(self, entry: Entry) -> Delta:
        """The delta of an entry."""
        return read(entry.value or self._entries.get(entry.name))

    def append(
        self,
        head: Head,
        delta: Delta,
        position: Position,
        counts: Mapping[str, int] | None = None,
        *,
        version: int | None = None,
        written: Sequence[Entry] = (),
    ) -> Head:
        """Append a batch's delta, merge what is due, and return the new head.

        position: the engine's after the batch. version: of the batch; None: the next. written: entries with its
        earlier deltas.
        """
        version = head.version + 1 if version is None else version
        token = uuid.uuid4().hex[:12]
        names = (f"{version}-{token}-{number}" for number in itertools.count())
        before = *head.entries, *written
        log = [e for e in before if e.latest >= position.horizon or e.stepped >= position.since]
        files = _files(before)
        if delta.events.num_rows or delta.announcements.num_rows or delta.folds:
            log.append(self._write(next(names), 0, version, delta))
        # a bucket without events in the batches of its turn merges at last
        enough = 2 * FAN_OUT if (version + 1 + self._number) % FAN_OUT else FAN_OUT
        level = 0
        while len(due := [entry for entry in log if entry.level == level]) >= enough:
            merged = concat([self.read(entry) for entry in due], self._event_time, position)
            log[log.index(due[0])] = self._write(next(names), level + 1, due[-1].last, merged)
            log = [entry for entry in log if entry not in due]
            files |= _files(due)
            level += 1
        tokens = dict(itertools.islice(sorted({**head.tokens, version: token}.items(), reverse=True), REMEMBERED))
        stale = files - _files(log)
        return msgspec.structs.replace(
            head,
            version=version,
            tokens=tokens,
            entries=tuple(log),
            stale=tuple(sorted(stale)),
            clock=max(head.clock, position.clock),
            settled=max(head.settled, position.settled),
            horizon=max(head.horizon, position.horizon),
            counts=dict(counts or {}),
            folds=dict(position.held),
            steps_version=version if delta.folds or any(map(_has_steps, written)) else head.steps_version,
            folded=max(head.folded, position.folded),
        )

    def write_ahead(self, version: int, delta: Delta) -> Entry:
        """An entry with a part of a batch's delta, which is in no head yet."""
        return self._write(f"{version}-{uuid.uuid4().hex[:12]}", 0, version, delta)

    def _write(self, name: str, level: int, last: int, delta: Delta) -> Entry:
        value = write(delta)
        inside = len(value) <= LARGEST_IN_HEAD
        if not inside:
            self._entries.put(name, value)
        stepped = max((pc.max(table.column(STEP)).as_py() for table in delta.folds.values()), default=FIRST_INSTANT)
        level = SETTLED if len(value) > LARGEST_MERGED else level
        until = latest(delta, self._event_time)
        return Entry(name, level, last, len(value), until, value if inside else b"", stepped, delta.events.num_rows)


def _has_steps(entry: Entry) -> bool:
    return entry.stepped > FIRST_INSTANT


def latest(delta: Delta, event_time: str) -> int:
    """The latest event time (µs) that a delta is needed for. event_time: the column of the events' time."""
    times = [delta.events.column(event_time).cast(pa.int64()), _needed_until(delta.announcements)]
    return max((pc.max(column).as_py() for column in times if len(column)), default=0)


def concat(deltas: list[Delta], event_time: str, position: Position) -> Delta:
    """Deltas merged in order, with what an engine at the position can still need.

    These are the events from its horizon on, the steps that still count, and the latest announcement of each alert
    about an event from `announced_since` on. An alert of a rule with `mute` is needed for so long after its event.
    """
    # entries may be older than a field of the stream (see Engine.restore)
    events = pa.concat_tables([_decoded(delta.events) for delta in deltas], promote_options="default")
    # as one chunk: each is written by itself, and there would be one for each batch that is in the entries
    events = _since(events.combine_chunks(), event_time, position.horizon)
    announcements = pa.concat_tables([delta.announcements for delta in deltas]).combine_chunks()
    announcements = announcements.filter(pc.greater_equal(_needed_until(announcements), position.announced_since))
    numbered = announcements.append_column("#", pa.array(np.arange(announcements.num_rows)))
    alert = ["event_id", "event_time", "rule_id", "rule_version"]
    last = numbered.group_by(alert).aggregate([("#", "max")]).column("#_max")
    folds = concatenated((delta.folds for delta in deltas), position.since)
    return Delta(events, announcements.take(np.sort(last.to_numpy())), folds)


def _needed_until(announcements: pa.Table) -> pa.ChunkedArray:
    """Until when (µs) each is needed, as event time that is not settled."""
    return pc.add(announcements.column("event_time").cast(pa.int64()), announcements.column("mute"))


def _since(table: pa.Table, column: str, time: int) -> pa.Table:
    bound = pa.scalar(max(time, FIRST_INSTANT)).cast(INSTANT)
    return table.filter(pc.greater_equal(table.column(column), bound))


def write(delta: Delta) -> bytes:
    """A delta as bytes: Arrow IPC streams one after the other, of its events, its announcements, and what events have
    been folded into, after the length of the first."""
    streams = [_stream(_encoded(delta.events)), _stream(delta.announcements)]
    streams += [_stream(table.replace_schema_metadata({_KEY: key})) for key, table in delta.folds.items()]
    return struct.pack(">Q", len(streams[0])) + b"".join(streams)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _encoded(events: pa.Table) -> pa.Table:
    """The events, with texts that repeat dictionary-encoded."""
    for at, column in enumerate(events.columns if events.num_rows >= ENCODED_FROM else ()):
        if column.type != pa.string() or column.nbytes > _LARGEST_TEXT:
            continue
        if pc.count_distinct(column.slice(0, ENCODED_FROM)).as_py() > (1 - _REPEATED) * ENCODED_FROM:
            continue
        encoded = column.dictionary_encode()
        if 2 * len(encoded.chunk(0).dictionary) < len(encoded):
            events = events.set_column(at, events.field(at).with_type(encoded.type), encoded)
    return events


def _decoded(events: pa.Table) -> pa.Table:
    """The reverse of `_encoded`."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in events.schema]
    return events.cast(pa.schema(fields))


def read(value: bytes) -> Delta:
    """The delta that `write` wrote; texts of its events may be dictionary-encoded."""
    (length,) = struct.unpack_from(">Q", value)
    view = memoryview(value)
    events = pa.ipc.open_stream(pa.py_buffer(view[8 : 8 + length])).read_all()
    rest = pa.BufferReader(pa.py_buffer(view[8 + length :]))
    announcements = pa.ipc.open_stream(rest).read_all()
    folds = {}
    while rest.tell() < rest.size():
        table = pa.ipc.open_stream(rest).read_all()
        folds[table.schema.metadata[_KEY].decode()] = table.replace_schema_metadata(None)
    return Delta(events, completed(announcements), folds)
