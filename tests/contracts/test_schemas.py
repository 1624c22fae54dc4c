"""The schemas in docs/schemas, and that what the encoders make is what they say."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from nightjar.contracts.alerts import ALERT, alert_record, correction_record
from nightjar.contracts.clock import Clock, read_clock
from nightjar.contracts.headers import sent_at, sent_now
from nightjar.contracts.job_progress import PROGRESS, read_report
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED, quarantine_record
from nightjar.contracts.record_type import RecordType
from nightjar.contracts.restrictions import RESTRICTION, restriction_records
from nightjar.contracts.rule_status import RULE_STATUS, answer_record, encoded, failure_record, read_answer, shown
from nightjar.ingestion.event_schema import events_schema
from nightjar.rules.actions import Action
from nightjar.rules.engine import Engine
from nightjar.rules.events import QUARANTINE_REASONS, Reason, Rejection
from nightjar.rules.model import parse_rule
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import Primed, RuleSet, Superseded
from nightjar.streaming.buckets.output_records import alert_records, late_records, sent_at_of
from nightjar.streaming.driver.answering import answer_to
from nightjar.streaming.driver.clock import PartitionProgress
from nightjar.streaming.driver.progress import batches_report, groups_report, lag_report
from nightjar.streaming.real_time.group_times import GroupTimes
from tools.schemas import FOLDER, schemas, text

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
MESSAGE = {
    "id": "any",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 0",
    "effective": "2026-01-01",
    "measures": {"spent": {"sum": "amount", "over": "1h"}, "usual": {"avg": "amount", "over": "1h"}},
    "description": "{spent}",
}


def valid(name: str, value: bytes | str) -> dict[str, Any]:
    """The record, which its schema allows and knows every member of."""
    record: dict[str, Any] = json.loads(value)
    schema = schemas()[name]
    Draft202012Validator(schema).validate(record)
    assert list(record) == [member for member in schema.get("properties", record) if member in record]
    return record


def answer(message: dict[str, Any]) -> bytes:
    """The driver's answer to it."""
    book = RuleBook(STREAMS)
    _, value = answer_to(Record(4, 0, json.dumps(message).encode()), "rules-0-4", book, book.shuffle_keys, 0)
    return encoded(value)


def advanced(late: bool) -> tuple[Any, pa.Table]:
    """What the engine makes of a payment, and of a late one."""
    row: dict[str, Any] = dict.fromkeys(events_schema(STREAM).names)
    row |= {"transaction_id": "t1", "event_time": NOON, "customer_id": "c", "arrival_time": NOON, "primary": True}
    row |= {"amount": 1, "partition": 1, "offset": 7, "sent_at": 5}
    another = row | {"transaction_id": "t2", "arrival_time": NOON.replace(hour=13)}
    events = pa.Table.from_pylist([row, another] if late else [row], events_schema(STREAM))
    return Engine(STREAM, RuleSet.of([parse_rule(MESSAGE, STREAMS)], 0)).advance(events), events


def test_the_files_are_what_the_contracts_say() -> None:
    """`make docs` writes them."""
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == {
        f"{name}.json": text(schema) for name, schema in schemas().items()
    }
    for schema in schemas().values():
        Draft202012Validator.check_schema(schema)


def test_alerts_of_the_stream() -> None:
    """By columns, and read back as the columns that they were."""
    advance, events = advanced(late=False)
    sent_at = sent_at_of(events, advance.rows.alerts)
    (value,) = alert_records("alerts", advance.alerts, sent_at, 0).column("value").to_pylist()
    valid("alert", value)
    row = ALERT.row(value.encode())
    assert row is not None
    (reported,) = advance.alerts.to_pylist()
    assert {name: row[name] for name in reported} == reported | {"event_time": microseconds(NOON)}
    assert json.dumps(ALERT.record(row)) == json.dumps(json.loads(value))


def test_corrections() -> None:
    """A record of the same members, and its cause."""
    advance, _ = advanced(late=False)
    (row,) = advance.alerts.to_pylist()
    record = correction_record(row | {"cause": "late_event"}, 5)
    assert valid("alert", json.dumps(record))["cause"] == "late_event"
    assert ALERT.row(json.dumps(record).encode()) is not None


def test_restrictions() -> None:
    """Of an alert and of its correction, and read back as the columns that they were."""
    advance, _ = advanced(late=False)
    (row,) = advance.alerts.to_pylist()
    action = Action.model_validate({"restrict": "block_customer", "for": "24h"})
    alerts = [alert_record(row, 5), correction_record(row | {"cause": "late_event", "kind": "retraction"}, 5)]
    both = restriction_records(alerts, {("any", 1): action})
    assert [key for key, _ in both] == ['{"customer_id":"c"}'] * 2
    for (_, record), kind in zip(both, ("restriction", "lift"), strict=True):
        valid("restriction", json.dumps(record))
        read = RESTRICTION.row(json.dumps(record).encode())
        assert read is not None
        assert (read["kind"], read["ends_at"] - read["starts_at"]) == (kind, 24 * 3600 * 1_000_000)
        assert json.dumps(RESTRICTION.record(read)) == json.dumps(record)
    assert restriction_records(alerts, {("any", 2): action}) == []


def test_late_events() -> None:
    """By columns."""
    advance, _ = advanced(late=True)
    (value,) = late_records("late", advance.late, STREAM).column("value").to_pylist()
    assert valid("late_event", value)["offset"] == 7
    assert LATE_EVENT.row(value.encode()) is not None


@pytest.mark.parametrize("reason", QUARANTINE_REASONS)
def test_quarantined_records(reason: Reason) -> None:
    """Every reason."""
    _, record = quarantine_record(Rejection(reason, "why"), STREAM, partition=0, offset=1, arrival=0, raw=b"\xff")
    valid("quarantined_record", json.dumps(record))
    assert QUARANTINED.row(json.dumps(record).encode()) is not None


@pytest.mark.parametrize(
    "change", [{}, {"when": "no("}, {"group_by": ["amount"]}, {"id": 7}, {"id": "\ud800"}], ids=repr
)
def test_answers(change: dict[str, Any]) -> None:
    """Accepted, refused, waiting for a shuffle key, without an id, and with what is no text: all readers know it."""
    value = answer(MESSAGE | change)
    valid("rule_status", value)
    row = RULE_STATUS.row(value)
    assert row is not None
    assert RULE_STATUS.record(row) == json.loads(value)
    assert read_answer(value) is not None
    assert shown(value) is not None


def test_endings() -> None:
    """Answers to no message; the lake's columns are the record again."""
    by = Superseded(2, microseconds(NOON))
    for status in (
        Status(Answer.SUPERSEDED, "any", 1, 0, ("why",), superseded=by),
        Status(Answer.RETIRED, "any", 2, 0),
        Status(Answer.ACTIVE, "any", 2, 0, primed=Primed(microseconds(NOON), "a1")),
        Status(Answer.ACTIVE, "any", 2, 0, primed=Primed(microseconds(NOON))),
    ):
        _, record = answer_record(status)
        value = encoded(record)
        valid("rule_status", value)
        row = RULE_STATUS.row(value)
        assert row is not None
        assert RULE_STATUS.record(row) == record
        read = read_answer(value)
        assert read is not None
        assert (read.answer, read.rule_version, read.superseded, read.primed) == (
            status.answer,
            status.rule_version,
            status.superseded,
            status.primed,
        )
        assert shown(value) is not None
    assert read_answer(encoded(record | {"priming": "../../etc"})) is None
    assert read_answer(encoded(record | {"status": "SUPERSEDED"})) is None
    assert read_answer(encoded(record | {"status": "RETIRED", "rule_version": 0})) is None


def test_failures() -> None:
    """An answer to no message."""
    _, record = failure_record("any", 1, "t1", "too large")
    assert valid("rule_status", encoded(record))["event_id"] == "t1"
    assert shown(encoded(record)) is not None


def test_the_clock() -> None:
    """It reads back, no later than its bound."""
    clock = Clock("run", {"transactions": 7, "logins": 9})
    valid("clock", clock.encoded())
    assert read_clock(clock.encoded()) == clock
    assert read_clock(clock.encoded(), 8) == Clock("run", {"transactions": 7, "logins": 8})


def test_reports() -> None:
    """Those of the driver, idle and busy; `status` and the lake read them. A bucket's is held in test_processor."""
    spark = {"numInputRows": 3, "batchId": 7, "durationMs": {"triggerExecution": 20, "addBatch": 10}}
    groups = GroupTimes()
    groups.add(20, {"wait": 0.004, "evaluate": 0.002})
    for mode, batches in (
        ("micro-batch", batches_report([])),
        ("micro-batch", batches_report([spark])),
        ("real-time", groups_report([])),
        ("real-time", groups_report([groups, groups])),
    ):
        report = {
            "kind": "job",
            "state": "running",
            "run_id": "i",
            "process": 1,
            "at": 5,
            "skew": None,
            "mode": mode,
            **batches,
            "lag": lag_report({"transactions": [PartitionProgress(1, 3, 5)]}, 10),
            "consumed": {"transactions": {0: 7}},
            "began": {},
            "rules": {"versions": 1, "answers": 2, "skipped": 0},
        }
        value = json.dumps(report).encode()
        Draft202012Validator(schemas()["job_report"]).validate(json.loads(value))
        assert read_report(value) == json.loads(value)
        assert PROGRESS.row(value) is not None


def test_groups_are_reported_as_batches() -> None:
    """Times are means of a group, in milliseconds; the whole is the sum of its parts."""
    few, many = GroupTimes(), GroupTimes()
    few.add(20, {"wait": 0.004, "evaluate": 0.002})
    many.add(100, {"wait": 0.001, "evaluate": 0.010})
    many.add(10, {"evaluate": 0.003})
    assert groups_report([few, many]) == {
        "batches": 3,
        "rows": 130,
        "most_rows": 100,
        "parts_ms": {"wait": 1.67, "evaluate": 5.0, "whole": 6.67},
        "slowest_ms": 11.0,
    }


def test_sent_at() -> None:
    """The first header of that name counts; what is no number is none."""
    assert sent_at(sent_now(1_767_225_600_000_000)) == 1_767_225_600_000_000
    assert [sent_at([("sent_at", value)]) for value in (b"", b"-1", b"9" * 19, None)] == [None] * 4
    assert sent_at([("sent_at", b"x"), ("sent_at", b"5")]) is None
    assert sent_at(None) is None


@pytest.mark.parametrize("record", [ALERT, LATE_EVENT, QUARANTINED, RULE_STATUS], ids=lambda record: record.name)
@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[" * 100_000, b"[]", b'"x"', b"null"])
def test_what_is_no_object_is_no_record(record: RecordType, value: bytes | None) -> None:
    """Nothing is raised."""
    assert record.row(value) is None


def test_a_correction_of_long_ago_is_an_alert() -> None:
    """The year has four digits: with fewer no reader would know the time."""
    row = dict.fromkeys(ALERT.members, "x") | {"group": "{}", "measures": "{}", "event_time": NOON.replace(year=999)}
    assert correction_record(row, 0)["event_time"] == "0999-01-05T12:00:00.000000Z"


def test_a_row_of_a_forged_answer_is_a_record_again() -> None:
    """Its rule is a text that is no JSON, which the lake keeps as it is."""
    forged = json.loads(answer(MESSAGE)) | {"rule": "no rule"}
    row = RULE_STATUS.row(json.dumps(forged).encode())
    assert row is not None
    assert RULE_STATUS.record(row) == forged


@pytest.mark.parametrize("value", [b"[" * 200_000, b"[]", b"7", b"", b"\xff", b'{"status": "ACCEPTED"}'])
def test_what_is_no_answer_is_skipped(value: bytes) -> None:
    """Anybody may write to the topic: nesting without an end, for one, is no reason to end a command."""
    assert shown(value) is None
