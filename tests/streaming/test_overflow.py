"""S10.6 across buckets: the driver adds up what they have counted."""

import json
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from nightjar.cases.model import Message, Step
from nightjar.contracts.clock import Clock, read_clock
from nightjar.rules.timestamps import iso_text
from nightjar.streaming.driver.overflow import CapWatch
from tests.support.job_host import CaseRun
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql import SparkSession


class Nothing:
    """A topic without records."""

    def assign(self, partitions: list[object]) -> None: ...

    def seek_to_end(self, partition: object) -> None: ...

    def poll(self, timeout_ms: int) -> dict[object, list[object]]:
        return {}


def report(bucket: int, **capped: dict[str, int]) -> bytes:
    """A report of a bucket, as the job makes it."""
    members = {"kind": "bucket", "bucket": bucket, "stream": "s", "at": 0, "counts": {}, "retained": {}}
    return json.dumps(members | {"capped": capped}).encode()


def test_the_counts_of_the_buckets_are_added_up_by_rule_and_hour() -> None:
    """Each hour is reported once, while a bucket still counts it; what is no report is nothing."""
    watch = CapWatch(10, cast("KafkaConsumer", Nothing()), "progress")
    watch.take(report(0, r={"0": 6, "3600000000": 9}))
    watch.take(report(1, r={"0": 3}, q={"0": 3}))
    assert watch.reached() == {}
    watch.take(report(1, r={"0": 4}, q={"0": 10}))
    for other in (b"{", b"[]", report(2, r={"x": 100}), report(2, r={"0": cast("int", "many")})):
        watch.take(other)
    assert watch.reached() == {"q": (0,), "r": (0,)}
    assert watch.reached() == {}
    watch.take(report(0, r={"3600000000": 10}))
    assert watch.reached() == {"r": (3_600_000_000,)}


@pytest.mark.parametrize("wrong", [5, [], {"r": 5}, {"r": ["x"]}, {"r": [True]}, {"r": [1 << 63]}], ids=repr)
def test_what_is_no_hour_is_no_clock(wrong: object) -> None:
    """Anybody may write to the topic; a clock without hours is one of an earlier release."""
    record = {"run_id": "i", "clocks": {}}
    assert read_clock(json.dumps(record | {"overflow": wrong}).encode()) is None
    assert read_clock(json.dumps(record).encode()) == Clock("i", {})


RULE = {
    "id": "any",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 100",
    "effective": "2000-01-01T00:00:00Z",
}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_a_flood_in_many_buckets_is_marked_and_nothing_is_lost(spark: "SparkSession", kafka_topics: TestTopics) -> None:
    """On the job: no bucket reaches the cap by itself; all records are there, the later ones with the mark, the same
    after a crash."""
    given = {"arrival": "broker", "partitions": 1, "buckets": 4, "warm_up_batches": 0, "alerts_per_rule_and_hour": 40}
    settings = kafka_topics.settings.model_copy(update=given)
    own = TestTopics(settings, {"transactions": kafka_topics.streams["transactions"]}).ensure()
    sent, begun = 0, time.time_ns() // 1000

    def payments(count: int, *, crash: bool = False) -> Step:
        nonlocal sent
        events = []  # a microsecond apart, so that all are in one hour
        for number in range(sent, sent + count):
            event: dict[str, Any] = {
                "transaction_id": f"t{number}",
                "event_time": iso_text(begun + number),
                "customer_id": f"c{number % 20}",
                "terminal_id": "m",
                "amount": 101,
            }
            events.append(Message("transactions", json.dumps(event).encode()))
        sent += count
        return Step(time.time_ns() // 1000, crash=crash, rules=(), events=tuple(events))

    with CaseRun(spark, own.settings, own.streams) as job:
        job.take(Step(time.time_ns() // 1000, crash=False, rules=(json.dumps(RULE).encode(),), events=()))
        job.take(payments(60))

        def marked() -> bool:
            job.take(payments(2))
            return any("overflow" in alert for alert in job.outcome().alerts)

        job.wait_for(marked, "a mark")
        job.take(payments(1, crash=True))
        alerts = job.outcome().alerts
    by_id = {alert["event_id"]: alert for alert in alerts}
    assert by_id.keys() == {f"t{number}" for number in range(sent)}
    marks = [by_id[f"t{number}"].get("overflow", False) for number in range(sent)]
    assert marks[:60] == [False] * 60
    assert marks[-1] is True
    assert marks == sorted(marks)
