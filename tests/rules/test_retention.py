"""What a rule costs to keep, estimated before it runs."""

from typing import Any

import pytest

from nightjar.rules.model import parse_rule
from nightjar.rules.retention import retained, too_much
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet, RuleVersion

STREAMS = load_streams()


def rule(**windows: str) -> RuleVersion:
    """A rule with windows of these lengths."""
    return measuring({name: {"count": "*", "over": over} for name, over in windows.items()})


def measuring(measures: dict[str, Any], **keys: Any) -> RuleVersion:
    """A rule with these measures."""
    plain = {"id": "r", "stream": "transactions", "group_by": [], "measures": measures, "when": "amount > 1"}
    return RuleVersion(parse_rule(plain | keys, STREAMS), 1, 0)


@pytest.mark.parametrize(
    ("windows", "events"), [({}, 0), ({"a": "1d"}, 1000), ({"a": "1h", "b": "30d"}, 30_000), ({"a": "1h"}, 42)]
)
def test_a_rule_retains_the_events_of_its_widest_window(windows: dict[str, str], events: int) -> None:
    """At a thousand events a day, rounded up."""
    assert retained(rule(**windows), 1000) == events


def test_a_rule_with_an_episode_retains_four_times_its_length() -> None:
    """S12.4: so far back lies what an episode may depend on."""
    measures = {"n": {"count": "*", "episode": "2d"}, "m": {"count": "*", "over": "7d"}}
    assert retained(measuring(measures), 1000) == 8000


def test_a_delay_retains_its_own_length_too() -> None:
    """S16.1."""
    measures = {"n": {"count": "*", "over": "30d", "delay": "7d"}}
    assert retained(measuring(measures), 1000) == 37_000


def test_a_resolution_retains_steps_instead_of_events() -> None:
    """S14.3: of one group; the window begins with a whole step, so it reaches one further."""
    measures = {"n": {"count": "*", "over": "90d", "resolution": "1h"}, "m": {"count": "*", "over": "2d"}}
    assert retained(measuring(measures), 1000) == 2000 + 90 * 24 + 1


def test_a_rule_over_alerts_retains_what_the_rules_need_that_it_looks_at() -> None:
    """S23.4: its own window, and before that the widest of theirs."""
    points = {"points": {"sum": "score", "over": "1d", "over_alerts": ["r", "tag:slow"]}}
    slow = measuring({"n": {"count": "*", "over": "7d"}}, id="slow", tags=["slow"])
    versions = RuleSet((rule(a="3d"), slow, measuring(points, id="points"))).versions
    assert [retained(version, 1000) for version in versions] == [3000, 7000, 8000]


def test_too_much_is_refused_with_the_figures() -> None:
    """Events, rate, window and limit, and what to do."""
    assert too_much(rule(a="30d"), 1000, 30_000) is None
    problem = too_much(rule(a="30d"), 2_000_000, 50_000_000)
    assert problem is not None
    assert "60,000,000 events (2,000,000 events a day on transactions x 30d)" in str(problem)
    assert "max_retained_events = 50,000,000" in str(problem)
