"""Rules, versions and shuffle keys follow from the answers on rule-status alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.contracts.rule_status import answer_record, fold, read_answer
from nightjar.rules.model import Rule, load_rules, rule_to_mapping
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import WHOLE_STREAM, Record, RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams, streams_from_mapping
from nightjar.rules.timestamps import iso_text
from tests.support.answers import Message, answered

SECOND = 1_000_000
STREAMS = load_streams()
EXAMPLES = [Path(__file__).parents[2] / "examples" / name for name in ("rules.yaml", "logins.yaml")]


def rule(**keys: Any) -> dict[str, Any]:
    """A rule that fits the transactions stream."""
    return {
        "id": "r",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "measures": {"n": {"count": "*", "over": "1h"}},
        "when": "n > 3",
        **keys,
    }


def book_after(*written: Message, delay: int = 5 * SECOND) -> tuple[RuleBook, list[tuple[str, Any, Any]]]:
    """A book after the answers to messages that arrive at 0; status, version and effective time of each."""
    book = RuleBook(STREAMS)
    statuses = []
    for record in answered(STREAMS, *written, delay=delay):
        value = json.loads(record.value)
        statuses.append((value["status"], value["rule_version"], value["effective"]))
        fold(book, record)
    return book, statuses


def book_in_force(first: Message, *others: Message) -> RuleBook:
    """A book after the answers to messages; the rule of the first has waited for its shuffle key, and taken effect."""
    book = RuleBook(STREAMS)
    (answer,) = answered(STREAMS, first)
    records = [answer, active("r", 1, 0, 1)]
    for record in (*records, *answered(STREAMS, *others, first=2, after=records, delay=5 * SECOND)):
        fold(book, record)
    return book


def active(rule_id: str, version: int, effective: int | None, offset: int) -> Record:
    """An ACTIVE answer."""
    _, value = answer_record(Status(Answer.ACTIVE, rule_id, version, effective))
    return Record(offset, 100 * SECOND, json.dumps(value).encode())


def test_a_rule_on_an_entity_is_accepted_with_its_effective_time() -> None:
    """Entities are shuffle keys from the start, so the rule takes effect after the activation delay."""
    book, answers = book_after(rule())
    assert answers == [("ACCEPTED", 1, iso_text(5 * SECOND))]
    assert book.served_by(ShuffleKey("transactions", "customer_id")) == {("customer_id",)}
    assert book.answered == {("r", 1): 0}


def test_a_rule_without_a_shuffle_key_waits_for_the_job_to_make_one() -> None:
    """It is accepted, takes no effect, and gets its effective time by the answer that says ACTIVE."""
    book, answers = book_after(rule(group_by=["amount"]))
    assert answers == [("ACCEPTED", 1, None)]
    assert book.shuffle_keys[-1] == ShuffleKey("transactions", "amount")
    assert [version.rule.id for version in book.waiting] == ["r"]
    assert book.ruleset.applicable("r", 10**15) is None
    assert fold(book, active("r", 1, 105 * SECOND, 1)) is not None
    assert book.ruleset.applicable("r", 105 * SECOND) is not None
    assert book.answered == {("r", 1): 100 * SECOND}
    assert fold(book, active("r", 1, 205 * SECOND, 2)) is None, "sent again after a crash"
    assert book.ruleset.applicable("r", 105 * SECOND) is not None


def test_a_version_that_looks_for_nothing_waits_for_no_shuffle_key() -> None:
    """Paused and retired versions take effect at their time."""
    _, answers = book_after(rule(group_by=["amount"], state="paused"))
    assert answers == [("ACCEPTED", 1, iso_text(5 * SECOND))]


def test_a_shuffle_key_is_unused_once_no_event_on_time_sees_its_rules() -> None:
    """Each is retired, or groups by something else now, for longer than events may be late."""
    amount, lateness = ShuffleKey("transactions", "amount"), STREAMS["transactions"].allowed_lateness
    by_amount, by_customer = rule(group_by=["amount"]), rule()
    for end in ({"control": "retire", "rule": "r"}, by_customer):
        book = book_in_force(by_amount, end)
        (ended,) = (version.effective for version in book.of_rule("r") if version.version == 2)
        assert book.unused({}) == frozenset()
        assert book.unused({"transactions": ended + lateness - 1}) == frozenset()
        assert book.unused({"transactions": ended + lateness}) == {amount}
    book, _ = book_after(by_amount, {"control": "retire", "rule": "r"}, rule(id="other", group_by=["amount"]))
    assert (book.unused({"transactions": 10**15}), book.wanted()) == (frozenset(), {amount})


def test_a_paused_rule_keeps_its_shuffle_key_and_needs_none_before_it_has_run() -> None:
    """Nobody would be told since when that of a rule that was published paused has had events."""
    amount, pause = ShuffleKey("transactions", "amount"), {"control": "pause", "rule": "r"}
    by_amount = rule(group_by=["amount"])
    assert book_in_force(by_amount, pause).unused({"transactions": 10**15}) == frozenset()
    assert book_after(by_amount | {"state": "paused"})[0].unused({}) == {amount}
    assert book_after(by_amount, pause)[0].unused({"transactions": 10**15}) == {amount}, "it was paused before it ran"
    book = book_after(by_amount | {"state": "paused"}, {"control": "resume", "rule": "r"})[0]
    assert (book.unused({}), book.wanted()) == (frozenset(), {amount})


def test_the_shuffle_key_of_a_group_by_is_fixed_when_it_is_first_seen() -> None:
    """A later shuffle key that would come first does not move it, and neither does another declaration of entities."""
    both = rule(id="a", group_by=["amount", "customer_id"]), rule(id="b", group_by=["amount"])
    book, _ = book_after(*both)
    assert book.serving["transactions", ("amount", "customer_id")] == ShuffleKey("transactions", "customer_id")
    assert book.serving["transactions", ("amount",)] == ShuffleKey("transactions", "amount")
    other = RuleBook({"transactions": replace(STREAMS["transactions"], entities=("terminal_id",))})
    for record in answered(STREAMS, *both):
        fold(other, record)
    assert other.serving == book.serving


def test_the_whole_stream_is_a_shuffle_key_of_its_own() -> None:
    """group_by: [] sends every event to one bucket."""
    book, _ = book_after(rule(group_by=[]))
    assert book.shuffle_keys[-1] == ShuffleKey("transactions", WHOLE_STREAM)


def test_bad_messages_are_answered_and_change_nothing() -> None:
    """Not JSON, not a rule, not text."""
    book, answers = book_after(b"{", rule(when="n >"), b"\xff")
    assert [status for status, _, _ in answers] == ["REJECTED"] * 3
    assert (book.ruleset.versions, book.next_message) == ((), 3)


def test_an_answer_received_before_is_passed_over() -> None:
    """Offsets make receiving idempotent; of two answers to one message the first counts."""
    (first,), (other,) = answered(STREAMS, rule()), answered(STREAMS, rule(when="n > 4"))
    book = RuleBook(STREAMS)
    assert fold(book, first) is not None
    assert fold(book, first) is None
    assert fold(book, replace(other, offset=1)) is None
    assert [version.rule.when for version in book.ruleset.versions] == ["n > 3"]


def test_a_message_that_repeats_the_last_version_is_no_new_one() -> None:
    """A producer may send it twice."""
    _, answers = book_after(rule(), rule(), rule(when="n > 4"))
    assert [version for _, version, _ in answers] == [1, 1, 2]


def test_control_messages_publish_the_rule_in_another_state() -> None:
    """Pausing and resuming are versions like any other."""
    book, _ = book_after(rule(), {"control": "pause", "rule": "r"}, {"control": "resume", "rule": "r"})
    assert [(v.version, v.rule.state.value) for v in book.ruleset.versions] == [
        (1, "active"),
        (2, "paused"),
        (3, "active"),
    ]


def test_what_was_answered_once_is_never_judged_again() -> None:
    """A rejected rule stays rejected when its stream is declared later: live versions keep their numbers and ids."""
    keys = {"event_id": "id", "event_time": "at", "entities": ["customer_id"]}
    fields = {"id": "string", "at": "timestamp", "customer_id": "string"}
    refunds = streams_from_mapping({"refunds": {**keys, "fields": fields}}, "tests")
    answers = answered(STREAMS, rule(stream="refunds"), rule(when="n > 7"), rule(when="n > 9"), delay=5 * SECOND)
    for declared in (STREAMS, {**STREAMS, **refunds}, refunds):
        book = RuleBook(declared)
        for record in answers:
            fold(book, record)
        assert [(v.rule.stream, v.version, v.rule.when, v.effective) for v in book.ruleset.versions] == [
            ("transactions", 1, "n > 7", 5 * SECOND),
            ("transactions", 2, "n > 9", 5 * SECOND),
        ]


def test_records_that_are_no_answers_are_skipped_and_counted() -> None:
    """Garbage, versions out of order, an ACTIVE of nobody; a FAILED is none, and not counted."""
    book, _ = book_after(rule())
    (second,) = answered(STREAMS, rule(when="n > 4"), first=1, after=answered(STREAMS, rule()))
    ahead = json.loads(second.value) | {"rule_version": 3}
    failed = b'{"status": "FAILED", "rule_id": "r", "rule_version": 1, "effective": null, "reasons": []}'
    for offset, value in enumerate((b"", b"{", json.dumps(ahead).encode(), failed), 1):
        assert fold(book, Record(offset, 0, value)) is None
    assert fold(book, active("nobody", 1, 0, 5)) is None
    assert book.skipped == 4
    assert fold(book, replace(second, offset=6)) is not None


@pytest.mark.parametrize("example", [rule for file in EXAMPLES for rule in load_rules(file, STREAMS)])
def test_an_accepted_rule_is_read_back_as_it_was(example: Rule) -> None:
    """The answer carries all of it."""
    (answer,) = answered(STREAMS, rule_to_mapping(example))
    read = read_answer(answer.value)
    assert read is not None
    assert read.rule == example
