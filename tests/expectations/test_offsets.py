"""Missing offsets: found among a day's records, and distinguished by the topic itself."""

import uuid
from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from nightjar.configuration.kafka import kafka_config
from nightjar.expectations import topic
from nightjar.expectations.measured import kinds
from nightjar.expectations.offsets import frame, gaps, missing
from nightjar.expectations.suites import GAPS
from nightjar.expectations.topic import Gap
from nightjar.local.kafka import LocalKafka
from tests.support.frames import DAY, STREAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

YESTERDAY, LONG_AGO = DAY - timedelta(days=1), DAY - timedelta(days=90)


def records(session: "SparkSession", *rows: tuple[int, date, list[int]]) -> "DataFrame":
    """Records as (partition, arrival date, offsets)."""
    placed = [(partition, offset, day) for partition, day, offsets in rows for offset in offsets]
    return session.createDataFrame(placed, "partition int, offset bigint, arrival_date date").coalesce(1)


def found(frame: "DataFrame") -> list[tuple[int, int, int]]:
    """The gaps of the day as (partition, first, last)."""
    lately = pl.DataFrame(frame.toArrow()).lazy()
    gaps = missing(lately, lambda: frame, "transactions", DAY)
    return [(gap.partition, gap.first_missing, gap.last_missing) for gap in gaps]


@pytest.mark.spark
def test_what_follows_is_no_gap(spark: "SparkSession") -> None:
    """Neither within the day nor after the last record before it; nor does it matter where the archive began."""
    assert found(records(spark, (0, YESTERDAY, [5, 6]), (0, DAY, [7, 8, 9]), (1, DAY, [100, 101]))) == []
    assert found(records(spark, (0, YESTERDAY, [1, 3, 9]))) == []


@pytest.mark.spark
def test_a_gap_is_between_records_or_before_the_first(spark: "SparkSession") -> None:
    """Each partition for itself; the record before the first may be old; a copy hides no gap."""
    whole = records(
        spark,
        (0, YESTERDAY, [1]),
        (0, DAY, [3, 4, 7, 7, 8]),
        (1, LONG_AGO, [10]),
        (1, DAY, [13, 14]),
        (2, DAY, [1, 5, 6]),
    )
    assert found(whole) == [(0, 2, 2), (0, 5, 6), (1, 11, 12), (2, 2, 4)]


@pytest.mark.spark
def test_records_of_other_days_fill_gaps(spark: "SparkSession") -> None:
    """Where producers stamp arrivals, an offset between two of the day may be another day's, before or after it."""
    whole = records(spark, (0, YESTERDAY, [0, 3, 4]), (0, DAY, [1, 2, 6, 9]), (0, DAY + timedelta(days=1), [5, 8, 12]))
    assert found(whole) == [(0, 7, 7)]


def test_gaps_are_a_frame() -> None:
    """What the offsets' suite looks at."""
    made = frame([Gap("s", 1, 2, 3, known=True, why="markers")])
    assert made.columns == list(GAPS)
    assert made.rows() == [("s", 1, 2, 3, True, "markers")]
    assert kinds(frame([]).to_arrow(compat_level=pl.CompatLevel.oldest()).schema) == GAPS


@pytest.fixture
def options(broker: LocalKafka) -> dict[str, Any]:
    """What kafka-python's clients are given."""
    return kafka_config(broker.settings).python


@pytest.fixture
def topic_name(options: dict[str, Any]) -> Iterator[str]:
    """A topic of two partitions."""
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(**options)
    try:
        admin.create_topics([NewTopic(name, 2, 1)])
        yield name
    finally:
        admin.close()


def send(producer: KafkaProducer, name: str, partition: int, count: int) -> None:
    """Some records, waited for."""
    for answer in [producer.send(name, b"x", partition=partition) for _ in range(count)]:
        answer.get()


@pytest.mark.kafka
def test_kafka_knows_what_is_no_loss(options: dict[str, Any], topic_name: str) -> None:
    """Markers, records of an aborted transaction and expired ones are no loss; a record that is there is one."""
    with KafkaProducer(**options, transactional_id=topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, topic_name, 0, 2)  # 0, 1
        producer.commit_transaction()  # 2
        producer.begin_transaction()
        send(producer, topic_name, 0, 3)  # 3, 4, 5
        producer.abort_transaction()  # 6
    with KafkaProducer(**options) as producer:
        send(producer, topic_name, 0, 3)  # 7, 8, 9
        send(producer, topic_name, 1, 4)
    admin = KafkaAdminClient(**options)
    admin.delete_records({TopicPartition(topic_name, 1): 2})
    admin.close()
    asked = [Gap("s", 0, 2, 2), Gap("s", 0, 3, 6), Gap("s", 0, 8, 8), Gap("s", 1, 0, 1), Gap("s", 1, 1, 2)]
    answered = topic.ask(asked, topic_name, options, most=100)
    assert [(gap.first_missing, gap.known) for gap in answered] == [
        (2, True),
        (3, True),
        (8, False),
        (0, True),
        (1, False),
    ]
    assert [gap.why for gap in answered] == [
        "transaction markers: the topic has no record there",
        "records of an aborted transaction",
        "the topic has a record at offset 8",
        "the topic has already deleted these offsets",
        "the topic has a record at offset 2",
    ]


@pytest.mark.kafka
def test_only_so_many_gaps_are_asked_about(options: dict[str, Any], topic_name: str) -> None:
    """The longest; of the others it stays unknown."""
    with KafkaProducer(**options) as producer:
        send(producer, topic_name, 0, 9)
    asked = [Gap("s", 0, 1, 1), Gap("s", 0, 3, 4), Gap("s", 0, 6, 6)]
    answered = topic.ask(asked, topic_name, options, most=1)
    assert [gap.known for gap in answered] == [None, False, None]


def test_a_broker_that_does_not_answer_is_no_excuse() -> None:
    """What could not be asked about counts as lost."""
    options = {"bootstrap_servers": ["127.0.0.1:1"], "bootstrap_timeout_ms": 200}
    (answered,) = topic.ask([Gap("s", 0, 1, 1)], "t", options, most=5)
    assert answered.known is False
    assert answered.why.startswith("Kafka does not respond")


@pytest.mark.spark
@pytest.mark.kafka
def test_a_days_gaps_come_with_their_reasons(spark: "SparkSession", options: dict[str, Any], topic_name: str) -> None:
    """From the lake's records and the topic to the frame that is checked."""
    from dataclasses import replace

    with KafkaProducer(**options) as producer:
        send(producer, topic_name, 0, 4)
    stream = replace(STREAM, topic=topic_name)
    records_of_day = records(spark, (0, DAY, [0, 1, 3]))
    found_there = gaps(pl.DataFrame(records_of_day.toArrow()).lazy(), lambda: records_of_day, stream, DAY, options)
    assert found_there.rows() == [("transactions", 0, 2, 2, False, "the topic has a record at offset 2")]
