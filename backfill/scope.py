"""What a day's run is about: the groups its events touch, and the span of each in which results may have changed.

Each event belongs to one day: to that of its event time where it arrived before that day was settled (its end and the
stream's allowed lateness), else to that of its arrival. An event at t changes nothing before t and nothing later than
the widest window after t. So a run's cost grows with the day and the windows, and not with the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from backfill.config import Request
from lake.records import rewritten
from rules.engine.plan import compile_plan
from rules.engine.records import json_objects, jsonable
from rules.streams import Stream
from rules.versions import RuleSet

_DAY = 86_400_000_000
# Beside an event's own fields, whose names have no dot: the span (µs, both included) of its group in which the run
# judges, the group as the lake's alerts have it, and whether the run judges at this event.
LO, HI, GROUP, TARGET = "run.lo", "run.hi", "run.group", "run.target"


@dataclass(frozen=True)
class GroupBy:
    """One grouping of a stream's events. reach: the widest window over it, µs."""

    fields: tuple[str, ...]
    reach: int

    @property
    def name(self) -> str:
        """As the tables write it."""
        return group_by_name(self.fields)


def group_by_name(fields: Iterable[str]) -> str:
    """A group-by's fields as one text."""
    return ",".join(fields)


def group_bys(stream: Stream, ruleset: RuleSet, since: int, groups: Mapping[str, tuple[str, ...]]) -> list[GroupBy]:
    """The group-bys of the versions that can apply at or after `since` (µs), of the groups asked for."""
    plan = compile_plan(stream, ruleset, since)
    return [GroupBy(g.group_by, g.reach) for g in plan.groups if g.compiled and set(groups) <= set(g.group_by)]


def settled(request: Request, streams: Iterable[Stream]) -> int:
    """When the day is settled: from then on, an arrival that belongs to it can no longer come (µs)."""
    return request.end + max((stream.allowed_lateness for stream in streams), default=0)


def microseconds_of(stream: Stream) -> pl.Expr:
    """The event time in µs."""
    return pl.col(stream.event_time).dt.epoch("us")


def belongs(stream: Stream, request: Request) -> pl.Expr:
    """Whether an event belongs to the run's days."""
    event, arrival = microseconds_of(stream), pl.col("arrival_time").dt.epoch("us")
    day_after = (event.floordiv(_DAY) + 1) * _DAY
    belongs_at = pl.when(arrival < day_after + stream.allowed_lateness).then(event).otherwise(arrival)
    return (belongs_at >= request.begin) & (belongs_at < request.end) & (event < request.end)


def touched_spans(events: pl.LazyFrame, stream: Stream, group_by: GroupBy, request: Request) -> pl.LazyFrame:
    """The groups of one group-by that the day's events belong to: its fields, and the least (LO) and greatest (HI)
    event time of these events.

    events: the day's, usable ones.
    """
    for name, values in request.groups.items():
        events = events.filter(pl.col(name).cast(pl.String).is_in(values))
    events = events.drop_nulls(group_by.fields) if group_by.fields else events
    event = microseconds_of(stream)
    spans = (event.min().alias(LO), event.max().alias(HI))
    return events.group_by(group_by.fields).agg(*spans) if group_by.fields else events.select(*spans).drop_nulls()


def touched_groups(spans: pl.DataFrame, stream: Stream, group_by: GroupBy, request: Request) -> pl.DataFrame:
    """The `touched_spans` of all parts of some groups to one row a group: its fields, GROUP, LO and HI."""
    lo, hi = pl.col(LO).min(), pl.min_horizontal(pl.col(HI).max() + group_by.reach, request.end - 1).alias(HI)
    whole = spans.group_by(group_by.fields).agg(lo, hi) if group_by.fields else spans.select(lo, hi).drop_nulls()
    texts = group_texts(whole.to_arrow(compat_level=pl.CompatLevel.oldest()), stream, group_by)
    return whole.with_columns(pl.Series(GROUP, texts, pl.String))


def group_texts(rows: pa.Table, stream: Stream, group_by: GroupBy) -> list[str]:
    """The group of each row, as the lake's alerts have it. rows: the group-by's fields."""
    kinds = {name: stream.fields[name] for name in group_by.fields}
    columns = {
        name: jsonable(rows.column(name).cast(kind.arrow).combine_chunks(), kind) for name, kind in kinds.items()
    }
    return [rewritten(text) for text in json_objects(columns, rows.num_rows).to_list()]


def events_of(events: pl.LazyFrame, groups: pl.LazyFrame, stream: Stream, group_by: GroupBy) -> pl.LazyFrame:
    """The events a run must see of the touched groups: from the widest window before LO to HI; TARGET: from LO on.

    groups: the group-by's fields, LO, HI, and what else each of its events is to be given.
    """
    event = microseconds_of(stream)
    joined = events.join(groups, on=group_by.fields) if group_by.fields else events.join(groups, how="cross")
    within = joined.filter((event >= pl.col(LO) - group_by.reach) & (event <= pl.col(HI)))
    return within.with_columns((event >= pl.col(LO)).alias(TARGET)).drop(LO, HI)
