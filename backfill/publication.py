"""Corrections to Kafka: alert records with `source: backfill`, all of a run in one transaction.

There is one publisher at a time: who comes next settles what the one before has left open, and keeps it from saying
more. Only then does it look at what was said since the run has read the alerts, so nothing is said twice, whenever the
one before was killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors
import polars as pl
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from backfill.config import BackfillConfig, BackfillError
from rules.timestamps import iso_text

_TRANSACTIONAL_ID = "nightjar-backfill"
_DELIVERY_SECONDS = 60


def publish(
    config: BackfillConfig, corrections: pl.DataFrame, archived: Mapping[int, int], note: Callable[[], object]
) -> int:
    """Put the corrections (see reconciliation.corrections) on the alerts topic; returns how many.

    archived: partition of the topic to the offset of the last alert that the run knew. note: called before any is
    said, and only where none is refused.

    Raises:
        BackfillError: Kafka did not take them, or another run has said something else; none of them counts then.
    """
    if not corrections.height:
        return 0
    try:
        producer = KafkaProducer(transactional_id=_TRANSACTIONAL_ID, acks="all", **config.python_kafka)
        try:
            producer.init_transactions()
            said = _said_since(config, archived)
            now = time.time_ns() // 1000
            records = [correction_record(row, now) for row in corrections.iter_rows(named=True)]
            new = [record for record in records if not _is_said(record, said)]
            note()
            if not new:
                return 0
            producer.begin_transaction()
            sent = []
            for record in new:
                value = json.dumps(record, ensure_ascii=False).encode()
                sent.append(producer.send(config.lake.topics.alerts, key=record["alert_id"].encode(), value=value))
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
    return len(new)


def _is_said(record: Mapping[str, Any], said: Mapping[tuple[str, int], Mapping[str, Any]]) -> bool:
    """Whether this very correction is on the topic. Raises BackfillError where another one has taken its revision."""
    there = said.get((record["alert_id"], record["revision"]))
    if there is not None and any(there.get(name) != value for name, value in record.items() if name != "emitted_at"):
        raise BackfillError(
            f"another run has corrected it meanwhile (revision {record['revision']})",
            where=f"alert {record['alert_id']}",
            remedy="Nothing was published; run the day again, one run at a time",
        )
    return there is not None


def _said_since(config: BackfillConfig, archived: Mapping[int, int]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The corrections that are on the topic behind these offsets, by alert id and revision."""
    topic, said = config.lake.topics.alerts, {}
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
                found = [_correction(record.value) for record in records]
                said |= {(record["alert_id"], record["revision"]): record for record in found if record is not None}
    finally:
        consumer.close()
    return said


def _correction(value: bytes | None) -> dict[str, Any] | None:
    """The record, if it is a correction; anybody may write to a topic."""
    try:
        written = json.loads(value or b"")
        return written if written["source"] == "backfill" and {"alert_id", "revision"} <= written.keys() else None
    except (ValueError, TypeError, KeyError, AttributeError):
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
