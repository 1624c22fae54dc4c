"""Compare the alerts of a draft rule with those of the live rules and with labels.

Pure functions of lazy frames of violations (`nightjar.rules.truth.VIOLATION_SCHEMA`): counts are computed by streaming
queries, so that only results and a few examples are in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

import polars as pl

from nightjar.rules.masking import masked_text
from nightjar.rules.model import Rule
from nightjar.rules.thresholds import Threshold
from nightjar.rules.versions import RuleVersion

_TOP_GROUPS = 10
_EXAMPLES = 50
# A curve with more points than this is thinned: to points that are this share of the alerts apart.
_PLOTTED, _STEP = 200, 0.03
# A table with more thresholds than this has those of TARGETS only.
_LISTED = 40
# Alerts per day for which thresholds are searched.
TARGETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Example:
    """One alert. group: JSON; text: the rule's description, filled in."""

    event_id: str
    event_time: datetime
    group: str
    text: str


@dataclass(frozen=True)
class Change:
    """A rule's alerts beside those of its live version."""

    live_version: int
    live_alerts: int
    live_by_day: list[int]
    both: int
    """Alerts at the same events."""
    gained: int
    lost: int
    changed: int
    """Those of `both` whose measures differ."""
    gained_examples: list[Example]
    """Of alerts that only the draft has."""
    lost_examples: list[Example]
    """Of alerts that only the live version has."""


@dataclass(frozen=True)
class Overlap:
    """Another live rule. alerts: its own; both: events for which both rules alert, or the alerts that an allow rule
    silences."""

    rule_id: str
    alerts: int
    both: int


@dataclass(frozen=True)
class Quality:
    """Alerts compared with labels. labelled: events labelled as fraud; found: those with an alert.

    by_label: label to (found, labelled).
    """

    labelled: int
    found: int
    alerts: int
    by_label: dict[str, tuple[int, int]]

    @property
    def precision(self) -> float | None:
        """Share of the alerts whose event is fraud; None without alerts."""
        return self.found / self.alerts if self.alerts else None

    @property
    def recall(self) -> float | None:
        """Share of the fraud that has an alert; None without fraud."""
        return self.found / self.labelled if self.labelled else None


@dataclass(frozen=True)
class Point:
    """A threshold and its results. found: alerts whose event is labelled as fraud; None without labels."""

    threshold: float
    alerts: int
    found: int | None


@dataclass(frozen=True)
class Curve:
    """How many alerts each threshold leads to."""

    name: str
    operator: str
    current: float
    points: list[Point]
    """From the fewest alerts to the most: every value that occurs, or for many of them some that are close together."""
    targets: dict[int, Point | None]
    """By alerts a day, the point with as many alerts as possible that has no more than these; None where even the
    strictest has more."""

    @property
    def is_of_many(self) -> bool:
        """Whether it has too many thresholds for a table."""
        return len(self.points) > _LISTED


@dataclass(frozen=True)
class BacktestResult:
    """The results of one rule over some days; the alerts of an allow rule are the events at which it holds."""

    rule: Rule
    live: RuleVersion | None
    """The version that `change` compares it with."""
    days: list[date]
    alerts: int
    by_day: list[int]
    """Its alerts on each of `days`, by event time."""
    groups: int
    top_groups: list[tuple[str, int]]
    overlaps: list[Overlap]
    change: Change | None
    quality: Quality | None
    curve: Curve | None
    examples: list[Example]

    @property
    def rule_id(self) -> str:
        """The draft's id."""
        return self.rule.id

    @property
    def thresholds(self) -> list[Point]:
        """The rows of a table, from the fewest alerts to the most: every threshold that occurs if these are few,
        otherwise those of `targets`; and always the draft's own."""
        curve = self.curve
        if curve is None:
            return []
        own = Point(curve.current, self.alerts, None if self.quality is None else self.quality.found)
        points = [p for p in curve.targets.values() if p is not None] if curve.is_of_many else curve.points
        by_value = {point.threshold: point for point in [*points, own]}
        return sorted(by_value.values(), key=lambda point: (point.alerts, _strictness(curve, point)))


def _strictness(curve: Curve, point: Point) -> float:
    return -point.threshold if curve.operator.startswith(">") else point.threshold


def alerts_by_day(violations: pl.LazyFrame, days: Sequence[date]) -> list[int]:
    """How many there are on each of the days, by event time (UTC)."""
    counts = violations.group_by(pl.col("event_time").dt.date().alias("day")).len()
    found = dict(counts.collect(engine="streaming").iter_rows())
    return [found.get(day, 0) for day in days]


def top_groups(violations: pl.LazyFrame) -> tuple[int, list[tuple[str, int]]]:
    """How many groups have alerts, and those with the most, with their numbers of alerts."""
    counts = violations.group_by("group").len()
    number = counts.select(pl.len()).collect(engine="streaming").item()
    top = counts.sort("len", "group", descending=[True, False]).head(_TOP_GROUPS)
    return number, list(top.collect(engine="streaming").iter_rows())


def changed(
    mine: pl.LazyFrame,
    live: pl.LazyFrame,
    version: int,
    days: Sequence[date],
    hidden: Collection[str] = (),
) -> Change:
    """A rule's violations beside those of its live version. hidden: fields of a group that examples do not show."""
    both = mine.join(live, on="event_id", how="inner", suffix="_live")
    gained, lost = mine.join(live, on="event_id", how="anti"), live.join(mine, on="event_id", how="anti")
    return Change(
        live_version=version,
        live_alerts=_count(live),
        live_by_day=alerts_by_day(live, days),
        both=_count(both),
        gained=_count(gained),
        lost=_count(lost),
        changed=_count(both.filter(pl.col("measures") != pl.col("measures_live"))),
        gained_examples=examples(gained, hidden),
        lost_examples=examples(lost, hidden),
    )


def overlaps(mine: pl.LazyFrame, others: Mapping[str, pl.LazyFrame]) -> list[Overlap]:
    """Every other rule, those with the most common events first."""
    found = [
        Overlap(rule_id, _count(other), _count(mine.join(other, on="event_id", how="semi")))
        for rule_id, other in others.items()
    ]
    return sorted(found, key=lambda each: (-each.both, each.rule_id))


def quality(violations: pl.LazyFrame, fraud: pl.LazyFrame) -> Quality:
    """fraud: `event_id` (unique) and `label` of the events of the days that are labelled as fraud."""
    found = fraud.join(violations, on="event_id", how="semi")
    counts = fraud.group_by("label").len().join(found.group_by("label").len(), on="label", how="left", suffix="_found")
    rows = counts.sort("label").collect(engine="streaming")
    by_label = {label: (hits or 0, every) for label, every, hits in rows.iter_rows()}
    return Quality(
        labelled=sum(every for _, every in by_label.values()),
        found=sum(hits for hits, _ in by_label.values()),
        alerts=_count(violations),
        by_label=by_label,
    )


def curve(
    candidates: pl.LazyFrame, threshold: Threshold, measure: str, days: int, fraud: pl.LazyFrame | None = None
) -> Curve:
    """How the number of alerts depends on a threshold.

    candidates: violations of the rule with `threshold.without` as its condition; measure: the one among theirs that
    holds the compared value. Thresholds are values that occur, up to as many alerts as the largest of TARGETS asks for.
    """
    upward = threshold.is_lower_bound
    value = pl.col("measures").str.json_path_match(f"$.{measure}").cast(pl.Float64).alias("value")
    most = max(TARGETS) * days + 1
    values = candidates.select("event_id", value)
    strictest = values.top_k(most, by="value") if upward else values.bottom_k(most, by="value")
    if fraud is not None:
        strictest = strictest.join(fraud.select("event_id", pl.lit(1).alias("fraud")), on="event_id", how="left")
    hits = pl.col("fraud").count() if fraud is not None else pl.lit(None, pl.UInt32)
    by_value = strictest.group_by("value").agg(pl.len(), hits.alias("found"))
    rows = by_value.collect(engine="streaming").sort("value", descending=upward)
    points: list[Point] = []
    alerts, found = 0, 0
    for at, number, fraudulent in rows.iter_rows():
        before = (alerts, found)
        alerts, found = alerts + number, found + (fraudulent or 0)
        counted = before if threshold.is_strict else (alerts, found)
        points.append(Point(at, counted[0], counted[1] if fraud is not None else None))
    if rows.height and rows.get_column("len").sum() >= most and not threshold.is_strict:
        points.pop()  # more of this value may have been left out
    targets = {
        target: max((p for p in points if p.alerts <= target * days), key=lambda p: p.alerts, default=None)
        for target in TARGETS
    }
    return Curve(threshold.name, threshold.operator, float(threshold.value), _thinned(points), targets)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """As many points as a plot can show: of many those whose numbers of alerts are some percent apart."""
    if len(points) <= _PLOTTED:
        return list(points)
    kept: list[Point] = []
    for point in points:
        if not kept or point.alerts > kept[-1].alerts * (1 + _STEP):
            kept.append(point)
    return kept


def examples(violations: pl.LazyFrame, hidden: Collection[str] = ()) -> list[Example]:
    """The newest. hidden: fields of a group that are masked."""
    columns = ("event_id", "event_time", "group", "text")
    newest = violations.select(columns).top_k(_EXAMPLES, by=["event_time", "event_id"])
    rows = newest.collect(engine="streaming").sort("event_time", "event_id", descending=True)
    found = [Example(*row) for row in rows.iter_rows()]
    return [replace(each, group=str(masked_text(each.group, hidden))) for each in found]


def _count(rows: pl.LazyFrame) -> int:
    return int(rows.select(pl.len()).collect(engine="streaming").item())
