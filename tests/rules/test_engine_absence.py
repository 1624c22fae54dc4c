"""Rules that wait for what follows an event (S19): when they are due, and what the others pay for them.

Random histories and runs, and the case files, draw and show the rest.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from nightjar.rules.engine import Engine
from nightjar.rules.engine.kernels import absence as kernels
from nightjar.rules.engine.timeline import Timeline
from nightjar.rules.model import parse_rule
from nightjar.rules.versions import RuleSet
from tests.rules.test_engine_takeover import STREAM, STREAMS, batch, clock, payment

WAITING = {"id": "w", "stream": "s", "group_by": ["who"], "when": "amount = 1"}
WAITING |= {"unless": {"within": "1m", "where": "amount = 0"}}


def engine(**more: object) -> Engine:
    """An engine with the rule."""
    return Engine(STREAM, RuleSet.of([parse_rule({**WAITING, **more}, STREAMS)], 0))


@pytest.mark.parametrize(("follows", "alerts"), [(30, 0), (31, 0), (90, 0), (91, 1), (29, 1)])
def test_the_alert_comes_once_the_clock_has_passed(follows: int, alerts: int) -> None:
    """The event is at 30 s, waits for a minute, and both ends count."""
    running = engine()
    assert running.advance(batch(payment("a", 30)), clock(1)).alerts.num_rows == 0
    running.advance(batch(payment("b", follows, amount=0)), clock(1.5))
    found = running.advance(batch(), clock(1.5) + 1).alerts
    assert found.column("event_id").to_pylist() == ["a"] * alerts


def test_the_passing_of_time_alone_announces_nothing() -> None:
    """Without a clock no batch does, however late its events are."""
    running = engine()
    running.advance(batch(payment("a", 30)), clock(1))
    assert running.advance(batch(payment("b", 3000, who="bob")), None).alerts.num_rows == 0


def test_each_kernel_is_compiled_once() -> None:
    """Another type of an argument would hold up a later batch."""
    running = engine(measures={"n": {"count": "*", "over": "1m"}})
    for minute in range(5):
        running.advance(batch(payment(f"e{minute}", 60 * minute)), clock(minute))
    used = kernels.before, kernels.between, kernels.runs, kernels.followed
    assert [len(each.signatures) for each in used] == [1, 1, 1, 1]


def test_a_rule_that_does_not_wait_is_evaluated_as_ever() -> None:
    """Beside one that does, in a timeline of its own."""
    others = {**WAITING, "id": "o", "unless": None}
    ruleset = RuleSet.of([parse_rule(rule, STREAMS) for rule in (WAITING, others)], 0)
    running, alone = Engine(STREAM, ruleset), Engine(STREAM, RuleSet.of([parse_rule(others, STREAMS)], 0))
    events = batch(payment("a", 30), payment("b", 40, amount=0))
    waited = []
    insert = Timeline.insert_waiting
    with patch.object(Timeline, "insert_waiting", lambda *given: waited.append(None) or insert(*given)):
        expected = alone.advance(events, clock(3)).alerts
        assert waited == []
        assert running.advance(events, clock(3)).alerts.equals(expected)
    assert waited == [None]
