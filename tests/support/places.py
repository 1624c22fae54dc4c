"""A place for the job as people run it: topics and a folder of its own, and what is sent to it and read from it."""

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import KafkaProducer

from nightjar.configuration.job import job_config
from nightjar.configuration.settings import PREFIX
from nightjar.kafka import rule_topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.job_process import JobProcess
from nightjar.rules.engine import Engine
from nightjar.rules.streams import SHIPPED
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.streaming.state.checkpoint import Checkpoint
from tests.support.topics import TestTopics

SECONDS = 180.0
NOON = parse_timestamp("2024-03-01T12:00:00Z", zone_required=True) or 0
MINUTE = 60_000_000
PROJECT = Path(__file__).parents[2]
DECLARED = SHIPPED.read_text()

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Topics, a folder, and the environment that leads a job to them."""

    topics: TestTopics
    folder: Path

    def environment(self, **changes: object) -> dict[str, str]:
        """Settings as the job's process gets them; every stream on its own topic."""
        declared = DECLARED
        for name, stream in self.topics.streams.items():
            declared = declared.replace(f'topic = "{name}"', f'topic = "{stream.topic}"')
        file = self.folder / "streams.toml"
        file.write_text(declared)
        given = self.topics.settings.model_dump(include={"arrival", "partitions", "data_dir"})
        given |= {name: value for name, value in self.topics.settings.model_dump().items() if name.endswith("_topic")}
        given |= {
            "activation_delay": "0s",
            "bootstrap_servers": self.topics.settings.bootstrap,
            "streams": file,
            "warm_up_batches": 0,
            "driver_memory": "1g",
            **changes,
        }
        return {f"{PREFIX}{name}".upper(): str(value) for name, value in given.items()}

    def job(self, **changes: object) -> JobProcess:
        """The job, not started yet."""
        return JobProcess(self.folder / "job.log", self.environment(**changes), self.folder)

    def publish(self, *messages: Row, at: int) -> None:
        """Put rule messages on the topic."""
        rule_topics.send(self.topics.settings, messages, NOON + at)

    def settled(self, *about: tuple[str, int], answer: str = "ACTIVE") -> bool:
        """Whether all these rule versions have such an answer."""
        answers = {
            (r["status"], r["rule_id"], r["rule_version"]) for r in self.read(self.topics.settings.rule_status_topic)
        }
        return all((answer, *version) in answers for version in about)

    def send(self, events: Iterable[tuple[int, Row]]) -> None:
        """Put transactions on the topic: arrival (µs), event."""
        with producer(self.topics.settings) as client:
            self._send(client, events)

    def send_and_abort(self, events: Iterable[tuple[int, Row]]) -> None:
        """Put transactions on the topic whose producer then takes them back."""
        with producer(self.topics.settings, transactional_id=f"{self.folder}") as client:
            client.init_transactions()
            client.begin_transaction()
            self._send(client, events)
            client.abort_transaction()

    def _send(self, client: KafkaProducer, events: Iterable[tuple[int, Row]]) -> None:
        for arrival, event in events:
            key, value = event["customer_id"].encode(), json.dumps(event).encode()
            client.send(self.topics.streams["transactions"].topic, value, key=key, timestamp_ms=arrival // 1000)
        client.flush()

    def read(self, topic: str) -> list[Row]:
        """All that is on a topic."""
        with Reader(self.topics.settings, topic) as reader:
            return [json.loads(record.value) for record in reader.all()]

    def alerts(self) -> list[Row]:
        """What was announced, without the time of emission, which alone may differ between duplicates."""
        records = self.read(self.topics.settings.alerts_topic)
        return [{name: value for name, value in row.items() if name != "emitted_at"} for row in records]

    @property
    def committed(self) -> Mapping[str, Mapping[int, int]]:
        """The offsets of the last committed batch."""
        return Checkpoint(job_config(self.topics.settings, self.topics.streams)).committed_offsets()

    def consumed(self) -> bool:
        """Whether the job has committed all events that were sent."""
        topic = self.topics.streams["transactions"].topic
        with Reader(self.topics.settings, topic) as reader:
            ends = {place.partition: end for place, end in reader.ends().items()}
        return all(self.committed.get(topic, {}).get(partition, 0) >= end for partition, end in ends.items())


def until(job: JobProcess, condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fails where the job ends, or it takes too long."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        job.check()
        assert time.monotonic() < deadline, f"waited for {what}\n{job.tail()}"
        job.wait(0.05)


def rule(rule_id: str, group_by: list[str], when: str, **measures: Row) -> Row:
    """A rule on transactions."""
    return {
        "id": rule_id,
        "stream": "transactions",
        "state": "active",
        "group_by": group_by,
        "when": when,
        "measures": measures,
    }


RULES = [
    rule(
        "velocity",
        ["customer_id"],
        "spent > 300 AND payments >= 3",
        spent={"sum": "amount", "over": "20m"},
        payments={"count": "*", "over": "10m", "where": "amount >= 20"},
    ),
    rule(
        "unusual",
        ["customer_id"],
        "amount > 2 * usual",
        usual={"avg": "amount", "over": "30m", "excluding_current": True},
        spread={"stddev": "amount", "over": "30m"},
    ),
    rule(
        "busy-terminal",
        ["terminal_id"],
        "customers >= 4",
        customers={"count_distinct": "customer_id", "over": "5m"},
        before={"last": "customer_id", "over": "5m", "excluding_current": True},
    ),
    rule("of-all", [], "total % 7 = 0", total={"count": "*", "over": "2m", "where": "amount > 50"}),
    # of which a shuffle key without wider windows folds what is older than twice the allowed lateness (S14.3)
    rule(
        "long-run",
        ["terminal_id"],
        "payments % 5 = 0",
        payments={"count": "*", "over": "30m", "resolution": "2m"},
        spent={"sum": "amount", "over": "40m", "resolution": "1m", "where": "amount > 20"},
    ),
]


def history(count: int) -> tuple[list[tuple[int, Row]], int]:
    """Transactions in the order of arrival, out of order in time but none late, some sent twice; how many twice."""
    draw = random.Random(7)  # noqa: S311  no secret
    events = []
    for number in range(count):
        at = NOON + number // 2 * 4_000_000  # two of them at a time
        event = {
            "transaction_id": f"t{number}",
            "event_time": iso_text(at),
            "customer_id": f"c{draw.randrange(20)}",
            "terminal_id": f"m{draw.randrange(8)}",
            "amount": draw.randrange(1, 20_000) / 100,
        }
        delay = timedelta(seconds=draw.choice([0, 0, 0, 1, 30, 300, 590])) // timedelta(microseconds=1)
        events.append((at + delay, event))
    again = [(arrival + 5_000_000, event) for arrival, event in draw.sample(events, count // 20)]
    return sorted(events + again, key=lambda sent: sent[0]), len(again)


def truth(place: Place, events: list[tuple[int, Row]]) -> dict[str, Row]:
    """What an engine says that is never interrupted and sees everything at once; nothing is late to it either."""
    stream = place.topics.streams["transactions"]
    schema = stream.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
    rows = [
        [str(event[name]) if name == "amount" else event[name] for name in stream.fields] + [arrival]
        for arrival, event in events
    ]
    texts = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    texts[1] = pa.array([parse_timestamp(text, zone_required=True) for text in texts[1].to_pylist()])
    table = pa.Table.from_arrays([a.cast(f.type) for a, f in zip(texts, schema, strict=True)], schema=schema)
    ruleset = rule_topics.rule_book(place.topics.settings, place.topics.streams).ruleset
    alerts = Engine(stream, ruleset).advance(table).alerts
    return {row["alert_id"]: concluded(row, json.loads(row["measures"])) for row in alerts.to_pylist()}


def concluded(row: Row, measures: Row) -> Row:
    """What S9 speaks of: the same for the stream and for the truth."""
    return {name: row[name] for name in ("rule_id", "rule_version", "event_id", "text")} | {"measures": measures}


def final(place: Place) -> dict[str, Row]:
    """What a consumer of the alerts is left with, by id; of each id and revision there is one content."""
    first: dict[tuple[str, int], Row] = {}
    for record in place.alerts():
        assert first.setdefault((record["alert_id"], record["revision"]), record) == record
    last = {alert_id: first[alert_id, revision] for alert_id, revision in sorted(first)}
    return {
        alert_id: concluded(record, record["measures"])
        for alert_id, record in last.items()
        if record["kind"] == "alert"
    }


def place_of(topics: TestTopics, folder: Path, **settings: object) -> Place:
    """Topics whose producers give the arrival: what happens follows from the events alone. settings: further ones."""
    own = topics.settings.model_copy(update={"activation_delay": 0, **settings})
    return Place(TestTopics(own, topics.streams).with_arrival("producer").ensure(), folder)
