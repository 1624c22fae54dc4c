"""The buckets of a task: evaluate a micro-batch in each, with its engine in the memory of an engine process.

How it works: the bucket's log of deltas (state/statelog.py) is its state, in files that are final once Spark commits
the batch (state/state_files.py); resident_buckets.py holds the engines. An answer that gives a version its effective
time may bring history (primed_state.py), which is taken in before the batch's events.

What it does not do: commit. Spark does, once all tasks of a batch are done and the sink has all their records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

import msgspec
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from nightjar.contracts.alerts import alert_record
from nightjar.contracts.clock import Clock, read_clock
from nightjar.contracts.job_progress import bucket_key
from nightjar.contracts.restrictions import restriction_records
from nightjar.ingestion.event_schema import events_schema
from nightjar.rules.engine import Delta
from nightjar.rules.engine.folds import concatenated
from nightjar.rules.engine.store import LONG_AGO
from nightjar.rules.streams import Stream
from nightjar.streaming.buckets.bucket import BatchResult, Bucket, failure_record
from nightjar.streaming.buckets.engine_processes import Remote
from nightjar.streaming.buckets.output_records import (
    RECORDS,
    ROWS_A_BATCH,
    alert_records,
    json_records,
    late_records,
    sent_at_of,
)
from nightjar.streaming.buckets.payloads import PayloadKind, from_ipc, to_ipc
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.primed_state import held, take_in
from nightjar.streaming.buckets.reports import bucket_report
from nightjar.streaming.buckets.resident_buckets import Resident, Residents, receive
from nightjar.streaming.partitioning import bucket_of
from nightjar.streaming.state.state_files import BucketFiles, files_of
from nightjar.streaming.state.statelog import Head, StateLog

# A bucket reports at most this often (seconds): one record per batch and bucket would be too many.
_REPORT_SECONDS = 1.0

# A bucket's share of a batch: payloads by PayloadKind.
Packed = Mapping[str, list[bytes]]


@dataclass(frozen=True)
class BucketTasks:
    """What `mapInArrow` runs: passes a task's buckets to their engine processes."""

    evaluate: Remote
    processes: int
    """Bucket b is in the process b % processes: with a shuffle, that of its partition."""

    @classmethod
    def of(cls, plan: BucketPlan, processes: int) -> Self:
        """The tasks of one run of the query."""
        program = cloudpickle.dumps(BucketProcessor(plan))  # type: ignore[no-untyped-call]
        return cls(Remote(plan.checkpoint, plan.run_id, program), processes)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's packed rows (PACKED_SCHEMA) to rows of OUTPUT_SCHEMA."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101  a task runs this
        version = int(context.getLocalProperty("streaming.sql.batchId") or 0) + 1
        requests: dict[int, tuple[int, dict[int, dict[str, list[bytes]]]]] = {}
        for batch in batches:
            keys, kinds, payloads = (batch.column(name).to_pylist() for name in ("bucket", "kind", "payload"))
            for key, kind, payload in zip(keys, kinds, payloads, strict=True):
                if kind == PayloadKind.QUARANTINE:
                    yield from from_ipc(payload).to_batches()
                else:
                    bucket = bucket_of(key)
                    _, buckets = requests.setdefault(bucket % self.processes, (version, {}))
                    buckets.setdefault(bucket, {}).setdefault(kind, []).append(payload)
        for records in self.evaluate(requests):
            yield from from_ipc(records).to_batches(ROWS_A_BATCH)


@dataclass(frozen=True)
class _Restored:
    """A bucket as its batch begins."""

    number: int
    version: int
    """Of the batch."""
    files: BucketFiles
    head: Head
    """Of the state before the batch."""
    resident: Resident

    @property
    def bucket(self) -> Bucket:
        """The bucket itself."""
        return self.resident.bucket


@dataclass(frozen=True)
class _Received:
    """What a batch brings to a bucket."""

    events: pa.Table
    """events_schema; first those that the state held unread."""
    clock: int | None
    """µs; None if there is none."""
    rules: str
    """The entry that holds the answers received."""
    head: Head
    """That before the batch, with the history that was taken in."""
    history: list[Delta]
    """What is to be stored of that history beside its own entries."""
    gone: list[str]
    """Files of exports that were taken in."""


class BucketProcessor:
    """Evaluates the events of buckets, in an engine process, and keeps their engines; see the module."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._residents = Residents(plan)

    def __call__(self, request: tuple[int, dict[int, dict[str, list[bytes]]]]) -> bytes:
        """Process a batch in an engine process, given its version and its payloads by bucket and kind; returns an
        Arrow stream of RECORDS."""
        version, packed = request
        if self._plan.fence is not None:
            self._plan.fence.check()  # after Spark has logged the batch, so that whoever takes over repeats it
        records = [table for number in sorted(packed) for table in self.process(number, version, packed[number])]
        return to_ipc(pa.concat_tables([RECORDS.empty_table(), *records]))

    def process(self, number: int, version: int, packed: Packed) -> Iterator[pa.Table]:
        """Process one bucket's share of the batch of this version, by kind, into RECORDS; QUARANTINE is not its own."""
        parts = _Parts()
        restored = self._restore(number, version)
        parts.end("read")
        received = self._receive(restored, packed)
        result = restored.bucket.advance(received.events, received.clock)
        parts.end("evaluate")
        head = _persist(restored, received, result)
        self._residents.put_back(number, restored.resident)
        parts.end("write")
        yield from self._emit(restored.bucket, result, received.events)
        yield from self._report(restored, head, parts)

    def _restore(self, number: int, version: int) -> _Restored:
        """Bring the bucket up to date with its log."""
        files = files_of(self._plan.state, number, self._plan.run_id)
        head = files.before(version)
        files.remove_before(head)
        return _Restored(number, version, files, head, self._residents.take(number, head, files))

    def _receive(self, restored: _Restored, packed: Packed) -> _Received:
        """Fold the answers, take in the history that they name, and read events and clocks."""
        bucket, head, files = restored.bucket, restored.head, restored.files
        known = self._plan.rules[-1].offset if self._plan.rules else -1
        rules, exports = receive(bucket, packed.get(PayloadKind.RULE, []), known, head, files)
        primed, history, gone = head, list[Delta](), list[str]()
        for name in exports:
            taken = take_in(bucket, name, primed, restored.version, files)
            primed = taken.head
            history.append(taken.delta)
            gone += taken.gone
        bucket.counts.skipped += sum(int(payload) for payload in packed.get(PayloadKind.SKIPPED, []))
        clocks = [clock for clock in map(read_clock, packed.get(PayloadKind.CLOCK, [])) if clock is not None]
        _close(bucket, clocks)
        events = _events(bucket.stream, packed, head, files)
        return _Received(events, self._clock(bucket.stream, clocks), rules, primed, history, gone)

    def _clock(self, stream: Stream, read: Iterable[Clock]) -> int | None:
        """The latest clock of this run; one of an earlier run may be ahead of records that will be read again."""
        of_run = [clock.clocks.get(stream.name) for clock in read if clock.run_id == self._plan.run_id]
        return max((clock for clock in of_run if clock is not None), default=None)

    def _emit(self, bucket: Bucket, result: BatchResult, events: pa.Table) -> Iterator[pa.Table]:
        """The batch's results as RECORDS; events: the batch's."""
        topics, now = self._plan.topics, time.time_ns() // 1000
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

    def _report(self, restored: _Restored, head: Head, parts: _Parts) -> Iterator[pa.Table]:
        """The bucket's report, when it is due."""
        number, resident = restored.number, restored.resident
        if time.monotonic() - resident.reported_at >= _REPORT_SECONDS:
            report = bucket_report(number, resident, head, parts.seconds)
            resident.reported_at, resident.restored = time.monotonic(), 0
            yield json_records(self._plan.topics.job_progress, [(bucket_key(number), report)])


@dataclass
class _Parts:
    """The seconds that the parts of a batch took, one after the other."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, part: str) -> None:
        """End this part, and begin the next one."""
        now = time.perf_counter()
        self.seconds[part], self._since = now - self._since, now


def _close(bucket: Bucket, clocks: Iterable[Clock]) -> None:
    """Close the hours in which the alerts of all buckets have reached the cap."""
    if bucket.cap is None:
        return
    for clock in clocks:
        for rule_id, hours in clock.overflow.items():
            for hour in hours if bucket.book.of_rule(rule_id) else ():
                bucket.cap.close(rule_id, hour)


def _events(stream: Stream, packed: Packed, head: Head, files: BucketFiles) -> pa.Table:
    """The batch's events (events_schema), after those that the state holds unread."""
    unread = [files.get(entry) for entry in head.unread]
    # unread events may be older than a field of the stream
    tables = [stream.completed(from_ipc(payload)) for payload in unread + packed.get(PayloadKind.EVENTS, [])]
    return pa.concat_tables(tables) if tables else events_schema(stream).empty_table()


def _persist(restored: _Restored, received: _Received, result: BatchResult) -> Head:
    """Append the batch to the bucket's log, and write its head."""
    bucket, files, before = restored.bucket, restored.files, restored.head
    log = StateLog(files, bucket.stream.event_time, restored.number)
    delta = _joined([*received.history, result.delta])
    counts = asdict(bucket.counts)
    head = log.append(received.head, delta, bucket.engine.position, counts, version=restored.version)
    late = held(bucket, result.dead, head, files)
    gone = [*head.stale, *before.unread, *received.gone, *(name for name in before.held if name not in late)]
    gone += [before.rules] if before.rules not in ("", received.rules) else []
    head = msgspec.structs.replace(
        head,
        unread=(),
        rules=received.rules,
        stale=tuple(gone),
        failed=tuple(sorted(bucket.failed)),
        held=late,
        capped=() if bucket.cap is None else bucket.cap.entries,
    )
    files.keep(head)
    restored.resident.at(head)
    return head


def _joined(deltas: list[Delta]) -> Delta:
    """The deltas as one, in this order."""
    if len(deltas) == 1:
        return deltas[0]
    events = pa.concat_tables([delta.events for delta in deltas], promote_options="permissive")
    folds = concatenated((delta.folds for delta in deltas), LONG_AGO)
    return Delta(events, pa.concat_tables([delta.announcements for delta in deltas]), folds)


def _slices(rows: pa.Table) -> Iterator[slice]:
    return (slice(first, first + ROWS_A_BATCH) for first in range(0, rows.num_rows, ROWS_A_BATCH))
