"""S11: what is held is what some live rule can still need, also when rules have changed."""

import json

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine, engine
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
MINUTE = 60_000_000


def rule(over: str, state: str = "active") -> RuleSet:
    """One version of the rule, published alone."""
    written = {
        "id": "r",
        "stream": "transactions",
        "state": state,
        "group_by": ["customer_id"],
        "measures": {"n": {"count": "*", "over": over}},
        "when": "n > 1000000",
    }
    return RuleSet.of([parse_rule(written, STREAMS)], 0)


def payments(*minutes: int) -> pa.Table:
    """One payment a minute given."""
    times = pa.array([minute * MINUTE for minute in minutes]).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "transaction_id": pa.array([f"t{minute}" for minute in minutes], pa.string()),
            "event_time": times,
            "customer_id": pa.array(["ann"] * len(minutes), pa.string()),
            "terminal_id": pa.nulls(len(minutes), pa.string()),
            "amount": pa.nulls(len(minutes), pa.decimal128(12, 2)),
            "arrival_time": times,
        }
    )


def test_a_replaced_versions_window_is_evicted_once_it_applies_to_nothing() -> None:
    """No message causes it: the clock passes the new version's time by the allowed lateness (10 minutes)."""
    long = rule("60m")
    short = long.publish(parse_rule(rule("5m").versions[0].rule.model_dump(mode="json"), STREAMS), 20 * MINUTE)
    engine = Engine(STREAMS["transactions"], short)
    engine.advance(payments(*range(25)), 24 * MINUTE)
    assert engine.retained == {("customer_id",): 25}
    engine.advance(payments(29), 29 * MINUTE)
    assert engine.retained == {("customer_id",): 26}
    engine.advance(payments(), 30 * MINUTE)
    assert engine.retained == {("customer_id",): 11}, "from 15 on: 30 less 10 of lateness less 5 of window"


def test_a_retired_rule_holds_nothing() -> None:
    """Not even its grouping, once no event can be judged by an older version."""
    active = rule("60m")
    retired = active.publish(rule("60m", "retired").versions[0].rule, 20 * MINUTE)
    engine = Engine(STREAMS["transactions"], retired)
    engine.advance(payments(*range(25)), 24 * MINUTE)
    engine.advance(payments(), 40 * MINUTE)
    assert sum(engine.retained.values()) == 0


def test_a_wider_window_begins_with_what_was_needed_when_it_came() -> None:
    """From the horizon on, however much is still held: at 199 minutes, less 10 of lateness, less 1 of the window."""
    narrow = rule("1m")
    engine = Engine(STREAMS["transactions"], narrow)
    for minute in range(200):
        engine.advance(payments(minute), minute * MINUTE)
    assert engine.rows == 200
    engine.set_rules(narrow.publish(rule("1d").versions[0].rule, 200 * MINUTE))
    (found,) = engine.advance(payments(200), 200 * MINUTE).rule_results
    assert found.values["n"].values.tolist() == [200 - 188 + 1]


def test_ids_of_events_mean_the_same_after_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measure of event ids, and a group of one: rows are renumbered, the codes of ids are not."""
    monkeypatch.setattr(engine, "_EVICTION_FLOOR", 2)
    before = {"last": "transaction_id", "over": "3m", "excluding_current": True}
    count = {"count": "*", "over": "3m"}
    ids = {**rule("3m").versions[0].rule.model_dump(mode="json"), "measures": {"before": before}, "when": "TRUE"}
    groups = [("transaction_id",), ("customer_id", "transaction_id")]
    alone = [{**ids, "id": f"r{len(g)}", "group_by": list(g), "measures": {"n": count}} for g in groups]
    rules = RuleSet.of([parse_rule(each, STREAMS) for each in (ids, *alone)], 0)
    under_test = Engine(STREAMS["transactions"], rules)
    rows = []
    for minute in range(120):
        alerts = under_test.advance(payments(minute), minute * MINUTE).alerts
        rows.append(under_test.rows)
        reported = dict(
            zip(alerts["rule_id"].to_pylist(), map(json.loads, alerts["measures"].to_pylist()), strict=True)
        )
        assert reported == {"r": {"before": f"t{minute - 1}" if minute else None}, "r1": {"n": 1}, "r2": {"n": 1}}, (
            minute
        )
    assert max(rows) < 60, "rows have been evicted"
