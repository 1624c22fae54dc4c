"""Which rows of the lake's tables are about a person, and which only have one of the person's values.

Pure functions of rows: see forgetting.py for the order in which tables are changed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from nightjar.backfill.erasure.person import Person
from nightjar.backfill.erasure.rows import Erasure
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.lake.tables import (
    ALERTS,
    CORRECTIONS,
    LABELS,
    LATE_EVENTS,
    QUARANTINE,
    RECONCILIATION,
    RESTRICTIONS,
    RUNS,
    SNOOZES,
    VIOLATIONS,
    events_table,
)
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.streams import Stream, recorded_streams

# The person's events, of whichever stream.
EVENTS: dict[str, Any] = {
    "stream": pl.String,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "event_id": pl.String,
    "event_time": pl.Datetime("us", "UTC"),
    "arrival_time": pl.Datetime("us", "UTC"),
}
_ABOUT_ALERTS = (ALERTS, RESTRICTIONS, VIOLATIONS, RECONCILIATION, CORRECTIONS)
# Of these tables: JSON with values of events, and text in which they are filled in.
_MEASURES, _TEXTS = ("measures", "stream_measures"), ("text",)
_IDENTITY = ("stream", "rule_id", "rule_version", "group")
_OF_ALERTS = (*_IDENTITY, *_MEASURES, *_TEXTS, "event_id", "event_time", "starts_at", "original")
_RUN_JSON, _RUN_TEXT = ("only_groups", "counts"), ("failure",)


@dataclass(frozen=True)
class Traces:
    """What is looked for. streams: those that are searched; events: the person's (EVENTS); forgotten: which alerts
    depend on erased events."""

    person: Person
    streams: Sequence[Stream]
    events: pl.DataFrame
    forgotten: Forgotten

    def erasures(self) -> list[Erasure]:
        """One for each table, the events last: the others are found by them."""
        found = [
            Erasure(table, self._alerts, self._masked_alerts, tuple(n for n in table.columns if n in _OF_ALERTS))
            for table in _ABOUT_ALERTS
        ]
        found.append(Erasure(LABELS, self._labels, self._masked_reasons, ("stream", "event_id", "reason", "original")))
        found.append(Erasure(SNOOZES, self._snoozes, self._masked_reasons, ("group", "reason", "original")))
        found.append(Erasure(LATE_EVENTS, self._late, None, ("stream", "event_id", "event_time", "event", "original")))
        found.append(Erasure(QUARANTINE, self._quarantined, None, ("stream", "record", "original")))
        found.append(Erasure(RUNS, _none, self._masked_runs, (*_RUN_JSON, *_RUN_TEXT)))
        for stream in recorded_streams(self.streams):
            needed = (*self._keys(stream), "rejected", "original")
            found.append(Erasure(events_table(stream), self._of_stream(stream), None, needed))
        return found

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of the person's events."""
        return frozenset(self.events.get_column("event_id"))

    @cached_property
    def _places(self) -> dict[str, list[FieldPath]]:
        """Where records of the streams may have the person's fields."""
        recorded = recorded_streams(self.streams)
        streams = [(name, stream) for name in self.person.keys for stream in recorded if name in stream.recorded]
        places: dict[str, list[FieldPath]] = {}
        for name, stream in streams:
            places.setdefault(name, []).append(stream.path(name))
        return places

    def is_theirs(self, stream: Stream) -> pl.Expr:
        """Whether a row of the stream's table is a usable event of the person."""
        keys = self._keys(stream).items()
        named = (pl.col(name).cast(pl.String).is_in(self.person.keys[key]) for name, key in keys)
        is_named = pl.any_horizontal(pl.lit(value=False), *(each.fill_null(value=False) for each in named))
        return is_named & pl.col("rejected").is_null()

    def _keys(self, stream: Stream) -> dict[str, str]:
        """The stream's fields that are keys of the person, and which. Of a union also those that are one in a member,
        by whatever name."""
        found = {name: name for name in self.person.keys if name in stream.fields}
        for member in stream.members:
            found |= {name: field for name, field in member.fields.items() if field in self.person.keys}
        return found

    def _of_stream(self, stream: Stream) -> Callable[[pl.DataFrame], pl.Series]:
        def chosen(rows: pl.DataFrame) -> pl.Series:
            usable = rows.select(self.is_theirs(stream).alias("is")).to_series()
            return usable | self._unusable(rows)

        return chosen

    def _alerts(self, rows: pl.DataFrame) -> pl.Series:
        """By the event, or by the group."""
        about = self._is_their_event(rows)
        for stream in self.streams:
            for name, key in self._keys(stream).items():
                group = pl.col("group").str.json_path_match(f"$.{name}").is_in(self.person.keys[key])
                of_group = (group & (pl.col("stream") == stream.name)).fill_null(value=False)
                about |= rows.select(of_group.alias("is")).to_series()
        return about | self._unusable(rows)

    def _is_their_event(self, rows: pl.DataFrame) -> pl.Series:
        """Whether a row is about one of the person's events, whose ids others may have, too."""
        timed = "starts_at" if "starts_at" in rows.columns else "event_time"
        keys = ["stream", "event_id", "event_time"]
        known = self.events.select(keys).unique().with_columns(pl.lit(value=True).alias("known"))
        named = rows.select("stream", "event_id", pl.col(timed).alias("event_time"))
        return named.join(known, on=keys, how="left", maintain_order="left")["known"].fill_null(value=False)

    def _labels(self, rows: pl.DataFrame) -> pl.Series:
        """By the event's id alone, as a label does not have its time."""
        theirs = self.events.select("stream", "event_id").unique().with_columns(pl.lit(value=True).alias("known"))
        named = rows.select("stream", "event_id").join(
            theirs, on=["stream", "event_id"], how="left", maintain_order="left"
        )
        return named["known"].fill_null(value=False) | self._unusable(rows)

    def _snoozes(self, rows: pl.DataFrame) -> pl.Series:
        """By the group."""
        named = {each for stream in self.streams for each in self._keys(stream).items()}
        of_group = (
            pl.col("group").str.json_path_match(f"$.{name}").is_in(self.person.keys[key]).fill_null(value=False)
            for name, key in sorted(named)
        )
        theirs = rows.select(pl.any_horizontal(pl.lit(value=False), *of_group).alias("is")).to_series()
        return theirs | self._unusable(rows)

    def _masked_reasons(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(pl.col("reason").map_elements(self.masked, pl.String, skip_nulls=True))

    def _late(self, rows: pl.DataFrame) -> pl.Series:
        events = rows.get_column("event").map_elements(self._is_about, pl.Boolean, skip_nulls=True)
        return self._is_their_event(rows) | events.fill_null(value=False) | self._unusable(rows)

    def _quarantined(self, rows: pl.DataFrame) -> pl.Series:
        records = rows.get_column("record").map_elements(self._is_about_encoded, pl.Boolean, skip_nulls=True)
        return records.fill_null(value=False) | self._unusable(rows)

    def _unusable(self, rows: pl.DataFrame) -> pl.Series:
        """Whether a record that cannot be used, and is kept as it came, is about the person."""
        if "original" not in rows.columns:
            return pl.repeat(value=False, n=rows.height, eager=True)
        found = rows.get_column("original").map_elements(self._is_about_record, pl.Boolean, skip_nulls=True)
        return found.fill_null(value=False)

    def _is_about(self, text: str) -> bool:
        return self.person.is_about(text.encode(errors="replace"))

    def _is_about_record(self, record: bytes) -> bool:
        return self.person.is_about(record, self._places)

    def _is_about_encoded(self, record: str) -> bool:
        try:
            return self._is_about_record(base64.b64decode(record))
        except (binascii.Error, ValueError):
            return self.person.named_in(record)

    def _masked_alerts(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The person's values masked in what depends on their events; elsewhere the same text is somebody else's."""
        timed = "starts_at" if "starts_at" in rows.columns else "event_time"
        depends = self.forgotten.depends(rows.select(*_IDENTITY, pl.col(timed).alias("event_time")))
        for name in (each for each in (*_MEASURES, *_TEXTS) if each in rows.columns):
            of = self._masked_json if name in _MEASURES else self.masked
            masked = rows.get_column(name).map_elements(of, pl.String, skip_nulls=True)
            rows = rows.with_columns(pl.when(pl.lit(depends)).then(pl.lit(masked)).otherwise(name).alias(name))
        return rows

    def _masked_runs(self, rows: pl.DataFrame) -> pl.DataFrame:
        json_texts = (pl.col(name).map_elements(self._masked_json, pl.String) for name in _RUN_JSON)
        texts = (pl.col(name).map_elements(self.masked, pl.String) for name in _RUN_TEXT)
        return rows.with_columns(*json_texts, *texts)

    def _masked_json(self, text: str) -> str:
        return self.person.masked_json(text, self.ids)

    def names(self, text: str) -> bool:
        """Whether a text names the person or one of the events."""
        return text in self.ids or self.person.named_in(text)

    def masked(self, text: str) -> str:
        """The text without the person's values and the ids of the events."""
        return self.person.masked_in(text, self.ids)


def _none(rows: pl.DataFrame) -> pl.Series:
    return pl.repeat(value=False, n=rows.height, eager=True)
