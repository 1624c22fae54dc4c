"""What a message on the `rules` topic does to the set of rules, and the answer it gets on `rule-status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rules.documents import read_json
from rules.errors import Problem, RuleError, shortened
from rules.model import State, parse_rule, rule_to_mapping
from rules.names import did_you_mean
from rules.streams import Stream
from rules.timestamps import iso_text
from rules.versions import RuleSet


class Answer(StrEnum):
    """What became of a rule message, or of a rule that runs."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Status:
    """One record of `rule-status`. effective: event time in µs from which the version applies."""

    answer: Answer
    rule_id: str | None
    rule_version: int | None = None
    effective: int | None = None
    reasons: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """The record as JSON shows it."""
        return {
            "status": self.answer.value,
            "rule_id": self.rule_id,
            "rule_version": self.rule_version,
            "effective": None if self.effective is None else iso_text(self.effective),
            "reasons": list(self.reasons),
        }


# Characters of what a refused message calls its rule.
_MAX_ID = 100

# What a control message may do to a rule, and the state its new version gets.
CONTROLS = {"pause": State.PAUSED, "resume": State.ACTIVE, "shadow": State.SHADOW, "retire": State.RETIRED}


def publish(
    ruleset: RuleSet,
    message: bytes | str | Mapping[str, Any],
    arrival: int,
    streams: Mapping[str, Stream],
    activation_delay: int = 0,
) -> tuple[RuleSet, Status]:
    """The set of rules after a message that arrived at `arrival` (µs), and the answer to it.

    message: a rule (design section 4), or a control message such as {"control": "pause", "rule": "card-velocity"},
    which publishes the rule's last version anew in another state. A message that repeats the last version changes
    nothing: a producer may send it twice. Nothing is raised for a bad message: it is REJECTED with the reasons.
    """
    rule_id: str | None = None
    try:
        written = message if isinstance(message, Mapping) else _object(message)
        named = written.get("rule" if "control" in written else "id")
        rule_id = shortened(named, _MAX_ID) if isinstance(named, str) else None
        rule = parse_rule(_controlled(ruleset, written) if "control" in written else written, streams)
        earlier = ruleset.of_rule(rule.id)
        if earlier and earlier[-1].rule == rule:
            last = earlier[-1]
            return ruleset, Status(Answer.ACCEPTED, rule.id, last.version, last.effective)
        published = ruleset.publish(rule, arrival, activation_delay)
    except RuleError as refusal:
        reasons = tuple(str(problem) for problem in refusal.problems)
        return ruleset, Status(Answer.REJECTED, rule_id, reasons=reasons)
    newest = published.versions[-1]
    return published, Status(Answer.ACCEPTED, rule.id, newest.version, newest.effective)


def _object(message: bytes | str) -> Mapping[str, Any]:
    written = read_json(message)
    if not isinstance(written, dict):
        raise _refusal("", repr(written)[:60], "is not a JSON object", "Publish one JSON object a message")
    return written


def _controlled(ruleset: RuleSet, written: Mapping[str, Any]) -> dict[str, Any]:
    control, rule_id = written.get("control"), written.get("rule")
    if not isinstance(control, str) or control not in CONTROLS:
        remedy = did_you_mean(str(control), CONTROLS, "Controls are")
        raise _refusal("control", repr(control), "is not a control", remedy)
    if unknown := sorted(set(written) - {"control", "rule", "effective"}):
        raise _refusal(unknown[0], "", "is not a key of a control message", "Keys are control, rule and effective")
    earlier = ruleset.of_rule(str(rule_id))
    if not earlier:
        known = dict.fromkeys(version.rule.id for version in ruleset.versions)
        raise _refusal("rule", repr(rule_id), "is not a published rule", did_you_mean(str(rule_id), known, "Rules are"))
    again = rule_to_mapping(earlier[-1].rule) | {"state": CONTROLS[control].value}
    again.pop("effective", None)
    if written.get("effective") is not None:
        again["effective"] = written["effective"]
    return again


def _refusal(place: str, found: str, message: str, remedy: str) -> RuleError:
    return RuleError([Problem(place, found, message, remedy)])
