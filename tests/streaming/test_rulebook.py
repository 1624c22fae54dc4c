"""Rules, versions and routes follow from the messages of the rules topic alone."""

from __future__ import annotations

import json
from typing import Any

from rules.publication import Answer
from rules.streams import load_streams
from streaming.rulebook import WHOLE_STREAM, Route, RuleBook, RuleMessage

SECOND = 1_000_000
STREAMS = load_streams()


def rule(**keys: Any) -> dict[str, Any]:
    """A rule that fits the transactions stream."""
    return {
        "id": "r", "stream": "transactions", "group_by": ["customer_id"],
        "measures": {"n": {"count": "*", "over": "1h"}}, "when": "n > 3", **keys,
    }  # fmt: skip


def book_after(*written: dict[str, Any] | bytes) -> tuple[RuleBook, list[list[Any]]]:
    """A book after messages that arrive one a second, and the answers to each."""
    book = RuleBook(STREAMS, 5 * SECOND)
    answers = []
    for offset, message in enumerate(written):
        value = message if isinstance(message, bytes) else json.dumps(message).encode()
        statuses = book.receive(RuleMessage(offset, offset * SECOND, value))
        answers.append([(s.answer, s.rule_version, s.effective) for s in statuses])
    return book, answers


def test_a_rule_on_an_entity_is_active_at_once() -> None:
    """Entities are routes from the start, so the rule takes effect after the activation delay."""
    book, answers = book_after(rule())
    assert answers == [[(Answer.ACCEPTED, 1, 5 * SECOND), (Answer.ACTIVE, 1, 5 * SECOND)]]
    assert book.served_by(Route("transactions", "customer_id")) == {("customer_id",)}


def test_what_is_not_looked_for_is_never_active() -> None:
    """A paused or retired version is accepted, whether a route serves it or has to be made; a shadow rule is active."""
    pause, retire = ({"control": control, "rule": "r"} for control in ("pause", "retire"))
    _, answers = book_after(rule(state="shadow"), pause, retire)
    assert [[answer for answer, _, _ in found] for found in answers] == [
        [Answer.ACCEPTED, Answer.ACTIVE], [Answer.ACCEPTED], [Answer.ACCEPTED],
    ]  # fmt: skip
    book, _ = book_after(rule(group_by=["amount"], state="paused"))
    ((activate, _),) = book.activations()
    assert book.receive(RuleMessage(1, 100 * SECOND, activate)) == []


def test_a_rule_without_a_route_waits_for_the_job_to_make_one() -> None:
    """It is accepted, takes no effect, and becomes active by the message that the job publishes."""
    book, answers = book_after(rule(group_by=["amount"]))
    assert answers == [[(Answer.ACCEPTED, 1, None)]]
    assert book.routes[-1] == Route("transactions", "amount")
    assert book.ruleset.applicable("r", 10**15) is None
    ((activate, _),) = book.activations()
    again = RuleMessage(1, 100 * SECOND, activate)
    assert [(s.answer, s.effective) for s in book.receive(again)] == [(Answer.ACTIVE, 105 * SECOND)]
    assert book.ruleset.applicable("r", 105 * SECOND) is not None
    assert book.receive(RuleMessage(2, 200 * SECOND, activate)) == [], "published twice, after a crash"


def test_the_route_of_a_group_by_is_fixed_when_it_is_first_seen() -> None:
    """A later route that would come first does not move it."""
    book, _ = book_after(rule(id="a", group_by=["amount", "customer_id"]), rule(id="b", group_by=["amount"]))
    assert book.serving["transactions", ("amount", "customer_id")] == Route("transactions", "customer_id")
    assert book.serving["transactions", ("amount",)] == Route("transactions", "amount")


def test_the_whole_stream_is_a_route_of_its_own() -> None:
    """group_by: [] sends every event to one bucket."""
    book, _ = book_after(rule(group_by=[]))
    assert book.routes[-1] == Route("transactions", WHOLE_STREAM)


def test_bad_messages_are_answered_and_change_nothing() -> None:
    """Not JSON, not a rule, and an activation of nothing."""
    book, answers = book_after(b"{", rule(when="n >"), {"control": "activate", "rule": "x", "rule_version": 1}, b"\xff")
    assert [[a for a, _, _ in found] for found in answers] == [
        [Answer.REJECTED],
        [Answer.REJECTED],
        [],
        [Answer.REJECTED],
    ]
    assert book.ruleset.versions == ()


def test_a_message_received_before_is_passed_over() -> None:
    """Offsets make receiving idempotent."""
    book, _ = book_after(rule())
    assert book.receive(RuleMessage(0, 0, json.dumps(rule(when="n > 4")).encode())) == []


def test_a_message_that_repeats_the_last_version_is_no_new_one() -> None:
    """A producer may send it twice."""
    _, answers = book_after(rule(), rule(), rule(when="n > 4"))
    assert [found[0][1] for found in answers] == [1, 1, 2]


def test_control_messages_publish_the_rule_in_another_state() -> None:
    """Pausing and resuming are versions like any other."""
    book, _ = book_after(rule(), {"control": "pause", "rule": "r"}, {"control": "resume", "rule": "r"})
    assert [(v.version, v.rule.state.value) for v in book.ruleset.versions] == [
        (1, "active"),
        (2, "paused"),
        (3, "active"),
    ]
