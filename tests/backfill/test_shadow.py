"""Shadow rules beside the live rules that they are to replace, after a night."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.backtest.shadow import compared_shadows
from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.published_rules import PublishedRules
from nightjar.backfill.publish.results import finished_runs
from nightjar.backfill.staging import EVALUATED, Notes
from nightjar.contracts.run_manifest import read_manifest
from nightjar.lake.config import LakeConfig
from nightjar.lake.scanning import scan
from nightjar.lake.tables import VIOLATIONS
from nightjar.rules.model import Rule
from nightjar.rules.rulebook import NOT_YET
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.versions import RuleSet, RuleVersion
from tests.support.nights import FirstNight

HOUR = 3_600_000_000
DAY = date(2026, 1, 5)
REQUEST = RunRequest("night", DAY)


def version(rule_id: str, number: int = 1, effective: int = 0, **keys: Any) -> RuleVersion:
    """A rule of no interest but for its names; effective: hours since the day began."""
    rule = {"id": rule_id, "stream": "transactions", "group_by": [], "when": "TRUE", **keys}
    return RuleVersion(Rule.model_validate(rule), number, REQUEST.begin + effective * HOUR)


def violation(rule: RuleVersion, event: str, hour: int, measures: str = "{}", failed: str | None = None) -> Any:
    """A staged row."""
    at = from_microseconds(REQUEST.begin + hour * HOUR)
    return {
        "rule_id": rule.rule.id,
        "rule_version": rule.version,
        "event_id": event,
        "event_time": at,
        "group": "{}",
        "text": "",
        "measures": measures,
        "failed": failed,
    }


@pytest.fixture
def config(tmp_path: Path) -> BackfillConfig:
    """Of a lake that has nothing yet."""
    lake = LakeConfig(tmp_path, load_streams())
    return BackfillConfig(lake, "producer")


def compared(config: BackfillConfig, rules: list[RuleVersion], rows: list[Any]) -> list[dict[str, Any]]:
    """What the night reports."""
    folder = REQUEST.staged(config.lake) / EVALUATED
    folder.mkdir(parents=True)
    pl.DataFrame(rows, schema_overrides={"failed": pl.String}).write_parquet(folder / "0.parquet")
    ruleset = RuleSet(tuple(rules))
    every = PublishedRules(ruleset, ruleset, {})
    return compared_shadows(RunInputs(config, REQUEST, Notes(0, 0, {}, []), other_rules=every))


def test_alerts_are_gained_lost_and_changed_where_both_versions_applied(config: BackfillConfig) -> None:
    """Not before the later one began, nor on another day, nor by an older version, nor without a value."""
    live, shadow = version("live", 2), version("next", 1, 6, state="shadow", shadow_of="live")
    rows = [
        violation(live, "early", 5),
        violation(live, "both", 6, '{"n":1}'),
        violation(shadow, "both", 6, '{"n":1}'),
        violation(live, "other", 7, '{"n":1}'),
        violation(shadow, "other", 7, '{"n":2}'),
        violation(live, "lost", 8),
        violation(shadow, "gained", 9),
        violation(shadow, "gained too", 23),
        violation(shadow, "tomorrow", 24),
        violation(version("live", 1), "older", 9),
        violation(shadow, "without", 9, failed="n"),
    ]
    (found,) = compared(config, [version("live", 1), live, shadow], rows)
    assert found == {
        "rule_id": "next",
        "rule_version": 1,
        "live_rule_id": "live",
        "live_version": 2,
        "alerts": 4,
        "live_alerts": 3,
        "gained": 2,
        "lost": 1,
        "changed": 1,
        "gained_events": ["gained too", "gained"],
        "lost_events": ["lost"],
    }


@pytest.mark.parametrize(
    "rules",
    [
        [version("live"), version("next", state="active", shadow_of="live")],
        [version("live"), version("next", state="shadow")],
        [version("live"), version("next", state="shadow", shadow_of="liver")],
        [version("live", state="paused"), version("next", state="shadow", shadow_of="live")],
        [version("live", stream="logins"), version("next", state="shadow", shadow_of="live")],
        [version("live"), version("next", 1, 24, state="shadow", shadow_of="live")],
        [version("live"), version("next", 1, NOT_YET // HOUR, state="shadow", shadow_of="live")],
        [version("live"), version("next", state="shadow", shadow_of="live"), version("next", 2, state="retired")],
    ],
)
def test_what_has_nothing_to_be_compared_with_is_left_out(config: BackfillConfig, rules: list[RuleVersion]) -> None:
    """No shadow rule, no live rule, or none of both on that day."""
    assert compared(config, rules, [violation(rules[0], "e", 1)]) == []


@pytest.mark.slow
def test_a_night_compares_its_shadow_rule(first_night: FirstNight) -> None:
    """In what it counts, and in its manifest: as the violations have it that it published."""
    (found,) = first_night.counts["shadows"]
    violations = scan(first_night.night.config.lake.root, VIOLATIONS).collect()
    events = {
        rule_id: set(violations.filter(pl.col("rule_id") == rule_id, pl.col("event_date") == DAY)["event_id"])
        for rule_id in ("busy", "busier")
    }
    assert (found["rule_id"], found["live_rule_id"]) == ("busier", "busy")
    assert (found["alerts"], found["live_alerts"]) == (len(events["busier"]), len(events["busy"]))
    assert (found["gained"], found["lost"]) == (
        len(events["busier"] - events["busy"]),
        len(events["busy"] - events["busier"]),
    )
    assert found["lost"] > 0
    manifests = [read_manifest(row) for row in finished_runs(first_night.night.config).collect().to_dicts()]
    (first,) = [manifest for manifest in manifests if manifest is not None and manifest.run_id == "first"]
    assert first.counts["shadows"] == [found]
