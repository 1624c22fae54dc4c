"""A bucket's part of a batch: what it receives and evaluates, at once or in groups, until its state is stored."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict
from typing import Any

import msgspec
import pyarrow as pa

from nightjar.contracts.alerts import alert_record
from nightjar.contracts.clock import Clock, read_clock
from nightjar.contracts.job_progress import BucketReport, bucket_key
from nightjar.contracts.restrictions import restriction_records
from nightjar.ingestion.event_schema import events_schema
from nightjar.rules.engine import Delta
from nightjar.rules.engine.folds import concatenated
from nightjar.rules.engine.ledger import NO_ANNOUNCEMENTS
from nightjar.rules.engine.store import LONG_AGO
from nightjar.streaming.buckets.bucket import BatchResult, Bucket, failure_record
from nightjar.streaming.buckets.output_records import (
    ROWS_A_BATCH,
    alert_records,
    json_records,
    late_records,
    sent_at_of,
)
from nightjar.streaming.buckets.payloads import Payload, PayloadKind, decoded
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.primed_state import held, take_in
from nightjar.streaming.buckets.reports import bucket_report
from nightjar.streaming.buckets.resident_buckets import Residents, receive
from nightjar.streaming.state.state_files import files_of
from nightjar.streaming.state.statelog import Entry, Head, StateLog

# A bucket reports at most this often (seconds): one record per batch and bucket would be too many.
_REPORT_SECONDS = 1.0

# Deltas of groups that are joined at once, which takes a millisecond.
_APART = 32

# What a bucket is given: payloads (payloads.Payload) by the value of their PayloadKind.
Packed = Mapping[str, Sequence[Any]]


class BucketBatch:
    """A bucket in the batch of a version, from the state before it until `store`.

    head: what its state will be, without the changes that `store` appends.
    """

    def __init__(self, plan: BucketPlan, residents: Residents, number: int, version: int) -> None:
        """Bring the bucket of this number up to date with its log; `residents` lacks it until `store`."""
        files = files_of(plan.state, number, plan.run_id)
        self.head = self._before = files.before(version)
        self.resident = residents.take(number, self.head, files)
        self._plan, self._residents, self._number, self._version, self._files = plan, residents, number, version, files
        self._deltas: deque[Delta] = deque()
        self._apart: deque[Delta] = deque()
        """Later ones, which are joined once there are some."""
        self._unwritten = 0
        """The events of both."""
        self._written: list[Future[Entry]] = []
        self._done = 0
        """How many of them are known to be written."""
        self._gone: list[str] = []

    def remove_earlier(self) -> None:
        """Remove what the batches before the last one have left, once that one is committed: then no run begins at
        their state again."""
        self._files.remove_before(self._before)

    @property
    def _log(self) -> StateLog:
        return StateLog(self._files, self.bucket.stream.event_time, self._number)

    def _add(self, delta: Delta) -> None:
        self._apart.append(delta)
        self._unwritten += delta.events.num_rows
        # here: if another thread joined the thousands of a batch, evaluation would wait for the interpreter all along
        if len(self._apart) >= _APART:
            self._deltas.append(_joined(self._apart))
            self._apart.clear()

    def _taken(self) -> deque[Delta]:
        """What has been added since the last call."""
        found = deque([*self._deltas, *self._apart])
        self._deltas.clear()
        self._apart.clear()
        self._unwritten = 0
        return found

    @property
    def bucket(self) -> Bucket:
        """The bucket itself."""
        return self.resident.bucket

    def take(self, packed: Packed, run_id: str, emitted_at: int | None = None) -> list[pa.Table]:
        """Receive answers and clocks, and evaluate events; returns the results as RECORDS.

        run_id: of the run whose clocks count. emitted_at: µs; None: now.
        """
        self._receive_answers(packed.get(PayloadKind.RULE, []))
        known = self._know_tables(packed.get(PayloadKind.TABLES, []))
        bucket = self.bucket
        bucket.counts.skipped += sum(int(payload) for payload in packed.get(PayloadKind.SKIPPED, []))
        clocks = [clock for clock in map(read_clock, packed.get(PayloadKind.CLOCK, [])) if clock is not None]
        _close(bucket, clocks)
        events = self._events(packed.get(PayloadKind.EVENTS, []))
        # one of another run may be ahead of records that will be read again
        of_run = [clock.clocks.get(bucket.stream.name) for clock in clocks if clock.run_id == run_id]
        result = bucket.advance(events, max((clock for clock in of_run if clock is not None), default=None), known)
        self._add(result.delta)
        self._move(held=held(bucket, result.dead, self.head, self._files))
        return list(self._records(result, events, time.time_ns() // 1000 if emitted_at is None else emitted_at))

    def write_ahead(self, pool: Executor, least: int = 1) -> None:
        """Have the pool write what has changed since the last call, if that are at least so many events; it counts once
        `store` has written the head."""
        while self._done < len(self._written) and self._written[self._done].done():
            self._written[self._done].result()  # raises what has failed: the batch cannot be stored
            self._done += 1
        if self._unwritten >= least:
            deltas = self._taken()
            self._written.append(pool.submit(lambda: self._log.write_ahead(self._version, _joined(deltas))))

    def store(self) -> None:
        """Append the rest of the batch to the log, and write the head."""
        bucket = self.bucket
        self.head = self._log.append(
            self.head,
            _joined(self._taken()),
            bucket.engine.position,
            asdict(bucket.counts),
            version=self._version,
            written=[entry.result() for entry in self._written],
        )
        self._gone += self.head.stale
        self.head = msgspec.structs.replace(
            self.head,
            stale=tuple(self._gone),
            failed=tuple(sorted(bucket.failed)),
            capped=() if bucket.cap is None else bucket.cap.entries,
        )
        self._files.keep(self.head)
        self.resident.at(self.head)
        self._residents.put_back(self._number, self.resident)

    def report(self, parts: Mapping[str, float]) -> tuple[str, BucketReport] | None:
        """The bucket's report, as key and value, if it is due. parts: seconds, by name."""
        resident = self.resident
        if time.monotonic() - resident.reported_at < _REPORT_SECONDS:
            return None
        report = bucket_report(self._number, resident, self.head, parts)
        resident.reported_at, resident.restored = time.monotonic(), 0
        return bucket_key(self._number), report

    def _receive_answers(self, payloads: Iterable[bytes]) -> None:
        """Fold the answers, and take in the history that they name."""
        known = self._plan.rules[-1].offset if self._plan.rules else -1
        rules, exports = receive(self.bucket, payloads, known, self.head, self._files)
        self._move(rules=rules)
        if exports and (follower := self._plan.table_follower) is not None:
            follower.up_to(follower.end())  # history sees all changes that had arrived when it did
        for name in exports:
            taken = take_in(self.bucket, name, self.head, self._version, self._files)
            self._move(taken.head)
            self._add(taken.delta)
            self._gone += taken.gone

    def _know_tables(self, payloads: Iterable[bytes]) -> int | None:
        """The position up to which events see changes of tables, which are read that far; None without tables."""
        follower = self._plan.table_follower
        if follower is None:
            return None
        self._move(tables=max(self.head.tables, self._plan.tables_read, *map(int, payloads)))
        follower.up_to(self.head.tables)
        return self.head.tables

    def _events(self, payloads: Iterable[Payload]) -> pa.Table:
        """Events (events_schema), after those that the state holds unread."""
        stream, unread = self.bucket.stream, [self._files.get(entry) for entry in self.head.unread]
        self._move(unread=())
        # unread events may be older than a field of the stream
        tables = [stream.completed(decoded(payload)) for payload in (*unread, *payloads)]
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables) if tables else events_schema(stream).empty_table()

    def _move(self, head: Head | None = None, **changes: object) -> None:
        """Change the head; the files that it no longer names are removed once the batch is committed."""
        before, self.head = self.head, msgspec.structs.replace(head or self.head, **changes)
        self._gone += [name for name in _passing(before) if name not in _passing(self.head)]

    def _records(self, result: BatchResult, events: pa.Table, now: int) -> Iterator[pa.Table]:
        """Results as RECORDS. events: those that were evaluated; now: µs."""
        topics, bucket = self._plan.topics, self.bucket
        if result.failures:
            yield json_records(topics.rule_status, map(failure_record, result.failures))
        sent_at = sent_at_of(events, result.rows)
        for rows in _slices(result.alerts):
            marks = None if result.overflow is None else result.overflow[rows]
            yield alert_records(topics.alerts, result.alerts[rows], sent_at[rows], now, marks)
            if bucket.actions:
                alerts = (alert_record(row, now) for row in result.alerts[rows].to_pylist())
                yield json_records(topics.restrictions, restriction_records(alerts, bucket.actions))
        for rows in _slices(result.late):
            yield late_records(topics.late_events, result.late[rows], bucket.stream)


def _close(bucket: Bucket, clocks: Iterable[Clock]) -> None:
    """Close the hours in which the alerts of all buckets have reached the cap."""
    if bucket.cap is None:
        return
    for clock in clocks:
        for rule_id, hours in clock.overflow.items():
            for hour in hours if bucket.book.of_rule(rule_id) else ():
                bucket.cap.close(rule_id, hour)


def _passing(head: Head) -> list[str]:
    """The files that a head names besides the entries of its log."""
    return [*head.unread, *head.held, *filter(None, [head.rules])]


def _joined(deltas: deque[Delta]) -> Delta:
    """The deltas as one, in this order; those that are copied are freed."""
    if len(deltas) == 1:
        return deltas[0]
    if not deltas:
        return Delta(pa.table({}), NO_ANNOUNCEMENTS)
    events = pa.concat_tables([delta.events for delta in deltas], promote_options="permissive")
    announcements = pa.concat_tables([delta.announcements for delta in deltas])
    folds = concatenated((delta.folds for delta in deltas), LONG_AGO)
    # as one chunk: each is written by itself, and there would be one for each group
    joined = Delta(events.combine_chunks(), announcements.combine_chunks(), folds)
    while deltas:  # one by one: freeing them all at once would hold up the other thread
        deltas.popleft()
    return joined


def _slices(rows: pa.Table) -> Iterator[slice]:
    return (slice(first, first + ROWS_A_BATCH) for first in range(0, rows.num_rows, ROWS_A_BATCH))
