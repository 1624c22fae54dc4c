"""What the job says on Kafka, as the columns that Spark's sink sends, so that no record is a Python object.

Values are JSON; a header `sent_at` (µs, as text) goes with an alert whose event brought one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ingestion.event_schema import SENT_AT
from rules.engine.alert_columns import json_objects, jsonable
from rules.events import Rejection
from rules.streams import Stream
from rules.timestamps import iso_text
from rules.types import INT64, STRING, TIMESTAMP, FieldType

# What Spark's sink takes: the columns of `SAID` in its own words.
OUTPUT_SCHEMA = "topic string, key string, value string, headers array<struct<key: string, value: binary>>"
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SAID = pa.schema([("topic", pa.string()), ("key", pa.string()), ("value", pa.string()), ("headers", pa.list_(_HEADER))])

# Rows that travel together, and what their values have together: some megabytes at most.
ROWS_A_BATCH = 4000
CHARACTERS_A_BATCH = 4_000_000

# Bytes of an unusable record that its quarantine record repeats. A megabyte in Base64 would be more than Kafka takes;
# all of it stays at its place in Kafka, and in the lake.
MAX_ORIGINAL = 65_536

_PLAIN: dict[str, FieldType] = {
    "alert_id": STRING, "revision": INT64, "kind": STRING, "rule_id": STRING, "rule_version": INT64,
    "rule_state": STRING, "stream": STRING, "event_id": STRING, "event_time": TIMESTAMP, "severity": STRING,
    "text": STRING,
}  # fmt: skip


def said(topic: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> pa.Table:
    """Records (key, value) as SAID; for those that are few."""
    pairs = [(key, json.dumps(value, ensure_ascii=False)) for key, value in records]
    return _said(topic, *(pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1)))


def alert_records(topic: str, alerts: pa.Table, events: pa.Table, event_id: str, emitted_at: int) -> pa.Table:
    """Alerts (the engine's) as SAID.

    events: this batch's, with `sent_at` (int64, µs or NULL), which an alert about one of them takes over.
    emitted_at: µs since 1970.
    """
    if not alerts.num_rows:
        return SAID.empty_table()
    rows = alerts.num_rows
    columns = {name: jsonable(alerts.column(name).combine_chunks(), kind) for name, kind in _PLAIN.items()}
    about = {
        "muted": pa.repeat(pa.scalar(value=False), rows),
        "source": pa.repeat("stream", rows),
        "emitted_at": pa.repeat(iso_text(emitted_at), rows),
    }
    head = ("alert_id", "revision", "kind", "rule_id", "rule_version", "rule_state", "stream")
    parts = {
        "head": json_objects({name: columns[name] for name in head}, rows).str.head(-1),
        "group": _series(alerts.column("group")),
        "event": json_objects({name: columns[name] for name in ("event_id", "event_time")}, rows)
        .str.slice(1)
        .str.head(-1),
        "measures": _series(alerts.column("measures")),
        "tail": json_objects({**{name: columns[name] for name in ("severity", "text")}, **about}, rows).str.slice(1),
    }
    values = pl.DataFrame(parts).select(
        pl.format('{},"group":{},{},"measures":{},{}', "head", "group", "event", "measures", "tail")
    )
    sent_at = _sent_at(alerts.column("event_id"), events, event_id)
    return _said(topic, alerts.column("alert_id").combine_chunks(), _strings(values), sent_at)


def late_records(topic: str, late: pa.Table, stream: Stream) -> pa.Table:
    """Late events (the engine's, with `partition` and `offset`) as SAID: their fields, arrival and coordinates."""
    if not late.num_rows:
        return SAID.empty_table()
    fields = {name: jsonable(late.column(name).combine_chunks(), kind) for name, kind in stream.fields.items()}
    about = {
        "stream": pa.repeat(stream.name, late.num_rows),
        "event_id": late.column(stream.event_id).combine_chunks(),
        "event_time": fields[stream.event_time],
        "arrival_time": jsonable(late.column("arrival_time").combine_chunks(), TIMESTAMP),
        "partition": late.column("partition").combine_chunks(),
        "offset": late.column("offset").combine_chunks(),
    }
    parts = {
        "about": json_objects(about, late.num_rows).str.head(-1),
        "event": json_objects(fields, late.num_rows),
    }
    values = pl.DataFrame(parts).select(pl.format('{},"event":{}}}', "about", "event"))
    return _said(topic, late.column(stream.event_id).combine_chunks(), _strings(values))


def quarantine_record(
    rejection: Rejection, stream: Stream, *, partition: int, offset: int, arrival: int, raw: bytes
) -> tuple[str, dict[str, Any]]:
    """A record that cannot be used: (key, value). arrival: µs; raw: its bytes, of which MAX_ORIGINAL are repeated."""
    value = {
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        "stream": stream.name,
        "topic": stream.topic,
        "partition": partition,
        "offset": offset,
        "arrival_time": iso_text(arrival),
        "size": len(raw),
        "original": base64.b64encode(raw[:MAX_ORIGINAL]).decode(),
    }
    return f"{stream.topic}-{partition}-{offset}", value


def batches_of(records: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    """Records that are not few, as many at a time as travel together."""
    held: list[tuple[str, Mapping[str, Any]]] = []
    characters = 0
    for key, value in records:
        size = sum(len(member) for member in value.values() if isinstance(member, str))
        if len(held) == ROWS_A_BATCH or (held and characters + size > CHARACTERS_A_BATCH):
            yield held
            held, characters = [], 0
        held.append((key, value))
        characters += size
    if held:
        yield held


def _said(topic: str, keys: pa.Array, values: pa.Array, sent_at: pa.Array | None = None) -> pa.Table:
    """sent_at: text, NULL where no header goes with the record."""
    rows = len(keys)
    sent_at = pa.nulls(rows, pa.string()) if sent_at is None else sent_at
    brought = sent_at.drop_null().cast(pa.binary())
    header = pa.StructArray.from_arrays([pa.repeat(SENT_AT, len(brought)), brought], fields=list(_HEADER))
    ends = np.cumsum(sent_at.is_valid().to_numpy(zero_copy_only=False), dtype=np.int32)
    headers = pa.ListArray.from_arrays(pa.array(np.append(np.int32(0), ends)), header)
    return pa.Table.from_arrays([pa.repeat(topic, rows), keys.cast(pa.string()), values, headers], schema=SAID)


def _sent_at(ids: pa.ChunkedArray, events: pa.Table, event_id: str) -> pa.Array:
    """The events' sent_at as text, NULL where the event is not of this batch or brought none."""
    if not events.num_rows or events.column(SENT_AT).null_count == events.num_rows:
        return pa.nulls(len(ids), pa.string())
    known = events.column(event_id).combine_chunks()
    places = pc.index_in(ids.combine_chunks().cast(known.type), value_set=known)
    return events.column(SENT_AT).combine_chunks().take(places).cast(pa.string())


def _strings(values: pl.DataFrame) -> pa.Array:
    return values.to_series().to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _series(column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(column.combine_chunks(), dtype=pl.String)
