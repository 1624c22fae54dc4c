"""The stateful operator: one call a bucket and micro-batch, with the bucket's engine kept in the worker's memory.

How it works: the bucket's log of deltas (statelog.py) is Spark's state, exactly once with the offsets. A worker keeps
the engines of the buckets it has seen; the log's head says whether one is where the log is, a beginning of it (then it
reads what it has not seen), or neither (then it is made anew). While an engine takes part in a batch it is not in the
cache, so one whose task fails half-way is never met again.

What it does not do: commit. Spark commits state and offsets together once all tasks of a batch are done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from rules.streams import Stream
from streaming.bucket import Bucket, Counts, failure_record
from streaming.config import Topics
from streaming.hashing import bucket_of
from streaming.initial import HEAD
from streaming.records import alert_lines, chunks, late_lines, line
from streaming.rulebook import Record, Route, RuleBook
from streaming.statelog import Head, StateLog
from streaming.wire import Kind, events_schema, from_ipc

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

# A bucket tells what it holds at most this often (seconds): a record a batch and bucket would be many.
_TELL_SECONDS = 1.0


@dataclass(frozen=True)
class BucketPlan:
    """What every bucket of one run of the query is told.

    checkpoint: names the checkpoint, so that two jobs in one worker never share an engine; incarnation: this run;
    rules: the answers on `rule-status` before the first record of it that this run reads.
    """

    checkpoint: str
    incarnation: str
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
    version: int
    token: str
    bucket: Bucket
    told_at: float = 0.0


_cache: dict[tuple[str, str, int], _Cached] = {}


class _MapEntries:
    """The log's entries in a MapState."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int) -> bytes:
        return bytes(self._state.getValue((number,))[0])

    def put(self, number: int, value: bytes) -> None:
        self._state.updateValue((number,), (value,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))


class BucketProcessor(StatefulProcessor):
    """Evaluates the events of its buckets; see the module."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Bind the state: the log's head and entries, and the answers received since some start of the job."""
        self._head = handle.getValueState("head", "value binary")
        self._entries = _MapEntries(handle.getMapState("log", "number long", "value binary"))
        self._rules = handle.getValueState("rules", "value binary")

    def handleInitialState(  # noqa: N802  Spark's name
        self,
        key: tuple[int],  # noqa: ARG002
        initialState: Row,  # noqa: N803
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> None:
        """One row (see initial.py) of what a bucket begins with."""
        if initialState.number == HEAD:
            self._head.update((bytes(initialState.value),))
        else:
            self._entries.put(initialState.number, bytes(initialState.value))

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """One bucket's packed rows of a micro-batch, to rows of records.OUTPUT_SCHEMA."""
        packed: dict[str, list[bytes]] = {}
        for row in rows:
            packed.setdefault(row.kind, []).append(bytes(row.payload))
        topics = self._plan.topics
        yield from _rows(topics.quarantine, (lines.decode() for lines in packed.get(Kind.QUARANTINE, [])))
        yield from self._process(bucket_of(key[0]), packed)

    def close(self) -> None:
        """End of a task."""

    def _process(self, number: int, packed: Mapping[str, list[bytes]]) -> Iterator[Row]:
        topics, started = self._plan.topics, time.perf_counter()
        route = self._plan.route_of(number)
        stream = self._plan.streams[route.stream]
        log = StateLog(self._entries, stream.event_time)
        stored = self._head.get()
        head = Head.from_bytes(None if stored is None else bytes(stored[0]))
        cached = self._cached(number, route, stream, head, log)
        bucket = cached.bucket
        read = time.perf_counter()
        self._receive(bucket, [json.loads(payload) for payload in packed.get(Kind.RULE, [])])
        bucket.counts.skipped += sum(int(payload) for payload in packed.get(Kind.SKIPPED, []))
        unread = [self._entries.get(entry) for entry in head.unread]
        # what is unread may be older than a field of the stream
        tables = [stream.completed(from_ipc(payload)) for payload in unread + packed.get(Kind.EVENTS, [])]
        events = pa.concat_tables(tables) if tables else events_schema(stream).empty_table()
        heard = bucket.advance(events, self._clock(stream, packed.get(Kind.CLOCK, [])))
        evaluated = time.perf_counter()
        for entry in head.unread:
            self._entries.remove(entry)
        engine = bucket.engine
        head = log.append(
            head, heard.delta, engine.horizon, engine.clock, asdict(bucket.counts), settled=engine.settled
        )
        head = replace(head, failed=tuple(sorted(bucket.failed)))
        self._head.update((head.to_bytes(),))
        cached.version, cached.token = head.version, head.tokens[head.version]
        _cache[self._plan.checkpoint, self._plan.incarnation, number] = cached
        written = time.perf_counter()
        said = [failure_record(failure) for failure in heard.failures]
        yield from _rows(topics.rule_status, chunks(line(key, value) for key, value in said))
        now = time.time_ns() // 1000
        yield from _rows(topics.alerts, alert_lines(heard.alerts, events, stream.event_id, now))
        yield from _rows(topics.late_events, late_lines(heard.late, stream))
        if time.monotonic() - cached.told_at >= _TELL_SECONDS:
            cached.told_at = time.monotonic()
            parts = {"read": read - started, "evaluate": evaluated - read, "write": written - evaluated}
            told = {
                "kind": "bucket", "bucket": number, "stream": stream.name, "route": route.field, "at": now,
                "held": bucket.engine.rows, "entries": len(head.entries), "counts": asdict(bucket.counts),
                "retained": {",".join(group_by): rows for group_by, rows in bucket.engine.retained.items()},
                "parts_ms": {name: round(1000 * seconds, 2) for name, seconds in parts.items()},
            }  # fmt: skip
            yield Row(topic=topics.job_progress, lines=line(f"bucket-{number}", told))

    def _cached(self, number: int, route: Route, stream: Stream, head: Head, log: StateLog) -> _Cached:
        """The bucket where the log is: the one in memory as far as that has seen a beginning of the log."""
        checkpoint, incarnation = self._plan.checkpoint, self._plan.incarnation
        for key in [key for key in _cache if key[0] == checkpoint and key[1] != incarnation]:
            del _cache[key]  # of a run of the query that has ended: its engines would stay for the worker's life
        cached = _cache.pop((checkpoint, incarnation, number), None)
        if cached is None or not head.holds(cached.version, cached.token):
            cached = _Cached(0, "", Bucket(stream, route, self._plan.rule_book()))
        if cached.version < head.version:
            bucket = cached.bucket
            bucket.receive(_record(written) for written in self._received())
            bucket.restore(log.read(entry) for entry in head.missing(cached.version))
            bucket.engine.resume(head.clock, head.settled, head.horizon)
            bucket.counts = Counts(**head.counts)
            bucket.failed = set(head.failed)
        return cached

    def _received(self) -> list[dict[str, Any]]:
        """The answers this bucket has received since some earlier start of the job."""
        stored = self._rules.get()
        return [] if stored is None else json.loads(bytes(stored[0]))

    def _receive(self, bucket: Bucket, written: list[dict[str, Any]]) -> None:
        """Take answers, and keep them in the state until the next start."""
        fresh = sorted((m for m in written if m["offset"] >= bucket.book.next_offset), key=lambda m: m["offset"])
        if not fresh:
            return
        since = self._plan.rules[-1].offset if self._plan.rules else -1
        kept = [answer for answer in self._received() if answer["offset"] > since]
        self._rules.update((json.dumps(kept + fresh).encode(),))
        bucket.receive(_record(answer) for answer in fresh)

    def _clock(self, stream: Stream, payloads: Iterable[bytes]) -> int | None:
        """The latest clock of this run; one of an earlier run may speak of records that are yet to be read again."""
        written = (json.loads(payload) for payload in payloads)
        clocks = [w["clocks"].get(stream.name) for w in written if w["incarnation"] == self._plan.incarnation]
        return max((clock for clock in clocks if clock is not None), default=None)


def _record(written: Mapping[str, Any]) -> Record:
    return Record(written["offset"], written["arrival"], written["value"].encode())


def _rows(topic: str, lines: Iterable[str]) -> Iterator[Row]:
    return (Row(topic=topic, lines=joined) for joined in lines)
