"""Several days in one go, as `nightjar backfill --days` passes them."""

import json
from typing import TYPE_CHECKING

import pytest

from nightjar.cases import Message, Step
from nightjar.cli import app
from nightjar.configuration.settings import PREFIX
from nightjar.kafka import topics
from nightjar.kafka.readers import Reader
from nightjar.rules.streams import SHIPPED
from nightjar.rules.timestamps import microseconds
from tests.support.job_host import CaseRun
from tests.support.nights import DAY
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = 3_600_000_000
RULE = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 2",
    "measures": {"n": {"count": "*", "over": "6h"}},
}


def payment(happened: int, arrives: int) -> Step:
    """One of ann's. Both: hours of the first day."""
    event = {
        "transaction_id": f"at-{happened}",
        "event_time": (microseconds(DAY) + happened * HOUR) // 1000,
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": 1,
    }
    message = Message("transactions", json.dumps(event).encode())
    return Step(microseconds(DAY) + arrives * HOUR, crash=False, rules=(), events=(message,))


def test_a_later_day_corrects_what_an_earlier_one_has_corrected(
    spark: "SparkSession", kafka_topics: TestTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert that late events of two days change is corrected by both, the second time under the next revision."""
    own = {"arrival": "producer", "partitions": 1, "buckets": 2, "warm_up_batches": 0}
    settings = kafka_topics.settings.model_copy(update=own)
    streams = {"transactions": kafka_topics.streams["transactions"]}
    topics.ensure(settings, streams.values())
    published = Step(microseconds(DAY), crash=False, rules=(json.dumps(RULE).encode(),), events=())
    with CaseRun(spark, settings, streams) as job:
        for step in (published, payment(22, arrives=22), payment(21, arrives=23), payment(20, arrives=34)):
            job.take(step)
        job.await_reported()

    declared = settings.data_dir / "streams.toml"
    shipped = SHIPPED.read_text().partition("[streams.logins]")[0]
    declared.write_text(shipped.replace('topic = "transactions"', f'topic = "{streams["transactions"].topic}"'))
    given = {name: value for name, value in settings.model_dump().items() if name.endswith("_topic")}
    given |= {"streams": declared, "data_dir": settings.data_dir, "bootstrap_servers": settings.bootstrap, **own}
    for name, value in given.items():
        monkeypatch.setenv(f"{PREFIX}{name}".upper(), str(value))
    app.app(["backfill", "--days", "2026-01-05..2026-01-06", "--json"], standalone_mode=False)

    with Reader(settings, settings.alerts_topic) as reader:
        reported = [json.loads(record.value) for record in reader.all()]
    about = [(record["event_id"], record["revision"], record["measures"]["n"]) for record in reported]
    assert sorted(about) == [("at-21", 1, 2), ("at-22", 1, 2), ("at-22", 2, 3)]
