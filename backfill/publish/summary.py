"""What became of a day, for people: a run's result in a few numbers, and its differences rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from nightjar.backfill.staging import OUTCOMES
from nightjar.lake.scanning import parquet
from nightjar.rules.errors import printable
from nightjar.storage.paths import AnyPath

_RULES = 20  # rules, those with the most differences
_ALERTS = 10  # alerts that differ


def summary(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a run's counts so far.

    alerts: of the stream in the run's scope; matched: those that the night confirms; corrections: by cause, the alerts
    to correct; published: corrections; held_back: corrections without a known cause, which are not published.
    """
    outcomes = counts.get("outcomes", {})
    found = {
        "alerts": counts.get("stream_alerts"),
        "matched": outcomes.get("matched", 0),
        "corrections": dict(counts.get("causes", {})),
        "published": counts.get("published", 0),
        "held_back": counts.get("held_back", 0),
    }
    return found if "stream_alerts" in counts else {}


def differences(folder: AnyPath) -> dict[str, Any]:
    """Of the outcomes in a staged folder: `by_rule`, rule to its alerts by outcome and cause; `alerts`, a line for some
    that differ."""
    rows = parquet(folder / OUTCOMES / "*.parquet").filter(pl.col("cause").is_not_null())
    kinds = rows.group_by("rule_id", "outcome", "cause").len().collect(engine="streaming").sort(pl.all())
    totals = kinds.group_by("rule_id").agg(pl.col("len").sum()).sort("len", "rule_id", descending=[True, False])
    by_rule: dict[str, dict[str, int]] = {rule: {} for rule in totals.get_column("rule_id").head(_RULES)}
    for rule, outcome, cause, number in kinds.iter_rows():
        if rule in by_rule:
            by_rule[rule][f"{outcome} ({cause})"] = number
    some = rows.select("alert_id", "rule_id", "rule_version", "outcome", "cause", "event_time")
    shown = some.sort("event_time", "alert_id").head(_ALERTS).drop("event_time").collect(engine="streaming")
    alerts = [
        f"{printable(alert)} of {printable(rule)} version {version}: {outcome}, {cause}"
        for alert, rule, version, outcome, cause in shown.iter_rows()
    ]
    return {"by_rule": {printable(rule): found for rule, found in by_rule.items()}, "alerts": alerts}
