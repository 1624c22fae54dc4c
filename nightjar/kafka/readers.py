"""Reads topics from outside the job: all current records, the last few, or new ones as they arrive."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from kafka import KafkaConsumer, TopicPartition

from nightjar.configuration.settings import Settings
from nightjar.contracts.headers import sent_at
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.kafka.clients import CONNECT_TIMEOUT_MS, KafkaError, consumer, explained, refuse_unreachable

# How long a poll waits for records before it returns, so that callers can check their deadlines.
_POLL_MS = 200
# Seconds for which a connection serves other readers, which learn no sooner of partitions that a topic gets; and how
# many are kept.
_KEPT_SECONDS, _MOST_KEPT = 60.0, 4


class KafkaRecord(NamedTuple):
    """One record. value: b"" for a tombstone. arrival: the record's timestamp, µs; sent_at: the header, µs, or None.

    received: wall clock at its receipt, µs.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    arrival: int
    sent_at: int | None
    received: int
    headers: Sequence[tuple[str, bytes | None]] = ()


class Skipped:
    """Counts the records that a reader skips because they do not belong on their topic, and logs the first of each
    kind. counts: by kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, record: KafkaRecord, kind: str) -> None:
        """Count a skipped record. kind: why it was skipped, such as "not an alert"."""
        kind = f"{kind} on {record.topic}"
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            structlog.get_logger().warning(
                "record_skipped", kind=kind, partition=record.partition, offset=record.offset, size=len(record.value)
            )


class _Connections:
    """Consumers that readers have done with, each with the settings of its brokers and the time it connected.

    are_kept: whether a process keeps them.
    """

    def __init__(self) -> None:
        self.are_kept = False
        self._lock = threading.Lock()
        self._free: list[tuple[Settings, KafkaConsumer, float]] = []

    def take(self, settings: Settings) -> tuple[KafkaConsumer, float] | None:
        """One that has connected lately, if there is one.

        Raises:
            KafkaError: nobody listens there any more.
        """
        with self._lock:
            now = time.monotonic()
            old = [each for each in self._free if now >= each[2] + _KEPT_SECONDS]
            self._free = [each for each in self._free if now < each[2] + _KEPT_SECONDS]
            place = next((at for at, (of, _, _) in enumerate(self._free) if of == settings), None)
            found = None if place is None else self._free.pop(place)
        for _, client, _ in old:
            client.close()
        if found is None:
            return None
        try:
            refuse_unreachable(settings)
        except BaseException:
            found[1].close()
            raise
        return found[1:]

    def leave(self, settings: Settings, client: KafkaConsumer, since: float) -> None:
        """Keep it for another reader, unless there are enough."""
        with self._lock:
            if len(self._free) < _MOST_KEPT:
                self._free.append((settings, client, since))
                return
        client.close()


_connections = _Connections()


def keep_connections() -> None:
    """From now on a reader of this process leaves its connection to the next one, for up to a minute.

    To connect takes over a tenth of a second, since kafka-python asks no sooner for a topic's partitions: much for a
    page, which reads some topics with few records.
    """
    _connections.are_kept = True


class Reader:
    """Reads topics without a consumer group; a context manager.

    options: of the consumer, in kafka-python's names.

    Raises:
        KafkaError: no broker responds or a topic does not exist.
    """

    def __init__(self, settings: Settings, *topics: str, **options: Any) -> None:
        self._settings = settings
        self._topics = topics
        self._is_kept = _connections.are_kept and not options
        known = _connections.take(settings) if self._is_kept else None
        self._client, self._since = known or (consumer(settings, **options), time.monotonic())
        try:
            self._places = [place for topic in topics for place in self._partitions(topic)]
            with explained(settings, f"reading {', '.join(topics)}"):
                self._client.assign(self._places)
                self._client.seek_to_beginning()
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *failure: object) -> None:
        if self._is_kept and not any(failure):
            _connections.leave(self._settings, self._client, self._since)
        else:
            self._client.close()

    def to_end(self) -> "Reader":
        """Skip all current records; the position is fixed before this returns. Returns the reader itself."""
        ends = self.ends()
        for place, end in ends.items():
            self._client.seek(place, end)
        return self

    def from_offsets(self, offsets: Mapping[str, Mapping[int, int]], arrived: int | None = None) -> "Reader":
        """Skip what is before these offsets, by topic and partition, and what arrived before `arrived` (µs).

        Returns the reader itself.
        """
        with explained(self._settings, f"reading {', '.join(self._topics)}"):
            starts = beginning_offsets(self._client, self._places)
            times = {} if arrived is None else dict.fromkeys(self._places, max(0, arrived) // 1000)
            ends = end_offsets(self._client, self._places) if times else {}
            came = self._client.offsets_for_times(times) if times else {}
        for place, start in starts.items():
            found = came.get(place)
            first = start if not times else ends[place] if found is None else found.offset
            self._client.seek(place, max(start, first, offsets.get(place.topic, {}).get(place.partition, 0)))
        return self

    def left(self) -> int:
        """How many records there are from the current position to the current end, at the most."""
        return sum(end - self._client.position(place) for place, end in self.ends().items())

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of each partition that is read next."""
        with explained(self._settings, f"reading {', '.join(self._topics)}"):
            return {place: self._client.position(place) for place in self._places}

    def last(self, count: int) -> list[KafkaRecord]:
        """The last `count` records of every partition."""
        ends = self.ends()
        with explained(self._settings, f"reading {', '.join(self._topics)}"):
            starts = beginning_offsets(self._client, self._places)
        for place, end in ends.items():
            self._client.seek(place, max(starts[place], end - count))
        return list(self._until(ends))

    def all(self, seconds: float | None = None) -> Iterator[KafkaRecord]:
        """The records from the current position to the current end, each partition in order.

        Raises:
            KafkaError: they could not be read within so many seconds (None: it takes the time that it takes).
        """
        yield from self._until(self.ends(), seconds)

    def poll(self, timeout_ms: int = _POLL_MS) -> list[KafkaRecord]:
        """New records; waits at most `timeout_ms` for them."""
        with explained(self._settings, f"reading {', '.join(self._topics)}"):
            polled = self._client.poll(timeout_ms=timeout_ms)
        now = time.time_ns() // 1000
        return [_record(record, now) for records in polled.values() for record in records]

    def follow(self) -> Iterator[KafkaRecord]:
        """All records from the current position on; never ends."""
        while True:
            yield from self.poll()

    def ends(self) -> dict[TopicPartition, int]:
        """The current end offset of each partition."""
        with explained(self._settings, f"reading {', '.join(self._topics)}"):
            found: dict[TopicPartition, int] = end_offsets(self._client, self._places)
        return found

    def _until(self, ends: dict[TopicPartition, int], seconds: float | None = None) -> Iterator[KafkaRecord]:
        deadline = None if seconds is None else time.monotonic() + seconds
        while any(self._client.position(place) < end for place, end in ends.items()):
            if deadline is not None and time.monotonic() > deadline:
                raise KafkaError(
                    f"{', '.join(self._topics)} could not be read to the end within {seconds:.0f} s",
                    where=f"Kafka at {self._settings.bootstrap}",
                    remedy="See the brokers' log for the cause",
                )
            for record in self.poll():
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    yield record

    def _partitions(self, topic: str) -> list[TopicPartition]:
        deadline = time.monotonic() + CONNECT_TIMEOUT_MS / 1000
        while not (found := self._client.partitions_for_topic(topic)):
            if topic not in self._client.topics() or time.monotonic() > deadline:
                raise KafkaError(
                    "the topic does not exist, or this login may not read it",
                    where=f"topic {topic} at {self._settings.bootstrap}",
                    remedy="`nightjar topics create` creates the topics, `nightjar topics grant` grants access",
                )
        return [TopicPartition(topic, partition) for partition in sorted(found)]


def _record(record: Any, received: int) -> KafkaRecord:
    return KafkaRecord(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value or b"",
        record.timestamp * 1000,
        sent_at(record.headers),
        received,
        record.headers or (),
    )
