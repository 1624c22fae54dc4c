"""Drafts beside live rules, which count and silence each other as they would once the drafts are published."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nightjar.backfill.backtest.backtest import Draft, to_evaluate
from nightjar.rules.drafts import ALLOWS, DRAFT, HOLDS
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleVersion
from tests.support.payments import NOON, STREAM, payment

LARGE = {"id": "large", "when": "amount >= 20", "score": 10, "tags": ["scored"]}
SUM = {
    "id": "sum",
    "measures": {"points": {"sum": "score", "over": "1h", "over_alerts": ["tag:scored"]}},
    "when": "points > 0",
}
ALLOW = {"id": "known", "when": "amount = 30", "allows": ["tag:scored"]}


def rule(written: dict[str, Any], **changed: Any) -> Rule:
    """A rule over the payments of a customer."""
    common = {"stream": STREAM.name, "group_by": ["customer_id"]}
    return parse_rule({**common, **written, **changed}, {STREAM.name: STREAM})


def found(live: list[Rule], *drafts: Rule) -> dict[str, list[dict[str, Any]]]:
    """By the id under which it is evaluated, the measures of a rule's violations at payments of 10, 20 and 30."""
    rows = [payment(f"t{n}", NOON + timedelta(minutes=n), amount=Decimal(10 * n)) for n in (1, 2, 3)]
    events = pa.Table.from_pylist([{name: row[name] for name in STREAM.fields} for row in rows], STREAM.schema)
    versions = [RuleVersion(each, 1, MIN_TIMESTAMP) for each in live]
    truth = Truth(STREAM, to_evaluate(versions, [Draft(each) for each in drafts]), events)
    shown: dict[str, list[dict[str, Any]]] = {}
    for row in truth.violations().sort_by("event_time").to_pylist():
        shown.setdefault(row["rule_id"], []).append(json.loads(row["measures"]))
    return shown


def points(rows: list[dict[str, Any]]) -> list[int]:
    """The points of each."""
    return [row["points"] for row in rows]


def test_live_rules_do_not_count_drafts() -> None:
    """A draft has the tag, too, and its alerts are more."""
    shown = found([rule(LARGE), rule(SUM)], rule(LARGE, when="amount >= 10"))
    assert points(shown["sum"]) == [10, 20]
    assert len(shown[DRAFT.format("large")]) == 3


def test_drafts_count_drafts_in_place_of_live_rules() -> None:
    """And live rules that no draft replaces; whether by a tag or by an id."""
    other = rule(LARGE, id="other", when="amount = 30", score=1)
    for named in (["tag:scored"], ["large", "other"]):
        measures = {"points": {"sum": "score", "over": "1h", "over_alerts": named}}
        shown = found([rule(LARGE), rule(SUM), other], rule(LARGE, score=100), rule(SUM, measures=measures))
        assert points(shown[DRAFT.format("sum")]) == [100, 201]
        assert points(shown["sum"]) == [10, 21]


def test_a_draft_that_counts_nobody_counts_nothing() -> None:
    """The draft of the rule that it names has the tag no more."""
    shown = found([rule(LARGE)], rule(LARGE, tags=[]), rule(SUM, when="points = 0"))
    assert points(shown[DRAFT.format("sum")]) == [0, 0, 0]


def test_live_allow_rules_silence_drafts() -> None:
    """By a tag, an id or all of them; one that a draft replaces does so no more."""
    for allows in (["tag:scored"], ["large"], ["*"]):
        shown = found([rule(LARGE), rule(ALLOW, allows=allows)], rule(LARGE))
        assert shown["large"] == shown[DRAFT.format("large")] == [{}, {"allowed_by": "known"}]
    shown = found([rule(LARGE), rule(ALLOW)], rule(LARGE), rule(ALLOW, when="amount = 20"))
    assert shown["large"] == [{}, {"allowed_by": "known"}]
    assert shown[DRAFT.format("large")] == [{"allowed_by": ALLOWS.format("known")}, {}]


def test_allow_rules_are_violated_where_they_hold() -> None:
    """The draft and the live version, so that they can be compared; the draft silences no live rule."""
    shown = found([rule(LARGE), rule(ALLOW)], rule(ALLOW, when="amount >= 20", allows=["*"]))
    assert len(shown[DRAFT.format("known")]) == 2
    assert len(shown[HOLDS.format("known")]) == 1
    assert shown["large"] == [{}, {"allowed_by": "known"}]
