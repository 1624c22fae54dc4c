"""Violations held against their own words."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from nightjar.rules.violation_checks import RECHECKED, recheck

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = 3_600_000_000
STREAMS = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
                "id": "string",
                "at": "timestamp",
                "who": "string",
                "paid": "timestamp",
                "amount": "decimal(18,8)",
                "weight": "double",
                "n": "int64",
                "ok": "boolean",
                "word": "string",
            },
        }
    },
    "test",
)
STREAM: Stream = STREAMS["s"]
EVERY_KIND = {
    "group_by": ["who", "n"],
    "where": "weight >= 0",
    "measures": {
        "total": {"sum": "amount", "over": "1h"},
        "mean": {"avg": "weight", "over": "1h"},
        "spread": {"stddev": "weight", "over": "1h"},
        "events": {"count": "*", "over": "1h"},
        "since": {"max": "paid", "over": "1h"},
        "was": {"last": "ok", "over": "1h"},
        "said": {"first": "word", "over": "1h"},
    },
    "when": "(total > 0 AND mean < 1e300 AND events >= 1 AND since <= at AND was AND said LIKE '%') OR spread > 0",
}


def ruleset(*versions: dict[str, Any]) -> RuleSet:
    """Versions of one rule, each effective an hour after the one before, the first from the beginning."""
    made = RuleSet()
    for number, written in enumerate(versions):
        rule = parse_rule({"id": "r", "stream": "s", "group_by": ["who"], "when": "TRUE", **written}, STREAMS)
        effective = int(NOON.timestamp() * 1e6) + number * HOUR if number else 0
        made = made.publish(rule, effective)
    return made


def events(rows: int = 40) -> pa.Table:
    """Some events of every kind of value, and NULLs, an event each five minutes."""
    made = [
        {
            "id": f"e{i}",
            "at": NOON + timedelta(minutes=5 * i),
            "who": "ab"[i % 2],
            "n": i % 3,
            "paid": NOON + timedelta(minutes=5 * i, microseconds=-i),
            "ok": i % 4 > 0,
            "amount": None if i % 5 == 0 else Decimal(f"{i}.0000000{i % 10}"),
            "weight": None if i % 11 == 10 else i / 7,
            "word": ["x", 'quote " \\', "ü", None][i % 4],
        }
        for i in range(rows)
    ]
    return pa.Table.from_pylist(made, STREAM.schema)


def violations_of(rules: RuleSet, table: pa.Table) -> pa.Table:
    """What the engine concludes, made longer by nobody."""
    found = Truth(STREAM, rules, table).violations()
    assert found.num_rows > 3
    return found


def changed(table: pa.Table, **columns: Any) -> pa.Table:
    """One row, the first, with other values."""
    row = {**table.slice(0, 1).to_pylist()[0], **columns}
    return pa.Table.from_pylist([row], table.schema)


def answer(violations: pa.Table, rules: RuleSet, about: pa.Table) -> dict[str, Any]:
    """Of the only violation."""
    (row,) = recheck(violations, about, STREAM, rules).to_pylist()
    return row


def test_what_the_engine_concludes_holds_on_its_own_words() -> None:
    """Every kind of measure, NULL among them, means after JSON what it meant before."""
    rules, table = ruleset(EVERY_KIND), events()
    violations = violations_of(rules, table)
    found = recheck(violations, table, STREAM, rules)
    assert found.schema == RECHECKED
    assert found.column("expected_id").to_pylist() == violations.column("alert_id").to_pylist()
    for name in RECHECKED.names[1:]:
        assert found.column(name).to_pylist() == [True] * violations.num_rows, name


def test_nothing_is_asked_of_nothing() -> None:
    """No violations, no answers."""
    rules, table = ruleset({}), events()
    assert recheck(violations_of(rules, table).slice(0, 0), table, STREAM, rules).num_rows == 0
    assert answer(violations_of(rules, table).slice(0, 1), rules, table.slice(0, 0))["event_exists"] is False


def test_an_id_that_the_hash_does_not_give() -> None:
    """The id is of the rule, the version and the event, whatever the row holds."""
    rules, table = ruleset({}), events()
    violation = violations_of(rules, table).slice(0, 1)
    expected = answer(changed(violation, alert_id="0" * 32), rules, table)["expected_id"]
    assert expected == violation.column("alert_id")[0].as_py()


@pytest.mark.parametrize(
    ("column", "value", "false"),
    [
        ("event_id", "nobody", {"event_exists", "group_true", "condition_true"}),
        ("event_time", NOON + timedelta(microseconds=1), {"event_exists"}),
        ("group", '{"who":"b"}', {"group_true"}),
        ("group", "{", {"group_true"}),
        ("rule_version", 2, {"group_true", "version_effective", "condition_true"}),
        ("rule_id", "unheard-of", {"group_true", "version_effective", "condition_true"}),
        ("measures", '{"k":0}', {"condition_true"}),
        ("measures", '{"k":"1"}', {"condition_true"}),
        ("measures", '{"k":1.0}', {"condition_true"}),
        ("measures", '{"k":null}', {"condition_true"}),
        ("measures", '{"k":1,"m":2}', {"condition_true"}),
        ("measures", "{}", {"condition_true"}),
        ("measures", "[1]", {"condition_true"}),
        ("measures", "nonsense", {"condition_true"}),
    ],
)
def test_each_doubt_is_a_false_of_its_own(column: str, value: Any, false: set[str]) -> None:
    """A violation that was made up, or spoiled, is found out by what is wrong with it."""
    rules, table = ruleset({"measures": {"k": {"count": "*", "over": "1h"}}, "when": "k >= 1"}), events()
    violation = changed(violations_of(rules, table), **{column: value})
    found = answer(violation, rules, table)
    assert {name for name in RECHECKED.names[1:] if not found[name]} == false


def test_the_version_is_that_of_the_events_time() -> None:
    """The same conclusion under an earlier version, or under one that looks for nothing, is none."""
    rules, table = ruleset({}, {}, {"state": "paused"}), events()
    violations = violations_of(rules, table)
    versions = violations.column("rule_version").to_pylist()
    assert set(versions) == {1, 2}
    first = violations.set_column(
        violations.schema.get_field_index("rule_version"), "rule_version", [[1] * len(versions)]
    )
    assert recheck(first, table, STREAM, rules).column("version_effective").to_pylist() == [v == 1 for v in versions]
    third = changed(violations, rule_version=3)
    assert answer(third, rules, table)["version_effective"] is False


def test_a_decimal_is_read_to_its_last_digit() -> None:
    """Where a double would round the measure over the threshold, the recheck does not."""
    rules = ruleset({"measures": {"total": {"sum": "amount", "over": "1h"}}, "when": "total > 9007199254.74099200"})
    table = events(1)
    violation = {
        "alert_id": "",
        "rule_id": "r",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "s",
        "group": '{"who":"a"}',
        "event_id": "e0",
        "event_time": NOON,
        "severity": "low",
        "text": "",
    }
    schema = Truth(STREAM, rules, table).violations().schema
    for total, holds in (
        ("9007199254.74099201", True),
        ("9007199254.74099200", False),
        ("9007199254.740992001", False),
    ):
        row = pa.Table.from_pylist([{**violation, "measures": json.dumps({"total": total})}], schema)
        assert answer(row, rules, table)["condition_true"] is holds, total


def test_the_event_has_to_be_seen_by_the_rule() -> None:
    """`where` is a condition too."""
    rules, table = ruleset({"where": "n > 0"}), events()
    violation = changed(violations_of(rules, table), event_id="e0", event_time=NOON, group='{"who":"a"}')
    found = answer(violation, rules, table)
    assert (found["event_exists"], found["group_true"], found["condition_true"]) == (True, True, False)
