"""Purpose: erase a person from the lake (S15): events, alerts, results, staged folders and data docs.

How it works: the person's events are found by their key fields and noted, without anything that names the person, in
the table `forgotten`. Then the rows about them go, table by table, and the events last: whoever repeats an interrupted
erasure finds them again. In alerts of others whose windows held such events the person's values are masked.

What it does not do: erase from Kafka, from the job's state, from the rules, or from what consumers have stored.

Known limitation: a value inside a longer text field (free text) is not found; name that field's whole value as a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import polars as pl

from nightjar.backfill.config import BackfillConfig, BackfillError
from nightjar.backfill.erasure.person import Person
from nightjar.backfill.erasure.rows import Erased, erase, purge
from nightjar.backfill.erasure.staged_folders import remove_naming
from nightjar.backfill.erasure.traces import EVENTS, Traces
from nightjar.backfill.gate.gating import docs_folder
from nightjar.backfill.inputs.forgotten import Forgotten, mark_of
from nightjar.backfill.inputs.scope import GroupBy, group_by_name, group_texts
from nightjar.expectations import docs
from nightjar.lake import delta
from nightjar.lake.archive import make_tables
from nightjar.lake.scanning import scan
from nightjar.lake.stream_state import rule_book
from nightjar.lake.tables import FORGOTTEN, RULE_STATUS, events_table
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream, recorded_streams, stream_named
from nightjar.rules.types import Kind
from nightjar.rules.versions import RuleSet
from nightjar.storage.paths import AnyPath

_KEY_KINDS = (Kind.STRING, Kind.INT64)


@dataclass(frozen=True)
class Removal:
    """What was erased, or would be."""

    tables: tuple[Erased, ...]
    folders: tuple[str, ...]
    """Staged ones of runs."""
    pages: int
    """Results in the data docs."""
    last_events: Mapping[str, datetime] = field(default_factory=dict)
    """By stream the time of the person's last event."""
    last_arrivals: Mapping[str, datetime] = field(default_factory=dict)
    """By stream the last arrival of an event of the person."""
    other_fields: Mapping[str, int] = field(default_factory=dict)
    """By stream and field how many events of others have one of the values there."""
    rules: tuple[str, ...] = ()
    """Ids of those whose text has one of the values."""


def searched_streams(config: BackfillConfig, names: Sequence[str], person: Person) -> list[Stream]:
    """The streams of these names; of none, all that declare a key; and the unions that have their events.

    Raises:
        SettingsError: a stream is not declared.
    """
    chosen = [stream_named(name, config.streams) for name in names] or [*config.streams.values()]
    declaring = [stream for stream in chosen if set(person.keys) & set(stream.fields)]
    found = declaring or chosen
    known = {stream.name for stream in found}
    unions = (s for s in config.streams.values() if s.name not in known and known & {of.name for of in s.sources})
    return [*found, *unions]


def forget(
    config: BackfillConfig, person: Person, streams: Sequence[Stream], now: datetime, *, dry_run: bool
) -> Removal:
    """Erase the person from the lake, of which nobody else may be a writer meanwhile; with dry_run only count.

    streams: those that are searched.

    Raises:
        BackfillError: a key is not a field of any of the streams, or of a type that cannot name a person.
    """
    _refuse_unknown(person, streams)
    if not dry_run:
        make_tables(config.lake)
    return _Forgetting(config, person, streams).run(now, dry_run=dry_run)


def _refuse_unknown(person: Person, streams: Sequence[Stream]) -> None:
    for name in person.keys:
        kinds = [stream.fields[name].kind for stream in streams if name in stream.fields]
        if not kinds:
            searched = ", ".join(stream.name for stream in streams)
            fields = sorted({each for stream in streams for each in stream.fields})
            remedy = did_you_mean(name, fields, "Fields are")
            raise BackfillError(f"is not a field of {searched}", where=f"key {name}", remedy=remedy)
        if any(kind not in _KEY_KINDS for kind in kinds):
            remedy = "Name a person by a field of type string or int64"
            raise BackfillError(f"is a {kinds[0]}", where=f"key {name}", remedy=remedy)


@dataclass(frozen=True)
class _Forgetting:
    """One erasure."""

    config: BackfillConfig
    person: Person
    streams: Sequence[Stream]

    @property
    def root(self) -> AnyPath:
        return self.config.lake.root

    def run(self, now: datetime, *, dry_run: bool) -> Removal:
        found = self._rows()
        events = pl.concat([pl.DataFrame(schema=EVENTS), *(self._events(*each) for each in found)])
        marked = pl.concat([pl.DataFrame(schema=_MARKED), *(self._marked(*each) for each in found)])
        traces = Traces(self.person, self.streams, events, self._forgotten(marked))
        others = dict(self._other_fields(traces))
        if not dry_run and marked.height:
            self._note(marked, now)
        tables = [erase(self.root, each, dry_run=dry_run) for each in traces.erasures()]
        folders = remove_naming(self.config, self.person, traces.ids, dry_run=dry_run)
        pages = docs.erase(docs_folder(self.root), traces.names, traces.masked, dry_run=dry_run)
        if not dry_run:
            for each in traces.erasures():
                purge(self.root, each.table)
        return Removal(
            tuple(each for each in tables if each.rows or each.masked),
            folders,
            pages,
            _latest(events, "event_time"),
            _latest(events, "arrival_time"),
            others,
            self._naming_rules(),
        )

    def _rows(self) -> list[tuple[Stream, pl.DataFrame]]:
        """The person's usable events, as the streams' tables have them."""
        found = []
        for stream in self.streams:
            if delta.exists(self.root, events_table(stream)):
                traces = Traces(self.person, self.streams, pl.DataFrame(schema=EVENTS), Forgotten.none())
                rows = scan(self.root, events_table(stream)).filter(traces.is_theirs(stream))
                found.append((stream, rows.collect(engine="streaming")))
        return found

    @staticmethod
    def _events(stream: Stream, rows: pl.DataFrame) -> pl.DataFrame:
        same = ("partition", "offset", "arrival_time")
        named: dict[str, Any] = {"event_id": stream.event_id, "event_time": stream.event_time}
        return rows.select(*same, pl.lit(stream.name).alias("stream"), **named).select(*EVENTS).cast(pl.Schema(EVENTS))

    def _marked(self, stream: Stream, rows: pl.DataFrame) -> pl.DataFrame:
        """The events with their marks (_MARKED)."""
        marks = [dict[str, int | None]() for _ in range(rows.height)]
        for group_by in sorted({v.rule.group_by for v in self._rules.of_stream(stream.name).versions}):
            for of, mark in zip(marks, _marks(rows, stream, group_by), strict=True):
                of[group_by_name(group_by)] = mark
        texts = pl.Series("marks", [json.dumps(of) for of in marks], pl.String)
        named: dict[str, Any] = {"stream": pl.lit(stream.name), "event_time": stream.event_time, "marks": texts}
        return rows.select("partition", "offset", **named).select(*_MARKED).cast(pl.Schema(_MARKED))

    @cached_property
    def _rules(self) -> RuleSet:
        if not delta.exists(self.root, RULE_STATUS):
            return RuleSet(())
        return rule_book(self.root, self.config.streams).ruleset

    def _forgotten(self, marked: pl.DataFrame) -> Forgotten:
        """What depends on these events, and on those erased before."""
        known = Forgotten.of(self.root, self._rules.versions)
        new = marked.select("stream", pl.col("event_time").dt.epoch("us").alias("at"), "marks")
        return replace(known, rows=pl.concat([known.rows, new]))

    def _note(self, marked: pl.DataFrame, now: datetime) -> None:
        rows = marked.with_columns(pl.lit(now).alias("forgotten_at")).select(*FORGOTTEN.columns)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(FORGOTTEN.arrow)
        delta.merge(self.root, FORGOTTEN, table, ("stream", "partition", "offset"))

    def _other_fields(self, traces: Traces) -> Iterator[tuple[str, int]]:
        """Where events that stay have one of the values in a field that is not a key."""
        for stream in recorded_streams(self.streams):
            texts = [
                name
                for name, kind in stream.fields.items()
                if kind.kind is Kind.STRING and name not in self.person.keys and name != stream.event_id
            ]
            if not texts or not delta.exists(self.root, events_table(stream)):
                continue
            rows = scan(self.root, events_table(stream)).filter(~traces.is_theirs(stream))
            counted = rows.select(pl.col(name).is_in(self.person.values).sum() for name in texts)
            for name, found in counted.collect(engine="streaming").row(0, named=True).items():
                if found:
                    yield f"{stream.name}.{name}", found

    def _naming_rules(self) -> tuple[str, ...]:
        """The rules whose messages have one of the values: these are needed as they are."""
        named: set[str] = set()
        if delta.exists(self.root, RULE_STATUS):
            answers = scan(self.root, RULE_STATUS).select("rule_id", "rule").drop_nulls().collect()
            named = {str(rule_id) for rule_id, rule in answers.iter_rows() if self.person.named_in(rule)}
        return tuple(sorted(named))


_MARKED: dict[str, Any] = {
    "stream": pl.String,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "event_time": pl.Datetime("us", "UTC"),
    "marks": pl.String,
}


def _marks(rows: pl.DataFrame, stream: Stream, group_by: tuple[str, ...]) -> list[int | None]:
    """The mark of each row's group; None where it is in none (S2.3)."""
    if not rows.height:
        return []
    given = rows.select(*group_by).to_arrow(compat_level=pl.CompatLevel.oldest())
    in_group = pl.all_horizontal(pl.lit(value=True), *(pl.col(name).is_not_null() for name in group_by))
    has_group = rows.select(in_group.alias("is")).to_series().to_list()
    if not group_by:
        return [mark_of("{}")] * rows.height
    texts = iter(group_texts(given.filter(has_group), stream, GroupBy(group_by, 0)))
    return [mark_of(next(texts)) if has else None for has in has_group]


def _latest(events: pl.DataFrame, column: str) -> dict[str, datetime]:
    return dict(events.group_by("stream").agg(pl.col(column).max()).sort("stream").iter_rows())
