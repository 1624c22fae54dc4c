"""The job warms up with events, of every form that the engine keeps otherwise, and a rule for them in each process."""

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from contracts.rule_status import fold
from ingestion.kafka_source import record_columns
from rules.events import parse_event
from rules.rulebook import RuleBook
from rules.streams import Stream, load_streams
from rules.types import FieldType, Kind
from streaming.bucketing import Packer
from streaming.payloads import Kind as Packed
from streaming.warmup import buckets_for, made_up, made_up_rules

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
    streams = list(load_streams().values())
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
    routes = tuple(book.routes)
    for answer in made_up_rules(streams, routes):
        fold(book, answer)
    buckets = buckets_for(partitions, routes)
    packer = Packer(streams, routes, buckets, partitions, "rule-status", "clock", "quarantine", bounded=True)
    packed = packer.packed(record_columns(records(spark, list(streams.values()))).toArrow())
    evaluating = {
        bucket % partitions
        for bucket, kind, _ in packed
        if kind is Packed.EVENTS and book.served_by(routes[bucket // buckets])
    }
    assert evaluating == set(range(partitions))
