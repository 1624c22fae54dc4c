"""Purpose: read events and publish results between two batches of a real-time query, while none of its tasks runs.

How it works: Spark takes a tenth of a second or more to commit a batch and to start the tasks of the next one.
Meanwhile the engine process reads events itself, each partition from where its task has ended until a task brings
records of it again. Their groups are logged, as all are, and are the next batch's, whose tasks bring the same records
once more, to no effect.

What it does not do: wait for brokers. What a client cannot read, the next batch's tasks do; and what is not known to be
on Kafka when that batch ends, they publish.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from nightjar.contracts.headers import SENT_AT, sent_at
from nightjar.formats.records import headers_of, keys_of
from nightjar.rules.types import INSTANT
from nightjar.streaming.kafka_clients import resending_producer
from nightjar.streaming.real_time.frames import Records, Reply

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.producer.future import FutureRecordMetadata

_log = structlog.get_logger(__name__)

# Seconds: of the time between two batches in which events are read, and from when on tasks run.
_LONGEST, _OVERLAP = 10.0, 0.5
# Seconds until records that were sent are on Kafka, at most.
_FLUSH = 1.0
# A fetch ends as soon as there is a record.
_FETCH_MS, _FETCH_BYTES = 20, 1 << 20


@dataclass(frozen=True)
class Brokers:
    """Where events and results are."""

    client: Mapping[str, object] = field(repr=False)
    """Options of kafka-python, which may hold passwords."""
    beside: Collection[str]
    """The columns beside a value that streams read: key, headers."""
    events: Collection[str]
    """Topics."""
    results: Collection[str]
    """Topics; others are found once there is a record."""

    def connected(self) -> BetweenBatches | None:
        """The clients; None if the brokers do not respond."""
        try:
            return BetweenBatches(self)
        except KafkaError as failure:
            _log.warning("events will wait between two batches", cause=repr(failure))
            return None


class BetweenBatches:
    """The clients. Raises KafkaError if the brokers do not respond."""

    def __init__(self, brokers: Brokers) -> None:
        self._beside = brokers.beside
        options: dict[str, Any] = dict(brokers.client)
        self._consumer = KafkaConsumer(
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            fetch_max_wait_ms=_FETCH_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
            **options,
        )
        self._producer = resending_producer(brokers.client)
        # now, rather than while an alert waits
        for topic in brokers.events:
            self._consumer.partitions_for_topic(topic)
        for topic in brokers.results:
            self._producer.partitions_for(topic)
        self._read_until: float | None = None
        self._sent: list[tuple[Reply, FutureRecordMetadata | None]] = []

    @property
    def is_reading(self) -> bool:
        """Whether events are read: from `begin` until every partition is left, or time is up."""
        return self._read_until is not None

    def begin(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read from these offsets of topics and partitions on."""
        if not positions:
            return
        places = {TopicPartition(*place): position for place, position in positions.items()}
        self._consumer.assign([*places])
        for place, position in places.items():
            self._consumer.seek(place, position)
        self._consumer.resume(*places)
        self._read_until = time.monotonic() + _LONGEST

    def leave(self, place: tuple[str, int]) -> None:
        """Read no more of this partition, since a task does."""
        if self.is_reading and place in self._consumer.assignment():
            self._consumer.pause(TopicPartition(*place))
            if self._consumer.paused() == self._consumer.assignment():
                self._read_until = None

    def leave_soon(self) -> None:
        """Read on for a moment: the tasks run. What was sent should arrive before what they publish."""
        with suppress(KafkaError):  # else they publish it at the end of the batch
            self._producer.flush(_FLUSH)
        if self._read_until is not None:
            self._read_until = min(self._read_until, time.monotonic() + _OVERLAP)

    def read(self, seconds: float) -> list[Records]:
        """What there is, after so long at the most."""
        if self._read_until is None or time.monotonic() > self._read_until:
            self._end()
            return []
        try:
            found = self._consumer.poll(round(1000 * seconds))
        except (KafkaError, ValueError) as failure:  # ValueError: a header's name that is no text
            _log.warning("events wait for the next batch", cause=repr(failure))
            self._end()
            return []
        return [self._records(place, records) for place, records in found.items()]

    def publish(self, replies: Iterable[Reply]) -> None:
        """Send records; `unpublished` returns those that did not arrive."""
        for reply in replies:
            headers = [] if reply.sent_at is None else [(SENT_AT, reply.sent_at)]
            try:
                future = self._producer.send(reply.topic, value=reply.value, key=reply.key, headers=headers)
            except KafkaError:
                future = None
            self._sent.append((reply, future))

    def unpublished(self) -> list[Reply]:
        """What was sent since the last call, and is not known to be on Kafka."""
        sent, self._sent = self._sent, []
        return [reply for reply, future in sent if future is None or not future.succeeded()]

    def _end(self) -> None:
        self._consumer.pause(*self._consumer.assignment())
        self._read_until = None

    def _records(self, place: TopicPartition, found: Sequence[ConsumerRecord]) -> Records:
        values = [each.value for each in found]
        beside = {}
        if "key" in self._beside:
            beside["key"] = keys_of(found)
        if "headers" in self._beside:
            beside["headers"] = headers_of(found)
        return Records(
            place.topic,
            place.partition,
            np.array([each.offset for each in found], np.int64),
            (
                pa.array([1000 * each.timestamp for each in found], INSTANT),
                pa.array(values, pa.binary()),
                pa.array([sent_at(each.headers) for each in found], pa.int64()),
            ),
            sum(len(value or b"") for value in values),
            beside,
        )
