"""Corrections to Kafka (contracts.alerts), in transactions of a few hundred.

How it works: there is one publisher per lake at a time: the next one aborts the open transaction of the one before, and
fences it off (its transactional id is derived from the lake, so that two lakes on one Kafka do not interfere). Only
then does it read what was published since the run read the alerts, and refuses the whole run if another one has
corrected the same alert differently. Corrections already on the topic are skipped. So nothing is published twice,
whenever an earlier publisher was killed, and however many of its transactions were complete.

A transaction holds back, from consumers of committed records, everything behind its first record in a partition: live
alerts too. Hence many small ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import kafka.errors
import polars as pl
import structlog
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from nightjar.backfill.config import BackfillConfig, BackfillError
from nightjar.contracts import restrictions
from nightjar.contracts.alerts import correction_record, corrections_of, message
from nightjar.contracts.record_type import Row
from nightjar.contracts.restrictions import restriction_records
from nightjar.contracts.topics import Topics
from nightjar.ingestion.offsets import end_offsets
from nightjar.lake.archive import query_id

if TYPE_CHECKING:
    from nightjar.rules.actions import Action

_log = structlog.get_logger(__name__)

_DELIVERY_SECONDS = 60
# A transaction of this many records takes a tenth of a second or two on a slow machine, one of 10,000 two seconds.
_RECORDS_PER_TRANSACTION = 250
# After this long the broker aborts a transaction whose publisher was killed; until then live alerts behind it wait.
_TRANSACTION_TIMEOUT_MS = 10_000


def publish(
    config: BackfillConfig,
    corrections: pl.DataFrame,
    archived: Mapping[int, int],
    note: Callable[[], object],
    actions: Mapping[tuple[str, int], Action] = MappingProxyType({}),
) -> int:
    """Put the corrections (see reconciliation.corrections) on the alerts topic; returns how many.

    Each of a rule with an action goes there in one transaction with its record on the restrictions topic. actions: by
    rule id and version.

    archived: partition of the topic to the offset of the last alert that the run knew. note: called before any is
    published, and only where none is refused.

    Raises:
        BackfillError: Kafka did not take all of them, or another run has corrected an alert differently (then none is
            published). Publishing again completes it.
    """
    if not corrections.height:
        return 0
    published = 0
    try:
        with closing(_producer(config)) as producer:
            producer.init_transactions()
            known = _published_since(config, archived)
            now = time.time_ns() // 1000
            records = [correction_record(row, now) for row in corrections.iter_rows(named=True)]
            new = [record for record in records if not _is_published(record, known)]
            note()
            for first in range(0, len(new), _RECORDS_PER_TRANSACTION):
                some = new[first : first + _RECORDS_PER_TRANSACTION]
                _publish_together(producer, _messages(config.lake.topics, some, actions))
                published += len(some)
    except kafka.errors.KafkaError as failure:
        raise BackfillError(
            f"{f'only {published}' if published else 'none'} of the corrections were published: "
            f"{failure or type(failure).__name__}",
            where=f"topic {config.lake.topics.alerts}",
            remedy="Once Kafka answers, run the publish stage again: what was published is not published twice",
        ) from failure
    return published


def _producer(config: BackfillConfig) -> KafkaProducer:
    """Of this lake's publisher: whichever was before it is fenced off once this one begins."""
    return KafkaProducer(
        transactional_id=f"nightjar-backfill-{query_id(config.lake)}",
        transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        acks="all",
        **config.lake.kafka.python,
    )


def _messages(
    topics: Topics, records: Iterable[Row], actions: Mapping[tuple[str, int], Action]
) -> Iterator[tuple[str, bytes, bytes]]:
    """Topic, key and value of each correction, and of the restriction or lift that follows from it."""
    for record in records:
        yield (topics.alerts, *message(record))
        for key, restriction in restriction_records([record], actions):
            yield (topics.restrictions, *restrictions.message(key, restriction))


def _publish_together(producer: KafkaProducer, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
    """One transaction.

    Raises:
        KafkaError: it failed; none is left open if the broker still answers.
    """
    producer.begin_transaction()
    try:
        sent = [producer.send(topic, key=key, value=value) for topic, key, value in messages]
        producer.commit_transaction()
        for delivery in sent:
            delivery.get(_DELIVERY_SECONDS)
    except kafka.errors.KafkaError:
        with suppress(kafka.errors.KafkaError):
            producer.abort_transaction()
        raise


def _is_published(record: Mapping[str, Any], known: Mapping[tuple[str, int], Mapping[str, Any]]) -> bool:
    """Whether this correction is on the topic already.

    Raises:
        BackfillError: another one has its revision.
    """
    there = known.get((record["alert_id"], record["revision"]))
    content = {name: value for name, value in record.items() if name not in ("emitted_at", "overflow")}
    if there is not None and any(there.get(name) != value for name, value in content.items()):
        raise BackfillError(
            f"another run has corrected it meanwhile (revision {record['revision']})",
            where=f"alert {record['alert_id']}",
            remedy="Nothing was published; run the day again, one run at a time",
        )
    return there is not None


def _published_since(config: BackfillConfig, archived: Mapping[int, int]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The corrections that are on the topic behind these offsets, by alert id and revision."""
    topic, known, skipped = config.lake.topics.alerts, dict[tuple[str, int], Mapping[str, Any]](), 0
    reading = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(**reading, **config.lake.kafka.python)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        ends = end_offsets(consumer, places)
        for place in places:
            consumer.seek(place, archived.get(place.partition, -1) + 1)
        deadline = time.monotonic() + _DELIVERY_SECONDS
        while any(consumer.position(place) < ends[place] for place in places):
            if time.monotonic() > deadline:
                raise kafka.errors.KafkaTimeoutError(f"topic {topic} could not be read to its end")
            for records in consumer.poll(timeout_ms=200).values():
                found, others = corrections_of([record.value for record in records])
                known |= {(record["alert_id"], record["revision"]): record for record in found}
                skipped += others
    if skipped:
        _log.warning("records of the alerts topic are not alerts, and were skipped", records=skipped, topic=topic)
    return known
