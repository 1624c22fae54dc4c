"""What the first task of a DAG finds wrong with its form: all at once, in words."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from nightjar.airflow.forms import check_night
from nightjar.airflow.rule_runs import request_of
from nightjar.airflow.submission import FormError
from nightjar.configuration.settings import load_settings
from nightjar.rules.streams import load_streams
from tests.dags.test_submission import DagRun

NOW = datetime(2026, 11, 21, 0, 5, tzinfo=UTC)
STREAMS = load_streams()
RULE = "id: large\nstream: transactions\ngroup_by: [customer_id]\nwhen: amount >= 15\n"


def night(params: dict[str, Any], **settings: Any) -> date:
    """The day of a form of the nightly DAG."""
    return check_night(params, DagRun(), load_settings(**settings), STREAMS, NOW)


def test_a_form_as_it_comes_is_about_the_last_day_that_is_due() -> None:
    """And needs no service."""
    assert night({}, arrival="producer") == date(2026, 11, 20)
    assert night({"day": "2026-03-01", "groups": ["customer_id=c1,c2"], "rules": None}) == date(2026, 3, 1)


def test_all_problems_are_found_at_once() -> None:
    """A day to come, a malformed id, a misspelt field and a malformed group; none shows a pattern."""
    asked = {"day": "2026-12-01", "rules": ["Bad Id"], "groups": ["customer=c1", "nonsense"]}
    with pytest.raises(FormError) as refused:
        night(asked)
    day, rule, field, group = refused.value.problems
    assert day == "day 2026-12-01: is in the future. Today is 2026-11-21 (UTC)"
    assert (
        rule == "rules 'Bad Id': is not valid. Write a rule's id: lower-case letters, digits and . _ -, without spaces"
    )
    assert field.startswith("groups customer=c1: is not a field of any stream. Did you mean customer_id?")
    assert group == "groups 'nonsense': is not valid. Write a field and its values, without spaces: customer_id=C1,C2"
    assert str(refused.value).startswith("the form: 4 values cannot be used\n- day")


def test_a_day_is_run_once_nothing_of_it_can_arrive() -> None:
    """Ten minutes after its end with the shipped streams, by the brokers' clock; a dry run shows what is there."""
    with pytest.raises(FormError, match=r"is not over: .* Run it from 2026-11-21 00:10 UTC"):
        night({"day": "2026-11-20"})
    assert night({"day": "2026-11-20", "dry_run": True}) == date(2026, 11, 20)
    assert night({"day": "2026-11-20"}, arrival="producer") == date(2026, 11, 20)
    with pytest.raises(FormError, match="in the future"):
        night({"day": "2026-11-22", "dry_run": True}, arrival="producer")


def test_a_backtest_names_the_problems_of_its_rules_and_of_its_other_fields() -> None:
    """Reversed days with a misspelt field and a threshold that no rule has."""
    rules = RULE.replace("customer_id", "customer") + "x: 1\n"
    form = {"rules": rules, "first": "2026-01-07", "last": "2026-01-05", "threshold": "a b", "reason": " "}
    with pytest.raises(FormError) as refused:
        request_of(form, NOW)
    text = str(refused.value)
    for problem in ("has no field 'customer'", "rule large, x", "threshold 'a b': is not a name", "reason"):
        assert problem in text
    assert "first 2026-01-07: is after the last day, 2026-01-05. Exchange the two" in text
    good = {**form, "rules": RULE, "first": "2026-01-05", "threshold": None, "reason": "trial"}
    assert request_of(good, NOW).first == date(2026, 1, 5)
    with pytest.raises(FormError, match="first 2026-12-01: is in the future"):
        request_of({**good, "first": "2026-12-01", "last": "2026-12-02"}, NOW)
    with pytest.raises(FormError, match="1 value cannot be used"):
        request_of({**good, "threshold": "spent"}, NOW)
