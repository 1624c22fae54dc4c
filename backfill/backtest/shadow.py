"""What shadow rules would have announced on a day, beside the live rules that they are to replace.

How it works: both are evaluated by the run anyway, so the violations that it has staged are compared, by the functions
that compare the drafts of a backtest. Only events count at which the newest versions of both rules applied.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from nightjar.backfill.backtest.comparison import changed
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.staging import EVALUATED
from nightjar.lake.scanning import parquet
from nightjar.rules.model import State
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.versions import RuleSet, RuleVersion


def compared_shadows(run: RunInputs) -> list[dict[str, Any]]:
    """One object for each shadow rule that names a live rule (`shadow_of`), by rule, as the manifest has it.

    Rules are left out that the run is not about, and those whose newest version does not apply to the run's days.
    """
    found, request = [], run.request
    for shadow, live in pairs(run.rules.asked_for):
        since = max(shadow.effective, live.effective, request.begin)
        if since >= request.end:
            continue
        at = pl.col("event_time")
        violations = parquet(run.folder / EVALUATED / "*.parquet").filter(
            pl.col("failed").is_null(), at >= from_microseconds(since), at < from_microseconds(request.end)
        )
        days = [request.day + timedelta(days=number) for number in range(request.days)]
        change = changed(_of(violations, shadow), _of(violations, live), live.version, days)
        found.append(
            {
                "rule_id": shadow.rule.id,
                "rule_version": shadow.version,
                "live_rule_id": live.rule.id,
                "live_version": live.version,
                "alerts": change.both + change.gained,
                "live_alerts": change.live_alerts,
                "gained": change.gained,
                "lost": change.lost,
                "changed": change.changed,
                "gained_events": [example.event_id for example in change.gained_examples],
                "lost_events": [example.event_id for example in change.lost_examples],
            }
        )
    return found


def pairs(ruleset: RuleSet) -> list[tuple[RuleVersion, RuleVersion]]:
    """The newest versions of each shadow rule and of the live rule that it names, by the shadow rule's id."""
    newest = {version.rule.id: version for version in ruleset.versions}
    found = []
    for rule_id, shadow in sorted(newest.items()):
        live = newest.get(shadow.rule.shadow_of or "")
        if (
            shadow.rule.state is State.SHADOW
            and live is not None
            and live.rule.state.is_evaluated
            and live.rule.stream == shadow.rule.stream
            and live.rule.id != rule_id
        ):
            found.append((shadow, live))
    return found


def _of(violations: pl.LazyFrame, version: RuleVersion) -> pl.LazyFrame:
    return violations.filter(pl.col("rule_id") == version.rule.id, pl.col("rule_version") == version.version)
