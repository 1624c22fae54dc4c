"""A day that the real job has seen, with every flaw, for the tests of what comes in the night."""

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nightjar.cases import Step
from nightjar.configuration.backfill import backfill_config
from nightjar.demo.history import plan_history
from nightjar.generate import Options
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka
from nightjar.replay import send_together
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.unions import union_of
from tests.support.job_host import CaseRun
from tests.support.nights import DAY, FirstNight, Night
from tests.support.unions import with_members

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RULES = [
    {
        "id": "busy",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "n >= 4 AND spent > 100",
        "measures": {"n": {"count": "*", "over": "2h"}, "spent": {"sum": "amount", "over": "2h"}},
        "description": "{n} payments of {spent}",
    },
    {
        "id": "busier",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "n >= 5",
        "state": "shadow",
        "shadow_of": "busy",
        "measures": {"n": {"count": "*", "over": "2h"}, "spent": {"sum": "amount", "over": "2h"}},
    },
    {
        "id": "popular",
        "stream": "transactions",
        "group_by": ["terminal_id"],
        "when": "c >= 7",
        "measures": {"c": {"count_distinct": "customer_id", "over": "1h"}},
    },
    {
        "id": "guessing",
        "stream": "logins",
        "group_by": ["customer_id"],
        "when": "f >= 2",
        "measures": {"f": {"count": "*", "over": "30m", "where": "status = 'FAIL'"}},
    },
    {
        "id": "paid-after-failure",
        "stream": "activity",
        "group_by": ["customer_id"],
        "when": "stream = 'transactions' AND f >= 1 AND spent > 50",
        "measures": {
            "f": {"count": "*", "over": "1h", "where": "stream = 'logins' AND status = 'FAIL'"},
            "spent": {"sum": "amount", "over": "1h"},
        },
    },
]
UNION = {"union": ["logins", "transactions"], "entities": ["customer_id"]}


@pytest.fixture(scope="session")
def night(spark: "SparkSession", broker: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """One day of a few thousand payments and logins with late, repeated and malformed records, seen by the job."""
    own, folder = f"n{uuid.uuid4().hex[:8]}", Path(tmp_path_factory.mktemp("night"))
    named = {name: f"{own}-{value}" for name, value in broker.settings.model_dump().items() if name.endswith("_topic")}
    small = {"arrival": "producer", "partitions": 1, "buckets": 2, "warm_up_batches": 0, "data_dir": folder}
    given = {"bootstrap_servers": broker.bootstrap, "alerts_per_rule_and_hour": 2}
    settings = broker.settings.model_copy(update={**named, **small, **given})
    streams = {name: replace(stream, topic=f"{own}-{stream.topic}") for name, stream in load_streams().items()}
    del streams["payments"]
    declared = {**streams, "activity": union_of("activity", UNION, streams, "test")}
    history = plan_history(
        streams,
        Options(events=4_000, days=1, customers=300, terminals=60, logins=0.5, fraud=0.02, start=DAY, seed=3),
    )
    topics.ensure(settings, declared.values())
    with CaseRun(spark, settings, declared) as job:
        job.take(
            Step(
                microseconds(DAY) - 3_600_000_000,
                crash=False,
                rules=tuple(json.dumps(rule).encode() for rule in RULES),
                events=(),
            )
        )
        plans = history.part(history.begins, history.ends)
        send_together(settings, streams, plans, speed=float("inf"), begins=history.begins)
        job.await_consumed({(streams[name].topic, 0): plan.num_rows for name, plan in plans.items()})
        job.await_reported()
    config = backfill_config(settings, declared)
    # in Spark's tasks, which a day as small as this would be spared
    return Night(spark, replace(config, lake=replace(config.lake, max_driver_rows=-1)), settings, history)


@pytest.fixture(scope="session")
def first_night(night: Night) -> FirstNight:
    """The day after its first run."""
    alerts_before = night.alerts()
    counts = night.run("first")
    return FirstNight(night, alerts_before, counts, night.results())


@pytest.fixture
def copied(night: Night, tmp_path: Path) -> Night:
    """The day as the job has left it, on topics of its own, and no lake yet."""
    own = f"c{uuid.uuid4().hex[:8]}"
    before = night.settings.alerts_topic[: len(own)]  # as long: the job tells the topics' names, too
    names = {name: value for name, value in night.settings.model_dump().items() if name.endswith("_topic")}
    renamed = {name: own + value.removeprefix(before) for name, value in names.items()}
    settings = night.settings.model_copy(update={**renamed, "data_dir": tmp_path})
    streams = with_members(
        {
            name: replace(stream, topic=own + stream.topic.removeprefix(before))
            for name, stream in night.config.streams.items()
        }
    )
    topics.ensure(settings, streams.values())
    with producer(settings, linger_ms=5) as client:
        for topic in topics.topics(night.settings, night.config.streams.values()):
            with Reader(night.settings, topic.name) as reader:
                for record in reader.all():
                    if b'"source": "backfill"' not in record.value:  # what other tests have corrected
                        client.send(
                            own + topic.name.removeprefix(before),
                            record.value.replace(before.encode(), own.encode()),
                            key=record.key,
                            partition=record.partition,
                            timestamp_ms=record.arrival // 1000,
                        )
        client.flush()
    return replace(night, config=backfill_config(settings, streams), settings=settings)
