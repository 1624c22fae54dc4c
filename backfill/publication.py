"""Corrections to Kafka: alert records with `source: backfill`, all of a run in one transaction.

A transaction that a crash leaves open is aborted when the next one begins. What was committed is not said again: the
next run finds it among the archived alerts, and a publish that is tried again finds it on the topic behind them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import kafka.errors
import polars as pl
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from backfill.config import BackfillConfig, BackfillError
from rules.timestamps import iso_text

_TRANSACTIONAL_ID = "nightjar-backfill"
_DELIVERY_SECONDS = 60


def publish(config: BackfillConfig, corrections: pl.DataFrame, archived: Mapping[int, int]) -> int:
    """Put the corrections (see reconciliation.corrections) on the alerts topic; returns how many.

    archived: partition of the topic to the offset of the last alert that the run knew.

    Raises:
        BackfillError: Kafka did not take them; none of them counts then.
    """
    if not corrections.height:
        return 0
    try:
        said = _said_since(config, archived)
        is_new = [key not in said for key in corrections.select("alert_id", "revision").iter_rows()]
        corrections = corrections.filter(pl.Series(is_new, dtype=pl.Boolean))
        if not corrections.height:
            return 0
        producer = KafkaProducer(transactional_id=_TRANSACTIONAL_ID, acks="all", **config.python_kafka)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            sent = []
            for row in corrections.iter_rows(named=True):
                record = json.dumps(correction_record(row, time.time_ns() // 1000), ensure_ascii=False).encode()
                sent.append(producer.send(config.lake.topics.alerts, key=row["alert_id"].encode(), value=record))
            producer.commit_transaction()
            for delivery in sent:
                delivery.get(_DELIVERY_SECONDS)
        finally:
            producer.close()
    except kafka.errors.KafkaError as failure:
        raise BackfillError(
            f"the corrections were not published: {failure or type(failure).__name__}",
            where=f"topic {config.lake.topics.alerts}",
            remedy="Once Kafka answers, run the day again: what was published is not published twice",
        ) from failure
    return corrections.height


def _said_since(config: BackfillConfig, archived: Mapping[int, int]) -> set[tuple[str, int]]:
    """Alert id and revision of the corrections that are on the topic behind these offsets."""
    topic, said = config.lake.topics.alerts, set()
    consumer = KafkaConsumer(
        isolation_level="read_committed", enable_auto_commit=False, auto_offset_reset="earliest", **config.python_kafka
    )
    try:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        for place in places:
            consumer.seek(place, archived.get(place.partition, -1) + 1)
        deadline = time.monotonic() + _DELIVERY_SECONDS
        while any(consumer.position(place) < ends[place] for place in places):
            if time.monotonic() > deadline:
                raise kafka.errors.KafkaTimeoutError(f"topic {topic} could not be read to its end")
            for records in consumer.poll(timeout_ms=200).values():
                said |= {key for record in records if (key := _correction_key(record.value)) is not None}
    finally:
        consumer.close()
    return said


def _correction_key(value: bytes | None) -> tuple[str, int] | None:
    try:
        written = json.loads(value or b"")
        return (written["alert_id"], written["revision"]) if written["source"] == "backfill" else None
    except (ValueError, TypeError, KeyError):
        return None


def correction_record(row: Mapping[str, Any], emitted_at: int) -> dict[str, Any]:
    """A correction as consumers of alerts read it (design law 10). emitted_at: µs."""
    return {
        "alert_id": row["alert_id"],
        "revision": row["revision"],
        "kind": row["kind"],
        "rule_id": row["rule_id"],
        "rule_version": row["rule_version"],
        "rule_state": row["rule_state"],
        "stream": row["stream"],
        "group": json.loads(row["group"]),
        "event_id": row["event_id"],
        "event_time": f"{row['event_time']:%Y-%m-%dT%H:%M:%S.%fZ}",
        "measures": json.loads(row["measures"]),
        "severity": row["severity"],
        "text": row["text"],
        "muted": False,
        "source": "backfill",
        "cause": row["cause"],
        "emitted_at": iso_text(emitted_at),
    }
