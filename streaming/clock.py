"""How far arrival has come: the promise that lets buckets let go of events (law 11). It decides no alert.

The driver looks at what the last committed batch had read: no record that is still to be read arrived before the
earliest of the next records, one a partition. Where a partition has been read to its end, the next record arrives now
or later (broker), or not before the latest so far, since a replay sends its records in order of arrival (producer).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka import KafkaConsumer, TopicPartition

from streaming.config import JobConfig

_WAIT_MS = 2_000


def clock(config: JobConfig, consumer: KafkaConsumer, read: Mapping[str, Mapping[str, int]]) -> int | None:
    """µs before which no record of the event topics arrives any more; None where that cannot be said yet.

    read: topic -> partition -> next offset, as Spark's progress gives it. consumer: one without a group, for this only.
    """
    topics = [stream.topic for stream in config.streams.values() if stream.topic in read]
    places = {TopicPartition(t, int(p)): offset for t in topics for p, offset in read[t].items()}
    if not places:
        return None
    before = time.time_ns() // 1000 - config.clock_margin
    ends = consumer.end_offsets(list(places))
    starts = consumer.beginning_offsets(list(places))
    behind = {place for place, offset in places.items() if offset < ends[place]}
    # where all is read, a producer's last record says how far arrival has come
    wanted = {
        place: offset if place in behind else offset - 1
        for place, offset in places.items()
        if place in behind or (config.arrival == "producer" and offset > starts[place])
    }
    stamps = _timestamps(consumer, wanted)
    if stamps is None:
        return None
    upcoming = [stamps[place] for place in behind]
    if len(behind) < len(places):
        reached = [stamps[place] for place in wanted if place not in behind]
        if config.arrival == "broker":
            upcoming.append(before)
        elif not behind:
            upcoming.append(max(reached, default=0))
    return min(upcoming, default=None)


def _timestamps(consumer: KafkaConsumer, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int] | None:
    """The arrival (µs) of the record at each offset; None where one could not be had in time."""
    found: dict[TopicPartition, int] = {}
    until = time.monotonic() + _WAIT_MS / 1000
    consumer.assign(list(wanted))
    for place, offset in wanted.items():
        consumer.seek(place, offset)
    while len(found) < len(wanted):
        if time.monotonic() > until:
            return None
        for place, records in consumer.poll(timeout_ms=200, max_records=len(wanted)).items():
            found.setdefault(place, records[0].timestamp * 1000)
            consumer.pause(place)
    return found
