"""The driver's own Kafka clients."""

import kafka.errors
import pytest
from kafka.admin import NewTopic

from nightjar.configuration.job import job_config
from nightjar.kafka.clients import admin
from nightjar.streaming.kafka_clients import producer
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
