"""Connections to Kafka that a process keeps for its next reader."""

import threading

import pytest

from nightjar.kafka import clients, readers
from nightjar.kafka.clients import KafkaError, producer
from nightjar.kafka.readers import Reader, keep_connections
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> readers._Connections:
    """Those of a process that keeps them."""
    monkeypatch.setattr(readers, "_connections", readers._Connections())
    keep_connections()
    return readers._connections


def _read(own: TestTopics, topic: str) -> tuple[int, list[bytes]]:
    """Which connection a reader of the topic has, and what it reads."""
    with Reader(own.settings, topic) as reader:
        return id(reader._client), [record.value for record in reader.all()]


def test_the_next_reader_has_the_connection_and_all_records_of_its_own_topic(
    kafka_topics: TestTopics, connections: readers._Connections
) -> None:
    """Also where it reads again what was read before, in another thread."""
    own = kafka_topics.ensure()
    topics = (own.settings.rules_topic, own.settings.rule_status_topic)
    with producer(own.settings) as client:
        for topic in topics:
            client.send(topic, topic.encode()).get()
    found = [_read(own, topic) for topic in (*topics, *topics)]
    thread = threading.Thread(target=lambda: found.append(_read(own, topics[0])))
    thread.start()
    thread.join()
    assert [values for _, values in found] == [[topic.encode()] for topic in (*topics, *topics, topics[0])]
    assert len({client for client, _ in found}) == 1


def test_two_readers_at_one_time_have_a_connection_each(
    kafka_topics: TestTopics, connections: readers._Connections
) -> None:
    """A consumer serves one thread."""
    own = kafka_topics.ensure()
    with Reader(own.settings, own.settings.rules_topic) as one, Reader(own.settings, own.settings.rules_topic) as other:
        assert one._client is not other._client


def test_a_reader_that_failed_leaves_no_connection(kafka_topics: TestTopics, connections: readers._Connections) -> None:
    """It may be what failed; neither does one with options of its own, which the next reader did not ask for."""
    own = kafka_topics.ensure()
    with pytest.raises(KafkaError, match="does not exist"), Reader(own.settings, "missing"):
        pass
    with pytest.raises(ValueError, match="mine"), Reader(own.settings, own.settings.rules_topic):
        raise ValueError("mine")
    with Reader(own.settings, own.settings.rules_topic, fetch_max_wait_ms=10):
        pass
    assert connections.take(own.settings) is None


def test_a_kept_connection_does_not_hide_that_nobody_listens(
    kafka_topics: TestTopics, connections: readers._Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was connected would try again until its timeout."""
    own = kafka_topics.ensure()
    _read(own, own.settings.rules_topic)

    def refuse(_: str) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(clients, "_probe", refuse)
    with pytest.raises(KafkaError, match="no broker responds"):
        _read(own, own.settings.rules_topic)


def test_an_old_connection_is_not_used_again(
    kafka_topics: TestTopics, connections: readers._Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know of partitions that a topic has got since."""
    own = kafka_topics.ensure()
    _read(own, own.settings.rules_topic)
    monkeypatch.setattr(readers, "_KEPT_SECONDS", 0.0)
    assert connections.take(own.settings) is None
    assert connections._free == []
