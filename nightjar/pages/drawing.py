"""The figures of the pages as shapes with coordinates, which the templates write as SVG.

Pure functions. Colours are classes of the style sheet, so that a figure follows the theme; every figure has its numbers
beside it as text or as a table, so that nobody depends on seeing it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import log10
from typing import Any

import polars as pl

from nightjar.backfill.explain.explanation import Explanation
from nightjar.rules.display import readable
from nightjar.rules.durations import format_duration
from nightjar.rules.errors import RuleError
from nightjar.rules.retention import reaches_of
from nightjar.rules.thresholds import thresholds_of
from nightjar.rules.timestamps import from_microseconds, microseconds

# All figures have this width, and are scaled to the page.
WIDTH = 1000.0
_MARGIN = 12.0
# Of more events the latest are drawn; those of one time above each other, up to so many.
MOST_DRAWN, MOST_LANES = 400, 20
# Windows of one rule that are drawn: the shortest.
MOST_AXES = 4
# Steps of time axes, of which one has at most so many ticks.
_STEPS = [
    timedelta(**{unit: count})
    for unit, counts in (
        ("milliseconds", (1, 10, 100)),
        ("seconds", (1, 5, 15, 30)),
        ("minutes", (1, 5, 15, 30)),
        ("hours", (1, 3, 6, 12)),
        ("days", (1, 2, 7, 14, 30, 90, 365)),
    )
    for count in counts
]
_MOST_TICKS = 7


@dataclass(frozen=True)
class Tick:
    """A place on a time axis."""

    x: float
    at: datetime


@dataclass(frozen=True)
class Mark:
    """An event on the axis.

    kind: "current", "late" (by its stream's `allowed_lateness`), "disordered" (arrived after a later one) or "event";
    lane: 0 at the bottom, more for events that would cover each other.
    """

    x: float
    lane: int
    kind: str
    at: datetime


@dataclass(frozen=True)
class Gauge:
    """A measure beside what `when` compares it with. share: of the figure's width that its bar takes; limit: where the
    threshold is; both None where there is nothing to compare or draw."""

    name: str
    value: str
    operator: str
    threshold: str
    share: float | None
    limit: float | None


@dataclass(frozen=True)
class Window:
    """The events of the last `length` up to an alert's on a time axis. measures: those that depend on so many."""

    length: str
    measures: list[str]
    ticks: list[Tick]
    marks: list[Mark]
    lanes: int


@dataclass(frozen=True)
class Bar:
    """Alerts of an hour or a day."""

    x: float
    width: float
    height: float
    label: str
    count: int


def windows_of(found: Explanation) -> list[Window]:
    """The events of an explanation on a time axis for each length that its measures depend on, the shortest first."""
    rows, stream, rule = found.found.window, found.stream, found.found.shown.rule
    if not rows.height:
        return []
    times, kinds = [microseconds(at) for at in rows.get_column(stream.event_time)], kinds_of(found)
    lengths: dict[int, list[str]] = {}
    for name, reach in reaches_of(rule).items():
        lengths.setdefault(reach, []).append(name)
    if not lengths:  # the event alone decides
        lengths[0] = []
    return [_window(times, kinds, length, lengths[length]) for length in sorted(lengths)[:MOST_AXES]]


def kinds_of(found: Explanation) -> list[str]:
    """What each event of an explanation's window is: see Mark."""
    rows, stream = found.found.window, found.stream
    if not rows.height:
        return []
    times, arrivals = (
        [microseconds(at) for at in rows.get_column(name)] for name in (stream.event_time, "arrival_time")
    )
    kinds = []
    latest = arrivals[0]
    for at, arrival in zip(times, arrivals, strict=True):
        late = arrival - at > stream.allowed_lateness
        kinds.append("late" if late else "disordered" if arrival < latest else "event")
        latest = max(latest, arrival)
    kinds[-1] = "current"
    return kinds


def _window(times: Sequence[int], kinds: Sequence[str], length: int, measures: list[str]) -> Window:
    end = times[-1]
    axis = Axis(end - length, end)
    first = max(bisect_left(times, end - length), len(times) - MOST_DRAWN)
    marks: list[Mark] = []
    taken: list[float] = []  # where the last mark of each lane is
    for row in range(first, len(times)):
        x = axis.x(times[row])
        lane = next((at for at, last in enumerate(taken) if x - last >= _MARGIN), len(taken))
        taken[lane : lane + 1] = [x]
        marks.append(Mark(x, min(lane, MOST_LANES - 1), kinds[row], from_microseconds(times[row])))
    return Window(format_duration(length), measures, axis.ticks(), marks, min(len(taken), MOST_LANES))


def gauges_of(found: Explanation) -> list[Gauge]:
    """Each measure at the event, beside the number that `when` compares it with."""
    measures = found.found.measures
    if measures is None:
        return []
    rule = found.found.shown.rule
    try:
        compared = {each.name: each for each in thresholds_of(rule, found.stream)}
    except RuleError:  # a rule of an earlier release, or a stream that is declared otherwise now
        compared = {}
    gauges = []
    for name, value in measures.items():
        threshold = compared.get(name)
        number = _number(value)
        if threshold is None or number is None:
            gauges.append(Gauge(name, readable(value), "", "", None, None))
            continue
        most = max(abs(number), abs(threshold.value)) or Decimal(1)
        scaled = Decimal("0.85") / most
        share, limit = float(abs(number) * scaled), float(abs(threshold.value) * scaled)
        gauges.append(Gauge(name, readable(value), threshold.operator, str(threshold.value), share, limit))
    return gauges


def _number(value: Any) -> Decimal | None:
    """A measure as a number; decimals are text in records."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def by_time(alerts: pl.DataFrame, first: date, last: date, height: float) -> tuple[str, list[Bar]]:
    """How many alerts there are in each hour of the days, or on each day if they are more than three; and the word for
    it. alerts: with event_time."""
    hourly = (last - first).days < 3
    step = timedelta(hours=1) if hourly else timedelta(days=1)
    begin = datetime(first.year, first.month, first.day, tzinfo=UTC)
    places = int((datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1) - begin) / step)
    at = (pl.col("event_time") - begin).dt.total_microseconds() // int(step / timedelta(microseconds=1))
    counts = dict(alerts.select(at=at).group_by("at").len().iter_rows())
    most = max(counts.values(), default=1)
    width = WIDTH / places
    label = "%Y-%m-%d %H:00 UTC" if hourly else "%Y-%m-%d"
    return "hour" if hourly else "day", [
        Bar(
            width * place + width * 0.1,
            width * 0.8,
            max(2.0, height * count / most) if (count := counts.get(place, 0)) else 0.0,
            f"{begin + place * step:{label}}",
            count,
        )
        for place in range(places)
    ]


def sparkline(counts: Sequence[tuple[date, int]], until: date, days: int) -> str:
    """The counts of so many days as the points of a line in a box of 100 x 20."""
    by_day: Mapping[date, int] = dict(counts)
    values = [by_day.get(until - timedelta(days=back), 0) for back in range(days - 1, -1, -1)]
    most = max(values) or 1
    step = 100 / max(1, days - 1)
    return " ".join(f"{at * step:.1f},{19 - 18 * value / most:.1f}" for at, value in enumerate(values))


class Axis:
    """Event times (µs) on the width of a figure. begin, end: its ends."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end

    def x(self, at: int) -> float:
        """Where a time is."""
        inner = WIDTH - 2 * _MARGIN
        if self._end == self._begin:
            return WIDTH / 2
        return _MARGIN + inner * (at - self._begin) / (self._end - self._begin)

    def ticks(self) -> list[Tick]:
        """Some round times."""
        length = timedelta(microseconds=self._end - self._begin)
        step = next((step for step in _STEPS if length / step < _MOST_TICKS), _STEPS[-1])
        width = step // timedelta(microseconds=1)
        first = -(-self._begin // width) * width
        return [Tick(self.x(at), from_microseconds(at)) for at in range(first, self._end + 1, width)]


@dataclass(frozen=True)
class ThresholdFigure:
    """Alerts a day by threshold. points: x, y and what is said of each; current: x of the rule's own threshold.

    line: the points as a polyline has them; ticks: x and a threshold; most: the alerts a day on top; is_scaled: whether
    the axis of alerts is logarithmic.
    """

    points: list[tuple[float, float, str]]
    line: str
    current: float
    ticks: list[tuple[float, str]]
    most: str
    is_scaled: bool


# The height of a figure of thresholds, and the ratio of the most to the fewest from which an axis is logarithmic.
THRESHOLDS_HIGH, _DECADES = 220.0, 100.0
# Ticks that are nearer to each other would overlap.
_APART = 120.0


def threshold_figure(curve: Mapping[str, Any] | None, days: int) -> ThresholdFigure | None:
    """The curve of a backtest, as its JSON has it; None where there is nothing to draw. days: of the backtest."""
    if curve is None or not (points := [point for point in curve["points"] if point["alerts"]]):
        return None
    current = float(curve["current"])
    across = _Scale([*(float(point["threshold"]) for point in points), current], WIDTH, margin=3 * _MARGIN)
    upward = _Scale([point["alerts"] / days for point in points], THRESHOLDS_HIGH, margin=_MARGIN, from_zero=True)
    places = []
    for point in sorted(points, key=lambda each: each["threshold"]):
        found = "" if point["found"] is None else f", {point['found']:,} of them labelled as fraud"
        said = f"{curve['name']} {curve['operator']} {point['threshold']:,.6g}: {point['alerts']:,} alerts{found}"
        y = THRESHOLDS_HIGH - upward.at(point["alerts"] / days)
        places.append((round(across.at(point["threshold"]), 1), round(y, 1), said))
    own = round(across.at(current), 1)
    ends = [(round(across.at(value), 1), f"{value:,.6g}") for value in (across.least, across.most)]
    ticks = [(own, f"{current:,.6g}"), *(end for end in ends if abs(end[0] - own) > _APART)]
    line = " ".join(f"{x},{y}" for x, y, _ in places)
    return ThresholdFigure(places, line, own, ticks, f"{upward.most:,.4g}", upward.is_log)


class _Scale:
    """Numbers on a length: linear, or logarithmic where they span several orders of magnitude."""

    def __init__(self, values: Sequence[float], length: float, *, margin: float, from_zero: bool = False) -> None:
        self.least, self.most = min(values), max(values)
        self.is_log = self.least > 0 and self.most / self.least >= _DECADES
        self._begin = 0.0 if from_zero and not self.is_log else self.least
        self._length, self._margin = length, margin

    def at(self, value: float) -> float:
        """The place of a number."""
        low, high, number = self._begin, self.most, float(value)
        if self.is_log:
            low, high, number = log10(low), log10(high), log10(number)
        inner = self._length - 2 * self._margin
        return self._margin + (inner * (number - low) / (high - low) if high > low else inner / 2)
