"""Purpose: the job's own buckets without Spark, Kafka or time: what a batch emits, and what is kept.

How it works: the job's packer sends a batch to the buckets, after the driver's answers to its rule messages. An attempt
that fails leaves its files behind, and the worker's memory; the batch is then repeated, by that worker or by another. A
restart keeps what was committed. In every other run there are two executors, each with a memory of its own that
restarts leave to it: which of them has a bucket for a batch is as good as chance.

Versions that wait for history are exported and answered where the run says so, from all events that were read. There,
too, and at each restart, shuffle keys that rules need are made, and those that none needs any more dropped.

What it does not do: publish clocks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from zlib import crc32

import pyarrow as pa

from nightjar.cases.documents import json_text
from nightjar.contracts.clock import Clock
from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import answer_record, fold
from nightjar.contracts.table_changes import ChangeReader
from nightjar.contracts.topics import Topics
from nightjar.ingestion.event_schema import PRIMARY, events_schema
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.publishing import Answer as AnswerKind
from nightjar.rules.publishing import Status
from nightjar.rules.rulebook import WHOLE_STREAM, Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP, microseconds
from nightjar.rules.types import FieldType
from nightjar.rules.versions import Primed, RuleVersion, naming
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import Payload
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.primed_state import ExportWriter
from nightjar.streaming.buckets.processor import BucketProcessor
from nightjar.streaming.buckets.table_follower import TableFollower, TablesTopic
from nightjar.streaming.driver.answering import answer_to
from nightjar.streaming.partitioning import bucket_numbers, buckets_of
from nightjar.streaming.priming.coverage import Coverage, Since, needs_of
from nightjar.streaming.priming.history import AS_IT_IS, Ready
from nightjar.streaming.state.state_files import begin, files_of, remove
from nightjar.streaming.state.statelog import FIRST_INSTANT, NOTHING
from tests.support.random_cases import change_json, event_json
from tests.support.random_runs import Batch, Listed, Published, Restart, Run, place
from tests.support.reference import Event
from tests.support.unions import place_in_topic

_TOPICS = Topics()
_KAFKA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
    ]
)


@dataclass
class Emitted:
    """The records of a batch by topic, without the time of emission."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    rule_status: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Activated:
    """A version that waited takes effect. has: the history that the next batch brings for it; None: it is there.
    settled: event time (µs) before which the stream evaluated nothing any more when that was exported."""

    rule_id: str
    version: int
    effective: int
    shuffle_key: ShuffleKey
    has: Since | None
    settled: int


class _Follower:
    """The rows of tables, of which more is read than any batch has: what events see depends on positions alone."""

    def __init__(self, run: Run) -> None:
        self._rows = TableRows(run.declared.tables)
        changes = ChangeReader(run.declared.tables)
        self._rows.add(changes.read(map(change_record, run.changes)), len(run.changes))

    def end(self) -> int:
        """See streaming.buckets.table_follower."""
        return self._rows.position

    def up_to(self, position: int) -> TableRows:
        """See streaming.buckets.table_follower."""
        assert position <= self._rows.position
        return self._rows


@dataclass(frozen=True)
class _Tables(TablesTopic):
    """In the place of the topic, which a run has without Kafka."""

    of: _Follower | None = None

    def follower(self, tables: Mapping[str, FieldType]) -> TableFollower:
        """See streaming.buckets.table_follower."""
        return cast("TableFollower", self.of)


def change_record(listed: Listed) -> Record:
    """A change as its record on the topic."""
    return Record(listed.offset, listed.arrival, json_text(change_json(listed.change)).encode())


class StreamHost:
    """A job over the streams of a run. folder: takes its state; buckets: the shuffle key of each bucket; begun: how
    often each has begun without state."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._shuffle_keys: list[ShuffleKey] = []
        self._dropped = frozenset[ShuffleKey]()
        self._lacks: dict[ShuffleKey, dict[int, int]] = {}  # by partition the offset before which it has no event
        self._clocks: dict[str, int] = {}  # that this start of the job has published
        self.buckets: list[ShuffleKey] = []
        self.begun: list[int] = []
        self._state = folder
        self._version = 0
        self._answers: list[Record] = []
        self._starts = 0
        self._delivered = 0  # answers that batches have brought
        self._read: dict[str, list[Event]] = {}
        self._export: tuple[str, ShuffleKey, Since, int] | None = None  # that no answer names yet
        self._exports = 0
        self._tables = _Tables(_TOPICS.tables, {}, _Follower(run)) if run.declared.tables else None
        self._tables_read = 0

    @property
    def answers(self) -> tuple[Record, ...]:
        """All that was answered so far, about messages and versions, in order."""
        return tuple(self._answers)

    def restart(self, restart: Restart) -> None:
        """Start the job, again if it runs."""
        self._starts += 1
        self._export = None
        self._streams, self._delay = self._run.streams(restart), restart.activation_delay
        self._approvals, self._clocks = restart.approvals, {}
        self.book = RuleBook(self._streams)
        for answer in self._answers:
            fold(self.book, answer)
        self._change_shuffle_keys()
        self._begin()

    def _begin(self) -> None:
        """Start the query from what was committed."""
        begin(self._state, self._committed, f"run-{self._starts}", self._kept_exports)
        self._plan = BucketPlan(
            str(self._state),
            f"run-{self._starts}",
            self._state,
            self.book.streams,
            tuple(self._shuffle_keys),
            self._run.buckets,
            _TOPICS,
            self._known_answers,
            alerts_per_rule_and_hour=2,
            tables=self._tables,
            tables_read=self._committed_tables,
        )
        self._executors = [BucketProcessor(self._plan) for _ in range(1 + len(self._run.steps) % 2)]

    @property
    def _committed(self) -> int:
        """The version of the last committed batch."""
        return self._version

    @property
    def _committed_tables(self) -> int:
        """The position up to which committed batches have read changes of tables."""
        return self._tables_read

    @property
    def _known_answers(self) -> tuple[Record, ...]:
        """Those that a start of the query knows before it reads any."""
        return tuple(self._answers)

    @property
    def _kept_exports(self) -> list[str]:
        """The exports that a start of the query keeps, as no committed batch has taken them in."""
        return [] if self._export is None else [self._export[0]]

    def plan(self) -> None:
        """Start the query again where versions wait for a shuffle key, or nothing needs one any more."""
        lacking = self.book.wanted() - self._in_use
        if lacking or self.book.unused(self._clocks) & self._in_use:
            self._starts += 1
            self._change_shuffle_keys()
            self._begin()

    @property
    def _in_use(self) -> frozenset[ShuffleKey]:
        return frozenset(self._shuffle_keys) - self._dropped

    def shuffle_key_of_rule(self, rule_id: str) -> ShuffleKey:
        """The shuffle key that serves the newest version of a rule that was accepted."""
        rule = self.book.of_rule(rule_id)[-1].rule
        return self.shuffle_key_of(rule.stream, rule.group_by)

    def is_made(self, key: ShuffleKey) -> bool:
        """Whether it is a shuffle key that the job has to make."""
        return key.field not in self._streams[key.stream].entities

    def shuffle_key_of(self, stream: str, group_by: tuple[str, ...]) -> ShuffleKey:
        """The shuffle key that serves a group-by of a rule that was accepted."""
        return self.book.serving[stream, group_by]

    def _change_shuffle_keys(self) -> None:
        """Make the shuffle keys that versions have needed, and drop those that none needs; both have no state then."""
        unused, wanted = self.book.unused(self._clocks), self.book.wanted()
        added = [r for r in self.book.shuffle_keys if self._run.evaluates(r.stream) and r not in self._shuffle_keys]
        again = self._dropped & wanted
        self._shuffle_keys += added
        self.buckets += [key for key in added for _ in range(self._run.buckets)]
        self.begun += [1 for _ in added for _ in range(self._run.buckets)]
        self._dropped = (self._dropped | unused) - again
        for number, key in enumerate(self._shuffle_keys):
            if key in again | self._dropped:
                remove(self._state, buckets_of(number, key, self._run.buckets))
            if key in again:
                for bucket in buckets_of(number, key, self._run.buckets):
                    self.begun[bucket] += 1
            if key in again or key in added:
                self._lacks[key] = self._ends(key.stream)

    def _ends(self, stream: str) -> dict[int, int]:
        """By partition of a stream, the offset after the last event that was read."""
        ends: dict[int, int] = {}
        for event in self._read.get(stream, []):
            ends[event["partition"]] = max(ends.get(event["partition"], 0), event["offset"] + 1)
        return ends

    def unread(self, bucket: int) -> list[Event]:
        """The events of a bucket that were read before it began."""
        stream = self.buckets[bucket].stream
        ends = self._lacks[self.buckets[bucket]]
        read = self.shares(stream, self._read.get(stream, []))[bucket]
        return [event for event in read if event["offset"] < ends.get(event["partition"], 0)]

    def answer(self, messages: Iterable[Published]) -> list[dict[str, Any]]:
        """Answer rule messages, once and for all; the next batch brings the answers to the buckets."""
        answers = []
        for message in messages:
            record = Record(message.offset, message.arrival, json_text(message.written).encode())
            about = f"{_TOPICS.rules}-0-{message.offset}"
            shuffle_keys = self._in_use | {key for key in self.book.shuffle_keys if not self._run.evaluates(key.stream)}
            history = self if self._run.primes else AS_IT_IS
            _, value = answer_to(
                record, about, self.book, shuffle_keys, self._delay, approvals=self._approvals, history=history
            )
            self._answered(message.arrival, value)
            answers.append(value)
        return answers

    def _answered(self, arrival: int, value: dict[str, Any]) -> None:
        self._answers.append(Record(len(self._answers), arrival, json.dumps(value).encode()))
        fold(self.book, self._answers[-1])

    def lacking(self, version: RuleVersion, key: ShuffleKey, by: Sequence[RuleVersion] = ()) -> str | None:
        """See streaming.priming.history: of the versions that wait here for what priming.py gives them."""
        if not self._run.evaluates(version.rule.stream):
            return None
        needs, coverage = needs_of(version, self._streams[key.stream], by), self._coverage(key)
        if coverage is None:
            has = not self._lacks[key]
        else:
            has = coverage.has(needs.since(max(version.effective, coverage.settled)), coverage.settled)
        return "it waits for its history" if needs and not has else None

    def find(
        self, version: RuleVersion, key: ShuffleKey, by: Sequence[RuleVersion] = (), *, is_known: bool
    ) -> Ready | None:
        """See streaming.priming.history: what there is."""
        needs, coverage = needs_of(version, self._streams[key.stream], by), self._coverage(key)
        if not needs:
            return Ready()
        if not is_known or coverage is None:
            return None
        since = needs.since(coverage.settled)
        if coverage.has(since, coverage.settled):
            return Ready(Primed(max(since.earliest if needs.steps else coverage.horizon, MIN_TIMESTAMP)))
        if self._export is None or self._export[1] != key or not self._export[2].covers(since):
            return None
        return Ready(Primed(max(self._export[2].earliest, MIN_TIMESTAMP), self._export[0]))

    def _coverage(self, key: ShuffleKey) -> Coverage | None:
        heads = {
            other: [
                files_of(self._state, bucket, self._plan.run_id).before(self._version + 1)
                for bucket in buckets_of(number, other, self._run.buckets)
            ]
            for number, other in enumerate(self._shuffle_keys)
            if other.stream == key.stream
        }
        if any(head.version == NOTHING for head in heads[key]):
            return None
        lacks = {} if all(head.primed for head in heads[key]) else self._lacks[key]
        return Coverage(tuple(heads[key]), lacks, max(head.settled for of in heads.values() for head in of))

    def _waiting(self) -> list[RuleVersion]:
        """The versions that wait, as far as the buckets know them, for nothing but history."""
        known = RuleBook(self._plan.streams)
        for answer in self._answers[: self._delivered]:
            fold(known, answer)
        return [version for version in known.waiting if self.book.shuffle_key_of(version.rule) in self._in_use]

    def prepare(self, step: Batch) -> ShuffleKey | None:
        """What the driver does before a batch, but for answers; returns the shuffle key whose history was exported."""
        if step.history not in ("export", "both"):
            return None
        self.plan()
        return self.export() if self._run.primes else None

    def export(self) -> ShuffleKey | None:
        """Export the history of what waits, unless that is done; returns the shuffle key whose state lacks it."""
        for version in self._waiting() if self._export is None else ():
            key = self.book.shuffle_key_of(version.rule)
            coverage, stream = self._coverage(key), self._streams[key.stream]
            by = naming(version, self.book.ruleset)
            if coverage is None or self.find(version, key, by, is_known=True) is not None:
                continue
            waiting = [v for v in self._waiting() if self.book.shuffle_key_of(v.rule) == key]
            needs = (needs_of(v, stream, naming(v, self.book.ruleset)) for v in waiting)
            has = Since.of_all(each.since(coverage.settled) for each in needs)
            self._exports += 1
            name, ends, read = f"export{self._exports}", self._ends(stream.name), self._read.get(stream.name, [])
            first = self._shuffle_keys.index(key) * self._run.buckets
            shares = self.shares(stream.name, sorted(read, key=place))
            for at, lack in enumerate(coverage.lacking(has), first):
                files = files_of(self._state, at, self._plan.run_id)
                begin = coverage.heads[at - first].first - len(read)
                writer = ExportWriter(files, stream, name, lack, first=begin, ends=ends)
                for some in range(0, len(shares[at]), 5):
                    writer.take(lake_table(shares[at][some : some + 5], stream))
                writer.close()
            self._export = name, key, has, coverage.settled
            return key
        return None

    def activate(self, at: int) -> Iterator[Activated]:
        """Answer that versions which waited take effect, at this time (µs): those whose key is there, and history."""
        history, known = self if self._run.primes else AS_IT_IS, {(v.rule.id, v.version) for v in self._waiting()}
        for version in self.book.waiting:
            key, name = self.book.shuffle_key_of(version.rule), (version.rule.id, version.version)
            if key not in self._in_use:
                continue
            ready = history.find(version, key, naming(version, self.book.ruleset), is_known=name in known)
            if ready is None:
                continue
            effective, stated = at + self._delay, version.rule.effective
            if stated is not None:
                effective = max(at, microseconds(stated)) if ready.primed is None else microseconds(stated)
            status = Status(AnswerKind.ACTIVE, *name, effective, primed=ready.primed)
            _, value = answer_record(status, allowed_lateness=self._streams[key.stream].allowed_lateness)
            self._answered(at, value)
            has, settled = None, FIRST_INSTANT
            if ready.primed is not None and ready.primed.name and self._export is not None:
                (_, _, has, settled), self._export = self._export, None
            yield Activated(*name, effective, key, has, settled)
            if has is not None:
                return  # what else the history serves is found in the state

    def shares(self, stream: str, events: list[Event]) -> list[list[Event]]:
        """By bucket, the events of a stream that belong to it."""
        of_bucket: list[list[Event]] = [[] for _ in self.buckets]
        for number, key in enumerate(self._shuffle_keys):
            if key.stream != stream or key in self._dropped or not events:
                continue
            if key.field == WHOLE_STREAM:
                of_bucket[number * self._run.buckets] += events
                continue
            kind = self._streams[stream].fields[key.field].arrow
            column = pa.array([event[key.field] for event in events], kind)
            for event, at in zip(events, bucket_numbers(column, self._run.buckets), strict=True):
                of_bucket[number * self._run.buckets + at].append(event)
        return of_bucket

    def runs(self, bucket: int) -> bool:
        """Whether the bucket is one that batches are sent to."""
        number, key = bucket // self._run.buckets, self.buckets[bucket]
        return key not in self._dropped and bucket in buckets_of(number, key, self._run.buckets)

    def speaks(self, bucket: int) -> bool:
        """Whether this bucket reports the late ones of its events."""
        key = self.buckets[bucket]
        return key == next(other for other in self._shuffle_keys if other.stream == key.stream)

    def take(self, batch: Batch) -> list[Emitted]:
        """What each bucket emits. Raises AssertionError where a repeated attempt emits something else."""
        packed = self._packed(batch)
        self._delivered = len(self._answers)
        self._tables_read += len(batch.changes)
        emitted = self._process(batch, packed)
        for name in self._streams:
            self._read.setdefault(name, []).extend(batch.of(name).events)
        return emitted

    def _process(self, batch: Batch, packed: list[dict[str, list[Payload]]]) -> list[Emitted]:
        self._version += 1
        if batch.again:
            failed = [self._attempt(number, packed) for number in range(len(packed))]
            if batch.clock is None:  # by another worker; else by the one that took part in the attempt that failed
                alone = len(self._executors) == 1
                self._executors = [BucketProcessor(self._plan)] if alone else self._executors[::-1]
        emitted = [self._attempt(number, packed) for number in range(len(packed))]
        assert not batch.again or failed == emitted, f"first {failed}, then {emitted}"
        return emitted

    def _attempt(self, number: int, packed: list[dict[str, list[Payload]]]) -> Emitted:
        if not packed[number]:
            return Emitted()  # the task knows nothing of the bucket
        at = crc32(f"{self._version} {number}".encode()) % len(self._executors)
        return read_records(self._executors[at].process(number, self._version, packed[number]))

    def _packed(self, batch: Batch) -> list[dict[str, list[Payload]]]:
        """What each bucket gets, by kind."""
        answers = [
            (_TOPICS.rule_status, 0, answer.offset, answer.arrival, answer.value)
            for answer in self._answers[self._delivered :]
        ]
        of_batch = {name: batch.of(name) for name in self._streams}
        clocks = {name: of.clock for name, of in of_batch.items() if of.clock is not None}
        self._clocks |= {name: max(clock, self._clocks.get(name, clock)) for name, clock in clocks.items()}
        clock = [(_TOPICS.clock, 0, 0, batch.at, Clock(self._plan.run_id, clocks).encoded())] if clocks else []
        listed = map(change_record, batch.changes)
        changes = [(_TOPICS.tables, 0, each.offset, each.arrival, each.value) for each in listed]
        events = [
            (
                *place_in_topic(stream, each["partition"]),
                each["offset"],
                each["arrival"],
                event_json(stream, each).encode(),
            )
            for name, stream in self._streams.items()
            for each in of_batch[name].events
        ]
        dropped = frozenset(number for number, key in enumerate(self._shuffle_keys) if key in self._dropped)
        members = {source.name: source for stream in self._streams.values() for source in stream.sources}
        packer = Packer(
            {**members, **self._streams},
            self._plan.shuffle_keys,
            self._run.buckets,
            1,
            _TOPICS.rule_status,
            _TOPICS.clock,
            _TOPICS.quarantine,
            bounded=False,
            dropped=dropped,
            tables_topic=None if self._tables is None else _TOPICS.tables,
        )
        found: list[dict[str, list[Payload]]] = [{} for _ in self.buckets]
        for bucket, kind, payload in packer.packed(_records([*answers, *clock, *changes, *events])):
            found[bucket].setdefault(kind, []).append(payload)
        return found


def _records(rows: list[tuple[str, int, int, int, bytes]]) -> pa.Table:
    """What the packer reads, of topic, partition, offset, arrival (µs) and value."""
    columns = zip(*rows, strict=True) if rows else [()] * len(_KAFKA)
    of = [pa.array(column, kind) for column, kind in zip(columns, _KAFKA.types, strict=True)]
    read = pa.table(of, _KAFKA)
    return read.append_column(SENT_AT, pa.nulls(read.num_rows, pa.int64()))


def played(run: Run) -> Iterator[str]:
    """What each shuffle key's bucket emits at each step, for people."""
    with TemporaryDirectory(prefix="nightjar-run-") as folder:
        host = StreamHost(run, Path(folder))
        for number, step in enumerate(run.steps):
            if isinstance(step, Restart):
                host.restart(step)
                continue
            host.prepare(step)
            for activated in host.activate(step.at) if step.history in ("answer", "both") else ():
                yield f"step {number}, {activated}"
            for answer in host.answer(step.messages):
                yield f"step {number}, answer: {json_text(answer)}"
            for key, emitted in zip(host.buckets, host.take(step), strict=True):
                for records in (emitted.rule_status, emitted.late, emitted.alerts):
                    for record in records:
                        yield f"step {number}, {key.field}: {json_text(record)}"


def lake_table(events: list[dict[str, Any]], stream: Stream) -> pa.Table:
    """The events as the lake has them."""
    columns = [column for column in events_schema(stream) if column.name not in (SENT_AT, PRIMARY)]
    named = [{**event, "arrival_time": event["arrival"]} for event in events]
    return pa.table(
        [
            pa.array([event[column.name] for event in named], pa.int64()).cast(column.type)
            if pa.types.is_timestamp(column.type)
            else pa.array([event[column.name] for event in named], column.type)
            for column in columns
        ],
        schema=pa.schema(columns),
    )


def read_records(tables: Iterable[pa.Table]) -> Emitted:
    """What a bucket emits, from output_records.RECORDS."""
    emitted = Emitted()
    wanted = {
        _TOPICS.alerts: emitted.alerts,
        _TOPICS.late_events: emitted.late,
        _TOPICS.rule_status: emitted.rule_status,
    }
    for row in (row for table in tables for row in table.to_pylist()):
        if row["topic"] in wanted:
            record = json.loads(row["value"])
            record.pop("emitted_at", None)
            wanted[row["topic"]].append(record)
    return emitted
