"""Topics with several replicas, and how many of them must have a record."""

import pytest
from structlog.testing import capture_logs

from nightjar.kafka.clients import admin
from nightjar.kafka.replication import problem, warn_of_few_replicas
from tests.support.topics import TestTopics


@pytest.mark.parametrize(
    ("replicas", "in_sync", "message"),
    [(1, 1, None), (3, 2, None), (5, 3, None), (3, 1, "is lost if that"), (2, 1, "is lost"), (3, 3, "no record")],
)
def test_what_can_be_lost(replicas: int, in_sync: int, message: str | None) -> None:
    """One broker may fail without losing what it has acknowledged, and without stopping the others."""
    found = problem(replicas, in_sync)
    assert found is None if message is None else message in str(found)


@pytest.mark.kafka
def test_one_broker_is_no_cluster(kafka_topics: TestTopics) -> None:
    """Topics of one replica are nothing to warn of."""
    own = kafka_topics.ensure()
    with capture_logs() as logged, admin(own.settings) as client:
        warn_of_few_replicas(client, [own.settings.alerts_topic, own.settings.rules_topic])
        warn_of_few_replicas(client, [])
    assert logged == []
