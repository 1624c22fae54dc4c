"""`nightjar status`: read from the job's reports, here written by the test."""

import json
import time
from typing import Any

import pytest

from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.operations.job_watch import STALE
from tests.support.answers import answered
from tests.support.command import environment, run
from tests.support.reports import word
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka


def bucket(number: int, events: int) -> dict[str, Any]:
    """A word of a bucket."""
    return {
        "kind": "bucket",
        "bucket": number,
        "stream": "transactions",
        "route": "customer_id",
        "at": 1,
        "held": 5,
        "counts": {"events": events, "late": 1, "duplicates": 2, "announced": 3},
        "retained": {"customer_id": events},
        "stored": 1000 * events,
    }


def publish(own: TestTopics, *reports: dict[str, Any]) -> None:
    """Put reports on the job-progress topic."""
    with producer(own.settings) as client:
        for report in reports:
            client.send(own.settings.job_progress_topic, json.dumps(report).encode()).get()


def later() -> int:
    """A time of reports that are young whenever the command reads them, µs."""
    return time.time_ns() // 1000 + 20 * STALE


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """The test's topics, made."""
    return kafka_topics.ensure()


def test_running_job(own: TestTopics) -> None:
    """The latest report of the driver and of each bucket, batches averaged over their number."""
    now = later()
    slower = {"batches": 1, "parts_ms": {"run": 60.0, "whole": 70.0}, "slowest_ms": 70}
    slower |= {"priming": {"stream": "transactions", "route": "", "since": "2024-02-01T00:00:00.000000Z", "read": 1500}}
    publish(own, word(now - 1_000_000), bucket(0, 4), bucket(0, 10), bucket(1, 20), word(now, **slower))
    found = json.loads(run("status", "--json", environment=environment(own.settings)).stdout)
    assert found["running"]
    assert found["lag"] == {"transactions": {"events": 12, "seconds": 1.5}}
    assert found["counts"]["transactions"] == {"events": 30, "late": 2, "duplicates": 4, "announced": 6}
    assert found["retained"] == {"transactions": {"customer_id": 30}}
    assert found["state_bytes"] == 30_000
    assert (found["batches"]["batches"], found["batches"]["slowest_ms"]) == (3, 70)
    assert found["batches"]["parts_ms"] == {"run": 40.0, "whole": 50.0}
    rule = {"id": "burst", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 1"}
    with producer(own.settings) as client:
        for answer in answered(own.streams, rule, {**rule, "when": "amount > 2"}):
            client.send(own.settings.rule_status_topic, answer.value).get()
    shown = run("status", environment=environment(own.settings)).stdout
    assert "burst version 2 on transactions: active" in shown
    assert "micro-batches: average 50 ms over 3 batches, slowest 70 ms" in shown
    assert "priming transactions by (all): 1,500 events read, from 2024-02-01T00:00:00.000000Z on" in shown
    assert "the clock of the job's host is 12.3 s ahead of the brokers' clock" in shown


def test_a_job_in_real_time(own: TestTopics) -> None:
    """Its groups of records, where others have micro-batches."""
    now = later()
    took = {"batches": 90, "rows": 1000, "most_rows": 40, "parts_ms": {"evaluate": 2.4, "whole": 6.1}, "slowest_ms": 31}
    publish(own, word(now - 1_000_000), word(now, mode="real-time", run_id="other", **took))
    found = json.loads(run("status", "--json", environment=environment(own.settings)).stdout)
    assert (found["latency"], found["mode"]) == ({}, "real-time")
    shown = run("status", environment=environment(own.settings)).stdout
    assert "real time: average 6 ms over 90 groups of records, slowest 31 ms, largest 40 records" in shown


def test_a_job_that_is_behind_reports_when_it_will_catch_up(own: TestTopics) -> None:
    """From what it reads and what arrives; an earlier run does not count."""
    now = later()

    def behind(second: int, events: int, end: int, **more: Any) -> dict[str, Any]:
        lag = {"transactions": {"events": events, "seconds": 1.0, "end": end}}
        return word(now - (10 - second) * 1_000_000, lag=lag, most_rows=3000, **more)

    catching_up = [behind(at, 90_000 - 1000 * at, 10**6 + 500 * at) for at in range(1, 11)]
    publish(own, behind(0, 5000, 9000, run_id="before"), *catching_up)
    found = json.loads(run("status", "--json", environment=environment(own.settings)).stdout)
    assert found["pace"] == {"transactions": {"arriving": 500.0, "read": 1500.0, "caught_up_in": 80.0}}
    shown = run("status", environment=environment(own.settings)).stdout
    assert "transactions: reading 1,500 events/s, 500 events/s arriving: caught up in about 0:01:20" in shown
    assert "largest 3,000 records" in shown
    publish(own, *(behind(at, 80_000 + 100 * at, 10**6 + 1500 * at, run_id="after") for at in range(1, 11)))
    shown = run("status", environment=environment(own.settings)).stdout
    assert "not catching up at this rate" in shown


@pytest.mark.parametrize(("age", "state"), [(STALE + 60_000_000, "running"), (0, "stopped")], ids=["silent", "stopped"])
def test_job_that_does_not_run(own: TestTopics, age: int, state: str) -> None:
    """Silence and a last report of stopping are exit code 1."""
    publish(own, word(time.time_ns() // 1000 - age, state=state))
    assert "not running" in run("status", code=1, environment=environment(own.settings)).stdout


def test_job_that_never_ran(own: TestTopics) -> None:
    """On an empty topic the message has how to start it."""
    assert "nightjar up" in run("status", code=1, environment=environment(own.settings)).stdout
    assert not json.loads(run("status", "--json", code=1, environment=environment(own.settings)).stdout)["running"]


def test_latency_of_the_latest_alerts(own: TestTopics) -> None:
    """From the event's sending to the alert's arrival on its topic."""
    sent = time.time_ns() // 1000 - 250_000
    publish(own, word(later()))
    with producer(own.settings) as client:
        client.send(own.settings.alerts_topic, b"{}", headers=[("sent_at", b"%d" % sent)]).get()
    with Reader(own.settings, own.settings.alerts_topic) as reader:
        (alert,) = reader.all()
    latency = json.loads(run("status", "--json", environment=environment(own.settings)).stdout)["latency"]
    took = round((alert.arrival - sent) / 1000, 1)
    assert latency == {"alerts": 1, "p50_ms": took, "p99_ms": took}
    assert took >= 249, "the broker's stamp has milliseconds"


def test_epoch_seconds_among_late_events_are_suspected(own: TestTopics) -> None:
    """Events of a producer that sends seconds are all late; the topic of late events has times and streams."""
    publish(own, word(later()), bucket(0, 4))
    late = {
        "stream": "transactions",
        "event_id": "e",
        "arrival_time": "2026-01-05T12:00:00Z",
        "partition": 0,
        "event": {},
    }
    with producer(own.settings) as client:
        for offset, at in enumerate(("1970-01-21T10:53:45.600000Z", "1970-01-01T00:00:00Z", "2026-01-05T11:00:00Z")):
            value = json.dumps({**late, "offset": offset, "event_time": at}).encode()
            client.send(own.settings.late_events_topic, value).get()
        client.send(own.settings.late_events_topic, b"not a late event").get()
    assert json.loads(run("status", "--json", environment=environment(own.settings)).stdout)["epoch_seconds"] == {
        "transactions": 1
    }
    shown = run("status", environment=environment(own.settings)).stdout
    assert "transactions: 1 recent late event dated between 1970 and 1973: does a producer send epoch seconds?" in shown
