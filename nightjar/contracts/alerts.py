"""Alerts, their revisions and retractions, and the backfill's corrections: the records of the alerts topic.

The key is the alert's id. The columns of a violation are the engine's (rules.alert_schema); a record adds its source
and time of emission. The stream writes records by column (contracts.columns), everything else one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from nightjar.contracts.json_text import json_object, json_text
from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.alert_schema import ALERT_SCHEMA, JSON_COLUMNS
from nightjar.rules.states import Severity, State
from nightjar.rules.types import INSTANT, Kind

# Kinds and sources of a record.
ANNOUNCED, RETRACTED = "alert", "retraction"
STREAM, BACKFILL = "stream", "backfill"

_POSITIVE = {"minimum": 1}
_FLAT = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
_KINDS = {
    pa.string(): Kind.STRING,
    pa.int64(): Kind.INT64,
    INSTANT: Kind.TIMESTAMP,
    pa.bool_(): Kind.BOOLEAN,
}

# Descriptions of the columns of ALERT_SCHEMA, in any order.
_ABOUT: dict[str, tuple[str, Row]] = {
    "alert_id": ("a hash of rule, version, event and group", {"pattern": "^[0-9a-f]{32}$"}),
    "revision": ("the highest revision of an alert_id counts; of equal ones the backfill's", _POSITIVE),
    "kind": ("a retraction withdraws the alert", {"enum": [ANNOUNCED, RETRACTED]}),
    "rule_id": ("the rule", {}),
    "rule_version": ("the rule's version that applied at the event", _POSITIVE),
    "rule_state": ("the state of that version", {"enum": [state.value for state in State]}),
    "stream": ("the event's stream", {}),
    "group": ("the rule's group-by fields with the event's values", _FLAT),
    "event_id": ("the event", {}),
    "event_time": ("its event time", {}),
    "measures": (
        "the rule's measures at the event; decimals and times are text; `allowed_by`: see `muted`",
        _FLAT,
    ),
    "severity": ("the rule's severity", {"enum": [severity.value for severity in Severity]}),
    "text": ("the rule's description with values filled in", {}),
    "muted": ("whether an alert shortly before it mutes it, by the rule's `mute`, or an allow rule silences it", {}),
}
_OF_THE_RECORD = {
    "source": Member("who emitted it", schema={"enum": [STREAM, BACKFILL]}),
    "cause": Member("of a correction: why the stream's result differed", optional=True),
    "emitted_at": Member("when it was emitted, by the emitter's clock", Kind.TIMESTAMP),
    "overflow": Member("true if the rule's alerts of the hour had reached the cap", Kind.BOOLEAN, optional=True),
}

# The columns that records are compared by.
RECORD_SCHEMA = pa.schema([*ALERT_SCHEMA, ("source", pa.string()), ("cause", pa.string()), ("overflow", pa.bool_())])


def _is_alert(written: Mapping[str, Any], row: Row) -> bool:
    """Whether it is an alert. The id must match the other members, or a record could pass for another alert."""
    return (
        all(isinstance(written.get(name), str) for name in _TEXTS)
        and row["event_time"] is not None
        and row["kind"] in (ANNOUNCED, RETRACTED)
        and row["source"] in (STREAM, BACKFILL)
        and row["muted"] is not None
        and all(row[name] is not None and row[name] >= 1 for name in _NUMBERS)
        and all(_is_flat(written.get(name)) for name in JSON_COLUMNS)
        and row["alert_id"] == alert_id(*(row[name] for name in _NAMING))
    )


def _is_flat(value: Any) -> bool:
    """Whether it is an object whose values a measure or a field may have."""
    return isinstance(value, dict) and all(map(_is_plain, value.values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, str)


def _member(column: pa.Field) -> Member:
    about, schema = _ABOUT[column.name]
    return Member(about, _KINDS[column.type], schema, is_json=column.name in JSON_COLUMNS)


ALERT = RecordType(
    "alert",
    "An alert, a revision of one, or its retraction; with `cause` a correction of the nightly backfill.",
    {column.name: _member(column) for column in ALERT_SCHEMA} | _OF_THE_RECORD,
    _is_alert,
)
# The members that every valid record has, whichever release wrote it; another may be missing or null.
ALWAYS_THERE = frozenset({*ALERT_SCHEMA.names, "source"})
# The members that an alert's id is a hash of.
_NAMING = ("rule_id", "rule_version", "event_id", "event_time", "group")
_NUMBERS = tuple(column.name for column in ALERT_SCHEMA if _KINDS[column.type] is Kind.INT64)
_TEXTS = tuple(
    name
    for name in ALERT_SCHEMA.names
    if name != "kind" and name not in JSON_COLUMNS and ALERT.members[name].kind is Kind.STRING
)
_OBJECTS = dict.fromkeys(JSON_COLUMNS, dict)
_SHAPE: dict[str, type] = {
    name: bool if name == "muted" else int if name in _NUMBERS else _OBJECTS.get(name, str)
    for name in ALERT_SCHEMA.names
}


def alert_record(row: Mapping[str, Any], emitted_at: int) -> Row:
    """The stream's record of the columns of ALERT_SCHEMA. emitted_at: µs."""
    return ALERT.record({**row, "source": STREAM, "cause": None, "emitted_at": emitted_at})


def correction_record(row: Mapping[str, Any], emitted_at: int) -> Row:
    """The backfill's record of the same columns and `cause`. emitted_at: µs."""
    return ALERT.record({**row, "source": BACKFILL, "emitted_at": emitted_at})


def message(record: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Key and value of a record."""
    return record["alert_id"].encode(), json_text(record).encode()


def corrections_of(values: list[bytes | None]) -> tuple[list[Row], int]:
    """The corrections among records of the topic, and how many records are not alerts."""
    alerts = [record for record in map(ALERT.read, values) if record is not None]
    return [record for record in alerts if record["source"] == BACKFILL], len(values) - len(alerts)


def shown(value: bytes) -> Row | None:
    """A record with everything that is displayed of an alert, each of its type; None for any other.

    Its id is not verified: it is only displayed.
    """
    written = json_object(value)
    if written is None or not all(isinstance(written.get(name), kind) for name, kind in _SHAPE.items()):
        return None
    if written["kind"] not in (ANNOUNCED, RETRACTED) or any(
        isinstance(written[name], bool) or not 1 <= written[name] < 2**63 for name in _NUMBERS
    ):
        return None
    return written
