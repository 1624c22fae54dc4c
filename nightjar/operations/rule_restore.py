"""Puts the rule messages and the job's answers that a lake has back on Kafka, after Kafka has lost its data.

Every version keeps its number, effective time and shuffle key, so ids of alerts stay what they were.

How it works: answers name their messages by offset, and the state of the rules follows from the order of answers. So
both topics must be empty, and each record must get the offset that it had.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from kafka import TopicPartition

from nightjar.configuration.settings import Settings
from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.ingestion.offsets import end_offsets
from nightjar.kafka import topics
from nightjar.kafka.clients import consumer, explained, producer
from nightjar.lake.config import LakeError
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RULE_STATUS, RULES
from nightjar.rules.streams import Stream

_DELIVERY_SECONDS = 30

# Value and arrival (µs).
_Record = tuple[bytes, int]


@dataclass(frozen=True)
class Restored:
    """How many records were put on the topics of rules and of answers."""

    messages: int
    answers: int


def restore_rules(settings: Settings, streams: Mapping[str, Stream], lake: Path) -> Restored:
    """Send what the lake in this folder has to the topics of rules and answers, which are created if they are missing.

    Raises:
        LakeError: the lake lacks some records, or one of the topics has records.
        KafkaError: Kafka did not take all of them. Delete the two topics before you try again.
    """
    messages = _complete(_messages(lake), RULES.name, lake)
    answers = _complete(_answers(lake), RULE_STATUS.name, lake)
    topics.ensure(settings, streams.values())
    _refuse_filled(settings)
    for topic, records in ((settings.rules_topic, messages), (settings.rule_status_topic, answers)):
        with producer(settings) as client, explained(settings, f"restoring topic {topic}"):
            for value, arrival in records:
                stamp = arrival // 1000 if settings.arrival == "producer" else None
                client.send(topic, value, partition=0, timestamp_ms=stamp).get(_DELIVERY_SECONDS)
    return Restored(len(messages), len(answers))


def _messages(lake: Path) -> list[tuple[int, bytes, int]]:
    rows = scan(lake, RULES).select("offset", "value", pl.col("arrival_time").dt.epoch("us")).sort("offset")
    return [(offset, value or b"", arrival) for offset, value, arrival in rows.collect().iter_rows()]


def _answers(lake: Path) -> list[tuple[int, bytes, int]]:
    arrival, effective = pl.col("arrival_time").dt.epoch("us").alias("arrival"), pl.col("effective").dt.epoch("us")
    names = JsonReader(RULE_STATUS).names
    rows = scan(lake, RULE_STATUS).select("offset", arrival, "original", *names).with_columns(effective).sort("offset")
    return [
        (row["offset"], row["original"] if row["status"] is None else ascii_json(ANSWER.record(row)), row["arrival"])
        for row in rows.collect().iter_rows(named=True)
    ]


def _complete(records: Sequence[tuple[int, bytes, int]], table: str, lake: Path) -> list[_Record]:
    """The records without their offsets; LakeError if one is missing."""
    if [offset for offset, _, _ in records] != list(range(len(records))):
        raise LakeError(
            f"the table {table} lacks records, and a record must get the offset that it had",
            where=str(lake),
            remedy="Publish the rules from their files instead: they begin again with version 1",
        )
    return [(value, arrival) for _, value, arrival in records]


def _refuse_filled(settings: Settings) -> None:
    places = [TopicPartition(topic, 0) for topic in (settings.rules_topic, settings.rule_status_topic)]
    with closing(consumer(settings)) as client, explained(settings, "looking up where topics end"):
        filled = [place.topic for place, end in end_offsets(client, places).items() if end]
    if filled:
        raise LakeError(
            f"{' and '.join(sorted(filled))} had records already",
            where=f"Kafka at {settings.bootstrap}",
            remedy="Restore only what Kafka has lost: stop the job, delete both topics, and repeat the command",
        )
