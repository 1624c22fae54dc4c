"""Answers to rule messages: the records of the rule-status topic, keyed by the rule's id (or the message's place).

Answers are folded into a rule book by everybody who must know which rules there are, so their encoder and the decoder
that the book goes by stand beside it, in rules (`rulebook.answer_record`, `rulebook.read_answer`). Here are the rest: a
measure that failed, and what the lake and a person read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.json_text import json_object, json_text
from contracts.record_type import Member, RecordType, Row
from rules.publishing import Answer, Status
from rules.types import Kind


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
    "What became of a rule message, or of a rule that runs.",
    {
        "status": Member(
            "ACCEPTED or REJECTED: of a message; ACTIVE: the rule is evaluated; FAILED: a measure of it, at an event",
            schema={"enum": [answer.value for answer in Answer]},
        ),
        "rule_id": Member("the rule; null where the message names none", nullable=True),
        "rule_version": Member("the version it is about", Kind.INT64, {"minimum": 1}, nullable=True),
        "effective": Member(
            "event time from which on the version applies; null where it waits for a route of the job",
            Kind.TIMESTAMP,
            nullable=True,
        ),
        "reasons": Member("why, for a person", schema={"type": "array", "items": {"type": "string"}}, is_json=True),
        "event_id": Member("of FAILED: the event at which the measure does not fit its type", optional=True),
        "message": Member("what it answers: topic, partition and offset with hyphens", optional=True),
        "rule": Member("the rule that the message made a version of", schema={"type": "object"}, is_json=True,
                       optional=True),
        "route": Member("the field by whose value the rule's events find their bucket", optional=True),
    },
    _is_answer,
)  # fmt: skip


def encoded(value: Mapping[str, Any]) -> bytes:
    """An answer's value; half a surrogate pair, which a message may have in a text, becomes a question mark."""
    return json_text(value).encode("utf-8", "replace")


def failure_record(rule_id: str, version: int, event_id: str, reason: str) -> tuple[str, Row]:
    """(key, value) of a rule's failure."""
    status = Status(Answer.FAILED, rule_id, version, reasons=(reason,))
    return rule_id, status.record() | {"event_id": event_id}


@dataclass(frozen=True)
class Told:
    """One record of `rule-status`, for a person."""

    answer: Answer
    rule_id: str | None
    version: int | None
    effective: str | None
    reasons: tuple[str, ...]


def told(value: bytes) -> Told | None:
    """What a record tells; None where it is none."""
    record = json_object(value)
    if record is None:
        return None
    try:
        return Told(
            Answer(record["status"]),
            record["rule_id"],
            record["rule_version"],
            record["effective"],
            tuple(record["reasons"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
