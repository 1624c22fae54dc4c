"""Sequences (S20), over events of which most are a step of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.model import parse_rule
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.agreement import differing, final
from tests.support.crashing_engine import alerts_of
from tests.support.histories import SECOND, SETTING, STREAM, STREAMS, TRUTH, table
from tests.support.reference import Event, Measure, Version, evaluations, violations

OVER = 6 * SECOND
# What a rule writes: the places of the steps (`.` is any), and options.
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "two": ("ab", {}),
    "three": ("abc", {}),
    "twice": ("aab", {}),
    "any": ("..c", {}),
    "unbroken": ("abc", {"since": "flag"}),
    "here": ("ab", {"per": ["number"]}),
    "small": ("a.b", {"where": "number < 2"}),
}


def _meets(place: str) -> Callable[[Event], bool]:
    return lambda event: place == "." or event["place"] == place


def _written(steps: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"sequence": ["TRUE" if step == "." else f"place = '{step}'" for step in steps], "over": "6s"} | options


def _measure(steps: str, options: dict[str, Any]) -> Measure:
    return Measure(
        "sequence",
        None,
        OVER,
        (lambda e: e["number"] < 2) if "where" in options else (lambda e: True),
        tuple(options.get("per", ())),
        since=(lambda e: e["flag"] is True) if "since" in options else None,
        steps=tuple(map(_meets, steps)),
    )


def _rule(rule_id: str, when: str, **options: Any) -> Any:
    measures = {name: _written(*chain) for name, chain in CHAINS.items()}
    written = {"id": rule_id, "stream": STREAM.name, "group_by": ["who"], "measures": measures, "when": when}
    return parse_rule(written | options, STREAMS)


MEASURES = {name: _measure(*chain) for name, chain in CHAINS.items()}
RULES = (
    RuleSet().publish(_rule("all", "two >= 0"), 0, 0).publish(_rule("anew", "two > 0", reset_after_alert=True), 0, 0)
)
VERSIONS = [
    Version("all", 1, 0, ("who",), MEASURES, lambda e: True),
    Version("anew", 1, 0, ("who",), MEASURES, lambda e: e["two"] > 0, resets=True),
]


@st.composite
def steps(draw: st.DrawFn, *, late: bool) -> list[Event]:
    """Events in the order of arrival, by two groups."""
    at, made = 100 * SECOND, []
    for number in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from((0, 0, 500_000, 1_000_000, 1_000_000, 1_500_000, 6_000_001)))
        delay = draw(st.sampled_from((0, 0, 0, 1, 2, 5, 9, 10, *([11, 25] if late else []))))
        values = {
            "who": draw(st.sampled_from(("x", "x", "y"))),
            "flag": draw(st.sampled_from((False, False, False, False, True))),
            "place": draw(st.sampled_from(("a", "a", "b", "b", "c", None))),
            "number": draw(st.integers(0, 2)),
        }
        own = {"id": f"e{number}", "at": at, "arrival": at + delay * SECOND}
        made.append({**dict.fromkeys(STREAM.fields), **values, **own})
    return sorted(made, key=lambda event: event["arrival"])


@settings(max_examples=5 * settings().max_examples)
@given(steps(late=True))
def test_the_truth_equals_the_reference(events: list[Event]) -> None:
    """Every measure at every event."""
    rows = Truth(STREAM, RULES, table(events)).table(every=True).to_pylist()
    got = {(row["rule_id"], 1, row["event_id"]): json.loads(row["measures"]) for row in rows}
    expected = {key: measures for key, (_, measures) in evaluations(TRUTH, VERSIONS, events).items()}
    assert [*differing("truth", got, expected)] == []


@settings(max_examples=5 * settings().max_examples)
@given(steps(late=True), st.lists(st.integers(0, 100), max_size=8), st.sets(st.integers(0, 8)))
def test_the_streams_final_alerts_follow_from_the_arrivals(
    events: list[Event], cuts: list[int], lost: set[int]
) -> None:
    """Out of order, late, evicted and lost in crashes; a late step is in the chains of what arrives after it."""
    alerts = alerts_of(RULES, events, cuts, lost)
    got = {(r["rule_id"], 1, r["event_id"]): json.loads(r["measures"]) for r in final(alerts).values()}
    assert [*differing("stream", got, violations(SETTING, VERSIONS, events))] == []
