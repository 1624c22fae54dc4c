"""The job's own Kafka clients, beside its query: they publish its progress and read end offsets."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from nightjar.streaming.config import JobConfig

# How long the driver waits for brokers before it checks its query again.
WAIT_MS = 10_000
_FETCH_BYTES = 64 * 1024


@contextlib.contextmanager
def consumer(config: JobConfig, fetch_bytes: int = _FETCH_BYTES) -> Iterator[KafkaConsumer]:
    """A consumer without topics or a group; it reads committed records. fetch_bytes: of a partition, at once."""
    client = KafkaConsumer(
        enable_auto_commit=False,
        max_partition_fetch_bytes=fetch_bytes,
        request_timeout_ms=WAIT_MS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **config.kafka.python,
    )
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def producer(config: JobConfig) -> Iterator[KafkaProducer]:
    """The one of `resending_producer`, closed at the end."""
    client = resending_producer(config.kafka.python)
    try:
        yield client
    finally:
        client.close()


def resending_producer(client: Mapping[str, object]) -> KafkaProducer:
    """A producer that may deliver a record twice, in order: whatever it sends can be sent again. client: options of
    kafka-python.

    kafka-python's idempotent producer delivers nothing more after a record that a broker refuses for good, for example
    for a permission that is missing briefly: the job would continue and never answer or report again.
    """
    options: dict[str, Any] = dict(client)
    return KafkaProducer(
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        linger_ms=0,
        max_block_ms=WAIT_MS,
        **options,
    )
