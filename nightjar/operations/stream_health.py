"""What a person on call asks about the stream besides its status: which records it could not use, and what failed.

How it works: the newest records of the topics `quarantine` and `rule-status` are read, so that it costs the same
however long these are.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nightjar.configuration.settings import Settings
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.contracts.rule_status import RULE_STATUS, is_failure
from nightjar.kafka.readers import KafkaRecord, Reader
from nightjar.operations.status import JobStatus, read_status
from nightjar.rules.errors import printable, shortened
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds

# Records that are read of each partition, and characters of an example.
_LATEST, _LONGEST = 500, 400


@dataclass(frozen=True)
class Unusable:
    """Records of a stream that it could not use for one reason. count: among the newest that were read; the others: of
    the newest of them. example: its beginning as text; None: the stream has sensitive fields, or is not declared."""

    stream: str
    reason: str
    count: int
    at: datetime
    topic: str
    partition: int
    offset: int
    detail: str
    example: str | None


@dataclass(frozen=True)
class Failure:
    """A measure that did not fit its type, the newest of its rule's version. count: among the newest answers."""

    rule_id: str
    rule_version: int
    count: int
    at: datetime
    event_id: str
    reasons: list[str]


@dataclass(frozen=True)
class StreamHealth:
    """The stream at one time."""

    status: JobStatus
    unusable: list[Unusable]
    """Those with the most records first."""
    failures: list[Failure]
    """The newest first."""
    latest: int = _LATEST
    """Records that were read of each partition."""


def read_health(settings: Settings, streams: Mapping[str, Stream]) -> StreamHealth:
    """Read the current state.

    Raises:
        KafkaError: the topics cannot be read.
    """
    with Reader(settings, settings.quarantine_topic) as reader:
        quarantined = reader.last(_LATEST)
    with Reader(settings, settings.rule_status_topic) as reader:
        answers = reader.last(_LATEST)
    return StreamHealth(read_status(settings), _unusable(quarantined, streams), _failures(answers))


def _unusable(records: list[KafkaRecord], streams: Mapping[str, Stream]) -> list[Unusable]:
    found: dict[tuple[str, str], Unusable] = {}
    for record in sorted(records, key=lambda each: (each.arrival, each.partition, each.offset)):
        row = QUARANTINED.row(record.value)
        if row is None or None in row.values():  # anybody may write to a topic
            continue
        kind = row["stream"], row["reason"]
        stream = streams.get(row["stream"])
        hidden = stream is None or bool(stream.sensitive)
        found[kind] = Unusable(
            *kind,
            count=1 + (found[kind].count if kind in found else 0),
            at=from_microseconds(row["arrival_time"]),
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            detail=row["detail"],
            example=None if hidden else _text(row["original"]),
        )
    return sorted(found.values(), key=lambda each: (-each.count, each.stream, each.reason))


def _text(original: str) -> str:
    try:
        value = base64.b64decode(original, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return shortened(printable(value[: 4 * _LONGEST].decode("utf-8", "backslashreplace")), _LONGEST)


def _failures(records: list[KafkaRecord]) -> list[Failure]:
    found: dict[tuple[str, int], Failure] = {}
    for record in records:
        row = RULE_STATUS.row(record.value) if is_failure(record.value) else None
        if row is None or row["rule_id"] is None or row["rule_version"] is None:
            continue
        kind = row["rule_id"], row["rule_version"]
        found[kind] = Failure(
            *kind,
            count=1 + (found[kind].count if kind in found else 0),
            at=from_microseconds(record.arrival),
            event_id=row["event_id"] or "",
            reasons=json.loads(row["reasons"] or "[]"),
        )
    return sorted(found.values(), key=lambda each: each.at, reverse=True)
