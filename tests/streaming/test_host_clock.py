"""The job on a host whose clock is wrong."""

import json
import time
from typing import TYPE_CHECKING

import pytest

from nightjar.cases.model import Message, Step
from nightjar.kafka.readers import Reader
from nightjar.rules.timestamps import iso_text
from tests.support.job_host import CaseRun
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]

HOUR = 3_600_000_000
RULE = {
    "id": "third",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n = 3",
    "measures": {"n": {"count": "*", "over": "1h"}},
    "effective": "2000-01-01T00:00:00Z",
}


def now() -> int:
    """The wall clock, µs."""
    return time.time_ns() // 1000


def payment(number: int) -> Step:
    """A payment that happens now."""
    event = {
        "transaction_id": f"t{number}",
        "event_time": iso_text(now()),
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": 1,
    }
    return Step(now(), crash=False, rules=(), events=(Message("transactions", json.dumps(event).encode()),))


@pytest.mark.parametrize("ahead", [2 * HOUR, -2 * HOUR], ids=["ahead", "behind"])
def test_a_hosts_clock_decides_nothing_and_is_reported(
    spark: "SparkSession", kafka_topics: TestTopics, ahead: int
) -> None:
    """Windows are whole and alerts come, also after a restart; the difference is on job-progress."""
    given = {"arrival": "broker", "partitions": 1, "buckets": 1, "warm_up_batches": 0}
    settings = kafka_topics.settings.model_copy(update=given)
    own = TestTopics(settings, {"transactions": kafka_topics.streams["transactions"]}).ensure()
    clocks = own.settings.clock_topic

    def clocked() -> dict[tuple[str, int], int]:
        """Where the clock topic ends once it holds a clock of the stream that came after this was asked."""
        with Reader(own.settings, clocks) as reader:
            (end,) = reader.ends().values()
            while True:
                records = list(reader.all())
                later = [record for record in records if record.offset >= end]
                if any("transactions" in json.loads(record.value)["clocks"] for record in later):
                    return {(clocks, 0): records[-1].offset + 1 if records else end}

    def shifted() -> int:
        return now() + ahead

    with CaseRun(spark, own.settings, own.streams, shifted, clock_interval=500_000, clock_margin=0) as job:
        job.take(Step(now(), crash=False, rules=(json.dumps(RULE).encode(),), events=()))
        job.take(payment(1))
        job.await_consumed(clocked())
        job.take(payment(2))
        job.await_consumed(clocked())
        job.take(Step(now(), crash=True, rules=(), events=()))
        job.take(payment(3))
        assert [(alert["event_id"], alert["measures"]) for alert in job.outcome().alerts] == [("t3", {"n": 3})]
        with Reader(own.settings, own.settings.job_progress_topic) as reader:
            reported = [json.loads(record.value) for record in reader.all()]
    skews = [word["skew"] for word in reported if word["kind"] == "job" and word["skew"] is not None]
    assert skews
    # less by what a record took to the broker and back, at most
    assert all(abs(skew - ahead) < HOUR for skew in skews)
