"""Records of the rules topic: their keys, and which answers end the wait for one."""

from __future__ import annotations

import json

import pytest

from nightjar.contracts.rule_messages import (
    approval_message,
    control_message,
    decline_message,
    encoded,
    rule_message,
    rule_of,
    settled_by,
)
from nightjar.rules.approval import APPROVE, DECLINE
from nightjar.rules.model import State, parse_rule
from nightjar.rules.publishing import Answer
from nightjar.rules.streams import load_streams

WRITTEN = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n > 3",
    "measures": {"n": {"count": "*", "over": "10m"}},
}


def test_a_rule_is_published_under_its_id() -> None:
    """And reads back as the same rule."""
    streams = load_streams()
    rule = parse_rule(WRITTEN, streams)
    key, value = encoded(rule_message(rule))
    assert key == b"busy"
    assert parse_rule(json.loads(value), streams) == rule


def test_controls_and_approvals_are_published_under_the_rules_id() -> None:
    """So that they come after the rule they are about."""
    assert control_message("pause", "busy") == {"control": "pause", "rule": "busy"}
    assert control_message("pause", "busy", "now")["effective"] == "now"
    approval = approval_message("busy", 2, "bob", "seen")
    assert approval == {"control": APPROVE, "rule": "busy", "version": 2, "author": "bob", "reason": "seen"}
    decline = decline_message("busy", 2, "bob", "seen")
    assert decline == approval | {"control": DECLINE}
    assert [rule_of(message) for message in (approval, decline, WRITTEN)] == ["busy", "busy", "busy"]


@pytest.mark.parametrize(
    ("message", "approved", "at_once"),
    [
        ({"state": "active"}, None, False),
        ({"state": "shadow"}, None, False),
        ({"state": "paused"}, None, True),
        ({"control": "retire"}, None, True),
        ({"control": "resume"}, None, False),
        ({"control": APPROVE}, State.ACTIVE, False),
        ({"control": APPROVE}, State.PAUSED, True),
    ],
)
def test_acceptance_is_final_for_what_never_becomes_active(
    message: dict[str, str], approved: State | None, *, at_once: bool
) -> None:
    """A rule in a state that is evaluated is waited for until it is."""
    answers = settled_by(message, approved)
    assert (Answer.ACCEPTED in answers) == at_once
    assert {Answer.REJECTED, Answer.PROPOSED, Answer.ACTIVE} <= set(answers)


def test_a_decline_is_settled_by_its_answer() -> None:
    """Whatever the state of the version that it declines."""
    assert set(settled_by(decline_message("busy", 2, "bob", "seen"))) == {Answer.REJECTED, Answer.DECLINED}
