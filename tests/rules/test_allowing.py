"""Allow rules: what they may name, what their versions mean to others, and how much they silence (S24).

What they find is held by the random histories and runs, and by case files.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from nightjar.contracts.restrictions import LIFTED, restriction_records
from nightjar.files.evaluate import evaluate
from nightjar.rules.actions import Action
from nightjar.rules.allowing import allowed_by
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule, rule_to_mapping, rules_of
from nightjar.rules.retention import kept_for, widest
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet, naming
from nightjar.rules.violation_checks import recheck
from nightjar.terminal.alert_lines import Alert, alert_line
from tests.support.alert_records import alert
from tests.support.payments import NOON, STREAM, payment

STREAMS = load_streams()
HOUR, DAY = MICROSECONDS["h"], MICROSECONDS["d"]
LARGE: dict[str, Any] = {
    "id": "large",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 500",
    "tags": ["amounts"],
}
TRUST: dict[str, Any] = {
    "id": "trust",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"paid": {"count": "*", "over": "7d"}},
    "when": "paid >= 2",
    "allows": ["large"],
}


def published(*rules: dict[str, Any]) -> RuleSet:
    """The rules, one after the other."""
    made = RuleSet()
    for written in rules:
        made = made.publish(parse_rule(written, STREAMS), 0)
    return made


def test_its_written_form_is_read_again() -> None:
    """What it names, in any of the three forms."""
    for names in (["large"], ["tag:amounts", "large"], ["*"]):
        rule = parse_rule(TRUST | {"allows": names}, STREAMS)
        assert rule_to_mapping(rule)["allows"] == names
        assert parse_rule(rule_to_mapping(rule), STREAMS) == rule
    assert parse_rule(TRUST | {"allows": ["*"]}, STREAMS) != parse_rule(TRUST, STREAMS)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"allows": "large"}, "allows: is 'large'. List rules and tags, as in [card-velocity, tag:geo], or"),
        ({"allows": ["Large one"]}, "allows.0: is 'Large one'. List rules and tags"),
        ({"allows": ["large", "large"]}, "allows: names a rule or tag twice"),
        ({"severity": "high"}, "severity: is of rules that have alerts, and one with allows has none"),
        ({"score": 40}, "score: is of rules that have alerts"),
        ({"mute": "1h"}, "mute: is of rules that have alerts"),
        ({"reset_after_alert": True}, "reset_after_alert: is of rules that have alerts"),
        ({"unless": {"within": "1h", "where": "amount > 1"}}, "unless: is of rules that have alerts"),
        ({"action": {"restrict": "block", "for": "1h"}}, "action: is of rules that have alerts"),
        (
            {"measures": {"paid": {"count": "*", "over": "7d", "resolution": "1h"}}},
            "measures.paid.resolution: does not go with allows",
        ),
        (
            {"measures": {"paid": {"count": "*", "over": "7d", "over_alerts": ["large"]}}},
            "measures.paid.over_alerts: does not go with allows",
        ),
    ],
)
def test_a_mistake_is_refused_with_a_remedy(change: dict[str, Any], problem: str) -> None:
    """Whatever is wrong with the rule itself."""
    with pytest.raises(RuleError) as refused:
        parse_rule(TRUST | change, STREAMS)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"group_by": ["terminal_id"]}, "which groups by [terminal_id], unlike rule trust"),
        ({"stream": "logins", "when": "status = 'FAIL'", "tags": []}, "which is on stream logins, unlike rule trust"),
        ({"allows": ["*"], "tags": []}, "which is an allow rule, and has no alerts"),
    ],
)
def test_a_file_refuses_what_cannot_be_silenced(change: dict[str, Any], problem: str) -> None:
    """Where both are in it."""
    with pytest.raises(RuleError) as refused:
        rules_of([TRUST, {key: value for key, value in (LARGE | change).items() if value != []}], STREAMS, where="it")
    assert problem in str(refused.value)


def test_only_alerts_have_its_name() -> None:
    """A measure of that name could not be told from it."""
    with pytest.raises(RuleError, match="allowed_by: is the name under which alerts have the allow rule"):
        parse_rule(LARGE | {"measures": {"allowed_by": {"count": "*", "over": "1h"}}}, STREAMS)


def test_those_that_it_can_silence_carry_its_versions_along() -> None:
    """So a night that is asked for one rule knows what silences it, and retains what that looks at."""
    others = [LARGE | {"id": "other", "group_by": ["terminal_id"]}, LARGE | {"id": "untagged", "tags": []}]
    made = published(LARGE, *others, TRUST | {"allows": ["tag:amounts"]})
    large, elsewhere, untagged, trust = made.versions
    assert [version.key for version in large.named] == [("trust", 1)]
    assert (elsewhere.named, untagged.named, trust.named) == ((), (), ())
    assert (widest(large), kept_for(large), widest(untagged)) == (7 * DAY, 7 * DAY, 0)
    assert RuleSet(made.of_rule("large")).versions == (large,)
    assert [version.key for version in naming(trust, made)] == [("large", 1)]


def test_evaluate_counts_what_is_silenced() -> None:
    """Each alert once, by the first allow rule that holds; what is on trial silences only what is, too."""
    rules = [
        LARGE | {"when": "amount >= 0"},
        LARGE | {"id": "tried", "when": "amount >= 0", "state": "shadow"},
        TRUST | {"allows": ["*"]},
        TRUST | {"id": "also", "when": "paid >= 3", "allows": ["large"]},
        TRUST | {"id": "trial", "state": "shadow", "when": "paid >= 0", "allows": ["*"]},
    ]
    parsed = [parse_rule(rule, STREAMS) for rule in rules]
    rows = [payment(name, NOON + timedelta(minutes=at)) for at, name in enumerate("abc")]
    events = pa.Table.from_pylist([{name: row[name] for name in STREAM.fields} for row in rows], STREAM.schema)
    truth = evaluate(STREAM, parsed, events)
    violations = truth.violations()
    assert [
        (row["rule_id"], row["event_id"], allowed_by(row["measures"]), row["muted"]) for row in violations.to_pylist()
    ] == [
        ("large", "a", None, False),
        ("large", "b", "trust", True),
        ("large", "c", "also", True),
        *(("tried", name, "trial", True) for name in "abc"),
    ]
    assert truth.silenced == {"trust": 1, "also": 1, "trial": 3}
    assert [verdict.version.rule.id for verdict in truth.verdicts] == ["large", "tried"]
    ruleset = RuleSet.of(parsed, 0)
    assert all(all(row.values()) for row in recheck(violations, events, STREAM, ruleset).to_pylist())
    # on trial, of another group, or unknown
    for wrong in ("trial", "large", "nobody"):
        column = pa.array([json.dumps({"allowed_by": wrong})] * 3, pa.string())
        place = violations.column_names.index("measures")
        checked = recheck(violations.slice(0, 3).set_column(place, "measures", column), events, STREAM, ruleset)
        assert checked.column("condition_true").to_pylist() == [False] * 3


def test_a_restriction_of_a_silenced_alert_is_a_lift() -> None:
    """So that what was announced before is lifted; and a tail says who silences it."""
    record = alert("t1", measures={"allowed_by": "trust"}, muted=True)
    action = Action.model_validate({"restrict": "block", "for": "1h"})
    ((_, lift),) = restriction_records([record], {(record["rule_id"], record["rule_version"]): action})
    assert lift["kind"] == LIFTED
    assert "allowed by trust  " in str(alert_line(Alert(record, None)))
