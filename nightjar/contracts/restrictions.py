"""Restrictions of groups, and their lifts: the records of the restrictions topic, keyed by the group.

A record follows from an alert's record and the action of its rule, so that it is as idempotent as the alert: it has its
id and revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nightjar.contracts.alerts import ALERT, ANNOUNCED, BACKFILL, STREAM
from nightjar.contracts.json_text import json_text
from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.allowing import ALLOWED_BY
from nightjar.rules.canonical import canonical
from nightjar.rules.timestamps import after, iso_text, parse_timestamp
from nightjar.rules.types import Kind

if TYPE_CHECKING:
    from nightjar.rules.actions import Action

RESTRICTED, LIFTED = "restriction", "lift"

# Members that a restriction has of its alert, in their order.
_OF_THE_ALERT = ("rule_id", "rule_version", "stream", "group", "event_id")


def _is_restriction(written: Mapping[str, Any], row: Row) -> bool:
    """Its id must follow from its other members, as an alert's does."""
    named = (row["rule_id"], row["rule_version"], row["event_id"], row["starts_at"], row["group"])
    return (
        all(isinstance(written.get(name), str) for name in ("restrict", "rule_id", "stream", "event_id", "text"))
        and isinstance(written.get("group"), dict)
        and row["kind"] in (RESTRICTED, LIFTED)
        and row["source"] in (STREAM, BACKFILL)
        and all(row[name] is not None and row[name] >= 1 for name in ("revision", "rule_version"))
        and None not in (row["starts_at"], row["ends_at"])
        and row["restriction_id"] == alert_id(*named)
    )


RESTRICTION = RecordType(
    "restriction",
    "What is to be done with a group for a time, by the action of a rule; or the lift of that.",
    {
        "restriction_id": Member("the id of the alert that it follows from", schema={"pattern": "^[0-9a-f]{32}$"}),
        "revision": Member(
            "the alert's: the highest of a restriction_id counts; of equal ones the backfill's",
            Kind.INT64,
            {"minimum": 1},
        ),
        "kind": Member(
            "a lift ends the restriction before its time; a later revision may restrict again",
            schema={"enum": [RESTRICTED, LIFTED]},
        ),
        "restrict": Member("what is to be done, by the rule's action"),
        "starts_at": Member("the event time of the alert", Kind.TIMESTAMP),
        "ends_at": Member("when it ends, unless it is lifted before; at the latest with year 9999", Kind.TIMESTAMP),
        **{name: ALERT.members[name] for name in _OF_THE_ALERT},
        "text": Member("the alert's text"),
        "source": ALERT.members["source"],
        "cause": ALERT.members["cause"],
        "emitted_at": ALERT.members["emitted_at"],
    },
    _is_restriction,
)


def restriction_records(alerts: Iterable[Row], actions: Mapping[tuple[str, int], Action]) -> list[tuple[str, Row]]:
    """Key and record of what alert records (contracts.alerts) lead to. actions: by rule id and version."""
    found = []
    for alert in alerts:
        action = actions.get((alert["rule_id"], alert["rule_version"]))
        if action is not None:
            found.append((canonical(alert["group"]), _restriction(alert, action)))
    return found


def _restriction(alert: Row, action: Action) -> Row:
    starts = parse_timestamp(alert["event_time"], zone_required=True)
    assert starts is not None  # noqa: S101  an alert's event has a time
    members = {
        "restriction_id": alert["alert_id"],
        "revision": alert["revision"],
        # what an allow rule silences lifts what the alert may have given before
        "kind": RESTRICTED if alert["kind"] == ANNOUNCED and ALLOWED_BY not in alert["measures"] else LIFTED,
        "restrict": action.restrict,
        "starts_at": alert["event_time"],
        "ends_at": iso_text(after(starts, action.duration)),
        **{name: alert[name] for name in _OF_THE_ALERT},
        "text": alert["text"],
        "source": alert["source"],
        "cause": alert.get("cause"),
        "emitted_at": alert["emitted_at"],
    }
    return {name: value for name, value in members.items() if value is not None or name != "cause"}


def message(key: str, record: Row) -> tuple[bytes, bytes]:
    """Key and value as bytes."""
    return key.encode(), json_text(record).encode()
