"""Whatever is published as a rule is accepted, or refused with a reason, in time; nothing else comes of it."""

import json
import random
from typing import Any

import pytest

from checks.fuzz.hostile_rules import HostileRules
from checks.fuzz.rules import Examiner
from nightjar.contracts.rule_status import status_record
from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
SMALL = {"id": "r", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 1"}


@pytest.fixture(scope="module")
def examiner(tmp_path_factory: pytest.TempPathFactory) -> Examiner:
    """What python -m checks.fuzz examines ten thousand with."""
    return Examiner(STREAMS, tmp_path_factory.mktemp("rules") / "rules.yaml")


@pytest.mark.parametrize("seed", range(5))
def test_hostile_rules_do_nothing_but_be_refused_or_evaluated(examiner: Examiner, seed: int) -> None:
    """Injections, damaged text, wrong types and extreme sizes; accepted ones evaluate, alike in stream and truth."""
    source = HostileRules(STREAMS, random.Random(seed))  # noqa: S311  nothing secret is drawn
    examined = [(hostile := source.text(), examiner.examine(hostile.text)) for _ in range(60)]
    assert [(found.wrong, hostile) for hostile, found in examined if found.wrong] == []
    assert {found.verdict for _, found in examined} >= {"accepted", "refused"}


def rule(**changes: Any) -> bytes:
    """A small rule's JSON with these keys changed."""
    return json.dumps({**SMALL, **changes}).encode()


def measuring(**measure: Any) -> bytes:
    """A small rule with one measure over an hour."""
    return rule(measures={"m": {**measure, "over": "1h"}})


@pytest.mark.parametrize(
    ("message", "place", "reason"),
    [
        (b'{"control": []}', "control", "is not a control"),
        (b'{"control": {"a": 1}, "rule": "r"}', "control", "is not a control"),
        (rule(when="amount > '\ud800'"), "", "half of a surrogate pair"),
        (rule(measures={"\udc00": {}}), "", "half of a surrogate pair"),
        (rule(id="a" * 300_000), "", "more than 262144"),
        (b'{"id": ' + b"[" * 980 + b"]" * 980 + b"}", "", "nested too deep"),
        (b'{"id": ' + b"9" * 5000 + b"}", "", "a number beyond 64 bits"),
        (rule(severity=2**63), "", "a number beyond 64 bits"),
        (b'{"id": "r", "id": "s"}', "", "is repeated"),
        (measuring(function="sum", field=None), "measures.m", "function is not an option"),
        (measuring(sum="amount", function="avg"), "measures.m", "function is not an option"),
        (rule(group_by=["x"] * 20_000), "group_by", "is ['x'"),
        (rule(description="{amount}" * 65), "description", "names 65 values"),
        (rule(when=f"customer_id LIKE '{'%_' * 33}'"), "when", "66 wildcards, more than 64"),
    ],
)
def test_a_message_that_would_stop_a_job_is_rejected(message: bytes, place: str, reason: str) -> None:
    """Each of these has raised, hung, or led to an answer that Kafka does not take."""
    made, status = judge(RuleSet(), message, 0, STREAMS)
    assert (made, status.answer) == (None, Answer.REJECTED)
    assert status.reasons[0].startswith(place)
    assert reason in status.reasons[0]
    assert len(json.dumps(status_record(status), ensure_ascii=False).encode()) < 1000


HUGE = f"0x{'f' * 20_000}"


@pytest.mark.parametrize(
    "text",
    [
        HUGE,
        f"severity: {HUGE}",
        f"severity: 1{':1' * 100_000}",
        f"severity: 1{':1' * 100_000}.5",
        f"? {HUGE}\n: 1",
        f"measures: {{n: {{count: '*', over: {HUGE}}}}}",
        f"measures: {{? {HUGE} : {{count: '*', over: 1h}}}}",
        f"group_by: [{HUGE}]",
        f"effective: {HUGE}",
        "severity: 9223372036854775808",
        "severity: .inf",
    ],
    ids=lambda text: text[:40],
)
def test_a_huge_number_in_yaml_is_a_refusal(text: str) -> None:
    """Wherever it stands: never a traceback."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(text, STREAMS)
    assert len(str(refusal.value)) < 3000


def test_an_answer_names_the_first_problems_and_stays_short() -> None:
    """A message may be wrong in thousands of ways; the reasons fit a record."""
    _, status = judge(RuleSet(), rule(**{f"k{number}": 1 for number in range(10_000)}), 0, STREAMS)
    assert "there are more problems" in status.reasons[-1]
    assert len(status.reasons) == 51
    assert len(json.dumps(status_record(status))) < 20_000


@pytest.mark.parametrize("operation", ["{} * 1000000000", "{} + 1", "ABS({})", "({} / 2)", "{} % 7", "-{}"])
def test_reading_a_deep_expression_takes_no_time_of_its_depth(examiner: Examiner, operation: str) -> None:
    """Each level was once read twice for the level above."""
    text = "amount * 100000000000000000000"
    for _ in range(25):
        text = operation.format(f"({text})")
        found = examiner.examine(rule(when=f"{text} > 1"))
        assert found.wrong == []
