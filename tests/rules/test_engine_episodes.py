"""Episodes (S12), over events so dense that one follows another."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.model import parse_rule
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.agreement import differing, final
from tests.support.crashing_engine import alerts_of
from tests.support.histories import SECOND, SETTING, STREAM, STREAMS, TRUTH, table
from tests.support.random_predicates import NEVER
from tests.support.reference import Event, Measure, Version, evaluations, in_order, violations

LENGTH = 3 * SECOND
ENDED = {"where": "flag", "until": "place = 'b'"}
# What a rule writes, and what the reference takes; `flag` counts, place b ends.
WRITTEN: dict[str, dict[str, Any]] = {
    "n": {"count": "*", "episode": "3s", **ENDED},
    "here": {"count": "*", "episode": "3s", **ENDED, "per": ["place"]},
    "before": {"count": "number", "episode": "3s", **ENDED, "excluding_current": True},
    "endless": {"count": "*", "episode": "3s", "where": "flag"},
    "first": {"first": "id", "episode": "3s", **ENDED},
    "numbers": {"values": "number", "episode": "3s", **ENDED},
}


def _measure(written: dict[str, Any]) -> Measure:
    function, field = next(iter(written.items()))
    return Measure(
        function,
        None if field == "*" else field,
        LENGTH,
        lambda e: e["flag"] is True,
        tuple(written.get("per", ())),
        excluding_current="excluding_current" in written,
        episode=True,
        until=(lambda e: e["place"] == "b") if "until" in written else NEVER,
    )


RULE = {"id": "r", "stream": STREAM.name, "group_by": ["who"], "measures": WRITTEN, "when": "n >= 0"}
RULES = RuleSet().publish(parse_rule(RULE, STREAMS), 0, 0)
VERSION = Version("r", 1, 0, ("who",), {name: _measure(w) for name, w in WRITTEN.items()}, lambda e: True)


@st.composite
def dense(draw: st.DrawFn, *, late: bool) -> list[Event]:
    """Events in the order of arrival, by two groups; most count, some end an episode, few pause."""
    at, made = 100 * SECOND, []
    for number in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from((0, 500_000, 1_000_000, 1_000_000, 1_500_000, 3_000_000, 3_000_001, 7_000_000)))
        delay = draw(st.sampled_from((0, 0, 0, 1, 2, 5, 9, 10, *([11, 25] if late else []))))
        values = {
            "who": draw(st.sampled_from(("x", "x", "y"))),
            "flag": draw(st.sampled_from((True, True, True, False))),
            "place": draw(st.sampled_from(("a", "a", "a", "a", "c", "b", None))),
            "number": draw(st.integers(0, 12)),
        }
        own = {"id": f"e{number}", "at": at, "arrival": at + delay * SECOND}
        made.append({**dict.fromkeys(STREAM.fields), **values, **own})
    return sorted(made, key=lambda event: event["arrival"])


def truth(events: list[Event]) -> dict[tuple[str, int, str], dict[str, Any]]:
    """The measures at every event."""
    rows = Truth(STREAM, RULES, table(events)).table(every=True).to_pylist()
    return {(row["rule_id"], 1, row["event_id"]): json.loads(row["measures"]) for row in rows}


@settings(max_examples=5 * settings().max_examples)
@given(dense(late=True))
def test_the_truth_equals_the_reference(events: list[Event]) -> None:
    """Every measure at every event."""
    expected = {key: measures for key, (_, measures) in evaluations(TRUTH, [VERSION], events).items()}
    assert [*differing("truth", truth(events), expected)] == []


@settings(max_examples=5 * settings().max_examples)
@given(dense(late=True), st.lists(st.integers(0, 100), max_size=8), st.sets(st.integers(0, 8)))
def test_the_streams_final_alerts_follow_from_the_arrivals(
    events: list[Event], cuts: list[int], lost: set[int]
) -> None:
    """Out of order, late, evicted and lost in crashes; what is late opens and closes nothing for what came before."""
    alerts = alerts_of(RULES, events, cuts, lost)
    got = {("r", 1, r["event_id"]): json.loads(r["measures"]) for r in final(alerts).values()}
    assert [*differing("stream", got, violations(SETTING, [VERSION], events))] == []


@given(dense(late=False), st.integers(0, 40))
def test_history_from_four_lengths_before_suffices(events: list[Event], which: int) -> None:
    """S12.4: a backfill that begins there concludes what one over all of history does."""
    event = sorted(events, key=lambda event: event["at"])[which % len(events)]
    recent = [other for other in events if other["at"] >= event["at"] - 4 * LENGTH]
    key = ("r", 1, event["id"])
    assert truth(recent)[key] == truth(events)[key]


def followed(events: list[Event]) -> tuple[list[Event], list[int]]:
    """The episode of the last of one group's events by following all of them from the very first, and the times of the
    fresh ones."""
    opened, latest, fresh = None, None, []
    for place, event in enumerate(events):
        if opened is not None and event["at"] > events[opened]["at"] + LENGTH:
            opened = None
        if event["flag"]:
            opened = place if opened is None else opened
            if latest is None or event["at"] > latest + LENGTH:
                fresh.append(event["at"])
            latest = event["at"]
        if event["place"] == "b" and place < len(events) - 1:
            opened = latest = None
    return [] if opened is None else events[opened:], fresh


@given(dense(late=False))
def test_episodes_follow_one_another_from_the_first(events: list[Event]) -> None:
    """S12.1 the naive way, which remembers everything, wherever S12.3 does not cut it short."""
    found = truth(events)
    for who in ("x", "y"):
        ordered = [event for event in in_order(TRUTH, events) if event["who"] == who]
        for place, event in enumerate(ordered):
            episode, fresh = followed(ordered[: place + 1])
            if not fresh or fresh[-1] >= event["at"] - 3 * LENGTH:
                assert found["r", 1, event["id"]]["n"] == sum(other["flag"] for other in episode)


def test_without_a_pause_an_episode_is_the_last_of_its_length() -> None:
    """S12.3: once the last fresh event is more than three lengths ago."""
    events = [
        {**dict.fromkeys(STREAM.fields), "who": "x", "flag": True, "id": f"e{n}", "at": at, "arrival": at}
        for n in range(14)
        for at in (n * SECOND,)
    ]
    found = truth(events)
    counts = [found["r", 1, event["id"]]["endless"] for event in events]
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 4, 4, 4, 4]
