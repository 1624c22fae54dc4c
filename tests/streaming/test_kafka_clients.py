"""The driver's own Kafka clients."""

import kafka.errors
import pytest
from kafka import TopicPartition
from kafka.admin import NewTopic

from nightjar.configuration.job import job_config
from nightjar.kafka.clients import admin
from nightjar.streaming.kafka_clients import consumer, producer
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_what_a_broker_refuses_does_not_end_the_sending(kafka_topics: TestTopics) -> None:
    """After a record that no topic of that setting takes, the next ones are delivered, there and elsewhere."""
    kafka_topics.ensure()
    narrow, wide = f"{kafka_topics.settings.clock_topic}-narrow", kafka_topics.settings.job_progress_topic
    with admin(kafka_topics.settings) as client:
        client.create_topics([NewTopic(narrow, 1, 1, topic_configs={"max.message.bytes": "1000"})])
    with producer(job_config(kafka_topics.settings, kafka_topics.streams)) as sender:
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            sender.send(narrow, b"x" * 5000).get()
        assert sender.send(narrow, b"x").get().offset == 0
        assert sender.send(wide, b"x").get().offset == 0


@pytest.mark.parametrize("compression", ["gzip", "lz4", "snappy", "zstd"])
def test_records_are_read_however_they_are_compressed(kafka_topics: TestTopics, compression: str) -> None:
    """The topic has the broker do it, in Java, as most producers do."""
    topic = f"{kafka_topics.settings.clock_topic}-{compression}"
    with admin(kafka_topics.settings) as client:
        client.create_topics([NewTopic(topic, 1, 1, topic_configs={"compression.type": compression})])
    config, values = job_config(kafka_topics.settings, kafka_topics.streams), [b"a" * 1000, b"b" * 1000]
    with producer(config) as sender, consumer(config) as reader:
        for value in values:
            sender.send(topic, value).get()
        reader.assign([TopicPartition(topic, 0)])
        found = list[bytes]()
        while len(found) < len(values):
            found += [each.value for some in reader.poll(10_000).values() for each in some]
    assert found == values
