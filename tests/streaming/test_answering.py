"""The driver's answers to rule messages, on a real broker."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kafka import TopicPartition

from nightjar.job_config import job_config
from nightjar.kafka_clients import admin, producer
from nightjar.reading import Reader
from streaming import kafka_clients
from streaming.answering import Answering
from streaming.config import JobConfig, JobError
from tests.conftest import TestTopics

pytestmark = pytest.mark.kafka

RULE: dict[str, Any] = {"id": "large", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 100"}
SECOND = 1_000_000


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """The test's topics, made."""
    return kafka_topics.ensure()


@contextmanager
def driver(config: JobConfig) -> Iterator[Answering]:
    """What answers, as a start of the job makes it."""
    with ExitStack() as cleanup:
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
        client = cleanup.enter_context(kafka_clients.producer(config))
        answering = Answering(config, consumers, client, lambda: 7 * SECOND)
        answering.catch_up()
        yield answering


def publish(own: TestTopics, *messages: dict[str, Any]) -> None:
    """Put rule messages on the topic."""
    with producer(own.settings) as client:
        for message in messages:
            client.send(own.settings.rules_topic, json.dumps(message).encode()).get(10)


def told(own: TestTopics) -> list[tuple[str, int | None, str | None]]:
    """Status, version and effective time of each answer."""
    with Reader(own.settings, own.settings.rule_status_topic) as reader:
        answers = [json.loads(record.value) for record in reader.all()]
    return [(answer["status"], answer["rule_version"], answer["effective"]) for answer in answers]


def test_an_answer_outlives_restarts_declarations_and_settings(own: TestTopics) -> None:
    """Neither another activation delay nor a stream declared later changes what was answered; each message has one."""
    config = job_config(own.settings, own.streams)
    without = replace(config, streams={"logins": own.streams["logins"]}, activation_delay=SECOND)
    publish(own, RULE)
    with driver(without) as first:
        assert first.book.ruleset.versions == ()
    publish(own, RULE)
    with driver(config) as second:
        versions = second.book.ruleset.versions
    assert [(v.version, v.rule.id) for v in versions] == [(1, "large")]
    with driver(replace(config, activation_delay=60 * SECOND)) as third:
        assert third.book.ruleset.versions == versions
    assert [status for status, _, _ in told(own)] == ["REJECTED", "ACCEPTED"]


def test_a_version_is_active_once_the_query_has_taken_it_in(own: TestTopics) -> None:
    """Not before; one without a route once there is one, from the brokers' present on; a paused one never."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE, {**RULE, "id": "same", "group_by": ["amount"]}, {"control": "pause", "rule": "large"})
    with driver(config) as answering:
        answering.activate(0)
        assert [status for status, _, _ in told(own)] == ["ACCEPTED"] * 3
        answering.activate(answering.end)
        assert told(own)[3:] == [("ACTIVE", 1, told(own)[0][2])]
        answering.run_with(answering.book.routes)
        answering.activate(answering.end)
        effective = "1970-01-01T00:00:12.000000Z"
        assert told(own)[4:] == [("ACTIVE", 1, effective)]
        assert not answering.owes
    with driver(config) as again:
        assert again.book.ruleset == answering.book.ruleset
        again.run_with(again.book.routes)
        again.activate(again.end)
    assert len(told(own)) == 5


def test_lost_answers_refuse_a_start(own: TestTopics) -> None:
    """They say which rules there are: without them versions would be numbered anew."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE, {**RULE, "when": "amount > 200"})
    with driver(config):
        pass
    with admin(own.settings) as client:
        client.delete_records({TopicPartition(own.settings.rule_status_topic, 0): 1})
    with pytest.raises(JobError, match="its records before offset 1 are gone"), driver(config):
        pass


def test_answers_of_another_rules_topic_refuse_a_start(own: TestTopics) -> None:
    """A rules topic that was removed and made again would have its first messages taken for answered."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE)
    with driver(config):
        pass
    other = replace(config, topics=replace(config.topics, rules=own.settings.history_topic))
    with pytest.raises(JobError, match="it ends at offset 0, and answers reach to offset 0"), driver(other):
        pass
