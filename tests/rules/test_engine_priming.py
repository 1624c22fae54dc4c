"""S8.6: an engine that is given history is one whose rules had needed it all along."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import Delta, Engine
from nightjar.rules.engine.ledger import NO_ANNOUNCEMENTS
from nightjar.rules.engine.store import LATE, SEQ
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.versions import NOT_YET, RuleSet, RuleVersion
from tests.support.evicting import evicting_early

SECOND = 1_000_000
START = 1_000_000_000 * SECOND
FIELDS = {"id": "string", "at": "timestamp", "who": "string", "amount": "int64"}
STREAMS = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "allowed_lateness": "10s",
            "max_future_skew": "0s",
            "fields": FIELDS,
        }
    },
    "tests",
)
STREAM = STREAMS["s"]
SCHEMA = STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
WIDE = 200
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _evicting_early() -> Iterator[None]:
    with evicting_early(floor=4, block=2):
        yield


def rule(name: str, over: int, **more: Any) -> Any:
    """A rule that announces what it counts at every event."""
    measures = {"n": {"count": "*", "over": f"{over}s"}, "most": {"max": "amount", "over": f"{over}s"}}
    written = {"id": name, "stream": "s", "group_by": ["who"], "when": "n >= 1", "measures": measures, **more}
    return parse_rule(written, STREAMS)


def rules(effective: int | None) -> RuleSet:
    """A narrow rule, and a wide one: from a second on, not yet at all (None)."""
    wide = NOT_YET if effective is None else START + effective * SECOND
    resets = rule("resets", WIDE // 5, when="n >= 3", reset_after_alert=True)
    versions = (rule("narrow", 20), 0), (rule("wide", WIDE), wide), (resets, wide)
    return RuleSet(tuple(RuleVersion(each, 1, since) for each, since in versions))


NARROW = RuleSet(rules(None).versions[:1])


def table(events: list[Row]) -> pa.Table:
    """Events as an engine takes them; their times are seconds after the start."""
    rows = [row | {name: START + row[name] * SECOND for name in ("at", "arrival_time")} for row in events]
    return pa.Table.from_pylist(rows, SCHEMA)


events_of = st.lists(
    st.tuples(
        st.integers(1, 6),  # seconds since the last arrival
        # lateness: of most none, of some more than is allowed, of some more than the narrow rule's state reaches back
        st.sampled_from([0, 0, 0, 2, 5, 15, 25, 40, 80, 150]),
        st.sampled_from("abc"),
        st.integers(0, 9),
    ),
    min_size=20,
    max_size=90,
)


def arrivals(drawn: list[tuple[int, int, str, int]]) -> list[Row]:
    """The events drawn, in order of arrival."""
    found, now = [], 0
    for number, (since, late, who, amount) in enumerate(drawn):
        now += since
        found.append({"id": f"e{number}", "at": now - late, "arrival_time": now, "who": who, "amount": amount})
    return found


@given(events_of, st.floats(0.2, 0.7), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_after_priming_results_are_those_of_rules_that_had_always_been_there(
    drawn: list[tuple[int, int, str, int]], published: float, exported: float, primed: float, restored: bool
) -> None:
    """However late events were: before history was exported, between that and priming, or after it. Also where the
    engine is then restored from its deltas."""
    events = arrivals(drawn)
    knows = int(len(events) * published)
    exports = knows + int((len(events) - knows) * exported * 0.6)
    primes = exports + int((len(events) - exports) * primed * 0.6)
    effective = events[primes - 1]["arrival_time"] + 1
    always = Engine(STREAM, rules(effective))
    engine, deltas = Engine(STREAM, NARROW), []
    history, missed = table([]), []
    announced, expected = [], []
    for number, event in enumerate(events):
        now = START + event["arrival_time"] * SECOND
        if number == knows:
            engine.set_rules(rules(None))
        if number == exports:
            horizon, since = engine.horizon, engine.needed_since
            kept = [e for e in events[:number] if since <= START + e["at"] * SECOND < horizon]
            history = table(kept)
        if number == primes:
            seq = pa.array(range(-len(history), 0), pa.int64())
            late = pa.array([e["arrival_time"] - e["at"] > 10 for e in kept], pa.bool_())
            delta = Delta(history.append_column(SEQ, seq).append_column(LATE, late), NO_ANNOUNCEMENTS)
            deltas = [deltas[0], delta, *deltas[1:], engine.prime(delta, table(missed), since)]
            assert engine.horizon == min(horizon, max(since, engine.settled - 200 * SECOND))
            engine.set_rules(rules(effective))
            if restored:
                again = Engine(STREAM, rules(effective))
                again.restore(deltas)
                again.resume(engine.position)
                engine = again
        before = engine.horizon
        found = engine.advance(table([event]), now)
        deltas.append(found.delta)
        wanted = always.advance(table([event]), now)
        if number >= exports and START + event["at"] * SECOND < before and number < primes:
            missed.append(event)
        if number >= primes:
            announced += [a | {"event_time": str(a["event_time"])} for a in found.alerts.to_pylist()]
            expected += [a | {"event_time": str(a["event_time"])} for a in wanted.alerts.to_pylist()]
    assert announced == expected


def counted(engine: Engine, at: int, name: str) -> int:
    """What the wide rule counts at an event of ann's, which it is given."""
    event = {"id": name, "at": at, "arrival_time": at, "who": "ann", "amount": 1}
    alerts = engine.advance(table([event]), START + at * SECOND).alerts.to_pylist()
    (found,) = (json.loads(alert["measures"])["n"] for alert in alerts if alert["rule_id"] == "wide")
    return int(found)


@pytest.mark.parametrize("restored", [False, True])
def test_of_two_events_with_one_id_priming_brings_back_none(restored: bool) -> None:
    """x was before the horizon when its id came again, and y came twice while the version waited: whatever an engine
    still has in memory, the second x and the first y count."""
    engine, deltas = Engine(STREAM, NARROW), []

    def take(*events: Row) -> None:
        now = START + max(event["arrival_time"] for event in events) * SECOND
        deltas.append(engine.advance(table(list(events)), now).delta)

    x, y = ({"id": name, "at": at, "arrival_time": at, "who": "ann", "amount": 1} for name, at in (("x", 0), ("y", 50)))
    take(x)
    take({**x, "id": "z", "at": 100, "arrival_time": 100})
    take({**x, "at": 101, "arrival_time": 101, "who": "bob"})
    engine.set_rules(rules(None))
    missed = [{**y, "arrival_time": 102}, {**y, "at": 51, "arrival_time": 103}]
    take(*missed)
    kept = table([x]).append_column(SEQ, pa.array([-1], pa.int64()))
    history = Delta(kept.append_column(LATE, pa.array([False])), NO_ANNOUNCEMENTS)
    deltas += [history, engine.prime(history, table(missed), START)]
    engine.set_rules(rules(103))
    if restored:
        again = Engine(STREAM, rules(103))
        again.restore(deltas)
        again.resume(engine.position)
        engine = again
    assert counted(engine, 104, "own") == len(["y", "z", "own"])
