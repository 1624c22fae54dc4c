"""What the job says on Kafka: records as lines of text, many to a Spark row, so that none is a Python object.

A line is key, tab, `sent_at` (µs, may be empty), tab, value. Values are JSON, which has no raw tab or line break.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules.engine.frames import frame
from rules.engine.records import json_objects, jsonable
from rules.events import Rejection
from rules.streams import Stream
from rules.timestamps import iso_text
from rules.types import INT64, STRING, TIMESTAMP, FieldType

OUTPUT_SCHEMA = "topic string, lines string"

# A row's lines become one string in Python and in the JVM: some megabytes at most.
LINES_A_ROW = 4000
CHARACTERS_A_ROW = 4_000_000

# Bytes of an unusable record that its quarantine record repeats. A megabyte in Base64 would be more than Kafka takes;
# all of it stays at its place in Kafka, and in the lake.
MAX_ORIGINAL = 65_536

_PLAIN: dict[str, FieldType] = {
    "alert_id": STRING, "revision": INT64, "kind": STRING, "rule_id": STRING, "rule_version": INT64,
    "rule_state": STRING, "stream": STRING, "event_id": STRING, "event_time": TIMESTAMP, "severity": STRING,
    "text": STRING,
}  # fmt: skip


def line(key: str, value: Mapping[str, Any], sent_at: int | None = None) -> str:
    """One record as a line; for records that are few."""
    return f"{_safe(key)}\t{'' if sent_at is None else sent_at}\t{json.dumps(value, ensure_ascii=False)}"


def alert_lines(alerts: pa.Table, events: pa.Table, event_id: str, emitted_at: int) -> Iterator[str]:
    """Alerts (the engine's) as lines, some thousands to a string.

    events: this batch's, with `sent_at` (int64, µs or NULL), which an alert about one of them takes over.
    emitted_at: µs since 1970.
    """
    if not alerts.num_rows:
        return
    rows = alerts.num_rows
    columns = {name: jsonable(alerts.column(name).combine_chunks(), kind) for name, kind in _PLAIN.items()}
    said = {
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
        "tail": json_objects({**{name: columns[name] for name in ("severity", "text")}, **said}, rows).str.slice(1),
        "key": _series(alerts.column("alert_id")),
        "sent_at": _sent_at(alerts.column("event_id"), events, event_id),
    }
    lines = pl.DataFrame(parts).select(
        pl.format(
            '{}\t{}\t{},"group":{},{},"measures":{},{}', "key", "sent_at", "head", "group", "event", "measures", "tail"
        )
    )
    yield from _rows_of(lines.to_series())


def late_lines(late: pa.Table, stream: Stream) -> Iterator[str]:
    """Late events (the engine's, with `partition` and `offset`) as lines: their fields, arrival and coordinates."""
    if not late.num_rows:
        return
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
        "key": _series(late.column(stream.event_id)).str.replace_all(r"[\t\r\n]", " "),
        "about": json_objects(about, late.num_rows).str.head(-1),
        "event": json_objects(fields, late.num_rows),
    }
    lines = pl.DataFrame(parts).select(pl.format('{}\t\t{},"event":{}}}', "key", "about", "event"))
    yield from _rows_of(lines.to_series())


def quarantine_line(
    rejection: Rejection, stream: Stream, *, partition: int, offset: int, arrival: int, raw: bytes
) -> str:
    """A record that cannot be used, as a line. arrival: µs; raw: its bytes, of which MAX_ORIGINAL are repeated."""
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
    return line(f"{stream.topic}-{partition}-{offset}", value)


def chunks(lines: Iterable[str]) -> Iterator[str]:
    """Lines joined to strings of a row's size."""
    held: list[str] = []
    characters = 0
    for each in lines:
        if len(held) == LINES_A_ROW or (held and characters + len(each) > CHARACTERS_A_ROW):
            yield "\n".join(held)
            held, characters = [], 0
        held.append(each)
        characters += len(each)
    if held:
        yield "\n".join(held)


def _rows_of(lines: pl.Series) -> Iterator[str]:
    for at in range(0, len(lines), LINES_A_ROW):
        yield lines.slice(at, LINES_A_ROW).str.join("\n").item()


def _sent_at(ids: pa.ChunkedArray, events: pa.Table, event_id: str) -> pl.Series:
    """The events' sent_at as text, empty where the event is not of this batch or brought none."""
    if not events.num_rows or events.column("sent_at").null_count == events.num_rows:
        return pl.Series([""] * len(ids), dtype=pl.String)
    known = events.column(event_id).combine_chunks()
    places = pc.index_in(ids.combine_chunks().cast(known.type), value_set=known)
    sent = events.column("sent_at").combine_chunks().take(places)
    return frame({"": sent}).to_series().cast(pl.String).fill_null("")


def _series(column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(column.combine_chunks(), dtype=pl.String)


def _safe(key: str) -> str:
    return key.replace("\t", " ").replace("\n", " ").replace("\r", " ")
