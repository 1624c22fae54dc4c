"""Corrections to Kafka: alert records with `source: backfill`, all of a run in one transaction.

A transaction that a crash leaves open is aborted when the next run begins its own; what was committed the next run
finds among the alerts, and does not say again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors
import polars as pl
from kafka import KafkaProducer

from backfill.config import BackfillConfig, BackfillError
from rules.timestamps import iso_text

_TRANSACTIONAL_ID = "nightjar-backfill"
_DELIVERY_SECONDS = 60


def publish(config: BackfillConfig, corrections: pl.DataFrame, progress: Callable[[int], object] | None = None) -> int:
    """Put the corrections (see reconciliation.corrections) on the alerts topic; returns how many.

    Raises:
        BackfillError: Kafka did not take them; none of them counts then.
    """
    if not corrections.height:
        return 0
    try:
        producer = KafkaProducer(transactional_id=_TRANSACTIONAL_ID, acks="all", **config.python_kafka)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            sent = []
            for row in corrections.iter_rows(named=True):
                record = json.dumps(correction_record(row, time.time_ns() // 1000), ensure_ascii=False).encode()
                sent.append(producer.send(config.lake.topics.alerts, key=row["alert_id"].encode(), value=record))
                if progress is not None:
                    progress(len(sent))
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
