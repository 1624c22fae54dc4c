"""What a rule costs to keep, estimated before it runs."""

from typing import Any

import pytest

from nightjar.rules.model import Rule, parse_rule, rule_to_mapping
from nightjar.rules.retention import retained, too_much
from nightjar.rules.streams import load_streams

STREAMS = load_streams()


def rule(**windows: str) -> Rule:
    """A rule with windows of these lengths."""
    measures: dict[str, Any] = {name: {"count": "*", "over": over} for name, over in windows.items()}
    return parse_rule(
        {"id": "r", "stream": "transactions", "group_by": [], "measures": measures, "when": "amount > 1"}, STREAMS
    )


@pytest.mark.parametrize(
    ("windows", "events"), [({}, 0), ({"a": "1d"}, 1000), ({"a": "1h", "b": "30d"}, 30_000), ({"a": "1h"}, 42)]
)
def test_a_rule_retains_the_events_of_its_widest_window(windows: dict[str, str], events: int) -> None:
    """At a thousand events a day, rounded up."""
    assert retained(rule(**windows), 1000) == events


def test_a_rule_with_an_episode_retains_four_times_its_length() -> None:
    """S12.4: so far back lies what an episode may depend on."""
    measures = {"n": {"count": "*", "episode": "2d"}, "m": {"count": "*", "over": "7d"}}
    assert retained(parse_rule(rule_to_mapping(rule()) | {"measures": measures}, STREAMS), 1000) == 8000


def test_a_delay_retains_its_own_length_too() -> None:
    """S16.1."""
    measures = {"n": {"count": "*", "over": "30d", "delay": "7d"}}
    assert retained(parse_rule(rule_to_mapping(rule()) | {"measures": measures}, STREAMS), 1000) == 37_000


def test_a_resolution_retains_steps_instead_of_events() -> None:
    """S14.3: of one group; the window begins with a whole step, so it reaches one further."""
    measures = {"n": {"count": "*", "over": "90d", "resolution": "1h"}, "m": {"count": "*", "over": "2d"}}
    assert retained(parse_rule(rule_to_mapping(rule()) | {"measures": measures}, STREAMS), 1000) == 2000 + 90 * 24 + 1


def test_too_much_is_refused_with_the_figures() -> None:
    """Events, rate, window and limit, and what to do."""
    assert too_much(rule(a="30d"), 1000, 30_000) is None
    problem = too_much(rule(a="30d"), 2_000_000, 50_000_000)
    assert problem is not None
    assert "60,000,000 events (2,000,000 events a day on transactions x 30d)" in str(problem)
    assert "max_retained_events = 50,000,000" in str(problem)
