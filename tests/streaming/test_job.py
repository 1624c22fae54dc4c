"""The job as people run it, `nightjar stream` in a process of its own: killed, stopped, replanned, refused.

A start takes many seconds, so each test goes through a whole story.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from kafka import KafkaProducer

from nightjar import published
from nightjar.job_config import job_config
from nightjar.job_process import JobProcess
from nightjar.job_watch import await_consumed, await_running
from nightjar.kafka_clients import producer
from nightjar.reading import Reader
from nightjar.settings import PREFIX
from rules.engine import Engine
from rules.timestamps import iso_text, parse_timestamp
from streaming.checkpoint import committed_offsets, query_folder
from tests.conftest import TestTopics
from tests.nightjar.command import run

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 180.0
NOON = parse_timestamp("2024-03-01T12:00:00Z", zone_required=True) or 0
MINUTE = 60_000_000
PROJECT = Path(__file__).parents[2]
DECLARED = (PROJECT / "rules" / "streams.toml").read_text()

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
        # As with the broker: most of what a short life would spend is the second compiler's.
        return {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"} | {
            f"{PREFIX}{name}".upper(): str(value) for name, value in given.items()
        }

    def job(self, **changes: object) -> JobProcess:
        """The job, not started yet."""
        return JobProcess(self.folder / "job.log", self.environment(**changes), self.folder)

    def publish(self, *messages: Row, at: int) -> None:
        """Put rule messages on the topic."""
        published.send(self.topics.settings, messages, NOON + at)

    def settled(self, *about: tuple[str, int], answer: str = "ACTIVE") -> bool:
        """Whether this is said of these rules' versions."""
        said = {
            (r["status"], r["rule_id"], r["rule_version"]) for r in self.read(self.topics.settings.rule_status_topic)
        }
        return all((answer, *version) in said for version in about)

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
        """What was announced, without the time of emission, which alone may differ when something is said again."""
        records = self.read(self.topics.settings.alerts_topic)
        return [{name: value for name, value in row.items() if name != "emitted_at"} for row in records]

    @property
    def committed(self) -> Mapping[str, Mapping[int, int]]:
        """The offsets of the last committed batch."""
        return committed_offsets(job_config(self.topics.settings, self.topics.streams))

    def consumed(self) -> bool:
        """Whether the job has committed all events that were sent."""
        topic = self.topics.streams["transactions"].topic
        with Reader(self.topics.settings, topic) as reader:
            ends = {place.partition: end for place, end in reader.ends().items()}
        return all(self.committed.get(topic, {}).get(partition, 0) >= end for partition, end in ends.items())


@pytest.fixture
def place(kafka_topics: TestTopics, tmp_path: Path) -> Place:
    """Topics whose producers give the arrival: what happens follows from the events alone."""
    own = kafka_topics.settings.model_copy(update={"activation_delay": 0})
    return Place(TestTopics(own, kafka_topics.streams).with_arrival("producer").ensure(), tmp_path)


def until(job: JobProcess, condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fails where the job ends, or it takes too long."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        job.check()
        assert time.monotonic() < deadline, f"waited for {what}\n{job.tail()}"
        job.wait(0.05)


def kill(job: JobProcess) -> None:
    """End the job and everything it has started, as a power cut would."""
    assert job.pid is not None
    os.killpg(job.pid, signal.SIGKILL)
    assert job.stop() == -signal.SIGKILL


def kill_workers(job: JobProcess) -> None:
    """End the Python processes that do the job's tasks, as a machine does that is out of memory."""
    for process in psutil.Process(job.pid).children(recursive=True):
        if "python" in process.name():
            process.kill()


def rule(rule_id: str, group_by: list[str], when: str, **measures: Row) -> Row:
    """A rule on transactions."""
    return {
        "id": rule_id, "stream": "transactions", "state": "active", "group_by": group_by, "when": when,
        "measures": measures,
    }  # fmt: skip


RULES = [
    rule(
        "velocity", ["customer_id"], "spent > 300 AND payments >= 3", spent={"sum": "amount", "over": "20m"},
        payments={"count": "*", "over": "10m", "where": "amount >= 20"},
    ),
    rule(
        "unusual", ["customer_id"], "amount > 2 * usual",
        usual={"avg": "amount", "over": "30m", "excluding_current": True},
        spread={"stddev": "amount", "over": "30m"},
    ),
    rule(
        "busy-terminal", ["terminal_id"], "customers >= 4", customers={"count_distinct": "customer_id", "over": "5m"},
        before={"last": "customer_id", "over": "5m", "excluding_current": True},
    ),
    rule("of-all", [], "total % 7 = 0", total={"count": "*", "over": "2m", "where": "amount > 50"}),
]  # fmt: skip


def history(count: int) -> tuple[list[tuple[int, Row]], int]:
    """Transactions in the order of arrival, out of order in time but none late, some sent twice; how many twice."""
    draw = random.Random(7)  # noqa: S311  no secret
    events = []
    for number in range(count):
        at = NOON + number // 2 * 4_000_000  # two of them at a time
        event = {
            "transaction_id": f"t{number}", "event_time": iso_text(at), "customer_id": f"c{draw.randrange(20)}",
            "terminal_id": f"m{draw.randrange(8)}", "amount": draw.randrange(1, 20_000) / 100,
        }  # fmt: skip
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
    ruleset = published.rule_book(place.topics.settings, place.topics.streams).ruleset
    alerts = Engine(stream, ruleset).advance(table).alerts
    return {row["alert_id"]: concluded(row, json.loads(row["measures"])) for row in alerts.to_pylist()}


def concluded(row: Row, measures: Row) -> Row:
    """What law 9 speaks of: the same for the stream and for the truth."""
    return {name: row[name] for name in ("rule_id", "rule_version", "event_id", "text")} | {"measures": measures}


def test_killed_in_mid_replay_it_ends_with_the_same_alerts(place: Place) -> None:
    """Twice everything is killed between or within batches, then the workers in the middle of a task, which is done
    again; in the end the alerts are the truth, and all is counted."""
    events, repeated = history(3000)
    topic = place.topics.streams["transactions"].topic
    place.publish(*RULES, at=-MINUTE)
    with place.job(max_offsets_per_trigger=250) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(events)
        for share in (0.2, 0.5):
            goal = share * len(events)
            until(job, lambda goal=goal: sum(place.committed.get(topic, {}).values()) >= goal, f"{share} of the replay")
            kill(job)
            assert not place.consumed()
            job.start()
        await_running(place.topics.settings, job)
        goal = 0.7 * len(events)
        until(job, lambda: sum(place.committed.get(topic, {}).values()) >= goal, "the rest of the replay")
        lives = job.pid
        kill_workers(job)
        assert not place.consumed()
        state = await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
        assert job.pid == lives

    counts = state.counts("transactions")
    assert (counts["events"], counts["late"], counts["duplicates"]) == (len(events), 0, repeated)
    first: dict[tuple[str, int], Row] = {}
    for record in place.alerts():
        assert first.setdefault((record["alert_id"], record["revision"]), record) == record
    last = {alert_id: first[alert_id, revision] for alert_id, revision in sorted(first)}
    final = {
        alert_id: concluded(record, record["measures"])
        for alert_id, record in last.items()
        if record["kind"] == "alert"
    }
    expected = truth(place, events)
    assert {row["rule_id"] for row in expected.values()} == {r["id"] for r in RULES}
    assert final == expected


def payment(number: int, at: int, amount: int) -> tuple[int, Row]:
    """A transaction that arrives at its time."""
    event = {"transaction_id": f"e{number}", "event_time": iso_text(NOON + at), "customer_id": "ann",
             "terminal_id": "m1", "amount": amount}  # fmt: skip
    return NOON + at, event


def test_rules_and_routes_change_while_it_runs_and_a_stop_loses_nothing(place: Place) -> None:
    """Each event is judged by the rules of its time, once; also by rules that need routes the job must make first."""
    large = rule("large", ["customer_id"], "amount > 100")
    of_all = rule("of-all", [], "payments = 2", payments={"count": "*", "over": "1h"})
    same = rule("same-amount", ["amount"], "payments >= 2", payments={"count": "*", "over": "1h"})

    def rules_at(
        minute: int, *messages: Row, active: Iterable[tuple[str, int]] = (), accepted: Iterable[tuple[str, int]] = ()
    ) -> None:
        place.publish(*messages, at=minute * MINUTE)
        until(job, lambda: place.settled(*active), f"{list(active)} to be active")
        until(job, lambda: place.settled(*accepted, answer="ACCEPTED"), f"{list(accepted)} to be accepted")

    def event_at(minute: int, amount: int) -> None:
        place.send([payment(minute, minute * MINUTE, amount)])
        until(job, place.consumed, f"the event of minute {minute}")

    with place.job() as job:
        rules_at(0, large, active=[("large", 1)])
        event_at(1, 101)
        rules_at(2, large | {"when": "amount > 50"}, active=[("large", 2)])
        event_at(3, 60)
        rules_at(4, {"control": "pause", "rule": "large"}, accepted=[("large", 3)])
        event_at(5, 200)
        rules_at(6, {"control": "resume", "rule": "large"}, active=[("large", 4)])
        place.send_and_abort([payment(6, 6 * MINUTE, 200)])
        event_at(7, 61)
        rules_at(8, of_all, same, active=[("of-all", 1), ("same-amount", 1)])
        event_at(9, 62)
        event_at(10, 10)
        event_at(11, 10)
        rules_at(12, {"control": "retire", "rule": "large"}, accepted=[("large", 5)])
        event_at(13, 500)
        assert job.stop() == 0
        place.send([payment(15, 15 * MINUTE, 10)])
        job.start()
        until(job, place.consumed, "the event sent while it was stopped")
        assert job.stop() == 0

    said = [(a["event_id"], a["rule_id"], a["rule_version"], a["revision"], a["measures"]) for a in place.alerts()]
    assert sorted(said, key=str) == sorted(
        [
            ("e1", "large", 1, 1, {}),
            ("e3", "large", 2, 1, {}),
            ("e7", "large", 4, 1, {}),
            ("e9", "large", 4, 1, {}),
            ("e10", "of-all", 1, 1, {"payments": 2}),
            ("e11", "same-amount", 1, 1, {"payments": 2}),
            ("e15", "same-amount", 1, 1, {"payments": 3}),
        ],
        key=str,
    )
    assert sum(status["status"] == "ACTIVE" for status in place.read(place.topics.settings.rule_status_topic)) == 5

    refused = run("stream", code=2, environment=place.environment(buckets=3), folder=place.folder).stderr
    assert "made with buckets = 4" in refused
    assert "Set buckets = 4, or `nightjar stream rebuild --buckets 3`" in refused
    environment = place.environment()
    file = Path(environment["NIGHTJAR_STREAMS"])
    file.write_text(file.read_text().replace('"decimal(12,2)"', '"decimal(12,3)"'))
    refused = run("stream", code=2, environment=environment, folder=place.folder).stderr
    assert "streams.transactions.fields.amount was decimal(12,2) and is decimal(12,3)" in refused
    (query_folder(job_config(place.topics.settings, place.topics.streams)).parent / "nightjar.json").unlink()
    refused = run("stream", code=2, environment=place.environment(), folder=place.folder).stderr
    assert "nightjar.json is missing" in refused
    assert "A new folder as checkpoint_dir" in refused
