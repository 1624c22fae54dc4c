"""What backtest and check say of a lake that lacks live rules, or the newest days."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.lake.tables import ARCHIVES
from nightjar.operations.lake_gaps import gaps
from nightjar.rules.model import parse_rule
from tests.support.command import run
from tests.support.lakes import STREAM, add, at, config_of, publish

STREAMS = {STREAM.name: STREAM}
LIVE: dict[str, Any] = {"id": "large", "stream": "transactions", "group_by": [], "when": "amount >= 18"}
SHADOW = LIVE | {"id": "larger", "state": "shadow", "shadow_of": "large"}


@pytest.fixture
def config(tmp_path: Path) -> BackfillConfig:
    """A lake that has been archived until noon of the 5th, before any rule was published."""
    made = config_of(tmp_path / "lake")
    add(made, ARCHIVES, [{"finished_at": at(5), "until": at(5), "rows": "{}"}])
    return made


def found(config: BackfillConfig, rule: dict[str, Any], last: date | None = None) -> list[str]:
    """What the lake lacks for a draft."""
    return gaps(config.lake.root, STREAMS, [parse_rule(rule, STREAMS)], last)


def test_a_lake_without_rules_says_so(config: BackfillConfig) -> None:
    """Nothing can be compared."""
    (text,) = found(config, SHADOW)
    assert text.startswith("the lake has no published rules yet, so nothing is compared with live rules")
    assert "`nightjar archive`" in text


def test_a_live_rule_that_is_missing_is_named(config: BackfillConfig) -> None:
    """Of a shadow rule the one beside which it runs; of another one its own id, which may be new."""
    publish(config, LIVE | {"id": "other"})
    assert "larger is not compared with large, of which the lake has no live version" in found(config, SHADOW)[0]
    (text,) = found(config, LIVE, date(2026, 1, 4))
    assert text == "large is compared with no live version: it is new, or was published since the last archive"
    assert found(config, LIVE | {"id": "other"}, date(2026, 1, 4)) == []
    assert found(config, LIVE) == [], "a draft that is checked is new as a rule"


def test_a_day_that_is_not_whole_is_named(config: BackfillConfig) -> None:
    """With how far the archive has come; an earlier day is whole."""
    publish(config, LIVE)
    assert found(config, LIVE, date(2026, 1, 4)) == []
    (text,) = found(config, LIVE, date(2026, 1, 5))
    assert text.startswith("the lake has what arrived until 2026-01-05 12:00 UTC, so that 2026-01-05 is not whole")


@pytest.mark.slow
def test_check_says_what_is_not_compared(config: BackfillConfig, tmp_path: Path) -> None:
    """Below what it has tried on the newest events."""
    (tmp_path / "draft.yaml").write_text("id: large\nstream: transactions\ngroup_by: []\nwhen: amount >= 18\n")
    given = {"NIGHTJAR_LAKE_DIR": str(config.lake.root)}
    shown = run("rules", "check", "draft.yaml", folder=tmp_path, environment=given).stdout
    assert "    the lake has no published rules yet" in shown
