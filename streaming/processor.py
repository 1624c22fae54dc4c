"""The stateful operator: one call a bucket and micro-batch, with the bucket's engine kept in the worker's memory.

How it works: the bucket's log of deltas (statelog.py) is Spark's state, exactly once with the offsets. A worker keeps
the engines of the buckets it has seen; the log's head says whether one is where the log is, a beginning of it (then it
reads what it has not seen), or neither (then it is made anew). While an engine takes part in a batch it is not in the
cache, so one whose task fails half-way is never met again.

Known limitation: the rules a bucket has received since the job started are kept in its state until the next start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from rules.streams import Stream
from streaming.bucket import Bucket, Said
from streaming.config import Topics
from streaming.rulebook import Route, RuleBook, RuleMessage
from streaming.statelog import Head, StateLog
from streaming.wire import Kind, events_schema, from_ipc


@dataclass(frozen=True)
class BucketPlan:
    """What every bucket of one run of the query is told.

    checkpoint: names the checkpoint, so that two jobs in one worker never share an engine; incarnation: this run;
    rules: the messages of the rules topic before the first record that this run reads.
    """

    checkpoint: str
    incarnation: str
    streams: Mapping[str, Stream]
    routes: tuple[Route, ...]
    buckets: int
    activation_delay: int
    topics: Topics
    rules: tuple[RuleMessage, ...]

    def route_of(self, bucket: int) -> Route:
        """The route whose bucket this is: route r has the buckets from r * buckets on."""
        return self.routes[bucket // self.buckets]

    def rule_book(self) -> RuleBook:
        """The rules as they were when this run began."""
        book = RuleBook(self.streams, self.activation_delay)
        for message in self.rules:
            book.receive(message)
        return book


@dataclass
class _Cached:
    version: int
    token: str
    bucket: Bucket


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
        """Declare the state: the head, the log's entries, the rules received in this run and those before."""
        self._head = handle.getValueState("head", "value binary")
        self._entries = handle.getMapState("log", "number long", "value binary")
        self._rules = handle.getValueState("rules", "value binary")

    def handleInputRows(  # noqa: N802  Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """One bucket's packed rows of a micro-batch; yields rows of SAID_SCHEMA."""
        number = int(key[0])
        packed = [row for frame in rows for row in zip(frame["kind"], frame["payload"], strict=True)]
        said = [Said("quarantine", "", payload.decode(), None) for kind, payload in packed if kind == Kind.QUARANTINE]
        said += self._process(number, packed)
        names = self._plan.topics
        topics = {
            "alerts": names.alerts, "late-events": names.late_events, "quarantine": names.quarantine,
            "rule-status": names.rule_status, "job-progress": names.job_progress,
        }  # fmt: skip
        yield pd.DataFrame(
            {
                "topic": [topics[s.role] for s in said],
                "key": [s.key for s in said],
                "value": [s.value for s in said],
                "sent_at": pd.array([s.sent_at for s in said], dtype="Int64"),
            }
        )

    def close(self) -> None:
        """Nothing is held outside the cache."""

    def _process(self, number: int, packed: list[tuple[str, bytes]]) -> list[Said]:
        started = time.perf_counter()
        route = self._plan.route_of(number)
        stream = self._plan.streams[route.stream]
        log = StateLog(_MapEntries(self._entries), stream.event_time)
        stored = self._head.get()
        head = Head.from_bytes(None if stored is None else bytes(stored[0]))
        bucket = self._bucket(number, route, stream, head, log)
        read = time.perf_counter()
        said = self._receive(bucket, [json.loads(p) for kind, p in packed if kind == Kind.RULE])
        tables = [from_ipc(p) for kind, p in packed if kind == Kind.EVENTS]
        events = pa.concat_tables(tables) if tables else events_schema(stream).empty_table()
        told, delta, counts = bucket.advance(events, self._clock(packed), _now())
        said += told
        evaluated = time.perf_counter()
        head = log.append(head, delta, bucket.engine.horizon)
        self._head.update((head.to_bytes(),))
        key = (self._plan.checkpoint, self._plan.incarnation, number)
        _cache[key] = _Cached(head.version, head.tokens[head.version], bucket)
        parts = {
            "read_ms": 1000 * (read - started),
            "evaluate_ms": 1000 * (evaluated - read),
            "write_ms": 1000 * (time.perf_counter() - evaluated),
        }
        told_progress = {"bucket": number, "stream": stream.name, "route": route.field, **asdict(counts), **parts}
        return [*said, Said("job-progress", "bucket", json.dumps(told_progress), None)]

    def _bucket(self, number: int, route: Route, stream: Stream, head: Head, log: StateLog) -> Bucket:
        """The bucket's engine where the log is: the cached one as far as it is a beginning of the log."""
        cached = _cache.pop((self._plan.checkpoint, self._plan.incarnation, number), None)
        if cached is not None and head.holds(cached.version, cached.token):
            bucket, version = cached.bucket, cached.version
        else:
            book = self._plan.rule_book()
            bucket = Bucket(stream, route, book, announces_rules=number == 0)
            version = 0
        if version < head.version:
            bucket.receive(self._received())
            bucket.restore(log.read(entry) for entry in head.missing(version))
        return bucket

    def _received(self) -> list[RuleMessage]:
        """The rule messages this bucket has received since some earlier start of the job."""
        stored = self._rules.get()
        return [] if stored is None else [_message(m) for m in json.loads(bytes(stored[0]))]

    def _receive(self, bucket: Bucket, written: list[dict[str, Any]]) -> list[Said]:
        fresh = sorted((m for m in written if m["offset"] >= bucket.book.next_offset), key=lambda m: m["offset"])
        if not fresh:
            return []
        since = self._plan.rules[-1].offset if self._plan.rules else -1
        stored = self._rules.get()
        kept = [] if stored is None else [m for m in json.loads(bytes(stored[0])) if m["offset"] > since]
        self._rules.update((json.dumps(kept + fresh).encode(),))
        return bucket.receive([_message(m) for m in fresh])

    def _clock(self, packed: list[tuple[str, bytes]]) -> int | None:
        """The latest clock of this run; one of an earlier run may speak of records that are yet to be read again."""
        clocks = [json.loads(payload) for kind, payload in packed if kind == Kind.CLOCK]
        return max((c["clock"] for c in clocks if c["incarnation"] == self._plan.incarnation), default=None)


def _message(written: Mapping[str, Any]) -> RuleMessage:
    return RuleMessage(written["offset"], written["arrival"], written["value"].encode("utf-8", "surrogateescape"))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
