"""The packer: every event in one bucket of each of its stream's shuffle keys, rules and clocks in every bucket."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nightjar.contracts.headers import SENT_AT
from nightjar.ingestion.event_schema import PRIMARY
from nightjar.rules.rulebook import WHOLE_STREAM, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.streaming.buckets.packer import PackedRow, Packer
from nightjar.streaming.buckets.payloads import PayloadKind, from_ipc
from nightjar.streaming.partitioning import bucket_of
from tests.support.answers import answered

STREAMS = {name: stream for name, stream in load_streams().items() if name in {"transactions", "logins"}}
SHUFFLE_KEYS = (
    ShuffleKey("transactions", "customer_id"),
    ShuffleKey("transactions", "terminal_id"),
    ShuffleKey("logins", "customer_id"),
    ShuffleKey("transactions", WHOLE_STREAM),
    ShuffleKey("transactions", "amount"),
)
BUCKETS = 4
PACKER = Packer(STREAMS, SHUFFLE_KEYS, BUCKETS, 2, "rule-status", "clock", "quarantine", bounded=True)
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def transaction(event_id: str, customer: str | None = "ann", amount: str = "10.00") -> dict[str, Any]:
    """One transaction."""
    return {
        "transaction_id": event_id,
        "event_time": NOON,
        "customer_id": customer,
        "terminal_id": "m1",
        "amount": Decimal(amount),
    }


def records(*sent: tuple[str, Any]) -> pa.Table:
    """Records (topic, value) as Kafka's source gives them: an event is written as JSON."""
    rows = len(sent)
    values = [value if isinstance(value, bytes) else json.dumps(value, default=_json).encode() for _, value in sent]
    return pa.table(
        {
            "topic": pa.array([topic for topic, _ in sent]),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array([NOON] * rows, pa.timestamp("us", "UTC")),
            SENT_AT: pa.array([None] * rows, pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


def _json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else float(str(value))


def events(packed: list[PackedRow]) -> list[tuple[int, str, bool]]:
    """(bucket, event id, primary) of everything packed as an event."""
    return [
        (bucket, row.get("transaction_id") or row["login_id"], row[PRIMARY])
        for bucket, kind, payload in packed
        if kind is PayloadKind.EVENTS
        for row in payload.to_pylist()
    ]


def shuffle_key_of(bucket: int) -> ShuffleKey:
    """The shuffle key whose bucket that is."""
    return SHUFFLE_KEYS[bucket // BUCKETS]


def test_every_shuffle_key_of_its_stream_gets_an_event_once_and_one_speaks_for_it() -> None:
    """Whatever its fields are; the whole-stream shuffle key has one bucket."""
    sent = [transaction(f"t{n}", f"c{n % 7}", f"{n}.00") for n in range(50)]
    packed = events(list(PACKER.packed(records(*(("transactions", event) for event in sent)))))
    shuffle_keys = [key for key in SHUFFLE_KEYS if key.stream == "transactions"]
    assert Counter((shuffle_key_of(bucket), name) for bucket, name, _ in packed) == {
        (key, event["transaction_id"]): 1 for key in shuffle_keys for event in sent
    }
    assert Counter(name for _, name, primary in packed if primary) == {e["transaction_id"]: 1 for e in sent}
    assert {bucket for bucket, _, _ in packed if shuffle_key_of(bucket).field == WHOLE_STREAM} == {3 * BUCKETS}
    assert len({bucket for bucket, _, _ in packed if shuffle_key_of(bucket).field == "customer_id"}) > 1


def test_nothing_is_sent_to_a_dropped_shuffle_key() -> None:
    """No event, rule or clock; the events are still spoken for, whichever shuffle key was the first."""
    number = len(SHUFFLE_KEYS) - 1
    sent = [("transactions", transaction("t1")), ("clock", {"run_id": "a", "clocks": {"transactions": 0}})]
    for dropped in ({number}, {0, number}):
        packed = list(replace(PACKER, dropped=frozenset(dropped)).packed(records(*sent)))
        numbers = {bucket // BUCKETS for bucket, _, _ in packed}
        assert numbers == set(range(len(SHUFFLE_KEYS))) - dropped
        assert sum(primary for _, _, primary in events(packed)) == 1


def test_events_of_one_value_share_a_bucket_in_their_order() -> None:
    """Also those whose value is NULL: they belong to no group, and still count as seen."""
    sent = [("transactions", transaction(f"t{n}", None if n % 2 else "ann")) for n in range(6)]
    packed = [(bucket, name) for bucket, name, _ in events(list(PACKER.packed(records(*sent)))) if bucket < BUCKETS]
    assert [name for _, name in packed if name in {"t1", "t3", "t5"}] == ["t1", "t3", "t5"]
    assert len({bucket for bucket, name in packed if name in {"t1", "t3", "t5"}}) == 1
    assert len({bucket for bucket, name in packed if name in {"t0", "t2", "t4"}}) == 1


EVERY = {
    number * BUCKETS + at
    for number, key in enumerate(SHUFFLE_KEYS)
    for at in range(BUCKETS)
    if at == 0 or key.field != WHOLE_STREAM
}


def test_a_clock_goes_to_every_bucket_and_is_no_later_than_its_record() -> None:
    """Of every stream and shuffle key; a host that is ahead, or anybody who writes to the topic, cannot move it."""
    noon = int(NOON.timestamp()) * 1_000_000
    for reported, heeded in ((7, 7), (noon + 1, noon), (2**55, noon)):
        value = json.dumps({"run_id": "run", "clocks": {"logins": reported}}).encode()
        packed = list(PACKER.packed(records(("clock", value))))
        assert Counter((bucket, found) for bucket, found, _ in packed) == {
            (bucket, PayloadKind.CLOCK): 1 for bucket in EVERY
        }
        assert json.loads(packed[0][2]) == {"run_id": "run", "clocks": {"logins": heeded}}


def test_an_accepted_rule_goes_to_the_buckets_of_its_stream() -> None:
    """With its offset and arrival; answers that change nothing go nowhere."""
    rule = {"id": "r", "stream": "logins", "group_by": ["customer_id"], "when": "status = 'FAIL'"}
    accepted, rejected = answered(STREAMS, rule, b"{")
    packed = list(PACKER.packed(records(("rule-status", accepted.value), ("rule-status", rejected.value))))
    assert {(shuffle_key_of(bucket).stream, kind) for bucket, kind, _ in packed} == {("logins", PayloadKind.RULE)}
    assert len(packed) == BUCKETS
    written = json.loads(packed[0][2])
    assert (written["offset"], written["arrival"]) == (0, int(NOON.timestamp()) * 1_000_000)
    assert written["value"].encode() == accepted.value


HOSTILE = [
    b"",
    b"not JSON",
    b"\xff{",
    b"[1]",
    b'{"run_id": 1, "clocks": {}}',
    b'{"clocks": {"a": "b"}}',
    b'{"run_id": "run", "clocks": {"logins": 1' + b"0" * 30 + b"}}",
    b'{"run_id": "run", "clocks": {"logins": true}}',
    b"[" * 100_000,
    b'{"status": "ACCEPTED"}',
    b'{"status": "ACTIVE", "rule_id": 7, "rule_version": "x", "effective": null}',
    json.dumps(
        {
            "status": "ACCEPTED",
            "rule_id": "r",
            "rule_version": 1,
            "effective": None,
            "message": "x-0-1",
            "route": "",
            "rule": {"id": "r", "stream": "logins", "group_by": [], "when": "\ud800"},
        }
    ).encode(),
]


@pytest.mark.parametrize("topic", ["clock", "rule-status"])
@pytest.mark.parametrize("raw", HOSTILE)
def test_what_does_not_belong_on_a_topic_is_skipped_and_counted(topic: str, raw: bytes) -> None:
    """Anybody can write to a topic."""
    assert list(PACKER.packed(records((topic, raw), (topic, raw)))) == [(0, PayloadKind.SKIPPED, b"2")]


def test_records_are_events_or_quarantined() -> None:
    """Nothing is lost between the two."""
    odd = json.dumps(transaction("t1"), default=str).encode()
    packed = list(PACKER.packed(records(("transactions", odd), ("transactions", b"GET /"), ("logins", b"{}"))))
    assert {name for _, name, _ in events(packed)} == {"t1"}
    refused = [payload for _, kind, payload in packed if kind is PayloadKind.QUARANTINE]
    reports = [json.loads(value) for table in refused for value in table.column("value").to_pylist()]
    assert sorted((t["stream"], t["offset"], t["reason"]) for t in reports) == [
        ("logins", 2, "no_id"),
        ("transactions", 1, "not_json"),
    ]


def test_a_task_packs_all_its_batches_as_one() -> None:
    """Few rows leave. Without records there are none."""
    table = records(*(("transactions", transaction(f"t{n}")) for n in range(9)))
    batches = list(PACKER.pack(iter(table.to_batches(max_chunksize=2))))
    rows = [row for batch in batches for row in batch.to_pylist()]
    of_stream = [key for key in SHUFFLE_KEYS if key.stream == "transactions"]
    assert [shuffle_key_of(bucket_of(row["bucket"])) for row in rows] == of_stream
    assert list(PACKER.pack(iter([]))) == []


@pytest.mark.slow
def test_a_task_full_of_garbage_is_packed_by_and_by() -> None:
    """Records of megabytes are not all held at once, and each comes to its record."""
    whole = records(*[("transactions", b"x" * 1_000_000)] * 150)
    packed = list(PACKER.pack(iter(whole.to_batches(max_chunksize=10))))
    assert len(packed) == 2
    payloads = [payload for batch in packed for payload in batch.column("payload").to_pylist()]
    values = [value for payload in payloads for value in from_ipc(payload).column("value").to_pylist()]
    assert [json.loads(value)["size"] for value in values] == [1_000_000] * 150
