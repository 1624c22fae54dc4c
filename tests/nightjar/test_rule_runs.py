"""What the tasks of the DAG `rule_backtest` do, without Airflow."""

import json
from typing import Any

import pytest

from nightjar.airflow.rule_runs import People, _changes, _code, people_of, publish, request_of
from nightjar.airflow.submission import SubmissionError
from nightjar.kafka import rule_topics
from nightjar.kafka.readers import Reader
from nightjar.rules.model import load_rules
from nightjar.rules.streams import load_streams
from tests.support.answering import answering
from tests.support.command import environment
from tests.support.topics import TestTopics

RULE = """
id: burst
stream: transactions
group_by: [customer_id]
measures: {payments: {count: "*", over: 10m}}
when: "payments >= 4"
"""
FORM: dict[str, Any] = {
    "rules": RULE,
    "first": "2026-01-05",
    "last": "2026-01-06",
    "threshold": None,
    "reason": "stolen cards",
}
PEOPLE = People("ann", "stolen cards", "bob", "three a day")
ANSWER = {
    "chosen_options": ["Approve"],
    "params_input": {"approval_reason": "three a day"},
    "responded_by_user": {"id": "7", "name": "bob"},
}


def test_a_form_is_a_request() -> None:
    """Its days are dates, and no threshold is none."""
    request = request_of(FORM | {"threshold": ""})
    assert (request.first.day, request.last.day, request.threshold, request.reason) == (5, 6, None, "stolen cards")


@pytest.mark.parametrize(
    "changes",
    [
        {"rules": ""},
        {"rules": None},
        {"rules": 5},
        {"rules": "x" * 2_000_000},
        {"reason": " "},
        {"reason": "a\nb"},
        {"reason": "r" * 501},
        {"reason": None},
        {"threshold": "--all"},
        {"threshold": "n\n"},
        {"first": "2026-02-30"},
        {"first": "--x"},
        {"last": "2026-01-05\n"},
        {"last": None},
        {"first": "2026-01-07"},
    ],
)
def test_what_a_form_would_not_allow_is_refused(changes: dict[str, Any]) -> None:
    """Also where its own validation was passed by."""
    with pytest.raises(SubmissionError):
        request_of(FORM | changes)


def test_names_are_those_that_airflow_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's run is published, and with approvals nobody approves their own."""
    assert people_of("ann", "stolen cards", ANSWER) == PEOPLE
    with pytest.raises(SubmissionError, match="nobody started"):
        people_of(None, "r", ANSWER)
    with pytest.raises(SubmissionError, match="nobody approved"):
        people_of("ann", "r", {**ANSWER, "responded_by_user": None})
    with pytest.raises(SubmissionError, match="without a reason"):
        people_of("ann", "r", {**ANSWER, "params_input": {"approval_reason": " "}})
    assert people_of("Bob", "r", ANSWER).approver == "bob"
    monkeypatch.setenv("NIGHTJAR_APPROVALS", "1")
    with pytest.raises(SubmissionError, match="nobody approves a version of their own"):
        people_of("Bob", "r", ANSWER)


@pytest.mark.parametrize("text", ["plain", "`", "``` [x](http://e.example)", "<b>"])
def test_what_somebody_wrote_is_no_markup(text: str) -> None:
    """A span of code ends at as many backticks as it began with."""
    shown = _code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown == f"{fence} {text} {fence}"
    assert fence not in text


@pytest.mark.kafka
@pytest.mark.parametrize("approvals", [0, 1])
def test_drafts_are_published_and_approved(
    kafka_topics: TestTopics, monkeypatch: pytest.MonkeyPatch, approvals: int
) -> None:
    """By both names where approvals are asked for; a second try sends nothing more."""
    own = kafka_topics.ensure()
    for name, value in environment(own.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NIGHTJAR_APPROVALS", str(approvals))
    settings = own.settings.model_copy(update={"approvals": approvals})
    lines: list[str] = []
    with answering(own, settings):
        publish(request_of(FORM), PEOPLE, lines.append)
        publish(request_of(FORM), PEOPLE, lines.append)
    (version,) = rule_topics.rule_book(own.settings, load_streams()).ruleset.versions
    assert (version.rule.author, version.rule.reason) == ("ann", "stolen cards")
    assert (version.approval is not None) is bool(approvals)
    if version.approval is not None:
        assert (version.approval.author, version.approval.reason) == ("bob", "three a day")
    assert "burst version 1: ACTIVE" in lines
    assert lines[-1] == "burst is published already: it is version 1"
    with Reader(own.settings, own.settings.rules_topic) as topic:
        assert len([json.loads(record.value) for record in topic.all()]) == 1 + approvals


@pytest.mark.kafka
def test_a_proposal_that_waits_is_approved_and_a_rejection_fails(
    kafka_topics: TestTopics, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A run that was interrupted between the two messages is completed; what the job rejects is an error."""
    own = kafka_topics.ensure()
    for name, value in {**environment(own.settings), "NIGHTJAR_APPROVALS": "1"}.items():
        monkeypatch.setenv(name, value)
    settings = own.settings.model_copy(update={"approvals": 1})
    draft = tmp_path / "draft.yaml"
    draft.write_text(RULE)
    (rule,) = load_rules(draft, own.streams)
    with answering(own, settings):
        written = rule.model_dump(mode="json", exclude_defaults=True) | {"author": "ann", "reason": "r"}
        rule_topics.send(own.settings, [written])
        publish(request_of(FORM), PEOPLE, print)
        (version,) = rule_topics.rule_book(own.settings, own.streams).ruleset.versions
        assert version.approval is not None
        by_herself = People("bob", "r", "bob", "r")
        with pytest.raises(SubmissionError, match="of their own"):
            publish(request_of(FORM | {"rules": RULE.replace(">= 4", ">= 5")}), by_herself, print)
    book = rule_topics.rule_book(own.settings, own.streams)
    (block,) = _changes(book, load_rules(draft, own.streams))
    assert "burst is published like this" in block
    draft.write_text(RULE.replace(">= 4", ">= 5") + 'description: "``` x"\n')
    (block,) = _changes(book, load_rules(draft, own.streams))
    assert block.startswith("````diff\n")
    assert "-when: payments >= 4\n" in block
    assert "+when: payments >= 5\n" in block
