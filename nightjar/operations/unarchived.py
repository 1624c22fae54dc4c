"""What Kafka has and the archive has yet to bring to the lake: of the topics `alerts`, `rule-status` and `labels`, and
of one stream's events.

How it works: each topic is read from the offset that the archive has come to up to its present end, where that is no
more than some hundred thousand records. What is not read is said.

What it does not do: fail. Without Kafka the lake is what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.configuration.schemas import schemas_of
from nightjar.configuration.settings import Settings
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.formats.records import Records
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.parsing import parse_events
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import KafkaRecord, Reader
from nightjar.lake import scanning
from nightjar.lake.archive import archived_offsets, archived_until
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, LABELS
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds, iso_text
from nightjar.rules.types import INSTANT
from nightjar.rules.unions import united

# Records that are read of a topic: some seconds.
_MOST_ALERTS, _MOST_EVENTS = 500_000, 200_000
_PATIENCE = 20.0
_PARSED_AT_ONCE = 4096


class OnKafka:
    """The records behind what the archive has brought to the lake of these settings. notes: what was read, and what
    could not be."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lake = settings, settings.lake.resolve()
        self._refused = False
        self.notes: list[str] = []

    @cached_property
    def _archived(self) -> dict[str, dict[int, int]]:
        return archived_offsets(self._lake)

    def answers(self) -> list[Record]:
        """The answers to rule messages, in order."""
        topic = self._settings.rule_status_topic
        records = self._behind(topic, _MOST_ALERTS)
        answers = (record for record in records if ANSWER.read(record.value) is not None)
        return [Record(record.offset, record.arrival, record.value) for record in answers]

    def alerts(self, alert_id: str) -> pl.DataFrame:
        """The records about an alert: rows of ALERTS."""
        topic, key, reader = self._settings.alerts_topic, alert_id.encode(), JsonReader(ALERTS)
        records = self._behind(topic, _MOST_ALERTS)
        rows = [
            {**reader.row(record.value), **_place(record)}
            for record in records
            if record.key == key and reader.reads(record.value)
        ]
        if rows:
            was = "1 record about it was" if len(rows) == 1 else f"{len(rows)} records about it were"
            self.notes.append(f"{was} read from Kafka: the archive has yet to bring that to the lake.")
        return pl.DataFrame(rows, schema=scanning.columns(ALERTS))

    def labels(self) -> pl.DataFrame:
        """What was said of alerts: rows of LABELS."""
        reader = JsonReader(LABELS)
        records = self._behind(self._settings.labels_topic, _MOST_ALERTS)
        rows = [{**reader.row(record.value), **_place(record)} for record in records if reader.reads(record.value)]
        return pl.DataFrame(rows, schema=scanning.columns(LABELS))

    def events(self, stream: Stream, since: int) -> pl.DataFrame | None:
        """The stream's events that may be from `since` (event time, µs) on: its fields, arrival_time, partition,
        offset. None: there are too many, or Kafka cannot be read."""
        if stream.members:
            found = [(member, self.events(member.stream, since)) for member in stream.members]
            read = [(member, events.to_arrow()) for member, events in found if events is not None]
            return pl.DataFrame(united(read, stream)) if read else None
        arrived = since - stream.max_future_skew
        records = self._behind(stream.topic, _MOST_EVENTS, arrived)
        if not records:
            return None
        count = "1 event of its stream was" if len(records) == 1 else f"{len(records):,} events of its stream were"
        self.notes.append(f"{count} read from Kafka: the archive has yet to bring that to the lake.")
        return pl.concat(_parsed(records, stream, schemas_of(self._settings, {stream.name: stream})))

    def _behind(self, topic: str, most: int, arrived: int | None = None) -> list[KafkaRecord]:
        """The topic's records behind the archive's, as far as they can have arrived at that time (µs) or later; none
        where there are more than so many, or Kafka cannot be read."""
        if self._refused:
            return []
        try:
            with Reader(self._settings, topic) as reader:
                reader.from_offsets(self._archived, arrived)
                if (left := reader.left()) <= most:
                    return [*reader.all(seconds=_PATIENCE)] if left else []
                many = f"{left:,} records of {topic} that the lake does not have yet"
                self.notes.append(f"{many} are too many to be read here: run `nightjar archive`.")
        except KafkaError as failure:
            self._refused = True
            until = archived_until(self._lake)
            came = "has not run yet" if until is None else f"has come to {iso_text(until)}"
            why = f"{failure.where}: {failure.what}"
            self.notes.append(f"Kafka could not be read ({why}), so this is what the lake has: the archive {came}.")
        return []


def _place(record: KafkaRecord) -> dict[str, object]:
    arrival = from_microseconds(record.arrival)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "arrival_time": arrival,
        "arrival_date": arrival.date(),
    }


def _parsed(records: list[KafkaRecord], stream: Stream, schemas: Schemas | None) -> Iterator[pl.DataFrame]:
    """The usable events among the records."""
    for begin in range(0, len(records), _PARSED_AT_ONCE):
        some = records[begin : begin + _PARSED_AT_ONCE]
        arrivals = np.array([record.arrival for record in some], np.int64)
        parsed = parse_events(Records.of(some, pa.array(arrivals), stream), stream, schemas)
        rows = parsed.rows.tolist()
        yield pl.DataFrame(
            parsed.events.append_column(ARRIVAL, pa.array(arrivals[rows]).cast(INSTANT))
            .append_column("partition", pa.array([some[at].partition for at in rows], pa.int32()))
            .append_column("offset", pa.array([some[at].offset for at in rows], pa.int64()))
        )
