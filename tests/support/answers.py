"""Answers on `rule-status`, as the job's driver gives them, for tests that have no Kafka."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from nightjar.contracts.rule_status import fold
from nightjar.rules.rulebook import Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.streaming.driver.answering import answer_to

Message = Mapping[str, Any] | bytes


def answered(
    streams: Mapping[str, Stream],
    *messages: Message,
    at: int = 0,
    delay: int = 0,
    first: int = 0,
    after: Collection[Record] = (),
) -> list[Record]:
    """The answers to messages that arrive one after the other.

    at: arrival of all of them, µs. first: offset of the first message, and of its answer. after: earlier answers.
    """
    book = RuleBook(streams)
    for record in after:
        fold(book, record)
    running: list[ShuffleKey] = list(book.shuffle_keys)
    answers = []
    for offset, message in enumerate(messages, first):
        value = message if isinstance(message, bytes) else json.dumps(message).encode()
        _, answer = answer_to(Record(offset, at, value), f"rules-0-{offset}", book, running, delay)
        answers.append(Record(offset, at, json.dumps(answer).encode()))
        fold(book, answers[-1])
    return answers
