"""The initial state of a rebuilt checkpoint, bucket by bucket.

How it works: events that the stream had read, in order of arrival, become entries of the bucket's log
(state/statelog.py), followed by the alerts that had been emitted. Events that it had not read, and that Kafka no longer
has, are stored beside them for the bucket's first batch.

What it does not do: evaluate. Emitted alerts are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from nightjar.ingestion.event_schema import PRIMARY, SHUFFLED_BY, events_schema
from nightjar.rules.engine import Delta, Engine, Position
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.engine.strings import StringTable
from nightjar.rules.rulebook import WHOLE_STREAM, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet
from nightjar.storage.paths import AnyPath
from nightjar.streaming.buckets.bucket import Bucket
from nightjar.streaming.buckets.payloads import to_ipc
from nightjar.streaming.buckets.primed_state import ROWS_AN_ENTRY, first_arrivals
from nightjar.streaming.config import JobConfig
from nightjar.streaming.partitioning import buckets_of, divided
from nightjar.streaming.state.state_files import BucketFiles, files_of
from nightjar.streaming.state.statelog import FIRST_INSTANT, Head, StateLog


@dataclass(frozen=True)
class Share:
    """One shuffle key's share of the state."""

    config: JobConfig
    stream: Stream
    shuffle_key: ShuffleKey
    number: int
    """Of the shuffle key."""
    primary: bool
    """Whether it is the first of its stream, which reports late events."""
    clock: int | None
    """The stream's clock, µs; None if unknown."""
    horizon: int
    """Event time (µs) from which the rules can still need events."""
    settled: int
    """Event time (µs) before which no event is evaluated again, but by rules that wait for what follows it."""
    announced_since: int
    """Event time (µs) before which no alert is announced, revised or retracted any more."""


def share_of(config: JobConfig, book: RuleBook, number: int, clock: int | None) -> Share:
    """The share of the shuffle key with this number, by the rules of the book."""
    key = book.shuffle_keys[number]
    stream, first = config.streams[key.stream], next(r for r in book.shuffle_keys if r.stream == key.stream)
    engine = Bucket(stream, key, book).engine
    if clock is not None:
        engine.advance(stream.schema.append(pa.field(ARRIVAL, INSTANT)).empty_table(), clock)
    return Share(
        config, stream, key, number, key == first, clock, engine.position.since, engine.settled, engine.announced_since
    )


def write_share(
    folder: AnyPath, share: Share, events: Iterable[pa.Table], announcements: pa.Table, unread: Iterable[pa.Table] = ()
) -> int:
    """Write the state (see state/state_files.py) of a shuffle key's buckets into the folder; returns the number of
    events in it.

    events: the stream's fields and arrival_time, as tables in order of arrival; unread: the same, with partition,
    offset and sent_at. announcements: LEDGER_SCHEMA and, except for the whole-stream shuffle key, SHUFFLED_BY.
    """
    key, buckets = share.shuffle_key, share.config.buckets
    logs = [_Log(share, files_of(folder, bucket)) for bucket in buckets_of(share.number, key, buckets)]
    for table in events:
        for at, part in divided_events(table, key, key.field, buckets):
            logs[at].take(part)
    for table in unread:
        for at, part in divided_events(table, key, key.field, buckets):
            logs[at].leave(part)
    announced = dict(divided_events(announcements, key, SHUFFLED_BY, buckets))
    for at, log in enumerate(logs):
        log.announced(announced[at].select(LEDGER_SCHEMA.names) if at in announced else LEDGER_SCHEMA.empty_table())
    return sum(log.events for log in logs)


class _Log:
    """A bucket's log."""

    def __init__(self, share: Share, files: BucketFiles) -> None:
        self._share = share
        self._files = files
        self._head = Head()
        self.events = 0
        self._ids = StringTable()
        self._nothing = Engine(share.stream, RuleSet()).snapshot().events

    def take(self, events: pa.Table) -> None:
        """Events in order of arrival, of which the first of each id is kept: ids in a log are unique."""
        taken = first_arrivals(self._ids, events, self._share.stream, self.events)
        self.events += taken.num_rows
        for at in range(0, taken.num_rows, ROWS_AN_ENTRY):
            self._append(taken.slice(at, ROWS_AN_ENTRY), LEDGER_SCHEMA.empty_table())

    def leave(self, events: pa.Table) -> None:
        """Events that have not been processed."""
        is_primary = pa.repeat(self._share.primary, events.num_rows)
        schema = events_schema(self._share.stream)
        self.events += events.num_rows
        name = self._files.put_new(to_ipc(events.append_column(PRIMARY, is_primary).select(schema.names).cast(schema)))
        self._head = msgspec.structs.replace(self._head, unread=(*self._head.unread, name))

    def announced(self, announcements: pa.Table) -> None:
        """The alerts that had been emitted; the last entry."""
        self._append(self._nothing, announcements)

    def _append(self, events: pa.Table, announcements: pa.Table) -> None:
        # what had become due since then is evaluated again: maybe not all of it had been announced (S19)
        clock = FIRST_INSTANT if self._share.clock is None else self._share.settled
        log = StateLog(self._files, self._share.stream.event_time)
        position = Position(clock, self._share.settled, self._share.horizon)
        self._head = log.append(self._head, Delta(events, announcements), position, version=0)
        self._files.remove_before(self._head)
        self._files.keep(self._head)


def divided_events(table: pa.Table, key: ShuffleKey, name: str, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """(index among the shuffle key's buckets, its rows in order). name: of the column with the shuffle key's field."""
    for batch in table.combine_chunks().to_batches():
        values = None if key.field == WHOLE_STREAM else batch.column(name)
        for at, part in divided(batch, values, buckets):
            yield at, pa.Table.from_batches([part])
