"""Queries Kafka about offsets that are missing in the lake, to find out whether a record was lost.

How it works: a consumer seeks to the first missing offset and checks the offset of the next record it gets. Offsets
without a record are transaction markers, or were compacted. Records that only a consumer of uncommitted records gets
belong to an aborted transaction, which the archive correctly omits. Offsets that the topic has already deleted cannot
be checked. Any other record was lost on its way to the lake.

Known limitation: if there are more gaps than may be queried, only the longest are, and the cause of the others stays
unknown. This happens with topics that are written in very many small transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from nightjar.ingestion.offsets import beginning_offsets, end_offsets

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

_log = structlog.get_logger(__name__)

_PATIENCE_MS = 10_000
_MARKERS = "transaction markers: the topic has no record there"
_ABORTED = "records of an aborted transaction"
_EXPIRED = "the topic has already deleted these offsets"


@dataclass(frozen=True)
class Gap:
    """Missing offsets of a partition."""

    stream: str
    partition: int
    first_missing: int
    """Included, as the last one."""
    last_missing: int
    known: bool | None = None
    """Whether they are known not to be a loss; None: Kafka was not asked."""
    why: str = "not checked"


def ask(gaps: list[Gap], topic: str, options: Mapping[str, Any], most: int) -> list[Gap]:
    """The gaps, each with its cause according to Kafka. options: options of kafka-python's clients."""
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
        _log.warning("missing offsets could not be checked with Kafka", topic=topic, failure=str(failure))
        why = f"Kafka does not respond ({type(failure).__name__})"
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
    """The offset of the next record, or `enough` if there is none before that."""
    import time

    until = time.monotonic() + _PATIENCE_MS / 1000
    while time.monotonic() < until:
        for records in consumer.poll(timeout_ms=200, max_records=1).values():
            return int(records[0].offset)
        # The consumer skips control records without returning them.
        if consumer.position(place) >= min(enough, end):
            return enough
    from kafka.errors import KafkaTimeoutError

    raise KafkaTimeoutError(f"no data from {place.topic}/{place.partition}")


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
            # One batch is enough to get the next record's offset.
            "max_partition_fetch_bytes": 1,
            **options,
        }
    )
