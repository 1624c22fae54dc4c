"""What the stream's state is made of, as the lake has it: how far it had read, which events, what it had announced.

Reads without Spark, one day of arrivals at a time, so that memory does not grow with history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TypeVar

import polars as pl
import pyarrow as pa
import structlog

from nightjar.contracts.job_progress import clocks_of, offsets_of
from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.contracts.rule_status import fold
from nightjar.ingestion.event_schema import PRIMARY, SHUFFLED_BY, events_schema
from nightjar.lake.config import LakeError
from nightjar.lake.delta import exists, folder, schema
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, PROGRESS, RULE_STATUS, events_table
from nightjar.rules.engine.alert_columns import json_objects
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.rulebook import WHOLE_STREAM, Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream, optional_field
from nightjar.rules.timestamps import MIN_TIMESTAMP, from_microseconds, microseconds
from nightjar.storage.paths import AnyPath

_log = structlog.get_logger(__name__)

T = TypeVar("T")
# Partition to the first offset and the one after the last.
Ranges = Mapping[int, tuple[int, int]]


def consumed(root: AnyPath, at: int | None = None) -> dict[str, dict[int, int]]:
    """Topic -> partition -> the offset after the last record the stream had read, from its last report (may be empty).

    Invalid reports are skipped, since anybody may write to a topic. at: the version of the progress table (None: the
    newest).
    """
    return _reported(root, "consumed", at, offsets_of)


def began(root: AnyPath, at: int | None = None) -> dict[str, dict[int, int]]:
    """Topic -> partition -> the offset of the first record that the stream's state can have, from its last report."""
    return _reported(root, "began", at, offsets_of)


def clocks(root: AnyPath, at: int | None = None) -> dict[str, int]:
    """Stream -> the clock (µs) that the stream had taken in, from its last report that has it."""
    return _reported(root, "clocks", at, clocks_of)


def _reported(root: AnyPath, name: str, at: int | None, read: Callable[[str], dict[str, T] | None]) -> dict[str, T]:
    """The newest valid value under this name, as `read` reads it."""
    progress = scan(root, PROGRESS, at)
    if name not in progress.collect_schema():
        return {}
    reported = progress.filter(pl.col(name).is_not_null()).sort("arrival_time", "offset").select(name)
    wanted = 10
    while True:
        newest = reported.tail(wanted).collect().to_series().to_list()
        for number, text in enumerate(reversed(newest)):
            if (found := read(text)) is not None:
                if number:
                    _log.warning("skipped progress records without valid values", column=name, skipped=number)
                return found
        if len(newest) < wanted:
            return {}
        wanted *= 100


def answers(root: AnyPath, at: int | None = None) -> list[Record]:
    """The lake's answers to rule messages, in order.

    at: the version of the table (None: the newest).
    """
    rows = scan(root, RULE_STATUS, at).filter(pl.col("status").is_not_null()).sort("offset")
    arrival, effective = pl.col("arrival_time").dt.epoch("us"), pl.col("effective").dt.epoch("us")
    read = (
        rows.select("offset", arrival.alias("arrival"), *JsonReader(RULE_STATUS).names)
        .with_columns(effective)
        .collect()
    )
    return [Record(row["offset"], row["arrival"], ascii_json(ANSWER.record(row))) for row in read.iter_rows(named=True)]


def rule_book(root: AnyPath, streams: Mapping[str, Stream]) -> RuleBook:
    """The rules after the answers that the lake has."""
    book = RuleBook(streams)
    for answer in answers(root):
        fold(book, answer)
    return book


def events(
    root: AnyPath,
    stream: Stream,
    offsets: Ranges,
    since: int = MIN_TIMESTAMP,
    *,
    before: int | None = None,
    always: Mapping[int, int] | None = None,
) -> Iterator[pa.Table]:
    """The stream's events in order of arrival, in the engine's types, one table per day of arrivals.

    Columns: the stream's fields, arrival_time, partition, offset, sent_at. offsets: the range to read, by partition.
    since, before: event times, µs. always: the offset, by partition, before which `before` does not matter.
    """
    arrived = from_microseconds(max(since - stream.max_future_skew, MIN_TIMESTAMP))
    found = _records(root, stream, offsets).filter(
        pl.col("arrival_date") >= arrived.date(),
        pl.col("rejected").is_null(),
        pl.col(stream.event_time) >= from_microseconds(max(since, MIN_TIMESTAMP)),
    )
    if before is not None:
        earlier = pl.col(stream.event_time) < from_microseconds(max(before, MIN_TIMESTAMP))
        found = found.filter(earlier | _of({partition: (0, end) for partition, end in (always or {}).items()}))
    schema = pa.schema([field for field in events_schema(stream) if field.name != PRIMARY])
    days = found.select(pl.col("arrival_date").unique().sort()).collect().to_series()
    for day in days:
        rows = found.filter(pl.col("arrival_date") == day).sort("arrival_time", "partition", "offset")
        yield rows.select(schema.names).collect().to_arrow().cast(schema)


def extent(root: AnyPath, stream: Stream, offsets: Ranges) -> tuple[int, int | None]:
    """The number of these records in the lake, including unusable ones, and their first arrival (µs)."""
    arrival = pl.col("arrival_time").min().dt.epoch("us")
    counted = _records(root, stream, offsets).select(pl.len(), arrival).collect()
    return counted.row(0)


def _records(root: AnyPath, stream: Stream, offsets: Ranges) -> pl.LazyFrame:
    return scan(root, events_table(stream)).filter(_of(offsets))


def _of(offsets: Ranges) -> pl.Expr:
    place, offset = pl.col("partition"), pl.col("offset")
    wanted = ((place == number) & (offset >= first) & (offset < end) for number, (first, end) in offsets.items())
    return reduce(or_, wanted, pl.lit(value=False))


def announced(root: AnyPath, stream: Stream, book: RuleBook, key: ShuffleKey, since: int) -> pa.Table:
    """The latest revision of each alert of the rules that the shuffle key serves, for events from `since` (µs) on, and
    of those before that can still mute one of these.

    Columns: LEDGER_SCHEMA and, except for the whole-stream shuffle key, SHUFFLED_BY: the value of the shuffle key's
    field in the alert's group.
    """
    served = book.served_by(key)
    rules = (v for v in book.ruleset.versions if v.rule.group_by in served)
    mutes = {(v.rule.id, v.version): v.rule.mute or 0 for v in rules}
    earliest = since - max(mutes.values(), default=0)
    alerts = scan(root, ALERTS).filter(
        pl.col("stream") == stream.name, pl.col("event_time") >= from_microseconds(max(earliest, MIN_TIMESTAMP))
    )
    # Of equal revisions the backfill's counts, as everywhere.
    last = (
        alerts.collect()
        .sort("revision", pl.col("source") == "backfill")
        .unique("alert_id", keep="last", maintain_order=True)
    )
    named = ((row, (row["rule_id"], row["rule_version"])) for row in last.to_dicts())
    mine = [row | {"mute": mutes[version], "muted": bool(row["muted"])} for row, version in named if version in mutes]
    entries = [
        row | {"retracted": row["kind"] == "retraction"} | {"measures": _rewritten(row["measures"])}
        for row in mine
        if microseconds(row["event_time"]) + row["mute"] >= since
    ]
    table = pa.Table.from_pylist([{name: row[name] for name in LEDGER_SCHEMA.names} for row in entries], LEDGER_SCHEMA)
    if key.field == WHOLE_STREAM:
        return table
    values = pa.array([json.loads(row["group"])[key.field] for row in entries])
    return table.append_column(SHUFFLED_BY, values.cast(stream.fields[key.field].arrow))


def refuse_other_fields(root: AnyPath, stream: Stream) -> None:
    """Raise LakeError if the lake has the stream's events with other fields or types than are declared.

    A missing optional field is allowed: `delta.make` adds it.
    """
    for source in stream.sources if stream.members else ():
        refuse_other_fields(root, source)
    table = events_table(stream)
    if stream.members or not exists(root, table):
        return
    held = {field.name: field.type for field in schema(root, table)}
    others = "Or name new folders as checkpoint_dir and lake_dir"
    for name, kind in stream.fields.items():
        what = f"streams.{stream.name}.fields.{name} is {kind}, but the lake has"
        if name in held and held[name] != kind.arrow:
            remedy = f"Restore the old declaration. {others}"
            raise LakeError(f"{what} it as {held[name]}", where=folder(root, table), remedy=remedy)
        if name not in held and name not in stream.optional:
            remedy = f"Declare it optional: {optional_field(name, kind)}. {others}"
            raise LakeError(f"{what} no such field", where=folder(root, table), remedy=remedy)


def _rewritten(text: str) -> str:
    """A JSON object as the engine writes it: numbers have several texts, and what was announced is compared as text."""
    members = {name: pa.array([value]) for name, value in json.loads(text).items()}
    return str(json_objects(members, 1)[0])
