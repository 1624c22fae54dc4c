"""The buckets of a task: what a micro-batch makes of each, with its engine kept in an engine process's memory.

How it works: the bucket's log of deltas (statelog.py) is its state, in files that are final once Spark commits the
batch (state_files.py). A process keeps the engines of the buckets it has seen; the log's head says whether one is where
the log is, a beginning of it (then it reads what it has not seen), or neither (then it is made anew). While an engine
takes part in a batch it is not in the cache, so one whose task fails half-way is never met again.

What it does not do: commit. Spark does, once all tasks of a batch are done and the sink has all their records.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from contracts.clock import read_clock
from contracts.job_progress import BucketReport, bucket_key
from contracts.topics import Topics
from ingestion.event_schema import events_schema
from rules.rulebook import Record, Route, RuleBook
from rules.streams import Stream
from streaming.bucket import Bucket, Counts, failure_record
from streaming.engine_processes import Remote
from streaming.output_records import ROWS_A_BATCH, SAID, alert_records, late_records, said
from streaming.partitioning import bucket_of
from streaming.payloads import Kind, from_ipc, to_ipc
from streaming.state_files import BucketFiles, files_of
from streaming.statelog import NOTHING, Head, StateLog

# A bucket tells what it holds at most this often (seconds): a record a batch and bucket would be many.
_TELL_SECONDS = 1.0


@dataclass(frozen=True)
class BucketPlan:
    """What every bucket of one run of the query is told.

    checkpoint: names the checkpoint, so that two jobs in one worker never share an engine; incarnation: this run;
    state: the folder of the buckets' files, which every Spark process sees; rules: the answers on `rule-status` before
    the first record of it that this run reads.
    """

    checkpoint: str
    incarnation: str
    state: Path
    streams: Mapping[str, Stream]
    routes: tuple[Route, ...]
    buckets: int
    topics: Topics
    rules: tuple[Record, ...]

    def route_of(self, bucket: int) -> Route:
        """The route whose bucket this is: route r has the buckets from r * buckets on."""
        return self.routes[bucket // self.buckets]

    def rule_book(self) -> RuleBook:
        """The rules as they were when this run began."""
        book = RuleBook(self.streams)
        for answer in self.rules:
            book.receive(answer)
        return book


@dataclass
class _Cached:
    """restored: entries of the log that were read since the bucket last told."""

    version: int
    token: str
    bucket: Bucket
    told_at: float = 0.0
    restored: int = 0


_cache: dict[tuple[str, str, int], _Cached] = {}


@dataclass(frozen=True)
class BucketTasks:
    """What `mapInArrow` runs: hands a task's buckets to the engine process of the task's partition."""

    evaluate: Remote

    @classmethod
    def of(cls, plan: BucketPlan) -> Self:
        """The tasks of one run of the query."""
        return cls(Remote(plan.incarnation, cloudpickle.dumps(BucketProcessor(plan))))  # type: ignore[no-untyped-call]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's packed rows (wire.PACKED_SCHEMA) to rows of records.OUTPUT_SCHEMA."""
        buckets: dict[int, dict[str, list[bytes]]] = {}
        for batch in batches:
            keys, kinds, payloads = (batch.column(name).to_pylist() for name in ("bucket", "kind", "payload"))
            for key, kind, payload in zip(keys, kinds, payloads, strict=True):
                if kind == Kind.QUARANTINE:
                    yield from from_ipc(payload).to_batches()
                else:
                    buckets.setdefault(bucket_of(key), {}).setdefault(kind, []).append(payload)
        if not buckets:
            return
        context = TaskContext.get()
        assert context is not None  # noqa: S101  a task runs this
        version = int(context.getLocalProperty("streaming.sql.batchId") or 0) + 1
        records: bytes = self.evaluate(context.partitionId(), (version, buckets))
        yield from from_ipc(records).to_batches(ROWS_A_BATCH)


class BucketProcessor:
    """Evaluates the events of buckets, in an engine process; see the module."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan

    def __call__(self, request: tuple[int, dict[int, dict[str, list[bytes]]]]) -> bytes:
        """What an engine process makes of a batch's version and, by bucket and kind, its payloads: an Arrow stream of
        records.SAID."""
        version, packed = request
        records = [table for number in sorted(packed) for table in self.process(number, version, packed[number])]
        return to_ipc(pa.concat_tables([SAID.empty_table(), *records]))

    def process(self, number: int, version: int, packed: Mapping[str, list[bytes]]) -> Iterator[pa.Table]:
        """One bucket's share of the batch of this version, by kind, as records.SAID; QUARANTINE is not its own."""
        topics, started = self._plan.topics, time.perf_counter()
        route = self._plan.route_of(number)
        stream = self._plan.streams[route.stream]
        files = files_of(self._plan.state, number, self._plan.incarnation)
        log = StateLog(files, stream.event_time)
        before = files.before(version)
        files.forget(before)
        cached = self._cached(number, before, files)
        bucket = cached.bucket
        read = time.perf_counter()
        rules = self._receive(bucket, packed.get(Kind.RULE, []), before, files)
        bucket.counts.skipped += sum(int(payload) for payload in packed.get(Kind.SKIPPED, []))
        unread = [files.get(entry) for entry in before.unread]
        # what is unread may be older than a field of the stream
        tables = [stream.completed(from_ipc(payload)) for payload in unread + packed.get(Kind.EVENTS, [])]
        events = pa.concat_tables(tables) if tables else events_schema(stream).empty_table()
        heard = bucket.advance(events, self._clock(stream, packed.get(Kind.CLOCK, [])))
        evaluated = time.perf_counter()
        engine = bucket.engine
        head = log.append(
            before, heard.delta, engine.horizon, engine.clock, asdict(bucket.counts),
            settled=engine.settled, version=version,
        )  # fmt: skip
        gone = [*head.stale, *before.unread, *([before.rules] if before.rules not in ("", rules) else [])]
        files.keep(replace(head, unread=(), rules=rules, stale=tuple(gone), failed=tuple(sorted(bucket.failed))))
        cached.version, cached.token = head.version, head.tokens[head.version]
        _cache[self._plan.checkpoint, self._plan.incarnation, number] = cached
        written = time.perf_counter()
        now = time.time_ns() // 1000
        if heard.failures:
            yield said(topics.rule_status, map(failure_record, heard.failures))
        for alerts in _slices(heard.alerts):
            yield alert_records(topics.alerts, alerts, events, stream.event_id, now)
        for late in _slices(heard.late):
            yield late_records(topics.late_events, late, stream)
        if time.monotonic() - cached.told_at >= _TELL_SECONDS:
            cached.told_at = time.monotonic()
            parts = {"read": read - started, "evaluate": evaluated - read, "write": written - evaluated}
            report: BucketReport = {
                "kind": "bucket", "bucket": number, "stream": stream.name, "route": route.field, "at": now,
                "held": bucket.engine.rows, "entries": len(head.entries),
                "stored": sum(entry.size for entry in head.entries), "counts": asdict(bucket.counts),
                "retained": {",".join(group_by): rows for group_by, rows in bucket.engine.retained.items()},
                "parts_ms": {name: round(1000 * seconds, 2) for name, seconds in parts.items()},
                "engine": f"{socket.gethostname()}:{os.getpid()}", "restored": cached.restored,
            }  # fmt: skip
            cached.restored = 0
            yield said(topics.job_progress, [(bucket_key(number), report)])

    def _cached(self, number: int, head: Head, files: BucketFiles) -> _Cached:
        """The bucket where the log is: the one in memory as far as that has seen a beginning of the log."""
        checkpoint, incarnation = self._plan.checkpoint, self._plan.incarnation
        for key in [key for key in _cache if key[0] == checkpoint and key[1] != incarnation]:
            del _cache[key]  # of a run of the query that has ended: its engines would stay for the worker's life
        cached = _cache.pop((checkpoint, incarnation, number), None)
        if cached is None or not head.holds(cached.version, cached.token):
            route = self._plan.route_of(number)
            cached = _Cached(NOTHING, "", Bucket(self._plan.streams[route.stream], route, self._plan.rule_book()))
        if cached.version < head.version:
            bucket, log = cached.bucket, StateLog(files, cached.bucket.stream.event_time)
            bucket.receive(_record(written) for written in _received(head, files))
            missing = head.missing(cached.version)
            bucket.restore(log.read(entry) for entry in missing)
            cached.restored += len(missing)
            bucket.engine.resume(head.clock, head.settled, head.horizon)
            bucket.counts = Counts(**head.counts)
            bucket.failed = set(head.failed)
        return cached

    def _receive(self, bucket: Bucket, payloads: list[bytes], head: Head, files: BucketFiles) -> str:
        """Take answers, and keep them in the state until the next start; the name of the entry that holds them."""
        written = (json.loads(payload) for payload in payloads)
        fresh = sorted((m for m in written if m["offset"] >= bucket.book.next_offset), key=lambda m: m["offset"])
        if not fresh:
            return head.rules
        since = self._plan.rules[-1].offset if self._plan.rules else -1
        kept = [answer for answer in _received(head, files) if answer["offset"] > since]
        bucket.receive(_record(answer) for answer in fresh)
        return files.put_new(json.dumps(kept + fresh).encode())

    def _clock(self, stream: Stream, payloads: Iterable[bytes]) -> int | None:
        """The latest clock of this run; one of an earlier run may speak of records that are yet to be read again."""
        read = [clock for clock in map(read_clock, payloads) if clock is not None]
        of_run = [clock.clocks.get(stream.name) for clock in read if clock.incarnation == self._plan.incarnation]
        return max((clock for clock in of_run if clock is not None), default=None)


def _record(written: Mapping[str, Any]) -> Record:
    return Record(written["offset"], written["arrival"], written["value"].encode())


def _received(head: Head, files: BucketFiles) -> list[dict[str, Any]]:
    """The answers this bucket has received since some earlier start of the job."""
    found: list[dict[str, Any]] = json.loads(files.get(head.rules)) if head.rules else []
    return found


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    return (rows.slice(first, ROWS_A_BATCH) for first in range(0, rows.num_rows, ROWS_A_BATCH))
