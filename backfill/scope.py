"""What a day's run is about: the groups its events touch, and the span of each in which results may have changed.

Each event belongs to one day: to that of its event time where it arrived before that day was settled (its end and the
stream's allowed lateness), else to that of its arrival. An event at t changes nothing before t and nothing later than
the widest window after t. So a run's cost grows with the day and the windows, and not with the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.config import Request
from lake.events import microseconds_of
from lake.records import rewritten
from rules.engine.plan import compile_plan
from rules.engine.records import json_objects, jsonable
from rules.streams import Stream
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY = 86_400_000_000
TOUCHED = "stream string, group_by string, `group` string, lo bigint, hi bigint"


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


def belongs(stream: Stream, request: Request) -> Column:
    """Whether an event belongs to the run's days."""
    event, arrival = F.expr(microseconds_of(stream)), F.expr("unix_micros(arrival_time)")
    day_after = (F.floor(event / _DAY) + 1) * _DAY
    belongs_at = F.when(arrival < day_after + stream.allowed_lateness, event).otherwise(arrival)
    return (belongs_at >= request.begin) & (belongs_at < request.end) & (event < request.end)


def touched_keys(events: DataFrame, stream: Stream, group_by: GroupBy, request: Request) -> DataFrame:
    """The groups of one group-by that the day's events belong to: its fields, and lo and hi (µs, both included).

    events: the day's, usable ones.
    """
    event = F.expr(microseconds_of(stream))
    for name, values in request.groups.items():
        events = events.where(F.col(f"`{name}`").cast("string").isin(*values))
    for name in group_by.fields:
        events = events.where(F.col(f"`{name}`").isNotNull())
    spans = events.groupBy(*(f"`{name}`" for name in group_by.fields)).agg(
        F.min(event).alias("lo"), F.least(F.max(event) + group_by.reach, F.lit(request.end - 1)).alias("hi")
    )
    return spans.where(F.col("lo").isNotNull())


@dataclass(frozen=True)
class Naming:
    """What `mapInArrow` runs: keys of groups to rows of TOUCHED, the group written as the lake's alerts have it."""

    stream: Stream
    group_by: GroupBy

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Batches of the group-by's fields, lo and hi to batches of TOUCHED."""
        for batch in batches:
            columns = {
                "stream": pa.repeat(self.stream.name, batch.num_rows),
                "group_by": pa.repeat(self.group_by.name, batch.num_rows),
                "group": pa.array(group_texts(batch, self.stream, self.group_by), pa.string()),
                "lo": batch.column("lo"),
                "hi": batch.column("hi"),
            }
            yield pa.RecordBatch.from_pydict(columns)


def group_texts(rows: pa.Table | pa.RecordBatch, stream: Stream, group_by: GroupBy) -> list[str]:
    """The group of each row, as the lake's alerts have it. rows: the group-by's fields."""
    columns = {}
    for name in group_by.fields:
        column = rows.column(name).cast(stream.fields[name].arrow)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        columns[name] = jsonable(column, stream.fields[name])
    return [rewritten(text) for text in json_objects(columns, rows.num_rows).to_list()]


def events_of(events: DataFrame, keys: DataFrame, stream: Stream, group_by: GroupBy) -> DataFrame:
    """The events a run must see of the touched groups: from the widest window before lo to hi; `target`: from lo on.

    events: usable ones that had arrived by the run's cut. keys: see `touched_keys`.
    """
    event = F.expr(microseconds_of(stream))
    joined = events.join(keys, list(group_by.fields)) if group_by.fields else events.crossJoin(keys)
    within = joined.where((event >= F.col("lo") - group_by.reach) & (event <= F.col("hi")))
    return within.withColumn("target", event >= F.col("lo")).drop("lo", "hi")
