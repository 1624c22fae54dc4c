"""Conditions that never hold: every report is true, and the ones that people write are found."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.doubts import doubts, misspelt
from nightjar.rules.model import parse_rule
from nightjar.rules.predicates import compile_predicate, impossible_parts, truths
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import FieldType

STREAMS = load_streams()
MEASURES = {
    "n": {"count": "*", "over": "1h"},
    "others": {"count": "*", "over": "1h", "excluding_current": True},
    "spent": {"sum": "amount", "over": "1h"},
    "usual": {"avg": "amount", "over": "1h"},
}


def reasons(when: str, **keys: Any) -> list[str]:
    """What `doubts` reports of a rule on payments."""
    rule = {"id": "r", "stream": "transactions", "group_by": [], "measures": MEASURES, "when": when, **keys}
    parsed = parse_rule(rule, STREAMS)
    return [f"{found.place}: {found.message}" for found in doubts(parsed, STREAMS["transactions"])]


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (
            "HOUR(event_time) BETWEEN 22 AND 5",
            "HOUR(event_time) >= 22 and HOUR(event_time) <= 5 never hold at once",
        ),
        ("HOUR(event_time) > 23", "HOUR(event_time) > 23 never holds: HOUR(event_time) is between 0 and 23"),
        ("24 <= HOUR(event_time)", "HOUR(event_time) >= 24 never holds: HOUR(event_time) is between 0 and 23"),
        ("MONTH(event_time) = 0", "MONTH(event_time) = 0 never holds: MONTH(event_time) is between 1 and 12"),
        ("amount = 12.345", "amount = 12.345 never holds: amount has 2 digits after the point"),
        ("amount IN (0.001, 0.002)", "amount IN (…) never holds: amount is none of the listed values"),
        ("n = 2.5", "n = 2.5 never holds: n is a whole number"),
        ("n < 1", "n < 1 never holds: n is at least 1"),
        ("others < 0", "others < 0 never holds: others is at least 0"),
        ("n > 5 AND spent > 3 AND n < 6", "n > 5 and n < 6 never hold at once"),
        ("amount > 10 AND amount < 10.01", "amount > 10 and amount < 10.01 never hold at once"),
        ("usual > 10 AND usual < 10", "usual > 10 and usual < 10 never hold at once"),
        (
            "amount > 99999999999",
            "amount > 99999999999 never holds: amount is at most 9999999999.99",
        ),
        (
            "customer_id = 'a' AND customer_id IN ('b', 'c')",
            "customer_id = 'a' and customer_id IN ('b', 'c') never hold at once",
        ),
        (
            "LOWER(terminal_id) = 'M1'",
            "LOWER(terminal_id) = 'M1' never holds: LOWER(terminal_id) has no letters of the other case",
        ),
        ("n > 3 AND (amount > 5 OR n < 0)", "n < 0 never holds: n is at least 1"),
        ("FALSE AND n > 3", "FALSE never holds"),
        (
            "event_time > TIMESTAMP '2026-01-02 00:00:00' AND event_time < TIMESTAMP '2026-01-01 00:00:00'",
            "event_time > 2026-01-02T00:00:00.000000Z and event_time < 2026-01-01T00:00:00.000000Z never hold at once",
        ),
    ],
)
def test_what_never_holds_is_named_with_the_reason(when: str, reason: str) -> None:
    """One sentence."""
    assert reasons(when) == [f"when: {reason}"]


@pytest.mark.parametrize(
    "when",
    [
        "HOUR(event_time) >= 22 OR HOUR(event_time) <= 5",
        "HOUR(event_time) BETWEEN 22 AND 23",
        "n >= 1",
        "n = 2.0",
        "others = 0",
        "amount = 12.340",
        "amount > 10 AND amount < 10.02",
        "usual > 10 AND usual < 10.0000001",
        "NOT amount = 12.345",
        "amount <> 12.345",
        "amount > 12.345",
        "LOWER(terminal_id) = 'm1'",
        "spent > usual",
        "CAST(amount AS DOUBLE) = 0.1",
        "CAST(amount AS DOUBLE) > 9999999999.989",
        "customer_id LIKE 'a%'",
        "CASE WHEN n > 5 THEN n < 3 ELSE TRUE END",
        "n % 2 = 1",
        "amount * 0.5 = 0.125",
        "spent / n > 4",
        "TRUE",
        "ABS(amount) >= 0",
        "LENGTH(terminal_id) = 0",
        "EXTRACT(EPOCH FROM event_time) < 0",
    ],
)
def test_what_may_hold_is_left_alone(when: str) -> None:
    """Also what this is too simple to judge."""
    assert reasons(when) == []


def test_a_delayed_window_may_be_empty() -> None:
    """The current event is not in it."""
    measures = {"n": {"count": "*", "over": "1h", "delay": "1h"}}
    assert reasons("n = 0", measures=measures) == []


def test_what_ends_an_episode_is_looked_at_too() -> None:
    """An episode that nothing ends early is hardly meant."""
    measures = {"n": {"count": "*", "episode": "1h", "until": "HOUR(event_time) = 25"}}
    (reason,) = reasons("n > 3", measures=measures)
    assert reason.startswith("measures.n.until: HOUR(event_time) = 25 never holds")


def test_conditions_of_measures_and_events_are_looked_at_too() -> None:
    """Each at its place; `where` and `when` hold for the same event."""
    assert reasons("n > 3", where="amount < 0 AND amount > 5") == [
        "where: amount < 0 and amount > 5 never hold at once"
    ]
    assert reasons("n > 3 AND amount > 100", where="amount <= 50") == [
        "when: amount > 100 and amount <= 50 never hold at once"
    ]
    measures = {"n": {"count": "*", "over": "1h", "where": "amount = 0.001", "since": "HOUR(event_time) = 25"}}
    assert [found.partition(":")[0] for found in reasons("n > 3", measures=measures)] == [
        "measures.n.where",
        "measures.n.since",
    ]


COLUMNS = {
    name: FieldType.parse(kind)
    for name, kind in {"a": "decimal(3,1)", "n": "int64", "t": "timestamp", "s": "string", "d": "double"}.items()
}
HOURS = [microseconds(datetime(2026, 1, 5, hour, tzinfo=UTC)) for hour in (0, 5, 22, 23)]
GRID = {
    "a": [-10, 0, 5, 10, 15, 20, None],
    "n": [0, 1, 2, 3],
    "t": HOURS,
    "s": ["x", "X", "y"],
    "d": [-0.5, 0.0, 1.5, 2.0],
}
ROWS = pl.DataFrame([*product(*GRID.values())], schema=[*GRID], orient="row")
_numbers = st.sampled_from(("-1", "0", "0.5", "1", "1.05", "1.5", "2", "3", "5", "22", "23", "24"))
_operators = st.sampled_from(("=", "<", "<=", ">", ">="))
_of_numbers = st.sampled_from(("a", "n", "d", "HOUR(t)", "ABS(a)", "LENGTH(s)", "a * 2", "n + a", "CAST(a AS DOUBLE)"))
_atoms = st.one_of(
    st.builds("{} {} {}".format, _of_numbers, _operators, _numbers),
    st.builds("{} {} {}".format, _numbers, _operators, _of_numbers),
    st.builds("{} BETWEEN {} AND {}".format, _of_numbers, _numbers, _numbers),
    st.builds("{} IN ({}, {})".format, st.sampled_from(("a", "n", "d")), _numbers, _numbers),
    st.builds("{} = '{}'".format, st.sampled_from(("s", "LOWER(s)", "UPPER(s)")), st.sampled_from(("x", "X", "z"))),
    st.builds("NOT ({} > {})".format, _of_numbers, _numbers),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_atoms, min_size=1, max_size=4))
def test_what_is_said_to_never_hold_holds_nowhere(parts: list[str]) -> None:
    """A reported conjunction holds at none of many rows; one that holds at some row is not reported."""
    text = " AND ".join(f"({part})" for part in parts)
    (holds,) = truths([compile_predicate(text, COLUMNS)], {name: ROWS[name] for name in ROWS.columns}, ROWS.height)
    if holds.any():
        assert impossible_parts([text], COLUMNS, {}) == []


def test_a_name_of_another_rule_that_looks_misspelt_is_doubtful() -> None:
    """An id or a tag; not one that nothing here is like, which may have been published."""
    alone = {"stream": "transactions", "group_by": ["customer_id"], "when": "amount > 1"}
    large = parse_rule(alone | {"id": "large", "tags": ["scored"]}, STREAMS)
    named = ["large", "larg", "tag:scored", "tag:scoerd", "elsewhere", "tag:other"]
    measures = {"n": {"count": "*", "over": "1h", "over_alerts": named}}
    many = parse_rule(alone | {"id": "many", "measures": measures, "when": "n > 1"}, STREAMS)
    quiet = parse_rule(alone | {"id": "quiet", "allows": ["large", "many", "*", "mayn"]}, STREAMS)
    rules = [large, many, quiet]
    assert misspelt(large, rules) == []
    over, allows = "measures.n.over_alerts", "allows"
    assert [(each.place, each.message, each.remedy) for rule in rules for each in misspelt(rule, rules)] == [
        (over, "names 'larg', which no rule here has", "If none is published, did you mean large?"),
        (over, "names 'tag:scoerd', which no rule here has", "If none is published, did you mean tag:scored?"),
        (allows, "names 'mayn', which no rule here has", "If none is published, did you mean many?"),
    ]
