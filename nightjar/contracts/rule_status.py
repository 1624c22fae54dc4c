"""Answers to rule messages: the records of the rule-status topic, keyed by the rule id (or message coordinates).

Whoever needs the current rules folds the answers into a rule book (`fold`); the lake stores them, and people see them.
Also on the topic: measures that failed, which are not answers to a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.contracts.json_text import json_object, json_text
from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.model import Rule, rule_from_mapping, rule_to_mapping
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import Answered, Record, RuleBook, ShuffleKey
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.rules.types import Kind
from nightjar.rules.versions import Approval, Decline, Primed, Superseded


def _is_answer(written: Mapping[str, Any], row: Row) -> bool:
    reasons = written.get("reasons", [])
    return (
        row["status"] in set(Answer)
        and (row["rule_id"] is None or isinstance(written["rule_id"], str))
        and (row["rule_version"] is None or row["rule_version"] >= 1)
        and isinstance(reasons, list)
        and all(isinstance(reason, str) for reason in reasons)
    )


RULE_STATUS = RecordType(
    "rule_status",
    "The answer to a rule message, or a failure of a running rule.",
    {
        "status": Member(
            "ACCEPTED or REJECTED: of a message; PROPOSED: of one whose version waits for approval; DECLINED: of one "
            "that declines such a version; ACTIVE: the rule is evaluated; SUPERSEDED: a later version "
            "has taken its place, or came before this one was approved; "
            "RETIRED: the rule has ended with this version; FAILED: a measure of it, at an event",
            schema={"enum": [answer.value for answer in Answer]},
        ),
        "rule_id": Member("the rule; null where the message names none", nullable=True),
        "rule_version": Member("the version it is about", Kind.INT64, {"minimum": 1}, nullable=True),
        "effective": Member(
            "event time from which the version applies; null while it waits for approval, or for a shuffle key or "
            "history of the job",
            Kind.TIMESTAMP,
            nullable=True,
        ),
        "reasons": Member("why, for a person", schema={"type": "array", "items": {"type": "string"}}, is_json=True),
        "event_id": Member("of FAILED: the event at which the measure does not fit its type", optional=True),
        "message": Member("the message answered: topic, partition and offset, joined by hyphens", optional=True),
        "rule": Member(
            "the rule as the message published or approved it", schema={"type": "object"}, is_json=True, optional=True
        ),
        # The shuffle key. Topics and checkpoints hold it under this name, which it had in earlier releases.
        "route": Member("the field by whose value the rule's events are assigned to buckets", optional=True),
        "approver": Member("who approved the version; its author and reason are in the rule", optional=True),
        "approval_reason": Member("the reason for the approval", optional=True),
        "declined_by": Member("of DECLINED: who declined the version", optional=True),
        "decline_reason": Member("of DECLINED: why", optional=True),
        "superseded_by": Member(
            "of SUPERSEDED: the version that has taken its place", Kind.INT64, {"minimum": 1}, optional=True
        ),
        "superseded_from": Member(
            "of SUPERSEDED: event time from which that version applies; not of one that was only proposed",
            Kind.TIMESTAMP,
            optional=True,
        ),
        "history_since": Member(
            "of ACTIVE, where the version waited for history: the event time from which on the job has it",
            Kind.TIMESTAMP,
            optional=True,
        ),
        "priming": Member("of ACTIVE: the export of the lake that the job takes in with this answer", optional=True),
        "allowed_lateness": Member(
            "where the answer makes, approves or activates a version: that of the stream then, in microseconds",
            Kind.INT64,
            {"minimum": 0},
            optional=True,
        ),
    },
    _is_answer,
)


def encoded(value: Mapping[str, Any]) -> bytes:
    """An answer's value; half a surrogate pair, which a message may have in a text, becomes a question mark."""
    return json_text(value).encode("utf-8", "replace")


def status_record(status: Status) -> Row:
    """The members that every answer has, and who approved or declined the version, if somebody did."""
    found = {
        "status": status.answer.value,
        "rule_id": status.rule_id,
        "rule_version": status.rule_version,
        "effective": None if status.effective is None else iso_text(status.effective),
        "reasons": list(status.reasons),
    }
    if status.approval is not None:
        found |= {"approver": status.approval.author, "approval_reason": status.approval.reason}
    if status.decline is not None:
        found |= {"declined_by": status.decline.author, "decline_reason": status.decline.reason}
    if status.primed is not None:
        found |= {"history_since": iso_text(status.primed.since)}
        found |= {"priming": status.primed.name} if status.primed.name else {}
    if status.superseded is not None:
        found |= {"superseded_by": status.superseded.by}
        found |= {} if status.superseded.since is None else {"superseded_from": iso_text(status.superseded.since)}
    return found


def answer_record(
    status: Status,
    message: str | None = None,
    rule: Rule | None = None,
    key: ShuffleKey | None = None,
    allowed_lateness: int | None = None,
) -> tuple[str, dict[str, Any]]:
    """(key, value) of an answer on `rule-status`. message: `topic-partition-offset` of what it answers.

    rule: of an answer that makes a version; key: None where it is only proposed. allowed_lateness: of the stream, µs.
    """
    value = status_record(status) | ({} if message is None else {"message": message})
    if rule is not None:
        value |= {"rule": rule_to_mapping(rule)} | ({} if key is None else {"route": key.field})
    if allowed_lateness is not None:
        value["allowed_lateness"] = allowed_lateness
    return status.rule_id or message or "", value


def read_answer(value: bytes) -> Answered | None:
    """Decode an answer; None if the record holds none that changes the rule book.

    Anybody may write to a topic: a record of another shape raises nothing.
    """
    try:
        written = json.loads(value.decode())
        answer, rule_id, version = Answer(written["status"]), written["rule_id"], written["rule_version"]
        effective = None if written["effective"] is None else parse_timestamp(written["effective"], zone_required=True)
        if answer is Answer.FAILED or (effective is None) != (written["effective"] is None):
            return None
        if answer in (Answer.ACTIVE, Answer.RETIRED):
            primed, lateness = _primed(written), _lateness(written)
            found = Answered(answer, -1, rule_id, version, effective, primed=primed, allowed_lateness=lateness)
            return found if _is_version(rule_id, version) else None
        if answer is Answer.SUPERSEDED:
            by, begins = written["superseded_by"], written.get("superseded_from")
            since = None if begins is None else parse_timestamp(begins, zone_required=True)
            if (since is None) != (begins is None) or not (_is_version(rule_id, version) and _is_version(rule_id, by)):
                return None
            return Answered(answer, -1, rule_id, version, effective, superseded=Superseded(by, since))
        message = int(written["message"].rpartition("-")[2])
        if answer is Answer.REJECTED:
            return Answered(answer, message, None, None, None)
        if not _is_version(rule_id, version):
            return None
        if answer is Answer.DECLINED:
            decline = Decline(written["declined_by"], written["decline_reason"])
            is_text = isinstance(decline.author, str) and isinstance(decline.reason, str)
            return Answered(answer, message, rule_id, version, None, decline=decline) if is_text else None
        if "rule" not in written:
            return Answered(answer, message, rule_id, version, effective)
        json.dumps(written, ensure_ascii=False).encode()  # half a surrogate pair, which JSON can spell
        rule = rule_from_mapping(written["rule"])
        if rule.id != rule_id:
            return None
        if answer is Answer.PROPOSED:
            return Answered(answer, message, rule_id, version, None, rule)
        approval = Approval(written["approver"], written["approval_reason"]) if "approver" in written else None
        texts = (written["route"], *(() if approval is None else (approval.author, approval.reason)))
        if not all(isinstance(text, str) for text in texts):
            return None
        key = ShuffleKey(rule.stream, written["route"])
        lateness = _lateness(written)
        return Answered(answer, message, rule_id, version, effective, rule, key, approval, allowed_lateness=lateness)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _primed(written: Mapping[str, Any]) -> Primed | None:
    """The history that an ACTIVE answer names.

    Raises:
        ValueError: that is not a time and a name.
    """
    if "history_since" not in written:
        return None
    since, name = parse_timestamp(written["history_since"], zone_required=True), written.get("priming", "")
    if since is None or not (name == "" or name.isalnum()):  # it becomes part of the names of files
        raise ValueError
    return Primed(since, name)


def _lateness(written: Mapping[str, Any]) -> int | None:
    """The `allowed_lateness` of an answer, µs; earlier releases did not write it."""
    lateness = written.get("allowed_lateness")
    return lateness if isinstance(lateness, int) and 0 <= lateness < 2**63 else None


def _is_version(rule_id: object, version: object) -> bool:
    return isinstance(rule_id, str) and isinstance(version, int) and not isinstance(version, bool) and version > 0


def failure_record(rule_id: str, version: int, event_id: str, reason: str) -> tuple[str, Row]:
    """(key, value) of a rule's failure."""
    status = Status(Answer.FAILED, rule_id, version, reasons=(reason,))
    return rule_id, status_record(status) | {"event_id": event_id}


def is_failure(value: bytes) -> bool:
    """Whether a record reports a failed measure rather than an answer to a message."""
    try:
        return bool(json.loads(value)["status"] == Answer.FAILED.value)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def fold(book: RuleBook, record: Record, read: Callable[[bytes], Answered | None] = read_answer) -> Answered | None:
    """Fold the next record of the topic into the book; returns the answer, None if it changed nothing.

    Records that were folded before are skipped. read: `read_answer`, or one that remembers what it has read.
    """
    if record.offset < book.next_offset:
        return None
    book.next_offset = record.offset + 1
    answer = read(record.value)
    if answer is None:
        book.skipped += not is_failure(record.value)
        return None
    return answer if book.take(answer, record.arrival) else None


@dataclass(frozen=True)
class ShownStatus:
    """One record, for a person."""

    answer: Answer
    rule_id: str | None
    version: int | None
    effective: str | None
    reasons: tuple[str, ...]


def shown(value: bytes) -> ShownStatus | None:
    """A record as displayed; None if it is not an answer."""
    record = json_object(value)
    if record is None:
        return None
    try:
        return ShownStatus(
            Answer(record["status"]),
            record["rule_id"],
            record["rule_version"],
            record["effective"],
            tuple(record["reasons"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
