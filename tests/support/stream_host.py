"""Purpose: the job's own buckets without Spark, Kafka or time: what a batch emits, and what is kept.

How it works: a batch goes to every bucket as the packer would send it, after the driver's answers to its rule
messages. An attempt that fails leaves its files behind, and the worker's memory; the batch is then repeated, by that
worker or by another. A restart keeps what was committed. In every other run there are two executors, each with a memory
of its own that restarts leave to it: which of them has a bucket for a batch is as good as chance.

What it does not do: parse, plan routes again (all rules group by an entity field), or publish clocks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zlib import crc32

import pyarrow as pa

from contracts.headers import SENT_AT
from contracts.rule_status import fold
from contracts.topics import Topics
from ingestion.event_schema import PRIMARY, events_schema
from nightjar.cases.documents import json_text
from rules.rulebook import Record, Route, RuleBook
from rules.streams import Stream
from streaming import resident_buckets
from streaming.answering import answer_to
from streaming.partitioning import bucket_numbers
from streaming.payloads import Kind, to_ipc
from streaming.plan import BucketPlan
from streaming.processor import BucketProcessor
from streaming.state_files import begin
from tests.support.random_runs import Batch, Published, Restart, Run
from tests.support.reference import Event

_TOPICS = Topics()


@dataclass
class Emitted:
    """The records of a batch by topic, without the time of emission."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    rule_status: list[dict[str, Any]] = field(default_factory=list)


class StreamHost:
    """A job over the stream of a run. folder: takes its state; buckets: the route of each bucket."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._stream = run.declared
        self._routes = [Route(self._stream.name, name) for name in self._stream.entities]
        self.buckets = [route for route in self._routes for _ in range(run.buckets)]
        self._state = folder
        self._version = 0
        self._answers: list[Record] = []
        self._starts = 0
        self._executors: list[dict[Any, Any]] = [{}, {}] if len(run.steps) % 2 else [{}]

    def restart(self, restart: Restart) -> None:
        """Start the job, again if it runs."""
        if len(self._executors) == 1:
            self._executors[0].clear()
        self._starts += 1
        begin(self._state, self._version, f"run-{self._starts}")
        streams = self._run.streams(restart)
        self._stream, self._delay = streams[self._stream.name], restart.activation_delay
        self._approvals = restart.approvals
        self.book = RuleBook(streams)
        for answer in self._answers:
            fold(self.book, answer)
        self._plan = BucketPlan(
            str(self._state), f"run-{self._starts}", self._state, streams, tuple(self._routes), self._run.buckets,
            _TOPICS, tuple(self._answers), alerts_per_rule_and_hour=2,
        )  # fmt: skip

    def answer(self, messages: Iterable[Published]) -> list[dict[str, Any]]:
        """Answer rule messages, once and for all; the next batch brings the answers to the buckets."""
        answers = []
        for message in messages:
            record = Record(message.offset, message.arrival, json_text(message.written).encode())
            about = f"{_TOPICS.rules}-0-{message.offset}"
            routes = self.book.routes
            _, value = answer_to(record, about, self.book, routes, self._delay, approvals=self._approvals)
            self._answers.append(Record(len(self._answers), message.arrival, json.dumps(value).encode()))
            fold(self.book, self._answers[-1])
            answers.append(value)
        return answers

    def shares(self, events: list[Event]) -> list[list[Event]]:
        """The events that are sent to each bucket."""
        of_bucket: list[list[Event]] = [[] for _ in self.buckets]
        for number, route in enumerate(self._routes):
            column = pa.array([event[route.field] for event in events], self._stream.fields[route.field].arrow)
            places = bucket_numbers(column, self._run.buckets) if events else []
            for event, place in zip(events, places, strict=True):
                of_bucket[number * self._run.buckets + place].append(event)
        return of_bucket

    def speaks(self, bucket: int) -> bool:
        """Whether this bucket reports the late ones of its events."""
        return bucket < self._run.buckets

    def take(self, batch: Batch) -> list[Emitted]:
        """What each bucket emits. Raises AssertionError where a repeated attempt emits something else."""
        packed = self._packed(batch)
        self._version += 1
        if batch.again:
            failed = [self._attempt(number, packed) for number in range(len(packed))]
            if batch.clock is None:  # by another worker; else by the one that took part in the attempt that failed
                self._executors = [{}] if len(self._executors) == 1 else self._executors[::-1]
        emitted = [self._attempt(number, packed) for number in range(len(packed))]
        assert not batch.again or failed == emitted, f"first {failed}, then {emitted}"
        return emitted

    def _attempt(self, number: int, packed: list[dict[str, list[bytes]]]) -> Emitted:
        if not packed[number]:
            return Emitted()  # the task knows nothing of the bucket
        at = crc32(f"{self._version} {number}".encode()) % len(self._executors)
        with patch.object(resident_buckets, "_cache", self._executors[at]):
            return _read(BucketProcessor(self._plan).process(number, self._version, packed[number]))

    def _packed(self, batch: Batch) -> list[dict[str, list[bytes]]]:
        """What each bucket gets, by kind."""
        shared: dict[str, list[bytes]] = {}
        for answer in self._answers[len(self._answers) - len(batch.messages) :]:
            written = {"offset": answer.offset, "arrival": answer.arrival, "value": answer.value.decode()}
            shared.setdefault(Kind.RULE, []).append(json.dumps(written).encode())
        if batch.clock is not None:
            clocks = {"run_id": self._plan.run_id, "clocks": {self._stream.name: batch.clock}}
            shared[Kind.CLOCK] = [json.dumps(clocks).encode()]
        found = []
        for number, share in enumerate(self.shares(batch.events)):
            events = [{**event, SENT_AT: None, PRIMARY: self.speaks(number)} for event in share]
            payload = to_ipc(_table(events, events_schema(self._stream)))
            found.append({**shared, **({Kind.EVENTS: [payload]} if events else {})})
        return found


def played(run: Run) -> Iterator[str]:
    """What each route's bucket emits at each step, for people."""
    with TemporaryDirectory(prefix="nightjar-run-") as folder:
        host = StreamHost(run, Path(folder))
        for number, step in enumerate(run.steps):
            if isinstance(step, Restart):
                host.restart(step)
                continue
            for answer in host.answer(step.messages):
                yield f"step {number}, answer: {json_text(answer)}"
            for route, emitted in zip(host.buckets, host.take(step), strict=True):
                for records in (emitted.rule_status, emitted.late, emitted.alerts):
                    for record in records:
                        yield f"step {number}, {route.field}: {json_text(record)}"


def lake_table(events: list[dict[str, Any]], stream: Stream) -> pa.Table:
    """The events as the lake has them."""
    schema = events_schema(stream)
    return _table(events, pa.schema([schema.field(name) for name in schema.names if name not in (SENT_AT, PRIMARY)]))


def _table(events: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    named = [{**event, "arrival_time": event["arrival"]} for event in events]
    return pa.table(
        [
            pa.array([event[column.name] for event in named], pa.int64()).cast(column.type)
            if pa.types.is_timestamp(column.type)
            else pa.array([event[column.name] for event in named], column.type)
            for column in schema
        ],
        schema=schema,
    )


def _read(tables: Iterable[pa.Table]) -> Emitted:
    emitted = Emitted()
    wanted = {
        _TOPICS.alerts: emitted.alerts, _TOPICS.late_events: emitted.late, _TOPICS.rule_status: emitted.rule_status,
    }  # fmt: skip
    for row in (row for table in tables for row in table.to_pylist()):
        if row["topic"] in wanted:
            record = json.loads(row["value"])
            record.pop("emitted_at", None)
            wanted[row["topic"]].append(record)
    return emitted
