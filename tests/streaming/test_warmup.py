"""The job warms up with events, of every form that the engine keeps otherwise, and a rule for them in each process."""

import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from nightjar.configuration.job import job_config
from nightjar.contracts.rule_status import fold
from nightjar.ingestion.kafka_source import record_columns
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.rules.events import parse_event
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.types import FieldType, Kind
from nightjar.streaming import kafka_clients
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import PayloadKind
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketTasks
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.query import evaluated, finish, kafka_records, packer_of, started
from nightjar.streaming.driver.stages import Stages
from nightjar.streaming.driver.warmup import buckets_for, made_up, made_up_rules, warm_up
from tests.support.nested_stream import DERIVED
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 256


def records(spark: "SparkSession", streams: list[Stream]) -> "DataFrame":
    """So many made-up records."""
    numbers = spark.range(ROWS).select(F.current_timestamp().alias("timestamp"), F.col("id").alias("value"))
    return made_up(numbers, streams)


def events(spark: "SparkSession", streams: list[Stream]) -> list[tuple[str, Any]]:
    """Topic and parsed event of each."""
    of_topic = {stream.topic: stream for stream in streams}
    found = records(spark, streams).select("topic", "value").collect()
    return [(row.topic, parse_event(bytes(row.value), of_topic[row.topic])) for row in found]


def test_every_record_is_an_event_of_its_stream(spark: "SparkSession") -> None:
    """Of each declared stream as many; one that is quarantined warms nothing up."""
    streams = [*load_streams().values(), DERIVED]
    found = events(spark, streams)
    assert all(isinstance(event, dict) for _, event in found)
    assert {topic for topic, _ in found} == {stream.topic for stream in streams}


def test_numbers_leave_32_bits_and_optional_fields_lack(spark: "SparkSession") -> None:
    """Both only after a while: the engine has other code for what it has held so far."""
    (stream,) = [stream for stream in load_streams().values() if stream.name == "transactions"]
    types = {"large": "decimal(18,4)", "small": "decimal(4,2)", "count": "int64", "note": "string"}
    fields = {**stream.fields, **{name: FieldType.parse(kind) for name, kind in types.items()}}
    wide = replace(stream, fields=MappingProxyType(fields), optional=frozenset({"note"}))
    found = [event for _, event in events(spark, [wide])]
    assert all(isinstance(event, dict) for event in found)
    for name in ("large", "count"):
        scale = 10**4 if fields[name].kind is Kind.DECIMAL else 1
        beyond = [abs(event[name] * scale) > 1 << 31 for event in found]
        assert not any(beyond[: ROWS // 2])
        assert all(beyond[ROWS // 2 :])
    lacking = [event["note"] is None for event in found]
    assert not any(lacking[: ROWS // 2])
    assert {True, False} == set(lacking[ROWS // 2 :])


@pytest.mark.parametrize("partitions", [1, 2, 4, 7, 20])
def test_every_partition_evaluates_a_rule(spark: "SparkSession", partitions: int) -> None:
    """Each has an engine process of its own, and one that had none would compile with the first batch of traffic."""
    streams = load_streams()
    book = RuleBook(streams)
    shuffle_keys = tuple(book.shuffle_keys)
    for answer in made_up_rules(streams, shuffle_keys):
        fold(book, answer)
    buckets = buckets_for(partitions, shuffle_keys)
    packer = Packer(streams, shuffle_keys, buckets, partitions, "rule-status", "clock", "quarantine", bounded=True)
    packed = packer.packed(record_columns(records(spark, list(streams.values()))).toArrow())
    evaluating = {
        bucket % partitions
        for bucket, kind, _ in packed
        if kind is PayloadKind.EVENTS and book.served_by(shuffle_keys[bucket // buckets])
    }
    assert evaluating == set(range(partitions))


@pytest.mark.kafka
def test_a_job_generates_no_code_that_its_warm_up_has_not(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """Spark compiles the code for a query's sources and sink when it first runs; the warm-up publishes nothing."""
    own = kafka_topics.ensure()
    config = replace(job_config(own.settings, own.streams), warm_up_batches=4)
    shuffle_keys = tuple(RuleBook(own.streams).shuffle_keys)
    session = spark.newSession()
    # so the code differs from what other tests have made Spark generate
    session.conf.set("spark.sql.ansi.enabled", "false")
    places = Places(session, config.shuffle_partitions)
    now = int(time.time() * 1000)
    event = '{"transaction_id":"%d","event_time":%d,"customer_id":"c","terminal_id":"t","amount":1}'
    with producer(own.settings) as client:
        for number in range(4):
            client.send(own.streams["transactions"].topic, key=b"c", value=(event % (number, now)).encode())
        client.send(own.streams["logins"].topic, key=b"c", value=b"no event").get()
    with kafka_clients.consumer(config) as client:
        warm_up(session, config, places, client)
    before = compiled(spark)
    apart = config.topics.clock, config.topics.tables  # made by the job, and for streams that have tables
    topics = [name for name in vars(config.topics).values() if name not in apart]
    with Reader(own.settings, *topics) as reader:
        assert list(reader.all()) == []
    assert list(config.checkpoint.parent.glob(".*warm-up*")) == []
    plan = BucketPlan(
        "job",
        "job",
        tmp_path / "state",
        own.streams,
        shuffle_keys,
        config.buckets,
        config.topics,
        made_up_rules(own.streams, shuffle_keys),
    )
    records = kafka_records(session, config, 1000)
    tasks = BucketTasks.of(plan, config.shuffle_partitions)
    stages = Stages(one_machine=places.one_machine).number
    rows = evaluated(records, config, packer_of(config, shuffle_keys), tasks.run, places, stages=stages)
    query = started(rows, config, str(tmp_path / "query"), "job")
    query.processAllAvailable()
    finish(query)
    with Reader(own.settings, config.topics.alerts, config.topics.quarantine) as reader:
        assert {record.topic for record in reader.all()} == {config.topics.alerts, config.topics.quarantine}
    assert compiled(spark) == before


def compiled(spark: "SparkSession") -> int:
    """How many pieces of code the session's JVM has compiled."""
    jvm: Any = spark._jvm
    return int(jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())
