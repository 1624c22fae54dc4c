"""The driver's own Kafka clients: what the job tells of itself, and reads of where topics end, beside its query."""

import contextlib
from collections.abc import Iterator

from kafka import KafkaConsumer, KafkaProducer

from streaming.config import JobConfig

# How long the driver waits for brokers before it looks after its query again.
WAIT_MS = 10_000
_FETCH_BYTES = 64 * 1024


@contextlib.contextmanager
def consumer(config: JobConfig) -> Iterator[KafkaConsumer]:
    """One without topics or a group; it reads what is committed."""
    client = KafkaConsumer(
        enable_auto_commit=False,
        max_partition_fetch_bytes=_FETCH_BYTES,
        request_timeout_ms=WAIT_MS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **config.python_kafka,
    )
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def producer(config: JobConfig) -> Iterator[KafkaProducer]:
    """One that may deliver a record twice, in order: what it sends is a state of things or can be sent again.

    kafka-python's idempotent producer delivers nothing more after one record that a broker refuses for good, a right
    that is missing for a moment among them: the job would go on without ever answering or telling again.
    """
    client = KafkaProducer(
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        linger_ms=0,
        max_block_ms=WAIT_MS,
        **config.python_kafka,
    )
    try:
        yield client
    finally:
        client.close()
