"""The event tables: every record of a stream's topic, parsed as the job parses it (nightjar/ingestion/parsing.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.formats.records import Records
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.kafka_source import record_columns
from nightjar.ingestion.parsing import parse_events
from nightjar.lake.tables import COORDINATES, events_table
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP, from_microseconds
from nightjar.rules.types import INSTANT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def placed(records: DataFrame, *others: str) -> DataFrame:
    """Select value, SENT_AT, COORDINATES and the `others` from Kafka records (with headers); key and headers may be
    among those."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    beside = [name for name in others if name in ("key", "headers")]
    found = record_columns(records, beside).withColumnsRenamed({"timestamp": "arrival_time"})
    return found.withColumn("arrival_date", F.to_date("arrival_time")).select("value", SENT_AT, *COORDINATES, *others)


@dataclass(frozen=True)
class EventReader:
    """The function that `mapInArrow` applies to the records of a stream's topic."""

    stream: Stream
    schemas: Schemas | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of value, sent_at and COORDINATES, and of the key and the headers if the stream reads them, to rows
        of the stream's table."""
        return (read for batch in batches if batch.num_rows for read in self._read(batch))

    def _read(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        schema, values = events_table(self.stream).arrow, batch.column("value")
        arrivals = batch.column("arrival_time").cast(INSTANT).cast(pa.int64())
        keys = batch.column("key") if self.stream.reads_key else None
        headers = batch.column("headers") if self.stream.reads_headers else None
        parsed = parse_events(Records.read(values, arrivals, keys, headers, self.stream), self.stream, self.schemas)
        rows = pa.array([at for at, _ in parsed.rejected], pa.int64())
        refused = {
            "rejected": pa.array([rejection.reason.value for _, rejection in parsed.rejected], pa.string()),
            "detail": pa.array([rejection.detail for _, rejection in parsed.rejected], pa.string()),
            "original": values.take(rows).fill_null(b""),
        }
        for kept, columns in ((pa.array(parsed.rows), _columns(parsed.events)), (rows, refused)):
            came = {name: batch.column(name).take(kept) for name in (SENT_AT, *COORDINATES)}
            found = columns | came
            arrays = [found.get(field.name, pa.nulls(len(kept), field.type)).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def as_declared(table: pa.Table, stream: Stream) -> pa.Table:
    """Convert rows read from the table to the engine's Arrow types: the stream's fields, and arrival, partition and
    offset if they are among the columns."""
    kinds = {name: kind.arrow for name, kind in stream.fields.items()}
    kinds |= {"arrival_time": INSTANT, "partition": pa.int32(), "offset": pa.int64()}
    return pa.table({name: table.column(name).cast(kind) for name, kind in kinds.items() if name in table.column_names})


def date_of(instant: int) -> date:
    """The date (UTC) of an instant (µs) for partitions; clipped, because a window may reach back before all dates."""
    return from_microseconds(max(instant, MIN_TIMESTAMP)).date()
