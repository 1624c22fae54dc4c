"""Purpose: tell the buckets how far arrival has come, so that state without traffic is let go (law 11).

How it works: every few seconds the driver publishes, for each stream, a time before which no record that the query has
not yet consumed has arrived: the arrival of the oldest record that waits, else the present. The query reads it like any
other record, so that it takes effect in the same order everywhere. It decides no alert.

Known limitation: where producers give the arrival, the present of an idle stream is its last record's, and a partition
that never had a record keeps its stream's clock from starting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from kafka import TopicPartition

from streaming.config import JobConfig

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_log = structlog.get_logger(__name__)

Offsets = Mapping[str, Mapping[int, int]]

# How long to wait for one record that is known to be there.
_FETCH_MS = 2000


@dataclass(frozen=True)
class Standing:
    """Where one partition stands. end: its end offset; waiting, last: arrival (µs) of the first record not consumed
    and of the last of all, None where there is none or it was not looked up."""

    consumed: int
    end: int
    waiting: int | None = None
    last: int | None = None

    @property
    def lag(self) -> int:
        """How many records wait."""
        return max(0, self.end - self.consumed)


def clock_of(partitions: list[Standing], now: int | None) -> int | None:
    """A stream's clock in µs, None where nothing can be said.

    now: a time before the end offsets were asked for, by whose clock later records are stamped; None where producers
    stamp them.
    """
    bounds = [standing.waiting if standing.lag else (standing.last if now is None else now) for standing in partitions]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known and len(known) == len(bounds) else None


def clock_record(incarnation: str, clocks: Mapping[str, int]) -> bytes:
    """The value of a record of the clock topic, as the buckets read it."""
    return json.dumps({"incarnation": incarnation, "clocks": clocks}).encode()


class Arrivals:
    """Looks up where the partitions of the event topics stand."""

    def __init__(self, config: JobConfig, consumer: KafkaConsumer) -> None:
        self._config = config
        self._consumer = consumer

    def standings(self, committed: Offsets) -> dict[str, list[Standing]]:
        """Every partition of every stream, given the offsets of the last committed batch."""
        of_stream = {}
        for stream in self._config.streams.values():
            found = self._consumer.partitions_for_topic(stream.topic) or ()
            of_stream[stream.name] = [TopicPartition(stream.topic, number) for number in sorted(found)]
        every = [partition for partitions in of_stream.values() for partition in partitions]
        self._consumer.assign(every)
        begins, ends = self._consumer.beginning_offsets(every), self._consumer.end_offsets(every)
        by_producer = self._config.arrival == "producer"

        def standing(partition: TopicPartition) -> Standing:
            end = ends[partition]
            consumed = max(committed.get(partition.topic, {}).get(partition.partition, 0), begins[partition])
            waiting = self._arrival(partition, consumed) if consumed < end else None
            ended = by_producer and consumed >= end and end > begins[partition]
            return Standing(consumed, end, waiting, self._arrival(partition, end - 1) if ended else None)

        return {stream: [standing(partition) for partition in partitions] for stream, partitions in of_stream.items()}

    def _arrival(self, partition: TopicPartition, offset: int) -> int | None:
        """The arrival of one record, µs; None where it could not be fetched in time."""
        self._consumer.assign([partition])
        self._consumer.seek(partition, offset)
        deadline = time.monotonic() + _FETCH_MS / 1000
        while time.monotonic() < deadline:
            for records in self._consumer.poll(timeout_ms=200, max_records=1).values():
                return int(records[0].timestamp) * 1000
        _log.warning("a record's arrival could not be read", topic=partition.topic, partition=partition.partition)
        return None


def clocks_of_standings(config: JobConfig, standings: Mapping[str, list[Standing]], asked_at: int) -> dict[str, int]:
    """The clocks (µs) that can be told, by stream. asked_at: µs, before the standings were looked up."""
    now = None if config.arrival == "producer" else asked_at - config.clock_margin
    clocks = {stream: clock_of(partitions, now) for stream, partitions in standings.items()}
    return {stream: clock for stream, clock in clocks.items() if clock is not None}
