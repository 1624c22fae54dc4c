"""Purpose: publish each stream's clock to the buckets, so that state without traffic is evicted.

How it works: every few seconds the driver publishes, for each stream, a time such that the query has consumed every
record that arrived before it: the arrival of the oldest waiting record, else the present. The present is the time stamp
that the brokers gave to the driver's last record on the clock topic, which was written before the end offsets of the
event topics were read. The query reads the clock like any other record, so that it takes effect in the same order
everywhere, and no later than the record's own time stamp. The host's clock decides nothing; its difference from the
brokers' is measured and reported.

Known limitation: where producers set the arrival, the present of an idle stream is the arrival of its last record, and
a partition that never had a record keeps its stream's clock from starting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from kafka import TopicPartition

from nightjar.contracts.clock import Clock
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.rules.durations import MICROSECONDS
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.pacing import Every
from nightjar.streaming.state.metadata import Offsets

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from kafka.producer.future import FutureRecordMetadata

_log = structlog.get_logger(__name__)

# How long to wait in all for records that are known to exist (seconds): rule messages wait for it too.
_FETCH_SECONDS = 1.0
_POLL_MS = 100
_RATE_SECONDS = 60.0

# A host whose clock differs from the brokers' by more than this (µs) is reported: times from both would be confusing.
SKEW_REPORTED = 2_000_000


def host_clock() -> int:
    """The host's wall clock, µs."""
    return time.time_ns() // 1000


class BrokerClock:
    """The brokers' present, from the time stamps that they give to the driver's own records.

    host: the host's wall clock, µs; used for `skew` only.
    """

    def __init__(self, host: Callable[[], int] = host_clock) -> None:
        self.host = host
        self._stamp: int | None = None
        self._at = 0.0
        self._warned = False
        self.skew: int | None = None

    @property
    def stamped(self) -> int | None:
        """The last time stamp, µs: any later request sees all records that arrived before it."""
        return self._stamp

    def now(self) -> int | None:
        """The approximate present, µs; None before the first time stamp."""
        return None if self._stamp is None else self._stamp + int((time.monotonic() - self._at) * 1_000_000)

    def take(self, stamp: int, sent_at: float) -> None:
        """Use the time stamp (µs) of a record sent at `sent_at` (time.monotonic) and is acknowledged now."""
        self._stamp, self._at = max(stamp, self._stamp or stamp), time.monotonic()
        waited = int((self._at - sent_at) * 1_000_000)
        acknowledged = self.host()
        # The brokers stamped it at some time between sending and acknowledgement.
        skew = acknowledged - waited - stamp if stamp < acknowledged - waited else min(0, acknowledged - stamp)
        self.skew = skew
        if abs(skew) > SKEW_REPORTED and not self._warned:
            _log.warning("this host's clock differs from the brokers'", seconds=round(skew / 1_000_000, 1))
        self._warned = abs(skew) > SKEW_REPORTED


@dataclass(frozen=True)
class PartitionProgress:
    """How far one partition has been read. end: its end offset; waiting, last: arrival (µs) of the first record not
    consumed and of the last record, None if there is none or it was not looked up."""

    consumed: int
    end: int
    waiting: int | None = None
    last: int | None = None

    @property
    def lag(self) -> int:
        """How many records wait."""
        return max(0, self.end - self.consumed)


def clock_of(partitions: list[PartitionProgress], now: int | None) -> int | None:
    """A stream's clock in µs, None if unknown.

    now: a time before the end offsets were requested, by the brokers' clock; None if producers stamp arrivals, or if
    unknown.
    """
    bounds = [each.waiting if each.lag else (each.last if now is None else now) for each in partitions]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known and len(known) == len(bounds) else None


class Arrivals:
    """Looks up the progress in the partitions of the event topics."""

    def __init__(self, config: JobConfig, consumer: KafkaConsumer) -> None:
        self._config = config
        self._consumer = consumer
        self._rates: dict[str, tuple[float, float]] = {}

    def partitions(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each stream's topic, or of a union's topics."""
        return {
            stream.name: [
                TopicPartition(topic, number)
                for topic in stream.topics
                for number in sorted(self._consumer.partitions_for_topic(topic) or ())
            ]
            for stream in self._config.streams.values()
        }

    def begins(self) -> dict[str, dict[int, int]]:
        """Topic -> partition -> the first offset that Kafka has, of every stream."""
        every = [partition for of in self.partitions().values() for partition in of]
        found: dict[str, dict[int, int]] = {}
        for partition, offset in beginning_offsets(self._consumer, every).items():
            found.setdefault(partition.topic, {})[partition.partition] = offset
        return found

    def events_per_day(self, stream: str) -> float:
        """How many events of a stream arrive per day, from what Kafka holds of it: all, if that is less than a day.

        Looked up at most once per minute: rules are published by the hundred.
        """
        known = self._rates.get(stream)
        if known is None or time.monotonic() - known[0] > _RATE_SECONDS:
            known = self._rates[stream] = time.monotonic(), self._rate(self.partitions()[stream])
        return known[1]

    def _rate(self, partitions: list[TopicPartition]) -> float:
        begins, ends = beginning_offsets(self._consumer, partitions), end_offsets(self._consumer, partitions)
        held = [partition for partition in partitions if ends[partition] > begins[partition]]
        deadline = time.monotonic() + _FETCH_SECONDS
        arrivals = [
            self._arrival(partition, offset, deadline)
            for partition in held
            for offset in (begins[partition], ends[partition] - 1)
        ]
        known = [arrival for arrival in arrivals if arrival is not None]
        days = (max(known) - min(known)) / MICROSECONDS["d"] if known else 0.0
        return sum(ends[partition] - begins[partition] for partition in held) / max(days, 1.0)

    def progress(self, committed: Offsets) -> dict[str, list[PartitionProgress]]:
        """Every partition of every stream, given the offsets of the last committed batch."""
        of_stream = self.partitions()
        every = list(dict.fromkeys(partition for partitions in of_stream.values() for partition in partitions))
        self._consumer.assign(every)
        begins, ends = beginning_offsets(self._consumer, every), end_offsets(self._consumer, every)
        by_producer = self._config.arrival == "producer"
        deadline = time.monotonic() + _FETCH_SECONDS

        def progress(partition: TopicPartition) -> PartitionProgress:
            end = ends[partition]
            consumed = max(committed.get(partition.topic, {}).get(partition.partition, 0), begins[partition])
            waiting = self._arrival(partition, consumed, deadline, end) if consumed < end else None
            if waiting is None and consumed < end <= self._consumer.position(partition):
                consumed = end  # only what ends a producer's transaction was left
            ended = by_producer and consumed >= end and end > begins[partition]
            last = self._arrival(partition, end - 1, deadline) if ended else None
            return PartitionProgress(consumed, end, waiting, last)

        known = {partition: progress(partition) for partition in every}
        return {stream: [known[partition] for partition in partitions] for stream, partitions in of_stream.items()}

    def _arrival(self, partition: TopicPartition, offset: int, deadline: float, end: int | None = None) -> int | None:
        """The arrival of the record at this offset or the next one, µs; None if it could not be fetched in time, or if
        there is none before `end`."""
        self._consumer.assign([partition])
        self._consumer.seek(partition, offset)
        while time.monotonic() < deadline:
            for records in self._consumer.poll(timeout_ms=_POLL_MS, max_records=1).values():
                return int(records[0].timestamp) * 1000
            if end is not None and self._consumer.position(partition) >= end:
                return None
        _log.warning("a record's arrival could not be read", topic=partition.topic, partition=partition.partition)
        return None


def clocks_of_progress(
    config: JobConfig, progress: Mapping[str, list[PartitionProgress]], stamped: int | None
) -> dict[str, int]:
    """The clocks (µs) that are known, by stream.

    stamped: the brokers' time stamp of a record that was written before the progress was looked up; None if there is
    none yet.
    """
    producers = config.arrival == "producer"
    now = None if producers or stamped is None else stamped - config.clock_margin
    # Without a present, an idle stream has no clock where brokers stamp arrivals: that of its last record is too early.
    idle = {
        stream: partitions
        for stream, partitions in progress.items()
        if producers or now is not None or all(each.lag for each in partitions)
    }
    clocks = {stream: clock_of(partitions, now) for stream, partitions in idle.items()}
    return {stream: clock for stream, clock in clocks.items() if clock is not None}


class ClockPublisher:
    """Publishes the clocks every `clock_interval`. send: publishes a value on a topic."""

    def __init__(
        self, config: JobConfig, brokers: BrokerClock, send: Callable[[str, bytes], FutureRecordMetadata]
    ) -> None:
        self._config, self._brokers, self._send = config, brokers, send
        self._interval = Every(config.clock_interval / 1_000_000)
        self._sent: deque[tuple[FutureRecordMetadata, Mapping[str, int]]] = deque()
        self.taken_in: dict[str, int] = {}
        """The clocks (µs, by stream) that the query has taken in, of those that this driver has published."""

    def take_in(self, offset: int) -> None:
        """Note that the query has read the clock topic up to this offset."""
        while self._sent and self._sent[0][0].is_done:
            sent, clocks = self._sent[0]
            if sent.succeeded() and sent.value.offset >= offset:
                break
            if sent.succeeded():
                self.taken_in |= clocks
            self._sent.popleft()

    def publish_if_due(
        self, run_id: str, progress: Mapping[str, list[PartitionProgress]], stamped: int | None
    ) -> Mapping[str, int]:
        """Publish the clocks of this progress (see clocks_of_progress), if due; returns what it published.

        run_id: the run of the query. The first record is sent for the time stamp that the brokers give it.
        """
        if not self._interval.due():
            return {}
        clocks = {} if stamped is None else clocks_of_progress(self._config, progress, stamped)
        sent_at = time.monotonic()
        sent = self._send(self._config.topics.clock, Clock(run_id, clocks).encoded())
        sent.add_callback(lambda written: self._brokers.take(written.timestamp * 1000, sent_at))
        if clocks:
            self._sent.append((sent, clocks))
        return clocks
