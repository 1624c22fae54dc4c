"""Hostile records and messages through packer and buckets: each record is counted once, or quarantined."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checks.fuzz.hostile_events import HostileEvents
from checks.fuzz.hostile_messages import CLOCKS, MESSAGES
from nightjar.contracts.clock import read_clock
from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import fold
from nightjar.contracts.topics import Topics
from nightjar.rules.events import Rejection, check_skew, parse_event
from nightjar.rules.rulebook import RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import parse_timestamp
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import Payload, PayloadKind
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketProcessor
from tests.support.answers import answered

STREAMS = {"transactions": load_streams()["transactions"]}
STREAM = STREAMS["transactions"]
TOPICS = Topics()
Output = Callable[[list[tuple[str, bytes]]], dict[str, list[dict[str, Any]]]]
SHUFFLE_KEYS = tuple(ShuffleKey(STREAM.name, entity) for entity in STREAM.entities)
NOON = parse_timestamp("2026-01-20T12:00:00Z", zone_required=True) or 0
GOOD = {
    "transaction_id": '"t"',
    "event_time": "0",
    "customer_id": '"c1"',
    "terminal_id": '"m1"',
    "amount": "12.34",
}
RULE = {
    "id": "any",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 1",
    "effective": "2000-01-01",
    "measures": {"n": {"count": "*", "over": "1h"}, "spent": {"sum": "amount", "over": "1h"}},
    "description": "{n} payments of {customer_id}: {spent}",
}
# The default limit of Kafka.
LARGEST = 1_048_576


def batch(sent: list[tuple[str, bytes]]) -> pa.Table:
    """Records (topic, value) as Kafka's source gives them."""
    rows = len(sent)
    return pa.table(
        {
            "topic": pa.array([topic for topic, _ in sent]),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
            "offset": pa.array(range(1, rows + 1), pa.int64()),
            "timestamp": pa.repeat(pa.scalar(NOON, pa.int64()), rows).cast(pa.timestamp("us", "UTC")),
            SENT_AT: pa.nulls(rows, pa.int64()),
            "value": pa.array([value for _, value in sent], pa.binary()),
        }
    )


@pytest.fixture
def reported(tmp_path: Path) -> Output:
    """The output of one micro-batch of records, by topic; Kafka accepts each of them."""

    def play(sent: list[tuple[str, bytes]]) -> dict[str, list[dict[str, Any]]]:
        answers = tuple(answered(STREAMS, RULE))
        plan = BucketPlan("checkpoint", "run", tmp_path, STREAMS, SHUFFLE_KEYS, 2, TOPICS, answers)
        packed: dict[int, dict[str, list[Payload]]] = {}
        packer = Packer(STREAMS, SHUFFLE_KEYS, 2, 2, "rule-status", "clock", "quarantine", bounded=True)
        for bucket, kind, payload in packer.packed(batch(sent)):
            packed.setdefault(bucket, {}).setdefault(kind, []).append(payload)
        found: dict[str, list[dict[str, Any]]] = {}
        refused = [table for share in packed.values() for table in share.pop(PayloadKind.QUARANTINE, [])]
        processor = BucketProcessor(plan)
        reports = [table for bucket, share in packed.items() for table in processor.process(bucket, 1, share)]
        for record in (row for table in refused + reports for row in table.to_pylist()):
            assert len(record["value"].encode()) < LARGEST
            found.setdefault(record["topic"], []).append(json.loads(record["value"]))
        return found

    return play


def test_every_record_is_counted_once_or_quarantined(reported: Output) -> None:
    """Used, duplicate and late ones add up with those in quarantine, whose reasons are those of parse_event."""
    source = HostileEvents(STREAM, [GOOD], random.Random(1), rarely=0.01)  # noqa: S311  nothing secret is drawn
    records = [source.record(NOON).value or b"" for _ in range(1000)]
    read = [parse_event(record, STREAM) for record in records]
    usable = [
        event for event in read if isinstance(event, dict) and check_skew(event["event_time"], NOON, STREAM) is None
    ]
    reports = reported([("transactions", record) for record in records])
    counted = Counter[str]()
    for bucket in reports[TOPICS.job_progress]:
        counted.update(bucket["counts"])
    assert counted["events"] == len(usable)
    assert counted["events"] + len(reports[TOPICS.quarantine]) == len(records)
    assert counted["late"] == len(reports[TOPICS.late_events]) > 0
    reasons = Counter(event.reason.value for event in read if isinstance(event, Rejection))
    assert (
        Counter(record["reason"] for record in reports[TOPICS.quarantine]) - Counter(future_event_time=1000) == reasons
    )
    assert reports[TOPICS.alerts]


def test_hostile_control_records_are_skipped_and_counted(reported: Output) -> None:
    """Rule messages where answers belong, clocks that are none: each is counted, none changes or stops anything."""
    sent = [("rule-status", message or b"") for message in MESSAGES] + [("clock", clock or b"") for clock in CLOCKS]
    reports = reported(sent)
    good = sum(read_clock(clock or b"", 0) is not None for clock in CLOCKS)
    assert sum(bucket["counts"]["skipped"] for bucket in reports[TOPICS.job_progress]) == len(sent) - good
    assert set(reports) == {TOPICS.job_progress}


def test_hostile_messages_are_answered() -> None:
    """Each is rejected with reasons, in the order of messages."""
    book = RuleBook(STREAMS)
    for answer in answered(STREAMS, *(message or b"" for message in MESSAGES)):
        written = json.loads(answer.value)
        assert (written["status"], bool(written["reasons"])) == ("REJECTED", True)
        fold(book, answer)
    assert (book.next_message, book.skipped, book.ruleset.versions) == (len(MESSAGES), 0, ())
