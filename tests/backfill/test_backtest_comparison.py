"""Alerts of a draft beside those of live rules, and beside labels."""

from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from nightjar.backfill.backtest.comparison import (
    Overlap,
    Point,
    alerts_by_day,
    changed,
    curve,
    overlaps,
    quality,
    top_groups,
)
from nightjar.rules.thresholds import Threshold

DAYS = [date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 7)]


def alerts(*rows: tuple[str, int, str, int]) -> pl.LazyFrame:
    """Alerts of (event, day of January, group, value of the measure n)."""
    return pl.LazyFrame(
        {
            "event_id": [event for event, *_ in rows],
            "event_time": [datetime(2026, 1, day, 12, tzinfo=UTC) for _, day, *_ in rows],
            "group": [group for _, _, group, _ in rows],
            "measures": [f'{{"n":{n}}}' for *_, n in rows],
            "text": ["" for _ in rows],
        },
        schema_overrides={"event_id": pl.String, "group": pl.String, "measures": pl.String, "text": pl.String},
    )


MINE = alerts(("a", 5, "x", 1), ("b", 5, "x", 2), ("c", 7, "y", 3))


def test_days_without_alerts_are_counted() -> None:
    """As 0."""
    assert alerts_by_day(MINE, DAYS) == [2, 0, 1]
    assert top_groups(MINE) == (2, [("x", 2), ("y", 1)])


def test_gained_lost_and_changed() -> None:
    """An alert with other values is neither gained nor lost."""
    live = alerts(("b", 5, "x", 2), ("c", 7, "y", 9), ("d", 6, "z", 1))
    found = changed(MINE, live, 4, DAYS)
    assert (found.live_version, found.live_alerts, found.live_by_day) == (4, 3, [1, 1, 1])
    assert (found.both, found.gained, found.lost, found.changed) == (2, 1, 1, 1)
    assert [each.event_id for each in found.gained_examples] == ["a"]
    assert [each.event_id for each in found.lost_examples] == ["d"]


def test_overlaps_with_other_rules() -> None:
    """The closest first; those without a common event, too."""
    others = {"far": alerts(("z", 5, "x", 1)), "near": alerts(("a", 5, "x", 1), ("z", 5, "x", 1))}
    assert overlaps(MINE, others) == [Overlap("near", 2, 1), Overlap("far", 1, 0)]


def test_quality_against_labels() -> None:
    """Precision counts alerts, recall labelled events."""
    fraud = pl.LazyFrame({"event_id": ["a", "b", "q", "r"], "label": ["cloned", "stolen", "stolen", "stolen"]})
    found = quality(MINE, fraud)
    assert found.by_label == {"cloned": (1, 1), "stolen": (1, 3)}
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == 0.5
    assert quality(alerts(), fraud).precision is None
    assert quality(MINE, fraud.head(0)).recall is None


def test_curve_with_labels() -> None:
    """A strict threshold leaves out what equals it."""
    fraud = pl.LazyFrame({"event_id": ["c"], "label": ["cloned"]})
    at_least = curve(MINE, Threshold("n", ">=", Decimal(2), ""), "n", 1, fraud)
    assert at_least.points == [Point(3.0, 1, 1), Point(2.0, 2, 1), Point(1.0, 3, 1)]
    assert at_least.targets[1] == Point(3.0, 1, 1)
    above = curve(MINE, Threshold("n", ">", Decimal(2), ""), "n", 1, fraud)
    assert above.points == [Point(3.0, 0, 0), Point(2.0, 1, 1), Point(1.0, 2, 1)]
