"""Histories of thousands of events: arrays grow after blocks in their middle were released, windows of hot groups are
carried, rows are renumbered, and what a restart is given is in no order. Nothing is late, so the stream must end at the
truth (S9.1).

Rules are drawn by Hypothesis; events come from a seed, as drawing each would take too long. The engine's thresholds are
drawn too: histories of any size then pass each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from nightjar.rules.engine import Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.evicting import evicting_early
from tests.support.histories import LATENESS, SECOND, STREAM, STREAMS, rules, table

_BEGIN = 1_800_000_000 * SECOND
_SPANS = (20, 120, 200, 300, 1800)  # seconds from the first arrival to the last
_OVERS = ("500ms", "3s", "8s", "30s", "2m", "10m")
_OF_IDS = ("first", "last", "previous", "mode", "values")
_NEVER = 1 << 40  # more rows than any history has
# As in production, and so small that every history passes them.
_THRESHOLDS = {
    "floor": (_NEVER, 4096, 2, 64, _NEVER),
    "block": (4, 64, 512, 8192),
    "room": (64, 2, 64, 1000),
    "carried_from": (8192, 3, 100, 1000),
}


@dataclass(frozen=True)
class LargeHistory:
    """seed: of events, batches and crashes. hot: the share of events that one group has. ahead: that of events dated
    ahead of their arrival, as far as the stream allows. thresholds: of `evicting_early`; None: those of production."""

    ruleset: RuleSet
    seed: int
    events: int
    seconds: int
    hot: float
    ahead: float
    crashes: bool
    thresholds: tuple[tuple[str, int], ...] | None


@st.composite
def large_histories(draw: st.DrawFn, most: int) -> LargeHistory:
    """Histories of at most so many events."""
    seconds = draw(st.sampled_from(_SPANS))
    ruleset = RuleSet()
    for number in range(draw(st.integers(1, 3))):
        effective = 0 if number == 0 else _BEGIN + draw(st.integers(0, seconds)) * SECOND
        written, _ = draw(rules(draw(st.sampled_from(("one", "two"))), effective=effective, overs=_OVERS))
        if draw(st.booleans()):  # of all fields the id alone is not a column of the store
            over = draw(st.sampled_from(_OVERS))
            written["measures"] |= {f"id_{function}": {function: "id", "over": over} for function in _OF_IDS}
        ruleset = ruleset.publish(parse_rule(written, STREAMS), 0, 0)
    thresholds = {name: draw(st.sampled_from(values)) for name, values in _THRESHOLDS.items()}
    return LargeHistory(
        ruleset,
        draw(st.integers(0, 1 << 32)),
        draw(st.integers(most // 10, most)),
        seconds,
        draw(st.sampled_from((0.0, 0.5, 0.95))),
        draw(st.sampled_from((0.0, 0.001, 0.01, 0.1))),
        draw(st.booleans()),
        draw(st.sampled_from((None, *[tuple(thresholds.items())] * 3))),
    )


def differences(history: LargeHistory) -> Iterator[str]:
    """A line for each alert in which the stream does not end at the truth."""
    random = Random(history.seed)  # noqa: S311  no secrets are drawn here
    made = _events(history, random)
    truth = Truth(STREAM, history.ruleset, table(made), clock=max((event["arrival"] for event in made), default=None))
    expected = {row["alert_id"]: row for row in truth.violations().to_pylist()}
    with _thresholds(history):
        got = _final(history, made, random)
    by_verdict = {
        (version.rule.id, version.version)
        for version in history.ruleset.versions
        if version.rule.revisions == "verdict"
    }
    for key in sorted(got.keys() ^ expected.keys()):
        yield f"{key} is {'missing' if key in expected else 'too much'}: {expected.get(key) or got[key]}"
    for key in sorted(got.keys() & expected.keys()):
        row = expected[key]
        same = ("muted",) if (row["rule_id"], row["rule_version"]) in by_verdict else ("muted", "measures", "text")
        for name in same:
            if got[key][name] != row[name]:
                yield f"{name} of {key} ({row['event_id']}) is {got[key][name]!r}, expected {row[name]!r}"


@contextmanager
def _thresholds(history: LargeHistory) -> Iterator[None]:
    if history.thresholds is None:
        yield
        return
    with evicting_early(**dict(history.thresholds)):
        yield


def _final(history: LargeHistory, made: list[dict[str, Any]], random: Random) -> dict[str, dict[str, Any]]:
    """The alerts that the stream ends with, by id."""
    engine, deltas, last = Engine(STREAM, history.ruleset), [], {}
    at = 0
    while at < len(made):
        batch = made[at : at + random.choice((1, 10, 100, 1000, 5000))]
        at += len(batch)
        if history.crashes and random.random() < 0.1:
            lost, engine = engine, Engine(STREAM, history.ruleset)
            engine.restore(random.sample(deltas, len(deltas)), random.choice((0, at, 2 * at)))
            engine.resume(lost.position)
            deltas = [engine.snapshot()]
        advance = engine.advance(table(random.sample(batch, len(batch))), batch[-1]["arrival"])
        deltas.append(advance.delta)
        for alert in advance.alerts.to_pylist():
            known = last.get(alert["alert_id"])
            assert alert["revision"] == 1 + (known["revision"] if known else 0), "revisions count up by one"
            last[alert["alert_id"]] = alert
    return {key: alert for key, alert in last.items() if alert["kind"] == "alert"}


def _events(history: LargeHistory, random: Random) -> list[dict[str, Any]]:
    """Events in the order of arrival, none of them late, some of them twice."""
    arrivals = sorted(random.randint(0, history.seconds * SECOND) for _ in range(history.events))
    groups = random.choice((3, 100, history.events))
    made: list[dict[str, Any]] = []
    for number, arrival in enumerate(arrivals):
        if made and random.random() < 0.02:
            repeated = made[-random.randint(1, min(len(made), 50))]
            if arrival + _BEGIN - repeated["at"] <= LATENESS:
                made.append({**repeated, "arrival": arrival + _BEGIN})
            continue
        lateness = random.choice((0, 0, 0, random.randint(0, SECOND), random.randint(0, LATENESS)))
        if random.random() < history.ahead:
            lateness = -random.randint(0, STREAM.max_future_skew)
        who = "hot" if random.random() < history.hot else f"w{random.randrange(groups)}"
        made.append(
            {
                "id": f"e{number}",
                "at": _BEGIN + arrival - lateness,
                "arrival": _BEGIN + arrival,
                "who": random.choice((who, who, who, who, None)),
                "place": random.choice(("a", "b", "", "où donc, en vérité?", None, f"p{random.randrange(groups)}")),
                "amount": random.choice((None, Decimal(random.randint(-300, 300)) / 100)),
                "large": random.choice((None, Decimal(random.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-3))),
                "fraction": random.choice((None, Decimal(random.randint(-300, 300)).scaleb(-18))),
                "whole": random.choice((None, Decimal(random.randint(-300, 300)))),
                "number": random.choice((None, 0, 1, 1, 2, -1, random.randint(-(2**40), 2**40))),
                "ratio": random.choice((None, 0.1, -1.5, 2.5, random.uniform(-1e6, 1e6))),
                "flag": random.choice((True, True, False, None)),
                "seen": random.choice((None, 0, SECOND, 5 * SECOND + 1, -1)),
            }
        )
    return made
