"""Kafka asked about offsets that the lake does not have: is there a record, and was it ever one to read?

How it works: a consumer goes to the first missing offset and sees where its first record stands. Offsets that hold no
record are what a transaction leaves at its end, or what compaction took; records that only a consumer of uncommitted
ones sees belong to a transaction that was given up, which the archive rightly leaves out. What the topic no longer
keeps nobody can look at. A record that is there to be read was lost on its way to the lake.

Known limitation: where more gaps are found than may be asked about, the longest are asked about, and of the rest it is
not known. A topic that is written in very many small transactions has such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from ingestion.offsets import beginning_offsets, end_offsets

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

_log = structlog.get_logger(__name__)

_PATIENCE_MS = 10_000
_MARKERS = "transaction markers: the topic has no record there"
_ABORTED = "records of a transaction that was given up"
_EXPIRED = "the topic no longer keeps these offsets"


@dataclass(frozen=True)
class Gap:
    """Offsets that are missing, both ends included. known: whether that is known to be no loss (None: not asked)."""

    stream: str
    partition: int
    first_missing: int
    last_missing: int
    known: bool | None = None
    why: str = "not looked into"


def ask(gaps: list[Gap], topic: str, options: Mapping[str, Any], most: int) -> list[Gap]:
    """The gaps, each with what Kafka says of it. options: what kafka-python's clients are given."""
    if not gaps:
        return []
    from kafka import TopicPartition
    from kafka.errors import KafkaError

    longest = sorted(gaps, key=lambda gap: gap.first_missing - gap.last_missing)[:most]
    asked = {(gap.partition, gap.first_missing): gap for gap in longest}
    try:
        for level, why in (("read_uncommitted", _MARKERS), ("read_committed", _ABORTED)):
            unclear = [gap for gap in asked.values() if not gap.known]
            if not unclear:
                break
            with _consumer(options, level) as consumer:
                partitions = sorted({gap.partition for gap in unclear})
                begins = beginning_offsets(consumer, [TopicPartition(topic, number) for number in partitions])
                for gap in unclear:
                    place = TopicPartition(topic, gap.partition)
                    asked[gap.partition, gap.first_missing] = _judged(consumer, gap, place, begins[place], why)
    except (KafkaError, OSError) as failure:
        _log.warning("Kafka was not asked about missing offsets", topic=topic, failure=str(failure))
        why = f"Kafka does not answer ({type(failure).__name__})"
        asked = {place: gap if gap.known else replace(gap, known=False, why=why) for place, gap in asked.items()}
    return [asked.get((gap.partition, gap.first_missing), gap) for gap in gaps]


def _judged(consumer: KafkaConsumer, gap: Gap, place: TopicPartition, begin: int, why: str) -> Gap:
    if begin > gap.last_missing:
        return replace(gap, known=True, why=_EXPIRED)
    consumer.assign([place])
    consumer.seek(place, max(gap.first_missing, begin))
    end = end_offsets(consumer, [place])[place]
    if end <= gap.last_missing:
        return replace(gap, known=False, why=f"the topic ends at offset {end}: was it recreated?")
    first = _first_record(consumer, place, gap.last_missing + 1, end)
    if first > gap.last_missing:
        return replace(gap, known=True, why=why)
    return replace(gap, known=False, why=f"the topic has a record at offset {first}")


def _first_record(consumer: KafkaConsumer, place: TopicPartition, enough: int, end: int) -> int:
    """Where the next record stands, or `enough` where none comes before that."""
    import time

    until = time.monotonic() + _PATIENCE_MS / 1000
    while time.monotonic() < until:
        for records in consumer.poll(timeout_ms=200, max_records=1).values():
            return int(records[0].offset)
        # control records are skipped without being seen
        if consumer.position(place) >= min(enough, end):
            return enough
    from kafka.errors import KafkaTimeoutError

    raise KafkaTimeoutError(f"nothing came from {place.topic}/{place.partition}")


def _consumer(options: Mapping[str, Any], level: str) -> KafkaConsumer:
    from kafka import KafkaConsumer

    return KafkaConsumer(
        **{
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            "bootstrap_timeout_ms": _PATIENCE_MS,
            "isolation_level": level,
            # one batch is enough to see where the next record stands
            "max_partition_fetch_bytes": 1,
            **options,
        }
    )
