"""Where partitions begin and end, also while the client does not know their leader yet."""

import threading

import kafka.errors
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from nightjar.ingestion import offsets
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.kafka.clients import admin
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def consumer(kafka_topics: TestTopics) -> KafkaConsumer:
    """One that has seen the test's topics."""
    kafka_topics.ensure()
    client = KafkaConsumer(bootstrap_servers=kafka_topics.settings.bootstrap, request_timeout_ms=5000)
    yield client
    client.close()


def test_a_partition_that_comes_later_is_waited_for(consumer: KafkaConsumer, kafka_topics: TestTopics) -> None:
    """kafka-python alone answers for those it knows, and fails over the other."""
    known = TopicPartition(kafka_topics.settings.clock_topic, 0)
    late = TopicPartition(f"{known.topic}-late", 0)
    assert end_offsets(consumer, [known]) == {known: 0}
    with pytest.raises(KeyError):
        consumer.end_offsets([known, late])

    def make() -> None:
        with admin(kafka_topics.settings) as client:
            client.create_topics([NewTopic(late.topic, 1, 1)])

    making = threading.Timer(1.0, make)
    making.start()
    assert beginning_offsets(consumer, [known, late]) == {known: 0, late: 0}
    making.join()


def test_one_that_never_comes_is_an_error_of_kafka(
    consumer: KafkaConsumer, kafka_topics: TestTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the job takes for brokers that are away, and asks again later."""
    monkeypatch.setattr(offsets, "_LEADER_SECONDS", 0.5)
    known = TopicPartition(kafka_topics.settings.clock_topic, 0)
    assert end_offsets(consumer, [known]) == {known: 0}
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="has no leader"):
        end_offsets(consumer, [known, TopicPartition(f"{known.topic}-never", 0)])
