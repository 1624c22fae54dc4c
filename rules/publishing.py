"""What a message on the `rules` topic does to the set of rules, and the answer it gets on `rule-status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rules.errors import Problem, RuleError, shortened
from rules.foreign import DEFAULT_FORMS, Forms, MessageError, Reading, read_message
from rules.model import PROVENANCE, State, parse_rule, rule_to_mapping
from rules.names import did_you_mean
from rules.streams import Stream
from rules.versions import RuleSet, RuleVersion, next_version


class Answer(StrEnum):
    """What became of a rule message, or of a rule that runs."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Status:
    """What `rule-status` is to hold of it. effective: event time in µs from which the version applies."""

    answer: Answer
    rule_id: str | None
    rule_version: int | None = None
    effective: int | None = None
    reasons: tuple[str, ...] = ()


# Characters of what a refused message calls its rule.
_MAX_ID = 100

# What a control message may do to a rule, and the state its new version gets.
CONTROLS = {"pause": State.PAUSED, "resume": State.ACTIVE, "shadow": State.SHADOW, "retire": State.RETIRED}
_CONTROL_KEYS = ("control", "rule", "effective", *PROVENANCE)


class Published(Protocol):
    """What has been published so far: a RuleSet, or whatever keeps the same."""

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication."""

    @property
    def rule_ids(self) -> Iterable[str]:
        """The ids of the rules."""


def judge(
    known: Published,
    message: bytes | str | Mapping[str, Any],
    arrival: int,
    streams: Mapping[str, Stream],
    activation_delay: int = 0,
    *,
    forms: Forms = DEFAULT_FORMS,
) -> tuple[RuleVersion | None, Status]:
    """The version that a message which arrived at `arrival` (µs) makes, if any, and the answer to it.

    message: a rule, or a control message such as {"control": "pause", "rule": "card-velocity"}, which publishes the
    rule's last version again in another state; or either in a form of another system (see `rules.foreign`), of which
    `forms` says what they leave open. What does not mean quite the same there is among the answer's reasons. A message
    that repeats the last version makes none: a producer may send it twice. Nothing is raised for a bad message: it is
    REJECTED with the reasons.
    """
    rule_id: str | None = None
    reading = Reading({})
    try:
        reading = read_message(message, forms)
        written = reading.message
        named = written.get("rule" if "control" in written else "id")
        rule_id = shortened(named, _MAX_ID) if isinstance(named, str) else None
        rule = parse_rule(_controlled(known, written) if "control" in written else written, streams)
        earlier = known.of_rule(rule.id)
        if earlier and earlier[-1].rule == rule:
            last = earlier[-1]
            return None, Status(Answer.ACCEPTED, rule.id, last.version, last.effective, reading.notes)
        made = next_version(earlier, rule, arrival, activation_delay)
    except RuleError as refusal:
        if isinstance(refusal, MessageError):
            rule_id = refusal.rule_id
        reasons = tuple(str(reading.theirs(problem)) for problem in refusal.problems)
        return None, Status(Answer.REJECTED, rule_id, reasons=reasons)
    return made, Status(Answer.ACCEPTED, rule.id, made.version, made.effective, reading.notes)


def publish(
    ruleset: RuleSet,
    message: bytes | str | Mapping[str, Any],
    arrival: int,
    streams: Mapping[str, Stream],
    activation_delay: int = 0,
    *,
    forms: Forms = DEFAULT_FORMS,
) -> tuple[RuleSet, Status]:
    """The set of rules after a message, and the answer to it (see `judge`)."""
    made, status = judge(ruleset, message, arrival, streams, activation_delay, forms=forms)
    return (ruleset if made is None else RuleSet((*ruleset.versions, made))), status


def _controlled(known: Published, written: Mapping[str, Any]) -> dict[str, Any]:
    control, rule_id = written.get("control"), written.get("rule")
    if not isinstance(control, str) or control not in CONTROLS:
        remedy = did_you_mean(str(control), CONTROLS, "Controls are")
        raise _refusal("control", repr(control), "is not a control", remedy)
    if unknown := [key for key in written if key not in _CONTROL_KEYS]:
        remedy = f"Keys are {', '.join(_CONTROL_KEYS)}"
        raise _refusal(str(unknown[0]), "", "is not a key of a control message", remedy)
    earlier = known.of_rule(str(rule_id))
    if not earlier:
        remedy = did_you_mean(str(rule_id), list(known.rule_ids), "Rules are")
        raise _refusal("rule", repr(rule_id), "is not a published rule", remedy)
    again = rule_to_mapping(earlier[-1].rule) | {"state": CONTROLS[control].value}
    # what a version of its own says of itself, and not of the one it repeats
    for key in ("effective", *PROVENANCE):
        again.pop(key, None)
        if written.get(key) is not None:
            again[key] = written[key]
    return again


def _refusal(place: str, found: str, message: str, remedy: str) -> RuleError:
    return RuleError([Problem(place, found, message, remedy)])
