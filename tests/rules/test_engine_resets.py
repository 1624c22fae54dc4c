"""Rules that start again after alerts (S13), over events so dense that violations follow one another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.model import parse_rule
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.agreement import differing, final
from tests.support.crashing_engine import alerts_of
from tests.support.histories import SECOND, SETTING, STREAM, STREAMS, TRUTH, table
from tests.support.reference import Event, Measure, Version, evaluations, in_order, violations

WIDTH = 3 * SECOND
WHERE = "number < 12"
MEASURES: dict[str, dict[str, Any]] = {
    "n": {"count": "*", "over": "3s"},
    "a": {"count": "*", "over": "2s", "where": "flag", "per": ["place"]},
    "since": {"count": "*", "over": "3s", "since": "place = 'b'", "excluding_current": True},
    "list": {"values": "id", "over": "3s"},
}


def _reference() -> dict[str, Measure]:
    return {
        "n": Measure("count", None, WIDTH),
        "a": Measure("count", None, 2 * SECOND, lambda e: e["flag"] is True, ("place",)),
        "since": Measure("count", None, WIDTH, excluding_current=True, since=lambda e: e["place"] == "b"),
        "list": Measure("values", "id", WIDTH),
    }


def rules(bar: int, second: int) -> tuple[RuleSet, list[Version]]:
    """Two versions of a rule: n reaches a bar, and from a second on another."""
    written = {
        "id": "r",
        "stream": STREAM.name,
        "group_by": ["who"],
        "where": WHERE,
        "measures": MEASURES,
        "reset_after_alert": True,
        "when": f"n >= {bar}",
    }
    first = parse_rule(written, STREAMS)
    later = parse_rule({**written, "when": f"n >= {bar + 1}"}, STREAMS)
    ruleset = RuleSet().publish(first, 0, 0).publish(later, second * SECOND, 0)
    versions = [
        Version(
            "r",
            number,
            effective,
            ("who",),
            _reference(),
            lambda e, least=least: e["n"] >= least,
            lambda e: e["number"] < 12,
            resets=True,
        )
        for number, effective, least in ((1, 0, bar), (2, second * SECOND, bar + 1))
    ]
    return ruleset, versions


@st.composite
def dense(draw: st.DrawFn, *, late: bool) -> list[Event]:
    """Events in the order of arrival, by two groups; few pause for longer than the widest window."""
    at, made = 100 * SECOND, []
    gaps = st.sampled_from((0, *[250_000, 500_000, 1_000_000, 1_500_000] * 3, 3_000_000, 3_000_001, 9_000_000))
    for number in range(draw(st.integers(1, 40))):
        at += draw(gaps)
        delay = draw(st.sampled_from((0, 0, 0, 1, 2, 5, 9, 10, *([11, 25] if late else []))))
        values = {
            "who": draw(st.sampled_from(("x", "x", "x", "y"))),
            "flag": draw(st.sampled_from((True, False, None))),
            "place": draw(st.sampled_from(("a", "a", "b", None))),
            "number": draw(st.integers(0, 12)),
        }
        own = {"id": f"e{number}", "at": at, "arrival": at + delay * SECOND}
        made.append({**dict.fromkeys(STREAM.fields), **values, **own})
    return sorted(made, key=lambda event: event["arrival"])


BARS, SECONDS = st.integers(1, 5), st.integers(90, 130)


def truth(ruleset: RuleSet, events: list[Event]) -> dict[tuple[str, int, str], tuple[bool, dict[str, Any]]]:
    """Whether it is a violation, and the measures, at every event."""
    rows = Truth(STREAM, ruleset, table(events)).table(every=True).to_pylist()
    return {("r", row["rule_version"], row["event_id"]): (row["violated"], json.loads(row["measures"])) for row in rows}


@settings(max_examples=5 * settings().max_examples)
@given(dense(late=True), BARS, SECONDS)
def test_the_truth_equals_the_reference(events: list[Event], bar: int, second: int) -> None:
    """Every measure and verdict at every event, over a change of versions, which remember nothing of each other."""
    ruleset, versions = rules(bar, second)
    got, expected = truth(ruleset, events), evaluations(TRUTH, versions, events)
    assert {key: holds for key, (holds, _) in got.items()} == {key: holds for key, (holds, _) in expected.items()}
    assert [*differing("truth", *({key: found for key, (_, found) in of.items()} for of in (got, expected)))] == []


@settings(max_examples=5 * settings().max_examples)
@given(dense(late=True), BARS, SECONDS, st.lists(st.integers(0, 100), max_size=8), st.sets(st.integers(0, 8)))
def test_the_streams_final_alerts_follow_from_the_arrivals(
    events: list[Event], bar: int, second: int, cuts: list[int], lost: set[int]
) -> None:
    """Out of order, late, evicted and lost in crashes: an alert that goes lets the next ones count again."""
    ruleset, versions = rules(bar, second)
    alerts = alerts_of(ruleset, events, cuts, lost)
    got = {("r", r["rule_version"], r["event_id"]): json.loads(r["measures"]) for r in final(alerts).values()}
    assert [*differing("stream", got, violations(SETTING, versions, events))] == []


@given(dense(late=False), BARS, SECONDS, st.integers(0, 40))
def test_history_from_five_windows_before_suffices(events: list[Event], bar: int, second: int, which: int) -> None:
    """S13.4: a backfill that begins there concludes what one over all of history does."""
    ruleset, _ = rules(bar, second)
    event = sorted(events, key=lambda event: event["at"])[which % len(events)]
    recent = [other for other in events if other["at"] >= event["at"] - 5 * WIDTH]
    got, expected = truth(ruleset, recent), truth(ruleset, events)
    about = [key for key in expected if key[2] == event["id"]]
    assert [got[key] for key in about] == [expected[key] for key in about]


@given(dense(late=False), BARS)
def test_every_violation_counts_where_a_pause_is_near(events: list[Event], bar: int) -> None:
    """S13.1 the naive way, which remembers every violation, up to S13.3's first cut of a run without a pause."""
    ruleset, versions = rules(bar, 1_000_000)
    found = truth(ruleset, events)
    for who in ("x", "y"):
        counted, last, begun = [], None, None
        for event in in_order(TRUTH, [e for e in events if e["who"] == who and versions[0].where(e)]):
            if last is None or event["at"] > last + WIDTH:
                begun = event["at"]
            last = event["at"]
            if event["at"] // (2 * WIDTH) * (2 * WIDTH) - 2 * WIDTH > begun:
                break
            counted = [at for at in [*counted, event["at"]] if at >= event["at"] - WIDTH]
            assert found["r", 1, event["id"]][1]["n"] == len(counted)
            assert found["r", 1, event["id"]][0] == (len(counted) >= bar)
            counted = [] if len(counted) >= bar else counted


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 200, 1000])
def test_a_count_starts_again_after_each_alert(rows: int) -> None:
    """Of events at one time every third is a violation, however many there are."""
    events = [
        {**dict.fromkeys(STREAM.fields), "who": "x", "number": 1, "id": f"e{n}", "at": SECOND, "arrival": SECOND}
        for n in range(rows)
    ]
    ruleset, _ = rules(3, 1_000_000)
    assert sum(holds for holds, _ in truth(ruleset, events).values()) == rows // 3


def test_an_overflow_is_no_violation_to_start_again_after() -> None:
    """S3.2: the event is no violation, so what it counted still counts."""
    written = {
        "id": "r",
        "stream": STREAM.name,
        "group_by": ["who"],
        "reset_after_alert": True,
        "when": "n >= 2",
        "measures": {"n": {"count": "*", "over": "3s"}, "sum": {"sum": "number", "over": "3s"}},
    }
    ruleset = RuleSet().publish(parse_rule(written, STREAMS), 0, 0)
    large = {**dict.fromkeys(STREAM.fields), "who": "x", "number": 2**62}
    events = [large | {"id": f"e{n}", "at": n * SECOND, "arrival": n * SECOND} for n in (1, 2, 3)]
    events[2]["number"] = -(2**62)
    found = Truth(STREAM, ruleset, table(events))
    assert [failure.event_id for failure in found.failures] == ["e2"]
    assert [(r["violated"], json.loads(r["measures"])["n"]) for r in found.table(every=True).to_pylist()] == [
        (False, 1),
        (False, 2),
        (True, 3),
    ]


def test_without_measures_there_is_nothing_to_start_again() -> None:
    """The rule is like any other."""
    written = {"id": "r", "stream": STREAM.name, "group_by": ["who"], "reset_after_alert": True, "when": "flag"}
    ruleset = RuleSet().publish(parse_rule(written, STREAMS), 0, 0)
    event = {**dict.fromkeys(STREAM.fields), "who": "x", "flag": True, "id": "e", "at": SECOND, "arrival": SECOND}
    assert Truth(STREAM, ruleset, table([event, event | {"id": "f"}])).rows() == 2
    assert replace(ruleset.versions[0], version=2).rule.reset_after_alert
