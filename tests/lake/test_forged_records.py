"""Records of our own topics that anybody may have written: what is not one is a row that nothing trips over."""

import json
from typing import Any

import pytest

from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RESTRICTIONS, RULE_STATUS, Table
from nightjar.rules.alert_ids import alert_id

NEW_YEAR = 1_767_225_600_000_000  # 2026, µs
ALERT: dict[str, Any] = {
    "alert_id": alert_id("burst", 1, "t1", NEW_YEAR, '{"customer_id":"ann"}'),
    "revision": 1,
    "kind": "alert",
    "rule_id": "burst",
    "rule_version": 1,
    "rule_state": "active",
    "stream": "transactions",
    "group": {"customer_id": "ann"},
    "event_id": "t1",
    "event_time": "2026-01-01T00:00:00Z",
    "measures": {"n": 3, "usual": 1.5, "least": "2.00", "first": None},
    "severity": "high",
    "text": "x",
    "muted": False,
    "source": "stream",
    "emitted_at": "2026-01-01T00:00:01Z",
}
LATE = {"stream": "logins", "event_id": "l1", "event_time": "2026-01-01T00:00:00Z", "event": {"ip": "::1"}}
PROGRESS_REPORT = {"kind": "job", "state": "running", "consumed": {"transactions": {"0": 7}}}
ANSWER = {"status": "ACCEPTED", "rule_id": "burst", "rule_version": 1, "effective": None, "reasons": []}


def is_read(table: Table, record: dict[str, Any]) -> bool:
    """Whether the record is a row of its own, and not bytes."""
    return JsonReader(table).reads(json.dumps(record).encode())


RESTRICTION = {
    "restriction_id": ALERT["alert_id"],
    "revision": 1,
    "kind": "restriction",
    "restrict": "block_customer",
    "starts_at": "2026-01-01T00:00:00Z",
    "ends_at": "2026-01-02T00:00:00Z",
    "rule_id": "burst",
    "rule_version": 1,
    "stream": "transactions",
    "group": {"customer_id": "ann"},
    "event_id": "t1",
    "text": "x",
    "source": "stream",
    "emitted_at": "2026-01-01T00:00:01Z",
}


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (ALERTS, ALERT),
        (RESTRICTIONS, RESTRICTION),
        (LATE_EVENTS, LATE),
        (PROGRESS, PROGRESS_REPORT),
        (RULE_STATUS, ANSWER),
    ],
)
def test_what_we_write_is_read(table: Table, record: dict[str, Any]) -> None:
    """Row by row."""
    assert is_read(table, record)


@pytest.mark.parametrize(
    "change",
    [
        {"measures": "not json"},
        {"measures": [1]},
        {"measures": None},
        {"measures": {"n": {"deep": 1}}},
        {"measures": {"n": float("nan")}},
        {"measures": {"n": float("inf")}},
        {"measures": {"n": 2**63}},
        {"group": "ann"},
        {"group": {"customer_id": ["ann"]}},
        {"revision": 0},
        {"revision": None},
        {"revision": True},
        {"rule_version": 0},
        {"rule_version": "1"},
        {"kind": "alarm"},
        {"kind": None},
        {"source": "me"},
        {"source": None},
        {"event_time": None},
        {"event_time": "yesterday"},
        {"text": None},
        {"severity": 3},
        {"stream": None},
        {"alert_id": "f" * 32},
        {"event_id": "t2"},
        {"rule_id": "other"},
        {"rule_version": 2},
        {"group": {"customer_id": "bob"}},
    ],
    ids=str,
)
def test_an_alert_that_is_none_of_ours_is_unreadable(change: dict[str, Any]) -> None:
    """Not a JSON object where one belongs, an unknown kind, or an id that does not follow from its other keys."""
    assert not is_read(ALERTS, ALERT | change)


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (LATE_EVENTS, LATE | {"event": "x"}),
        (LATE_EVENTS, LATE | {"event_id": None}),
        (PROGRESS, PROGRESS_REPORT | {"consumed": {"transactions": {"0": -1}}}),
        (PROGRESS, PROGRESS_REPORT | {"consumed": {"transactions": {"x": 1}}}),
        (PROGRESS, PROGRESS_REPORT | {"consumed": {"transactions": 1}}),
        (PROGRESS, PROGRESS_REPORT | {"consumed": []}),
        (RULE_STATUS, ANSWER | {"status": "PERHAPS"}),
        (RULE_STATUS, ANSWER | {"rule_version": 0}),
        (RULE_STATUS, ANSWER | {"reasons": "x"}),
    ],
)
def test_other_records_that_are_none_are_unreadable(table: Table, record: dict[str, Any]) -> None:
    """Any reader of the rows finds what the schema declares, or NULLs."""
    assert not is_read(table, record)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "alert"},
        {"kind": None},
        {"revision": 0},
        {"revision": None},
        {"source": "me"},
        {"restrict": None},
        {"starts_at": "2026-01-01T00:00:01Z"},
        {"ends_at": None},
        {"ends_at": "soon"},
        {"group": "ann"},
        {"group": {"customer_id": "bob"}},
        {"restriction_id": "f" * 32},
        {"event_id": "t2"},
        {"rule_version": 2},
        {"text": 1},
    ],
    ids=str,
)
def test_a_restriction_that_is_none_of_ours_is_unreadable(change: dict[str, Any]) -> None:
    """Nobody is restricted by a record whose id does not follow from an alert of that group."""
    assert not is_read(RESTRICTIONS, RESTRICTION | change)
