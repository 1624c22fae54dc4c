"""The records that the driver publishes, and how it bears brokers that do not answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import structlog
from kafka.errors import KafkaError

from nightjar.streaming import kafka_clients

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import FutureRecordMetadata

_log = structlog.get_logger(__name__)

_RETRY_SECONDS = 1.0


class Outbox:
    """Sends records without waiting for their delivery."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes, **options: Any) -> FutureRecordMetadata:
        """Send a record, and log if it could not be delivered."""
        sent = self._producer.send(topic, value=value, **options)
        sent.add_errback(lambda error: _log.warning("a record was not delivered", topic=topic, reason=repr(error)))
        return sent

    def flush(self) -> None:
        """Wait until all records are delivered."""
        self._producer.flush(kafka_clients.WAIT_MS / 1000)


@contextlib.contextmanager
def without_kafka() -> Iterator[None]:
    """Skip what is inside if no broker answers: the query waits for Kafka too, or fails."""
    try:
        yield
    except KafkaError as failure:
        _log.warning("Kafka does not answer", reason=str(failure))
        time.sleep(_RETRY_SECONDS)
