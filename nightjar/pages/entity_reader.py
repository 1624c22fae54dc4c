"""What the lake has of a customer, a terminal or whatever a field names: events of all streams, alerts, restrictions
and labels, in the order in which they happened.

What it does not do: show values of sensitive fields, or look for one: such a field names nobody here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import polars as pl

from nightjar.contracts.restrictions import LIFTED
from nightjar.lake.tables import RESTRICTIONS, events_table
from nightjar.pages.lake_reader import LakeReader
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import from_microseconds, microseconds
from nightjar.rules.types import Kind

# Days that are shown where nobody asked for others, and the latest events of each stream that are.
ENTITY_DAYS, EVENTS_SHOWN = 7, 200
# What happened: kinds of entries.
EVENT, ALERT, RESTRICTION, LABEL, SNOOZE = "event", "alert", "restriction", "label", "snooze"


@dataclass(frozen=True)
class Entry:
    """Something that happened. lane: the stream of an event, or the kind; until: of a restriction, or of a snooze.

    values: of an event its fields, of an alert a row of ALERTS with `label` and `snoozed_until`, of a restriction one
    of RESTRICTIONS, of a label one of LABELS, of a snooze what it says.
    """

    at: datetime
    kind: str
    lane: str
    values: dict[str, Any]
    until: datetime | None = None


@dataclass(frozen=True)
class Entity:
    """What is known of these days (UTC). entries: the latest first; left_out: by stream, events before the latest."""

    first: date
    last: date
    streams: list[str]
    """That have the field, and do not declare it sensitive."""
    entries: list[Entry]
    left_out: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        """How many entries are of a kind."""
        return sum(entry.kind == kind for entry in self.entries)


def entity(lake: LakeReader, name: str, value: str, first: date | None, last: date | None) -> Entity:
    """What the lake has of a value of a field. first, last: None for the newest days.

    Raises:
        SettingsError: no stream has the field, it is sensitive, or the days are none or too many.
    """
    streams = [stream for stream in lake.streams.values() if name in stream.fields]
    if not streams:
        names = sorted({each for stream in lake.streams.values() for each in stream.fields})
        raise SettingsError("is not a field", where=name, remedy=did_you_mean(name, names, "Fields are"))
    shown = [stream for stream in streams if name not in stream.sensitive]
    if not shown:
        remedy = "`nightjar explain --reveal` shows the values of an alert"
        raise SettingsError("is sensitive, so nobody is shown by it", where=name, remedy=remedy)
    last = last or newest_event_day(lake, shown)
    first = first or last - timedelta(days=ENTITY_DAYS - 1)
    named = {stream.name for stream in shown}
    mine = (pl.col("group").str.json_path_match(f"$['{name}']") == value) & pl.col("stream").is_in(named)
    is_text = all(stream.fields[name].kind is Kind.STRING for stream in shown)
    part = value if is_text and json.dumps(value) == f'"{value}"' else ""  # else a group may write it otherwise
    begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
    recorded = recorded_streams(shown)
    with ThreadPoolExecutor(1 + len(recorded)) as pool:  # each reads other files, and waits for some of them
        found = [pool.submit(_events, lake, stream, name, value, (begin, end)) for stream in recorded]
        alerts = lake.alerts_where(first, last, part, mine.fill_null(value=False))
        of_streams = [each.result() for each in found]
    entries, left_out, ids = [], {}, pl.DataFrame(schema={"stream": pl.String, "event_id": pl.String})
    for stream, (events, before) in zip(recorded, of_streams, strict=True):
        entries += [Entry(row[stream.event_time], EVENT, stream.name, row) for row in events.iter_rows(named=True)]
        ids.extend(events.select(pl.lit(stream.name).alias("stream"), pl.col(stream.event_id).alias("event_id")))
        if before:
            left_out[stream.name] = before
    entries += [Entry(row["event_time"], ALERT, ALERT, row) for row in alerts.iter_rows(named=True)]
    entries += _restrictions(lake, mine, begin, end)
    entries += _labels(lake, alerts, ids)
    entries += _snoozes(lake, (name, value), named, microseconds(begin), microseconds(end))
    entries.sort(key=lambda entry: (entry.at, entry.kind != EVENT), reverse=True)
    return Entity(first, last, sorted(named), entries, left_out)


def newest_event_day(lake: LakeReader, streams: Iterable[Stream]) -> date:
    """The date of the newest event of the streams, of whomever."""
    sources = {source.name: source for stream in streams for source in stream.sources}
    tables = [(events_table(source), source.event_time) for source in sources.values()]
    latest = [at for at in (lake.latest(table, instant) for table, instant in tables) if at is not None]
    return max(latest).date() if latest else datetime.now(UTC).date()


def _events(
    lake: LakeReader, stream: Stream, name: str, value: str, span: tuple[datetime, datetime]
) -> tuple[pl.DataFrame, int]:
    """The latest events with that value in the time, each once, and how many there are before them."""
    rows = lake.rows_near(events_table(stream), stream.event_time, *span)
    kind = rows.collect_schema()[name]
    wanted = pl.lit(value).cast(kind, strict=False) if kind != pl.String else pl.lit(value)
    at = pl.col(stream.event_time)

    def read(*more: str) -> pl.DataFrame:
        # one condition on one column is tested on its dictionaries, and few values are decoded
        mine = rows.filter(pl.col(name) == wanted).select(*stream.fields, "rejected", *more).collect(engine="streaming")
        return mine.filter(at >= span[0], at < span[1], pl.col("rejected").is_null()).drop("rejected")

    found = read()
    if found.get_column(stream.event_id).is_duplicated().any():
        arrived = ("arrival_time", "partition", "offset")  # which few need: columns that are not read take no time
        found = read(*arrived).sort(arrived).unique(stream.event_id, keep="first").drop(arrived)
    found = found.sort(at, stream.event_id)
    hidden = [
        pl.when(pl.col(each).is_not_null()).then(pl.lit(MASK)).alias(each)
        for each in stream.fields
        if each in stream.sensitive
    ]
    shown = found.tail(EVENTS_SHOWN).with_columns(hidden)
    return shown, found.height - shown.height


def _restrictions(lake: LakeReader, mine: pl.Expr, begin: datetime, end: datetime) -> Iterator[Entry]:
    """Those that begin in the time, as the latest revision of each has them."""
    begins = (pl.col("starts_at") >= begin) & (pl.col("starts_at") < end)
    rows = lake.rows(RESTRICTIONS).filter(begins & mine).collect()
    backfill = pl.col("source") == "backfill"
    latest = rows.sort("restriction_id", "revision", backfill).unique("restriction_id", keep="last")
    for row in latest.iter_rows(named=True):
        lifted = row["kind"] == LIFTED
        yield Entry(row["starts_at"], RESTRICTION, RESTRICTION, row, None if lifted else row["ends_at"])


def _snoozes(lake: LakeReader, key: tuple[str, str], streams: set[str], begin: int, end: int) -> Iterator[Entry]:
    """Those of groups with that value of that field that begin in the time (µs), by rules on the streams."""
    name, value = key
    every = [each for each in lake.snoozes().every if begin <= each.since < end and each.since < each.until]
    book = lake.book() if every else None
    for each in every:
        versions = () if book is None else book.of_rule(each.rule_id)
        if str(json.loads(each.group).get(name)) == value and any(of.rule.stream in streams for of in versions):
            said = {"rule_id": each.rule_id, "author": each.author, "reason": each.reason, "kind": each.kind}
            yield Entry(from_microseconds(each.since), SNOOZE, SNOOZE, said, from_microseconds(each.until))


def _labels(lake: LakeReader, alerts: pl.DataFrame, events: pl.DataFrame) -> Iterator[Entry]:
    """What was said of the alerts, and of the events."""
    said = lake.labels()
    of_alerts = said.join(alerts, on="alert_id", how="semi")
    of_events = said.filter(pl.col("alert_id").is_null())
    named = pl.concat([events, alerts.select("stream", "event_id")])
    for row in pl.concat([of_alerts, of_events.join(named, on=["stream", "event_id"], how="semi")]).to_dicts():
        yield Entry(row["known_at"], LABEL, LABEL, row)
