"""Reads and publishes rules on their topics.

How it works: there is no cache. Every call replays the whole `rule-status` topic through the same rule book that the
job uses, so it gets the job's result. Messages that the job has not answered yet are validated here as the job will
validate them.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.contracts.rule_messages import encoded, rule_of, settled_by
from nightjar.contracts.rule_status import ShownStatus, fold, shown
from nightjar.kafka.clients import KafkaError, explained, producer
from nightjar.kafka.readers import Reader
from nightjar.rules.model import Rule, State
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import Stream
from nightjar.rules.versions import latest

_DELIVERY_SECONDS = 30


def rule_book(settings: Settings, streams: Mapping[str, Stream]) -> RuleBook:
    """The rule book of all answers so far.

    Raises:
        KafkaError: the topic cannot be read.
    """
    book = RuleBook(streams)
    with Reader(settings, settings.rule_status_topic) as topic:
        for record in topic.all():
            fold(book, Record(record.offset, record.arrival, record.value))
    return book


def expected_book(settings: Settings, streams: Mapping[str, Stream]) -> tuple[RuleBook, set[tuple[str, int]]]:
    """The rule book once the job will have answered all messages, and the versions that are still unanswered."""
    book, unanswered = rule_book(settings, streams), set()
    shuffle_keys = list(book.shuffle_keys)
    with Reader(settings, settings.rules_topic) as topic:
        for record in topic.all():
            if record.offset < book.next_message:
                continue
            made, _ = judge(
                book,
                record.value,
                record.arrival,
                streams,
                settings.activation_delay,
                forms=settings.forms,
                approvals=settings.approvals,
            )
            if made is not None:
                book.add(made, record.arrival, running=shuffle_keys)
                unanswered.add((made.rule.id, made.version))
    return book, unanswered


def send(settings: Settings, messages: Iterable[Mapping[str, Any]], arrival: int | None = None) -> None:
    """Send rule messages and control messages to the topic in order, keyed by the rule's id.

    arrival: µs, for topics whose producers set it; None: now. Returns once all are delivered.
    """
    with (
        producer(settings) as client,
        explained(settings, f"publishing on topic {settings.rules_topic}"),
    ):
        for message in messages:
            stamp = None if arrival is None else arrival // 1000
            key, value = encoded(message)
            client.send(settings.rules_topic, value, key=key, timestamp_ms=stamp).get(_DELIVERY_SECONDS)


def unchanged(book: RuleBook, rule: Rule) -> bool:
    """Whether publishing the rule would change nothing."""
    last = latest(book.of_rule(rule.id))
    return last is not None and last.rule == rule


class AnswerReader:
    """The records of `rule-status` from its creation on; a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = Reader(settings, settings.rule_status_topic).to_end()

    def __enter__(self) -> "AnswerReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    def until_settled(
        self, messages: Iterable[Mapping[str, Any]], seconds: float, approved: State | None = None
    ) -> Iterator[ShownStatus]:
        """The answers to the messages sent since, until each is settled: REJECTED, PROPOSED, DECLINED, or
        ACTIVE.

        For a paused or retired rule, which never becomes ACTIVE, ACCEPTED is final. approved: the state of the version
        that the messages approve.

        Raises:
            KafkaError: an answer is missing after `seconds`.
        """
        waiting = [(rule_of(message), settled_by(message, approved)) for message in messages]
        about = {rule_id for rule_id, _ in waiting}
        deadline = time.monotonic() + seconds
        primed = set[str | None]()
        while waiting:
            for record in self._reader.poll():
                found = shown(record.value)
                if found is None or found.rule_id not in about:
                    continue
                yield found
                if found.answer is Answer.ACCEPTED and found.effective is None:
                    primed.add(found.rule_id)
                settled = next((w for w in waiting if w[0] == found.rule_id and found.answer in w[1]), None)
                if settled is not None:
                    waiting.remove(settled)
            if waiting and time.monotonic() > deadline:
                missing = ", ".join(rule_id for rule_id, _ in waiting)
                if primed.issuperset(rule_id for rule_id, _ in waiting):
                    raise KafkaError(
                        f"{missing} is accepted, and not in effect yet after {seconds:.0f} s",
                        where=f"topic {self._settings.rule_status_topic}",
                        remedy="It waits for its history: `nightjar status` shows how far the job is with that, and "
                        "`nightjar rules list` when the rule is ACTIVE",
                    )
                raise KafkaError(
                    f"the job has not answered for {missing} after {seconds:.0f} s",
                    where=f"topic {self._settings.rule_status_topic}",
                    remedy="Check with `nightjar status` whether it is running; it will still read the published rules",
                )
