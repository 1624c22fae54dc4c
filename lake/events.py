"""The tables of events: every record of a stream's topic, typed as the stream's job types it.

The JVM reads what it is sure of, and `rules.events` the rest (see streaming.parse), so that the lake and the job never
disagree about what an event is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.tables import COORDINATES, events_table
from rules.events import Rejection, check_skew, parse_event
from rules.streams import Stream
from rules.timestamps import MIN_TIMESTAMP, from_microseconds
from streaming.parse import column_of, parsed
from streaming.wire import SENT_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MICROSECONDS = pa.timestamp("us", "UTC")
_UNUSABLE = {"rejected": pa.string(), "detail": pa.string(), "original": pa.binary()}


def typed(records: DataFrame, stream: Stream) -> DataFrame:
    """Kafka records (with headers) of the stream's topic as rows of its table."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    table = events_table(stream)
    read = parsed(records, [stream]).withColumnsRenamed({"timestamp": "arrival_time"})
    read = read.withColumn("arrival_date", F.to_date("arrival_time"))
    sure = read.where(F.col("raw").isNull()).select(f"{column_of(stream)}.*", SENT_AT, *COORDINATES)
    for name in _UNUSABLE:
        sure = sure.withColumn(name, F.lit(None).cast(table.columns[name]))
    doubtful = read.where(F.col("raw").isNotNull()).select("raw", SENT_AT, *COORDINATES)
    understood = doubtful.mapInArrow(EventReader(stream), table.ddl)
    return sure.select(*table.columns).unionByName(understood)


@dataclass(frozen=True)
class EventReader:
    """What `mapInArrow` runs over the records that the JVM was not sure of."""

    stream: Stream

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of raw, sent_at and COORDINATES to rows of the stream's table."""
        for batch in batches:
            arrivals = batch.column("arrival_time").cast(_MICROSECONDS).cast(pa.int64()).to_pylist()
            rows = [self._row(raw, at) for raw, at in zip(batch.column("raw").to_pylist(), arrivals, strict=True)]
            kinds = {name: kind.arrow for name, kind in self.stream.fields.items()} | _UNUSABLE
            read = {name: _array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
            read |= {name: batch.column(name) for name in (SENT_AT, *COORDINATES)}
            columns = list(events_table(self.stream).columns)
            yield pa.RecordBatch.from_arrays([read[name] for name in columns], columns)

    def _row(self, raw: bytes, arrival: int) -> dict[str, Any]:
        event = parse_event(raw, self.stream)
        refused = (
            event if isinstance(event, Rejection) else check_skew(event[self.stream.event_time], arrival, self.stream)
        )
        if refused is None:
            assert not isinstance(event, Rejection)  # noqa: S101  else it would be the refusal
            return event
        return {"rejected": refused.reason.value, "detail": refused.detail, "original": raw}


def as_declared(table: pa.Table, stream: Stream) -> pa.Table:
    """Rows of the table that were read, in the engine's Arrow types: the stream's fields, and where they stood and when
    they came, if that was read."""
    kinds = {name: kind.arrow for name, kind in stream.fields.items()}
    kinds |= {"arrival_time": _MICROSECONDS, "partition": pa.int32(), "offset": pa.int64()}
    return pa.table({name: table.column(name).cast(kind) for name, kind in kinds.items() if name in table.column_names})


def date_of(instant: int) -> date:
    """The date (UTC) of an instant (µs), as tables are partitioned by it; a window may reach back before all dates."""
    return from_microseconds(max(instant, MIN_TIMESTAMP)).date()


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
