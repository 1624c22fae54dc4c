"""The result of reading a message of another system: the message in our own form, with notes and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from nightjar.rules.errors import Problem, RuleError


@dataclass(frozen=True)
class Forms:
    """What messages in other forms do not contain.

    stream: the stream of a Flink rule, which names none. deleted: the column of a table of rules that marks a row as
    deleted.
    """

    stream: str = "payments"
    deleted: str = "deleted"


@dataclass(frozen=True)
class Reading:
    """A message in our own form: a rule or a control message.

    notes: sentences on differences in meaning. places: our places, or prefixes of them, to those in the message as
    sent, for errors; prefix: the place in the message that contains all of them.
    """

    message: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    prefix: str = ""

    def theirs(self, problem: Problem) -> Problem:
        """The problem, with its place in the message as sent."""
        place = problem.place
        for ours, sent in self.places.items():
            if place == ours or place.startswith(f"{ours}."):
                place = sent
                break
        return replace(problem, place=f"{self.prefix}.{place}".strip("."))


class MessageError(RuleError):
    """A message cannot be read; `rule_id` is the rule that it is about, if known."""

    def __init__(self, problems: Sequence[Problem], rule_id: str | None = None) -> None:
        super().__init__(problems)
        self.rule_id = rule_id


def refused(place: str, found: str, message: str, remedy: str, rule_id: str | None = None) -> MessageError:
    """A refusal for one reason."""
    return MessageError([Problem(place, found, message, remedy)], rule_id)
