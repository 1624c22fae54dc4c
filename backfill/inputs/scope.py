"""The scope of a day's run: the groups that its events touch, and the spans of each in which results may have changed.

Each event belongs to one day: to that of its event time where it arrived before that day was settled (its end and the
stream's allowed lateness), else to that of its arrival; and to both where the stream had more than one allowed lateness
about then and only by the greatest it was in time. An event at t changes nothing later than the widest window after t,
and before t only what rules with `unless` have waited for. So a group has a span around each of its events; spans whose
windows meet are one. Where a rule has `mute`, alerts may mute later ones of their date: the spans are whole dates, at
whose begin nothing is muted. A run's cost grows with the day's events and their windows: not with the history, and not
with how far event times lie apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.backfill.config import DAY, RunRequest
from nightjar.backfill.inputs.histories import VersionHistory
from nightjar.backfill.lateness import Allowed
from nightjar.rules.engine.alert_columns import described_groups, jsonable
from nightjar.rules.retention import waits_for, widest
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from nightjar.rules.types import FieldType, Kind
from nightjar.rules.versions import RuleVersion

# Beside an event's own fields, whose names have no dot: a span (µs, both included) of its group in which the run
# judges, the group as the lake's alerts have it, its bucket, and whether the run judges at this event.
LO, HI, GROUP, BUCKET, TARGET = "run.lo", "run.hi", "run.group", "run.bucket", "run.target"
_FROM, _UNTIL, _AT = "run.from", "run.until", "run.at"
Instant = TypeVar("Instant", int, pl.Expr)
# A filter that each task is given names all spans of a reading: more than these become fewer and longer ones.
_MOST_SPANS = 64


@dataclass(frozen=True)
class GroupBy:
    """One grouping of a stream's events. reach: the widest window over it, µs; mutes: whether a rule over it has
    `mute`, so that what changes an alert may change others of its date; waiting: the longest time after an event for
    which a rule over it waits for what follows, µs."""

    fields: tuple[str, ...]
    reach: int
    mutes: bool = False
    waiting: int = 0

    @property
    def name(self) -> str:
        """As the tables write it."""
        return group_by_name(self.fields)

    def judged(self, lo: Instant, hi: Instant) -> tuple[Instant, Instant]:
        """The event times (µs, both included) at which events from lo to hi may change results."""
        lo, hi = lo - self.waiting, hi + self.reach
        return (lo // DAY * DAY, (hi // DAY + 1) * DAY - 1) if self.mutes else (lo, hi)


def group_by_name(fields: Iterable[str]) -> str:
    """A group-by's fields as one text."""
    return ",".join(fields)


def group_bys(
    versions: Iterable[RuleVersion],
    published: Mapping[tuple[str, int], VersionHistory],
    since: int,
    until: int,
    groups: Mapping[str, tuple[str, ...]],
    skew: int,
) -> list[GroupBy]:
    """The group-bys, of the groups asked for, over which alerts about events from `since` to `until` (µs) can exist.

    versions: one stream's, in the order of publication. Those that apply to such events now, and those that the stream
    evaluated until a later version took their place in the past: their alerts are to be judged, too. skew: how far (µs)
    event times may be ahead of arrival.
    """
    reach: dict[tuple[str, ...], int] = {}
    muting: set[tuple[str, ...]] = set()
    waiting: dict[tuple[str, ...], int] = {}
    # by rule, from when on an event's time and arrival can no longer both be those of an earlier version
    replaced: dict[str, int] = {}
    for version in reversed(list(versions)):
        rule = version.rule
        displaced = replaced.get(rule.id, MAX_TIMESTAMP + 1)
        known = published.get((rule.id, version.version))
        arrival = version.effective if known is None else known.arrival
        replaced[rule.id] = min(displaced, max(version.effective, arrival + skew))
        if displaced <= since or version.effective > until or not rule.state.is_evaluated:
            continue
        if set(groups) <= set(rule.group_by):
            reach[rule.group_by] = max(widest(version), reach.get(rule.group_by, 0))
            muting |= {rule.group_by} if rule.mute else set()
            waiting[rule.group_by] = max(waits_for(rule), waiting.get(rule.group_by, 0))
    return [GroupBy(fields, reach[fields], fields in muting, waiting[fields]) for fields in sorted(reach)]


def settled(request: RunRequest, allowed: Iterable[Allowed], waiting: int = 0) -> int:
    """When the day is settled: from then on, an arrival that belongs to it can no longer come, nor one that follows an
    event of it in time (µs). allowed: of each stream about then; waiting: see `longest_wait`."""
    return request.end + max((each.greatest for each in allowed), default=0) + waiting


def longest_wait(versions: Iterable[RuleVersion], begin: int, end: int) -> int:
    """The longest time (µs) for which a rule waits for what follows an event that is dated from `begin` to `end` (µs).

    versions: in the order of publication.
    """
    found = 0
    replaced: dict[tuple[str, str], int] = {}
    for version in reversed(list(versions)):
        key = version.rule.stream, version.rule.id
        if version.effective < end and replaced.get(key, end) > begin and version.rule.state.is_evaluated:
            found = max(found, waits_for(version.rule))
        replaced[key] = min(version.effective, replaced.get(key, end))
    return found


def microseconds_of(stream: Stream) -> pl.Expr:
    """The event time in µs."""
    return pl.col(stream.event_time).dt.epoch("us")


def belongs(stream: Stream, request: RunRequest, allowed: Allowed) -> pl.Expr:
    """Whether an event belongs to the run's days. allowed: of the stream about then."""
    event, arrival = microseconds_of(stream), pl.col("arrival_time").dt.epoch("us")
    day_after = (event.floordiv(DAY) + 1) * DAY
    happened = (event >= request.begin) & (arrival < day_after + allowed.greatest)
    arrived = (arrival >= request.begin) & (arrival < request.end) & (arrival >= day_after + allowed.least)
    return (happened | arrived) & (event < request.end)


def asked_for(rows: pl.LazyFrame, request: RunRequest) -> pl.LazyFrame:
    """The rows of the groups that the run was asked for."""
    for name, values in request.groups.items():
        rows = rows.filter(pl.col(name).cast(pl.String).is_in(values))
    return rows


def touched_spans(events: pl.LazyFrame, stream: Stream, group_by: GroupBy, request: RunRequest) -> pl.LazyFrame:
    """The groups of one group-by that the day's events belong to: its fields, and the least (LO) and greatest (HI)
    event time of these events within each widest window's length, or date. Spans within one would become one anyway.

    events: the day's, usable ones.
    """
    events = asked_for(events, request)
    events = events.drop_nulls(group_by.fields) if group_by.fields else events
    event = microseconds_of(stream)
    spans = (event.min().alias(LO), event.max().alias(HI))
    stretch = event.floordiv(max(group_by.reach, DAY)).alias(_FROM)
    return events.group_by(*group_by.fields, stretch).agg(*spans).drop(_FROM)


def spans_of(texts: Sequence[str], times: Sequence[int], stream: Stream, group_by: GroupBy) -> pl.DataFrame:
    """Some groups as the lake's alerts have them, each touched at one event time (µs): as `touched_spans`."""
    groups = [json.loads(text) for text in texts]
    columns = {n: pa.array([group[n] for group in groups]).cast(stream.fields[n].arrow) for n in group_by.fields}
    return pl.DataFrame(pa.table({**columns, LO: pa.array(times, pa.int64()), HI: pa.array(times, pa.int64())}))


def touched_groups(
    spans: pl.DataFrame, stream: Stream, group_by: GroupBy, request: RunRequest, since: int = MIN_TIMESTAMP
) -> pl.DataFrame:
    """The `touched_spans` of all parts of some groups as the spans to judge: the group-by's fields, GROUP, LO and HI.

    A group has a row for each span. Neither spans of a group overlap nor what must be read for them. since: event time
    (µs) before which nothing is judged.
    """
    by = list(group_by.fields)
    lo, hi = group_by.judged(pl.col(LO), pl.col(HI))
    spans = spans.with_columns(lo.alias(LO), hi.alias(HI))
    before = pl.col(HI).cum_max().shift(1)
    begins = (pl.col(LO) - before > group_by.reach + group_by.waiting).fill_null(value=True)
    ordered = spans.sort(*by, LO).with_columns((begins.over(by) if by else begins).cum_sum().alias(_FROM))
    lo, hi = pl.col(LO).min(), pl.min_horizontal(pl.col(HI).max(), request.end - 1).alias(HI)
    whole = ordered.group_by(*by, _FROM).agg(lo, hi).drop(_FROM)
    whole = whole.filter(pl.col(HI) >= since).with_columns(pl.max_horizontal(LO, pl.lit(since)).alias(LO))
    if not by:
        return whole.with_columns(pl.lit("{}").alias(GROUP))
    groups = whole.select(by).unique()
    texts = group_texts(groups.to_arrow(compat_level=pl.CompatLevel.oldest()), stream, group_by)
    return whole.join(groups.with_columns(pl.Series(GROUP, texts, pl.String)), on=by)


def group_texts(rows: pa.Table, stream: Stream, group_by: GroupBy) -> list[str]:
    """The group of each row, as the lake's alerts have it. rows: the group-by's fields."""
    kinds = {name: stream.fields[name] for name in group_by.fields}
    columns = {name: jsonable(_values(rows.column(name), kind).combine_chunks(), kind) for name, kind in kinds.items()}
    texts: list[str] = described_groups(columns, rows.num_rows).to_pylist()
    return texts


def _values(column: pa.ChunkedArray, kind: FieldType) -> pa.ChunkedArray:
    values = column.cast(kind.arrow)
    return pc.add(values, 0.0) if kind.kind is Kind.DOUBLE else values  # -0.0 becomes 0.0: they are one value


def events_of(events: pl.LazyFrame, groups: pl.LazyFrame, stream: Stream, group_by: GroupBy) -> pl.LazyFrame:
    """The events a run must see of the touched groups: from the widest window before LO to HI, and what rules wait for
    after it; TARGET: from LO to HI.

    events: in the order of event time. groups: the group-by's fields, LO, HI, and what else each of its events is to be
    given.
    """
    event = microseconds_of(stream)
    until = (pl.col(HI) + group_by.waiting).alias(_UNTIL)
    spans = groups.with_columns((pl.col(LO) - group_by.reach).alias(_FROM), until)
    found = in_spans(events, event, spans, by=group_by.fields, begin=_FROM, end=_UNTIL)
    return found.with_columns(event.is_between(LO, HI).alias(TARGET)).drop(_FROM, _UNTIL, LO, HI)


def in_spans(
    rows: pl.LazyFrame, instant: pl.Expr, spans: pl.LazyFrame, *, by: Sequence[str], begin: str, end: str
) -> pl.LazyFrame:
    """The rows whose instant (µs) is in a span, with that span's columns.

    rows: in the order of `instant`. spans: `by`, begin and end (µs, both included); those of the same `by` do not
    overlap.
    """
    found = rows.with_columns(instant.alias(_AT)).join_asof(
        spans.sort(begin), left_on=_AT, right_on=begin, by=list(by) or None, check_sortedness=False
    )
    return found.filter(pl.col(_AT) <= pl.col(end)).drop(_AT)


def merged(spans: Iterable[tuple[int, int]], most: int = _MOST_SPANS) -> list[tuple[int, int]]:
    """Spans (both ends included) as disjoint ones in their order, at most so many: where there are more, the nearest
    ones become one."""
    whole: list[tuple[int, int]] = []
    for lo, hi in sorted(spans):
        if whole and lo <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(hi, whole[-1][1]))
        else:
            whole.append((lo, hi))
    gaps = sorted(range(1, len(whole)), key=lambda at: whole[at][0] - whole[at - 1][1], reverse=True)
    begins = [0, *sorted(gaps[: most - 1]), len(whole)]
    return [(whole[a][0], whole[b - 1][1]) for a, b in pairwise(begins) if a < b]


def within(instant: pl.Expr, spans: Iterable[tuple[int, int]]) -> pl.Expr:
    """Whether an instant (µs) is in one of the spans."""
    return pl.any_horizontal(pl.lit(value=False), *((instant >= lo) & (instant <= hi) for lo, hi in spans))
