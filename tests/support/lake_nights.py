"""Purpose: nights over a lake in a folder, without Spark and Kafka, so that many of them pass in a minute.

How it works: tables, stages and what they write are the real ones. Topics are in memory; `archive` brings them to the
tables with the archive's readers. Corrections go through backfill/publish/publication.py, whose Kafka clients are given
a topic in memory that knows transactions. There are so few rows that Spark is never asked.

What it does not do: the gate, which looks up offsets in Kafka, and takes longer than all other stages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
from deltalake import write_deltalake
from kafka import TopicPartition

from nightjar.backfill import run
from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.publish import publication
from nightjar.backfill.run import Run
from nightjar.backfill.upkeep.pending import pending_days
from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.quarantine import quarantine_record
from nightjar.lake.archive import make_tables
from nightjar.lake.config import LakeConfig
from nightjar.lake.events import EventReader
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, ARCHIVES, LATE_EVENTS, PROGRESS, QUARANTINE, RULE_STATUS, Table, events_table
from nightjar.rules.events import Rejection, parse_event
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from tests.support.random_cases import event_json
from tests.support.reference import Event

STAGES = ("evaluate", "reconcile", "publish")
# What stages are given as a session: how many tasks there could be.
_SESSION = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)))
_RECORDS = pa.schema(
    [
        ("value", pa.binary()),
        ("sent_at", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("arrival_time", pa.timestamp("us", "UTC")),
        ("arrival_date", pa.date32()),
    ]
)


class Killed(BaseException):
    """The process was killed, which nothing in it can handle."""


@dataclass(frozen=True)
class Sent:
    """A record of a topic. arrival: µs; sent_at: its header, µs."""

    partition: int
    offset: int
    arrival: int
    value: bytes
    sent_at: int | None = None


@dataclass
class LakeNights:
    """A lake of one stream in the folder `root`, and the topics that it is archived from."""

    root: Path
    stream: Stream
    pending_days: int = 10_000
    runs: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        make_tables(self.config.lake)
        place = self.root / "_archive" / "metadata"
        place.parent.mkdir()
        place.write_text('{"id": "in-memory"}')
        self._waiting: dict[str, list[Sent]] = {}
        self._consumed: dict[int, int] = {}
        self._clock: int | None = None
        self._alerts: list[Sent] = []
        self._ends: dict[str, int] = {}
        self.archived = 0  # until then (µs)

    @property
    def config(self) -> BackfillConfig:
        """The configuration, by the stream's declaration of now."""
        lake = LakeConfig(self.root, {self.stream.name: self.stream})
        return BackfillConfig(lake, "broker", pending_days=self.pending_days)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """All committed records of the alerts topic, in their order."""
        return [json.loads(sent.value) for sent in self._alerts]

    def declare(self, allowed_lateness: int) -> None:
        """From now on so many µs."""
        self.stream = replace(self.stream, allowed_lateness=allowed_lateness)

    def send(self, events: Iterable[Event]) -> None:
        """Events, with `arrival`, `partition` and `offset`, to the stream's topic; some have `sent_at`."""
        for each in events:
            value = event_json(self.stream, each).encode()
            sent = Sent(each["partition"], each["offset"], each["arrival"], value, each.get("sent_at"))
            self._waiting.setdefault(events_table(self.stream).name, []).append(sent)

    def send_unusable(self, records: Iterable[Sent], at: int) -> None:
        """Records that are no events to the stream's topic, which the job puts in quarantine at that time (µs)."""
        for each in records:
            rejection = parse_event(each.value, self.stream)
            assert isinstance(rejection, Rejection)
            place = {"partition": each.partition, "offset": each.offset, "arrival": each.arrival}
            _, record = quarantine_record(rejection, self.stream, **place, raw=each.value)
            self._waiting.setdefault(events_table(self.stream).name, []).append(each)
            self._add(QUARANTINE, at, [record])

    def answer(self, answers: Iterable[Record]) -> None:
        """Answers to rule messages."""
        for each in answers:
            self._waiting.setdefault(RULE_STATUS.name, []).append(Sent(0, each.offset, each.arrival, each.value))

    def read(
        self,
        at: int,
        events: Iterable[Event],
        alerts: Iterable[Mapping[str, Any]],
        late: Iterable[Mapping[str, Any]],
        clock: int | None = None,
    ) -> None:
        """What the job has read by then (µs), and announced. clock: µs, if it has taken in one."""
        if clock is not None:
            self._clock = clock if self._clock is None else max(self._clock, clock)
        for each in events:
            self._consumed[each["partition"]] = max(self._consumed.get(each["partition"], 0), each["offset"] + 1)
        self._add(LATE_EVENTS, at, late)
        self._alerts += self._add(ALERTS, at, ({**alert, "emitted_at": None} for alert in alerts))
        began = dict.fromkeys(self._consumed, 0)
        offsets = {"consumed": self._of_topic(self._consumed), "began": self._of_topic(began)}
        clocks = {} if self._clock is None else {self.stream.name: self._clock}
        self._add(PROGRESS, at, [{"kind": "job", **offsets, "clocks": clocks}])

    def _of_topic(self, offsets: Mapping[int, int]) -> dict[str, dict[str, int]]:
        return {self.stream.topic: {str(partition): offset for partition, offset in offsets.items()}}

    def _add(self, table: Table, arrival: int, records: Iterable[Mapping[str, Any]]) -> list[Sent]:
        first = self._ends.get(table.name, 0)
        sent = [Sent(0, offset, arrival, ascii_json(record)) for offset, record in enumerate(records, first)]
        self._ends[table.name] = first + len(sent)
        self._waiting.setdefault(table.name, []).extend(sent)
        return sent

    def archive(self, until: int) -> None:
        """Bring everything that arrived before then (µs) to the lake."""
        readers = [(table, JsonReader(table)) for table in (ALERTS, LATE_EVENTS, PROGRESS, RULE_STATUS, QUARANTINE)]
        for table, reader in (*readers, (events_table(self.stream), EventReader(self.stream))):
            waiting = self._waiting.get(table.name, [])
            come = [sent for sent in waiting if sent.arrival < until]
            self._waiting[table.name] = [sent for sent in waiting if sent.arrival >= until]
            if come:
                rows = pa.Table.from_batches(reader(iter([_batch(come)])))
                write_deltalake(
                    str(self.root / table.name),
                    rows.cast(table.arrow),
                    mode="append",
                    partition_by=list(table.partitioned_by) or None,
                )
        self.archived = max(self.archived, until)
        row = {"finished_at": from_microseconds(until), "until": from_microseconds(until), "rows": "{}", "seconds": 0.0}
        write_deltalake(str(self.root / ARCHIVES.name), pa.Table.from_pylist([row], ARCHIVES.arrow), mode="append")

    def night(self, day: date, *stages: str, now: int, run_id: str | None = None, **asked: Any) -> dict[str, Any]:
        """Some stages of a run of a day (none: all); what they counted. now: arrival of corrections, µs; asked: see
        RunRequest.

        Raises:
            VerdictError: corrections were held back, for example.
        """
        self.runs += run_id is None
        made = Run(_SESSION, self.config, RunRequest(run_id or f"run-{self.runs}", day, **asked))
        with self._published(now), patch.object(run, "gate_reconciliation", lambda *_: {}):
            for stage in stages or STAGES:
                made.do(stage)
        return made.counts

    def pending(self) -> list[date]:
        """The pending days, oldest first."""
        return [each.day for each in pending_days(self.config)]

    @contextmanager
    def _published(self, now: int) -> Iterator[None]:
        """Corrections come to the alerts topic at that time."""

        def take(sent: Iterable[tuple[str, bytes]]) -> None:
            mine = [json.loads(value) for topic, value in sent if topic == self.config.lake.topics.alerts]
            self._alerts += self._add(ALERTS, now, mine)

        with (
            patch.object(publication, "KafkaProducer", lambda **_: Producer(take)),
            patch.object(publication, "KafkaConsumer", lambda **_: _Consumer(self._alerts)),
        ):
            yield


class Producer:
    """A transactional producer: what is sent is there once its transaction is committed."""

    def __init__(self, take: Any) -> None:
        self._take = take
        self._open: list[tuple[str, bytes]] = []

    def init_transactions(self) -> None:
        """Nothing is left open by another one."""

    def begin_transaction(self) -> None:
        """From here on."""
        self._open = []

    def send(self, topic: str, *, key: bytes, value: bytes) -> Any:
        """A record, within the transaction."""
        assert key
        self._open.append((topic, value))
        return SimpleNamespace(get=lambda _seconds: None)

    def commit_transaction(self) -> None:
        """All of it at once."""
        self._take(self._open)

    def close(self) -> None:
        """Nothing to do."""


class _Consumer:
    """A consumer of committed records of a topic with one partition."""

    def __init__(self, records: list[Sent]) -> None:
        self._records, self._at = records, 0

    def partitions_for_topic(self, _topic: str) -> set[int]:
        """One."""
        return {0}

    def assign(self, places: list[TopicPartition]) -> None:
        """There is one to read."""
        assert len(places) == 1

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Of each."""
        return dict.fromkeys(places, len(self._records))

    def seek(self, _place: TopicPartition, offset: int) -> None:
        """Read from there."""
        self._at = offset

    def position(self, _place: TopicPartition) -> int:
        """The next offset."""
        return self._at

    def poll(self, timeout_ms: int) -> dict[int, list[Sent]]:
        """The rest."""
        assert timeout_ms
        found, self._at = self._records[self._at :], len(self._records)
        return {0: found}

    def close(self) -> None:
        """Nothing to do."""


def _batch(records: list[Sent]) -> pa.RecordBatch:
    rows = [
        {
            "value": sent.value,
            "sent_at": sent.sent_at,
            "partition": sent.partition,
            "offset": sent.offset,
            "arrival_time": from_microseconds(sent.arrival),
            "arrival_date": from_microseconds(sent.arrival).date(),
        }
        for sent in records
    ]
    return pa.RecordBatch.from_pylist(rows, _RECORDS)
