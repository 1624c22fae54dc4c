"""The job's output: alerts, late events and quarantined records read back as JSON."""

import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.quarantine import MAX_ORIGINAL, quarantine_record
from nightjar.ingestion.event_schema import PRIMARY, events_schema
from nightjar.rules.engine import NO_ROW, Advance, Engine
from nightjar.rules.events import Reason, Rejection
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet
from nightjar.streaming.buckets.output_records import alert_records, batches_of, json_records, late_records, sent_at_of

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
RULE = parse_rule(
    {
        "id": "any",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "measures": {"spent": {"sum": "amount", "over": "1h"}},
        "when": "amount > 0",
        "description": "spent {spent}",
    },
    STREAMS,
)
AT = datetime(2026, 1, 5, 10, 0, 0, 123456, tzinfo=UTC)


def event(number: int, arrival: datetime, customer: str = "c", **more: Any) -> dict[str, Any]:
    """A payment at AT."""
    return {
        "transaction_id": f"t{number}",
        "event_time": AT,
        "customer_id": customer,
        "terminal_id": None,
        "amount": Decimal("1.10"),
        "arrival_time": arrival,
        "partition": 1,
        "offset": 40 + number,
        SENT_AT: 7_000_000 + number,
        PRIMARY: True,
        **more,
    }


def parts(records: pa.Table) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Key, sent_at and value of every record of the topic."""
    assert set(records.column("topic").to_pylist()) == {"topic"}
    rows = records.to_pylist()
    headers = [{header["key"]: header["value"].decode() for header in row["headers"]} for row in rows]
    return [(row["key"], of.get(SENT_AT), json.loads(row["value"])) for row, of in zip(rows, headers, strict=True)]


def advanced(*events: dict[str, Any], rule: Rule = RULE) -> tuple[Any, pa.Table]:
    """What the engine makes of events, and their table."""
    table = pa.Table.from_pylist(list(events), events_schema(STREAM))
    return Engine(STREAM, RuleSet.of([rule], 0)).advance(table), table


def alerts_of(advance: Advance, events: pa.Table, emitted_at: int = 0) -> pa.Table:
    """The records of the alerts that a batch of events led to."""
    return alert_records("topic", advance.alerts, sent_at_of(events, advance.rows.alerts), emitted_at)


def test_alert_has_every_key_of_its_record() -> None:
    """The record of S10, keyed by its id, with its event's sent_at."""
    advance, table = advanced(event(1, AT))
    ((key, sent_at, record),) = parts(alerts_of(advance, table, 5_000_000))
    assert (key, sent_at) == (record["alert_id"], "7000001")
    assert record == {
        "alert_id": key,
        "revision": 1,
        "kind": "alert",
        "rule_id": "any",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": {"customer_id": "c"},
        "event_id": "t1",
        "event_time": "2026-01-05T10:00:00.123456Z",
        "measures": {"spent": "1.10"},
        "severity": "medium",
        "text": "spent 1.10",
        "muted": False,
        "source": "stream",
        "emitted_at": "1970-01-01T00:00:05.000000Z",
    }


def test_an_alert_beyond_the_cap_is_marked() -> None:
    """S10.6: the others have no such member."""
    events = [event(number, AT, f"{name}é}}") for number, name in enumerate("abc", 1)]
    advance, table = advanced(*events)
    sent_at = sent_at_of(table, advance.rows.alerts)
    given = advance.alerts, sent_at, 0
    whole = [record for _, _, record in parts(alert_records("topic", *given))]
    marked = [record for _, _, record in parts(alert_records("topic", *given, np.array([True, False, True])))]
    assert marked == [whole[0] | {"overflow": True}, whole[1], whole[2] | {"overflow": True}]


def test_text_of_an_event_breaks_no_line() -> None:
    """Tabs, line breaks and quotes in an event's values come back as they were."""
    strange = 'a\tb\nc"\\'
    advance, table = advanced(event(1, AT, strange))
    ((_, _, record),) = parts(alerts_of(advance, table))
    assert record["group"] == {"customer_id": strange}


def test_a_long_value_is_cut_in_the_text_only() -> None:
    """A description names values often; the group has all of one."""
    long = "c" * 1000
    advance, table = advanced(event(1, AT, long), rule=RULE.model_copy(update={"description": "{customer_id}" * 2}))
    ((_, _, record),) = parts(alerts_of(advance, table))
    assert (record["group"], record["text"]) == ({"customer_id": long}, "c" * 400)


def test_a_late_event_has_its_coordinates_and_fields() -> None:
    """Its stream, times and Kafka coordinates, and the fields as they were read."""
    late = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
    advance, _ = advanced(event(1, AT), event(2, late), event(3, late))
    found = parts(late_records("topic", advance.late, STREAM))
    assert [key for key, _, _ in found] == ["t2", "t3"]
    assert found[0][2] == {
        "stream": "transactions",
        "event_id": "t2",
        "event_time": "2026-01-05T10:00:00.123456Z",
        "arrival_time": "2026-01-05T10:30:00.000000Z",
        "partition": 1,
        "offset": 42,
        "event": {
            "transaction_id": "t2",
            "event_time": "2026-01-05T10:00:00.123456Z",
            "customer_id": "c",
            "terminal_id": None,
            "amount": "1.10",
        },
    }


def test_a_late_event_has_its_own_coordinates_beside_a_duplicate() -> None:
    """The first to arrive is the event, wherever the batch has it."""
    earlier, later = (datetime(2026, 1, 5, 10, minute, tzinfo=UTC) for minute in (29, 30))
    advance, _ = advanced(event(2, later), event(2, earlier, partition=0, offset=7))
    ((_, _, record),) = parts(late_records("topic", advance.late, STREAM))
    assert (record["partition"], record["offset"], record["arrival_time"][11:16]) == (0, 7, "10:29")


def test_an_alert_about_an_earlier_event_has_no_sent_at() -> None:
    """It was brought by a batch before; nor has one whose event brought none."""
    advance, table = advanced(event(1, AT), event(2, AT, sent_at=None))
    found = parts(alerts_of(advance, table))
    assert {record["event_id"]: sent_at for _, sent_at, record in found} == {"t1": "7000001", "t2": None}
    earlier = alert_records("topic", advance.alerts, sent_at_of(table, np.full(2, NO_ROW)), 0)
    assert [sent_at for _, sent_at, _ in parts(earlier)] == [None, None]


def test_an_alert_has_the_sent_at_of_the_copy_that_counts() -> None:
    """Of two records with one id in a batch the first to arrive is the event, wherever the batch has it."""
    earlier = AT - timedelta(minutes=1)
    advance, table = advanced(event(1, AT), event(1, earlier, sent_at=6), event(1, AT, sent_at=8))
    ((_, sent_at, _),) = parts(alerts_of(advance, table))
    assert sent_at == "6"


def test_quarantined_record_keeps_its_bytes() -> None:
    """The reason, the place, and the original in Base64."""
    raw = b'\xff{"a":\n'
    key, record = quarantine_record(
        Rejection(Reason.NOT_JSON, "why"), STREAM, partition=1, offset=9, arrival=0, raw=raw
    )
    assert parts(json_records("topic", [(key, record)])) == [("transactions-1-9", None, record)]
    assert base64.b64decode(record.pop("original")) == raw
    assert record == {
        "reason": "not_json",
        "detail": "why",
        "stream": "transactions",
        "topic": "transactions",
        "partition": 1,
        "offset": 9,
        "arrival_time": "1970-01-01T00:00:00.000000Z",
        "size": 7,
    }


def test_a_large_record_in_quarantine_is_one_that_kafka_takes() -> None:
    """It has the beginning and the length of the whole; batches stay a few megabytes."""
    key, record = quarantine_record(
        Rejection(Reason.NOT_JSON, "why"), STREAM, partition=1, offset=9, arrival=0, raw=b"x" * 1_000_000
    )
    assert record["size"] == 1_000_000
    assert base64.b64decode(record["original"]) == b"x" * MAX_ORIGINAL
    assert len(json.dumps(record)) < 100_000
    assert [len(records) for records in batches_of([(key, record)] * 60)] == [45, 15]
