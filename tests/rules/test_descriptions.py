"""Placeholders that would not be filled in, of new rules and of those that were accepted before."""

from typing import Any

import pytest

from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule, rule_from_mapping
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet, RuleVersion

STREAMS = load_streams()
RULE: dict[str, Any] = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "payments > 1",
    "measures": {"payments": {"count": "*", "over": "1h"}, "places": {"values": "terminal_id", "over": "1h"}},
}


@pytest.mark.parametrize(
    ("description", "message", "remedy"),
    [
        (
            "{paymnts} paid",
            "{paymnts} is not filled in: there is no field or measure 'paymnts'",
            "Did you mean payments?",
        ),
        ("{Amount}", "no field or measure 'Amount'", "Did you mean amount?"),
        ("{amount:.2f}", "{amount:.2f} is not filled in: a name stands alone", "Write {amount}"),
        ("{amuont:.2f}", "{amuont:.2f} is not filled in", "Did you mean amount?"),
        ("{amount!r}", "a name stands alone", "Write {amount}"),
        ("{payments.value}", "a name stands alone", "Write {payments}"),
        ("{payments|upper}", "a name stands alone", "Write {payments}"),
        ("{{payments}}", "{{payments}} has two braces on each side", "Write {payments}"),
        ("{{ payments }}", "has two braces on each side", "Write {payments}"),
        ("{ payments }", "spaces within its braces", "Write {payments}"),
    ],
)
def test_a_placeholder_that_is_not_filled_in_is_refused(description: str, message: str, remedy: str) -> None:
    """With what was meant; nobody would see it before the first alert."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"description": description}, STREAMS)
    (problem,) = refusal.value.problems
    assert (problem.place, remedy in problem.remedy) == ("description", True)
    assert message in problem.message


@pytest.mark.parametrize(
    "text", ["{}", "{1}", "${amount}", '{"a": 1}', "{ so }", "{note: this}", "{a b}", "{é}", "{places}"]
)
def test_other_braces_are_text(text: str) -> None:
    """They stay in the alert's text as they are."""
    assert parse_rule(RULE | {"description": text}, STREAMS).description == text


def test_a_remedy_is_short_whatever_the_names_of_measures_are() -> None:
    """They may be as hostile as the placeholder."""
    measures = {"x" * 9000: {"count": "*", "over": "1h"}}
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"description": "{n}", "measures": measures, "when": "amount > 1"}, STREAMS)
    (remedy,) = (each.remedy for each in refusal.value.problems if each.place == "description")
    assert len(remedy) < 500


def test_each_placeholder_is_reported_once_and_with_other_problems() -> None:
    """At most as many as a person fixes at once."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"when": "paid > 1", "description": "{paid} {paid} {usuall}"}, STREAMS)
    assert [problem.found for problem in refusal.value.problems] == ["paid", "{paid}", "{usuall}"]
    many = "".join(f"{{n{number}:x}}" for number in range(500))
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"description": many}, STREAMS)
    assert len(refusal.value.problems) <= 51


@pytest.mark.parametrize(
    "change", [{"description": "{paymnts} paid"}, {"when": "payments == 2"}], ids=["text", "spelling"]
)
def test_what_an_earlier_release_accepted_can_still_be_used(change: dict[str, Any]) -> None:
    """It may be paused, retired, approved and sent again; a changed rule must be right."""
    old = rule_from_mapping(RULE | change | {"author": "ann"})
    known = RuleSet((RuleVersion(old, 1, 0),))
    for control in ("pause", "shadow", "retire"):
        made, status = judge(known, {"control": control, "rule": "burst"}, 5, STREAMS)
        assert made is not None, status.reasons
        assert (status.answer, made.rule.description, made.rule.when) == (Answer.ACCEPTED, old.description, old.when)
    made, status = judge(known, RULE | change, 5, STREAMS)
    assert (made, status.answer, status.rule_version) == (None, Answer.ACCEPTED, 1)
    _, status = judge(known, RULE | change | {"severity": "high"}, 5, STREAMS)
    assert status.answer is Answer.REJECTED
    proposed = RuleSet((RuleVersion(old, 1, 0, is_proposed=True),))
    approval = {"control": "approve", "rule": "burst", "version": 1, "author": "bob", "reason": "fine"}
    made, status = judge(proposed, approval, 5, STREAMS)
    assert made is not None, status.reasons
    assert (status.answer, made.rule) == (Answer.ACCEPTED, old)
