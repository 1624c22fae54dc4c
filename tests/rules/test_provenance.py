"""Who published a rule and why: kept with the version, and no part of what it concludes."""

from typing import Any

import pytest

from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule, rule_to_mapping
from nightjar.rules.publishing import Answer, Status, judge
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
RULE: dict[str, Any] = {
    "id": "large",
    "stream": "transactions",
    "group_by": [],
    "when": "amount > 1",
    "author": "ann",
    "reason": "trial",
}


def publish(rules: RuleSet, message: dict[str, Any], arrival: int) -> tuple[RuleSet, Status]:
    """The rules after a message, and the answer to it."""
    made, status = judge(rules, message, arrival, STREAMS)
    return (rules if made is None else RuleSet((*rules.versions, made))), status


def test_author_and_reason_are_kept_with_the_version() -> None:
    """They are read back as they were written."""
    rule = parse_rule(RULE, STREAMS)
    assert (rule.author, rule.reason) == ("ann", "trial")
    assert parse_rule(rule_to_mapping(rule), STREAMS).reason == "trial"


def test_another_reason_is_not_another_version() -> None:
    """Publishing the same rule again for another reason changes nothing; another condition does."""
    rules, _ = publish(RuleSet(), RULE, 0)
    again, status = publish(rules, RULE | {"author": "bob", "reason": "again"}, 1)
    assert again is rules
    assert (status.answer, status.rule_version) == (Answer.ACCEPTED, 1)
    changed, _ = publish(rules, RULE | {"when": "amount > 2"}, 1)
    assert len(changed.versions) == 2


def test_a_control_message_has_its_own_author_and_reason() -> None:
    """The version it makes does not repeat those of the rule."""
    rules, _ = publish(RuleSet(), RULE, 0)
    by_bob, _ = publish(rules, {"control": "pause", "rule": "large", "author": "bob", "reason": "noise"}, 1)
    assert (by_bob.versions[-1].rule.author, by_bob.versions[-1].rule.reason) == ("bob", "noise")
    by_nobody, _ = publish(rules, {"control": "pause", "rule": "large"}, 1)
    assert (by_nobody.versions[-1].rule.author, by_nobody.versions[-1].rule.reason) == (None, None)


@pytest.mark.parametrize(
    ("key", "text"), [("author", "a" * 101), ("reason", "r" * 501), ("reason", "a\nb"), ("author", "\x1b[2J\u202e")]
)
def test_they_are_one_bounded_line(key: str, text: str) -> None:
    """They are shown in tables, and nobody may command a terminal through them."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {key: text}, STREAMS)
    (problem,) = refusal.value.problems
    assert problem.place == key
    assert "\x1b" not in problem.message
    _, status = publish(RuleSet(), {"control": "pause", "rule": "large", key: text}, 1)
    assert status.answer is Answer.REJECTED
