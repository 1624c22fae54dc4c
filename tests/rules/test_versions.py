"""Which version of a rule an event sees."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import RuleError
from nightjar.rules.model import Rule
from nightjar.rules.versions import RuleSet, superseded


def rule(rule_id: str = "r", stream: str = "transactions", effective: int | None = None, state: str = "active") -> Rule:
    """A rule of no interest but for its name and time (seconds since 1970)."""
    at = None if effective is None else datetime.fromtimestamp(effective, UTC)
    return Rule.model_validate(
        {"id": rule_id, "stream": stream, "state": state, "group_by": [], "when": "TRUE", "effective": at}
    )


def test_versions_of_a_rule_are_counted_from_one() -> None:
    """Every publication is a new version of its rule, whatever else was published between."""
    rules = RuleSet().publish(rule("a"), 0).publish(rule("b"), 1).publish(rule("a", state="paused"), 2)
    assert [(known.rule.id, known.version) for known in rules.versions] == [("a", 1), ("b", 1), ("a", 2)]


def test_a_version_takes_effect_at_its_time_or_after_the_delay() -> None:
    """Effective is the rule's own time, or its arrival plus the activation delay."""
    rules = RuleSet().publish(rule(), 1_000, 50).publish(rule(effective=3), 2_000, 50)
    assert [known.effective for known in rules.versions] == [1_050, 3_000_000]


def test_an_event_before_every_version_sees_none() -> None:
    """A rule does not apply before it takes effect, and does from that very microsecond on."""
    rules = RuleSet().publish(rule(), 100)
    assert rules.applicable("r", 99) is None
    assert rules.applicable("other", 100) is None
    found = rules.applicable("r", 100)
    assert found is not None
    assert found.version == 1


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(-1, 21))
def test_the_last_published_of_the_versions_in_effect_applies(effective: list[int], at: int) -> None:
    """S5: among the versions effective by an event's time the one published last is the event's."""
    rules = RuleSet()
    for time in effective:
        rules = rules.publish(rule(), time)
    expected = [number for number, time in enumerate(effective, 1) if time <= at]
    found = rules.applicable("r", at)
    assert (None if found is None else found.version) == (expected[-1] if expected else None)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.data())
def test_a_superseded_version_applies_to_nothing_from_that_time_on(effective: list[int], data: st.DataObject) -> None:
    """S5.6: and to everything between its own time and that; the version named is the one that applies there."""
    rules = RuleSet()
    for time in effective:
        rules = rules.publish(rule(), time)
    version = data.draw(st.sampled_from(rules.versions))
    end = superseded(version, rules.versions, 1000)
    for at in range(22):
        seen = rules.applicable("r", at) == version
        assert seen == (version.effective <= at and (end is None or at < end.since))
        assert superseded(version, rules.versions, at) == (end if end is not None and end.since <= at else None)
    if end is not None:
        next_one = rules.applicable("r", end.since)
        assert next_one is not None
        assert next_one.version == end.by


def test_a_paused_version_is_a_version() -> None:
    """Pausing hides the version before it, and does not bring it back."""
    rules = RuleSet().publish(rule(), 0).publish(rule(state="paused"), 10)
    found = rules.applicable("r", 10)
    assert found is not None
    assert found.rule.state == "paused"


def test_a_rule_keeps_its_stream() -> None:
    """A published rule cannot move to another stream under its id."""
    with pytest.raises(RuleError, match="version 1 of this rule is on stream transactions"):
        RuleSet().publish(rule(), 0).publish(rule(stream="logins"), 1)


def test_the_versions_of_a_stream_keep_their_order() -> None:
    """A stream's engine is given its own rules only."""
    rules = RuleSet().publish(rule("a"), 0).publish(rule("b", stream="logins"), 1).publish(rule("a"), 2)
    assert [known.version for known in rules.of_stream("transactions").versions] == [1, 2]
    assert [known.rule.id for known in rules.of_stream("logins").versions] == ["b"]
