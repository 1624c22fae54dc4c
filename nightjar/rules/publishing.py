"""What a message on the `rules` topic does to the set of rules, and the answer it gets on `rule-status`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nightjar.rules.approval import APPROVE, DECLINE, approved, declined, proposed, waits_for
from nightjar.rules.errors import Problem, RuleError, shortened
from nightjar.rules.foreign import DEFAULT_FORMS, Forms, MessageError, Reading, read_message
from nightjar.rules.model import PROVENANCE, Rule, State, parse_rule, rule_to_mapping
from nightjar.rules.names import did_you_mean
from nightjar.rules.over_alerts import problems
from nightjar.rules.streams import Stream
from nightjar.rules.versions import (
    Approval,
    Decline,
    Primed,
    Published,
    RuleVersion,
    Superseded,
    last_in_force,
    latest,
    next_version,
    with_named,
)


class Answer(StrEnum):
    """What became of a rule message, or of a rule that runs."""

    ACCEPTED = "ACCEPTED"
    PROPOSED = "PROPOSED"
    DECLINED = "DECLINED"
    REJECTED = "REJECTED"
    ACTIVE = "ACTIVE"
    SUPERSEDED = "SUPERSEDED"
    RETIRED = "RETIRED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Status:
    """An answer to publish on `rule-status`."""

    answer: Answer
    rule_id: str | None
    rule_version: int | None = None
    effective: int | None = None
    """Event time in µs from which the version applies."""
    reasons: tuple[str, ...] = ()
    approval: Approval | None = None
    """Of a version that a second person approved."""
    decline: Decline | None = None
    """Of a proposed version that somebody declined (DECLINED)."""
    superseded: Superseded | None = None
    """Which version took over, and when (SUPERSEDED)."""
    primed: Primed | None = None
    """The history that a version waited for (ACTIVE)."""


# The most characters of a rule id in the answer to a refused message.
_MAX_ID = 100

# What a control message may do to a rule, and the state its new version gets.
CONTROLS = {"pause": State.PAUSED, "resume": State.ACTIVE, "shadow": State.SHADOW, "retire": State.RETIRED}
_CONTROL_KEYS = ("control", "rule", "effective", *PROVENANCE)


def judge(
    known: Published,
    message: bytes | str | Mapping[str, Any],
    arrival: int,
    streams: Mapping[str, Stream],
    activation_delay: int = 0,
    *,
    forms: Forms = DEFAULT_FORMS,
    approvals: int = 0,
) -> tuple[RuleVersion | None, Status]:
    """The version that a message which arrived at `arrival` (µs) makes, if any, and the answer to it.

    message: a rule, or a control message such as {"control": "pause", "rule": "card-velocity"}, which publishes the
    rule's last version in force again in another state; or either in a form of another system (see
    `nightjar.rules.foreign`), of which `forms` says what they leave open. What they do not express exactly is noted in
    the answer's reasons. A message that repeats the last version makes none: a producer may send it twice. Nothing is
    raised for a bad message: it is REJECTED with the reasons.

    approvals: with 1 a version is only PROPOSED. An approval (see `nightjar.rules.approval`) makes it the ACCEPTED
    version, also when approvals are no longer required; a decline makes it the DECLINED one, which never applies.
    """
    rule_id: str | None = None
    reading = Reading({})
    try:
        reading = read_message(message, forms)
        written = reading.message
        named = written.get("rule" if "control" in written else "id")
        rule_id = shortened(named, _MAX_ID) if isinstance(named, str) else None
        if written.get("control") == APPROVE:
            made = approved(known, written, arrival, streams, activation_delay)
            if made.rule.state.is_evaluated:  # others than when it was proposed may be in force by now
                _refuse_misnamed(made.rule, known, last_in_force, among="")
            return made, _status(made, reading.notes)
        if written.get("control") == DECLINE:
            made = declined(known, written)
            return made, _status(made, reading.notes)
        rule = _rule(known, written, streams)
        earlier = known.of_rule(rule.id)
        last = latest(earlier)
        if last is not None and last.rule == rule:
            return None, _status(last, reading.notes)
        if "control" not in written or (rule.state.is_evaluated and not _is_running(earlier)):
            _refuse_misnamed(rule, known)
        made = with_named(next_version(earlier, rule, arrival, activation_delay), known)
        if approvals:
            made = proposed(made)
    except RuleError as refusal:
        if isinstance(refusal, MessageError):
            rule_id = refusal.rule_id
        reasons = tuple(str(reading.theirs(problem)) for problem in refusal.problems)
        return None, Status(Answer.REJECTED, rule_id, reasons=reasons)
    return made, _status(made, reading.notes)


def overtaken_status(version: RuleVersion, by: Superseded) -> Status:
    """The answer about a proposal once a later version has overtaken it."""
    why = f"version {by.by} was published before it was approved: it never applies"
    return Status(Answer.SUPERSEDED, *version.key, reasons=(why,), superseded=by)


def _status(version: RuleVersion, notes: tuple[str, ...]) -> Status:
    """The answer to a message that made a version, or that repeats it."""
    rule_id, number = version.key
    if (decline := version.decline) is not None:
        why = f"{decline.author} declined it: {decline.reason}"
        return Status(Answer.DECLINED, rule_id, number, reasons=(*notes, why), decline=decline)
    if version.is_proposed:
        return Status(Answer.PROPOSED, rule_id, number, reasons=(*notes, waits_for(version)))
    return Status(Answer.ACCEPTED, rule_id, number, version.effective, notes, version.approval)


def _rule(known: Published, written: Mapping[str, Any], streams: Mapping[str, Stream]) -> Rule:
    """The rule of a message. What an earlier release accepted may be controlled, and sent again, although a new rule
    like it is refused.
    """
    if "control" in written:
        return parse_rule(_controlled(known, written), streams, accepted=True)
    try:
        return parse_rule(written, streams)
    except RuleError:
        last = latest(known.of_rule(str(written.get("id"))))
        if last is None or (again := parse_rule(written, streams, accepted=True)) != last.rule:
            raise
        return again


def _is_running(versions: Sequence[RuleVersion]) -> bool:
    """Whether the version of a rule that is in force is evaluated."""
    last = last_in_force(versions)
    return last is not None and last.rule.state.is_evaluated


def _refuse_misnamed(
    rule: Rule,
    known: Published,
    chosen: Callable[[Sequence[RuleVersion]], RuleVersion | None] = latest,
    among: str = "published",
) -> None:
    """Refuse a rule that names what it cannot count or silence, and one that others could no longer.

    known: what has been published so far; chosen: the version of each other rule that matters; among: see `problems`.

    Raises:
        RuleError: with what is wrong.
    """
    newest = [chosen(known.of_rule(rule_id)) for rule_id in known.rule_ids if rule_id != rule.id]
    others = [version.rule for version in newest if version is not None]
    found = [*problems(rule, [*others, rule], among=among)] if rule.names_others else []
    for naming in others if rule.state.is_evaluated else ():
        if naming.names_others and naming.state.is_evaluated:
            for problem in problems(naming, [rule]):
                remedy = f"Change or retire rule {naming.id} first, whose {problem.place} names this rule"
                found.append(Problem("id", rule.id, problem.message.partition(", which ")[2], remedy))
    if found:
        raise RuleError(found, where=f"rule {rule.id}")


def _controlled(known: Published, written: Mapping[str, Any]) -> dict[str, Any]:
    control, rule_id = written.get("control"), written.get("rule")
    if not isinstance(control, str) or control not in CONTROLS:
        remedy = did_you_mean(str(control), (*CONTROLS, APPROVE, DECLINE), "Controls are")
        raise _refusal("control", repr(control), "is not a control", remedy)
    if unknown := [key for key in written if key not in _CONTROL_KEYS]:
        remedy = f"Keys are {', '.join(_CONTROL_KEYS)}"
        raise _refusal(str(unknown[0]), "", "is not a key of a control message", remedy)
    earlier = known.of_rule(str(rule_id))
    if not earlier:
        remedy = did_you_mean(str(rule_id), list(known.rule_ids), "Rules are")
        raise _refusal("rule", repr(rule_id), "is not a published rule", remedy)
    # A proposal must not take effect through a control message, whose approval does not show what the proposal changes.
    in_force = last_in_force(earlier)
    if in_force is None:
        raise _refusal("rule", repr(rule_id), "has no approved version", "Publish it in the state that it is to have")
    again = rule_to_mapping(in_force.rule) | {"state": CONTROLS[control].value}
    # these are of the control message, not of the version it repeats
    for key in ("effective", *PROVENANCE):
        again.pop(key, None)
        if written.get(key) is not None:
            again[key] = written[key]
    return again


def _refusal(place: str, found: str, message: str, remedy: str) -> RuleError:
    return RuleError([Problem(place, found, message, remedy)])
