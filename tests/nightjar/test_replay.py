"""Replays: the plan as a pure function, and the records on a real Kafka."""

import json
import math
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nightjar.generate import Options, generate
from nightjar.kafka import clients
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import Reader
from nightjar.replay import RecordKind, ReplayOptions, replay_plan, send, send_together
from nightjar.replay.malformed import forms, malformed
from nightjar.replay.sending import _portions
from nightjar.replay.together import STEP
from nightjar.rules.errors import SettingsError
from nightjar.rules.events import QUARANTINE_REASONS, Reason, Rejection, check_skew, parse_event
from nightjar.rules.streams import SHIPPED, Stream, load_streams, streams_from_mapping
from nightjar.rules.timestamps import microseconds
from tests.support.command import run
from tests.support.nested_stream import DERIVED, NESTED
from tests.support.topics import TestTopics

STREAM = load_streams()["transactions"]
LATENESS = timedelta(microseconds=STREAM.allowed_lateness)
FLAWS = ReplayOptions(disorder=0.2, late=0.05, duplicates=0.1, malformed=0.1, seed=3)
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)

ALL_TYPES = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
                "id": "string",
                "at": "timestamp",
                "who": "string",
                "amount": "decimal(18,3)",
                "n": "int64",
                "x": "double",
                "ok": "boolean",
            },
        }
    },
    "test",
)["s"]
OPTIONAL = replace(ALL_TYPES, name="optional", optional=frozenset({"who", "amount", "ok"}))


@pytest.fixture(scope="module")
def events() -> pa.Table:
    """Two thousand payments of a day, without the label."""
    table = generate(Options(events=2_000, days=1, customers=200, terminals=50, seed=5))["transactions"]
    return table.drop_columns(["scenario"])


@pytest.fixture(scope="module")
def plan(events: pa.Table) -> pl.DataFrame:
    """With every flaw, times kept."""
    return pl.DataFrame(replay_plan(events, STREAM, FLAWS))


def small(*seconds: float) -> pa.Table:
    """One event a number, so many seconds after NOW."""
    rows = [
        {
            "transaction_id": f"t{number}",
            "event_time": NOW + timedelta(seconds=second),
            "customer_id": "c",
            "terminal_id": "m",
            "amount": Decimal("1.10"),
        }
        for number, second in enumerate(seconds)
    ]
    return pa.Table.from_pylist(rows, STREAM.schema)


def test_plan_is_a_function_of_events_options_and_seed(events: pa.Table) -> None:
    """The same gives the same, another seed another plan."""
    plan = replay_plan(events, STREAM, FLAWS)
    assert plan.equals(replay_plan(events, STREAM, FLAWS))
    assert not plan.equals(replay_plan(events, STREAM, ReplayOptions(**{**vars(FLAWS), "seed": 4})))


def test_without_flaws_every_event_is_sent_once_in_its_order(events: pa.Table) -> None:
    """The plan's JSON means exactly the file's events, and each arrives when it happened."""
    plan = replay_plan(events, STREAM, ReplayOptions())
    sent = [parse_event(value, STREAM) for value in plan["value"].to_pylist()]
    given = [row | {"event_time": microseconds(row["event_time"])} for row in events.to_pylist()]
    assert sent == given
    assert plan["arrival_time"].equals(plan["event_time"])
    assert plan["key"].to_pylist() == events["customer_id"].to_pylist()
    assert set(plan["kind"].to_pylist()) == {RecordKind.EVENT}


def test_records_are_in_order_of_arrival(plan: pl.DataFrame) -> None:
    """And arrivals are whole milliseconds, as Kafka's time stamps are."""
    assert plan["arrival_time"].is_sorted()
    assert (plan["arrival_time"].dt.microsecond() % 1000 == 0).all()


def test_every_event_is_there_once_with_its_kind(events: pa.Table, plan: pl.DataFrame) -> None:
    """Shares are as asked; whatever the flaws, no event is lost."""
    counts = Counter(plan["kind"])
    first = plan.filter(pl.col("kind").is_in([RecordKind.EVENT, RecordKind.DISORDERED, RecordKind.LATE]))
    assert sorted(first["event_id"]) == sorted(events["transaction_id"].to_pylist())
    assert counts[RecordKind.DISORDERED] == pytest.approx(400, rel=0.2)
    assert counts[RecordKind.LATE] == pytest.approx(100, rel=0.3)
    assert counts[RecordKind.DUPLICATE] == pytest.approx(200, rel=0.3)
    assert counts[RecordKind.MALFORMED] == 200


def test_lateness_matches_the_kind(plan: pl.DataFrame) -> None:
    """Late events, and only those, arrive after the allowed lateness; disordered ones after some delay."""
    lateness = pl.col("arrival_time") - pl.col("event_time")
    for kind, low, high in (
        (RecordKind.EVENT, timedelta(0), timedelta(milliseconds=1)),
        (RecordKind.DISORDERED, timedelta(microseconds=1), LATENESS / 2 + timedelta(milliseconds=1)),
        (RecordKind.LATE, LATENESS + timedelta(microseconds=1), 2 * LATENESS + timedelta(milliseconds=1)),
    ):
        found = plan.filter(pl.col("kind") == kind).select(lateness.alias("lateness"))["lateness"]
        assert found.min() >= low
        assert found.max() <= high


def test_duplicates_are_the_same_bytes_later(plan: pl.DataFrame) -> None:
    """A second sending follows the first, equals it, and is in time if the first was."""
    seen: dict[str, dict[str, object]] = {}
    for record in plan.filter(pl.col("kind") != RecordKind.MALFORMED).iter_rows(named=True):
        first = seen.setdefault(record["event_id"], record)
        if record["kind"] == RecordKind.DUPLICATE:
            assert first is not record
            assert (first["value"], first["key"]) == (record["value"], record["key"])
            if first["kind"] != RecordKind.LATE:
                assert record["arrival_time"] - record["event_time"] <= LATENESS


def test_malformed_records_are_quarantined_for_the_reason_given(plan: pl.DataFrame) -> None:
    """The reference parser rejects each malformed record as planned, and accepts all others."""
    of_other_formats = {Reason.NOT_AVRO, Reason.NOT_PROTOBUF, Reason.UNKNOWN_SCHEMA, Reason.BAD_ENVELOPE}
    assert set(plan["reason"].drop_nulls()) == set(QUARANTINE_REASONS) - of_other_formats
    for record in plan.iter_rows(named=True):
        found = judged(record["value"], STREAM, microseconds(record["arrival_time"]))
        assert (found.reason if isinstance(found, Rejection) else None) == record["reason"], record["form"]


def judged(value: bytes, stream: Stream, arrival: int) -> object:
    """The event, or why it goes to quarantine."""
    event = parse_event(value, stream)
    return event if isinstance(event, Rejection) else check_skew(event[stream.event_time], arrival, stream)


@pytest.mark.parametrize(
    "stream", [*load_streams().values(), ALL_TYPES, OPTIONAL, NESTED, DERIVED], ids=lambda stream: stream.name
)
def test_every_form_has_its_reason_for_every_type_of_field(stream: Stream) -> None:
    """All ways of being malformed are what they say for streams of any field types."""
    good = {name: 1 if kind.is_number else "text" for name, kind in stream.fields.items()}
    good[stream.event_time] = 1_767_614_400_000
    good |= {name: True for name, kind in stream.fields.items() if str(kind) == "boolean"}
    good |= dict.fromkeys(stream.times, "2026-01-05T12:00:00Z")
    record = json.dumps(stream.record(good)).encode()
    arrival = 1_767_614_400_000_000
    assert judged(record, stream, arrival) is None
    for number, form in enumerate(forms(stream)):
        value = malformed(form, stream, record, number, arrival)
        found = judged(value, stream, arrival)
        assert isinstance(found, Rejection), form.name
        assert found.reason == form.reason, form.name


def test_every_type_of_field_survives_the_json() -> None:
    """Money keeps all its digits, doubles all their bits, NULLs and awkward texts stay what they are."""
    rows = [
        {
            "id": 'quo"te\\ \n é 💳',
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
            "who": None,
            "amount": Decimal("-999999999999999.001"),
            "n": -(2**63),
            "x": 0.1 + 0.2,
            "ok": False,
        },
        {"id": "2", "at": NOON, "who": "a", "amount": None, "n": None, "x": None, "ok": None},
    ]
    plan = replay_plan(pa.Table.from_pylist(rows, ALL_TYPES.schema), ALL_TYPES, ReplayOptions())
    sent = [parse_event(value, ALL_TYPES) for value in plan["value"].to_pylist()]
    assert sent == [row | {"at": microseconds(row["at"])} for row in rows]
    assert plan["key"].to_pylist() == [rows[0]["id"], "a"]


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_values_are_sent_at_their_places() -> None:
    given = {"id": "1", "who": "ann", "amount": Decimal("12.50"), "second": Decimal("0.25"), "fee": None, "sku": "é"}
    rows = [{**given, **dict.fromkeys(NESTED.times, NOON)}, {**given, "id": "2", "who": None, "at": NOON}]
    plan = replay_plan(pa.Table.from_pylist(rows, NESTED.schema), NESTED, ReplayOptions())
    sent = [parse_event(value, NESTED) for value in plan["value"].to_pylist()]
    times = [{name: row.get(name) and microseconds(row[name]) for name in NESTED.times} for row in rows]
    assert sent == [row | of for row, of in zip(rows, times, strict=True)]


def test_shifted_times_begin_now_and_shrink_with_the_speed() -> None:
    """Ten times faster: what lay a minute apart lies six seconds apart, from the start on."""
    start = microseconds(NOON)
    plan = replay_plan(small(0, 60, 90), STREAM, ReplayOptions(start=start, speed=10))
    assert [(time - NOON).total_seconds() for time in plan["event_time"].to_pylist()] == [0, 6, 9]
    assert plan["arrival_time"].equals(plan["event_time"])
    assert [json.loads(value)["event_time"] for value in plan["value"].to_pylist()][1] == "2026-01-05T12:00:06.000000Z"


def test_as_fast_as_possible_shifted_times_end_now() -> None:
    """Everything arrives at once, so what happened longer ago than the allowed lateness is late."""
    plan = replay_plan(small(0, 700, 1200), STREAM, ReplayOptions(start=microseconds(NOON), speed=math.inf))
    assert [(time - NOON).total_seconds() for time in plan["event_time"].to_pylist()] == [-1200, -500, 0]
    assert plan["kind"].to_pylist() == [RecordKind.LATE, RecordKind.EVENT, RecordKind.EVENT]


def test_arrivals_of_the_file_are_kept() -> None:
    """A file that knows its arrivals is replayed in their order, and what was late is late."""
    arrivals = pa.array([NOW + timedelta(seconds=second) for second in (700, 2, 1)], pa.timestamp("us", "UTC"))
    plan = replay_plan(small(0, 1, 1).append_column("arrival_time", arrivals), STREAM, ReplayOptions())
    assert plan["event_id"].to_pylist() == ["t2", "t1", "t0"]
    assert plan["kind"].to_pylist() == [RecordKind.EVENT, RecordKind.EVENT, RecordKind.LATE]


def test_no_events_no_records() -> None:
    """An empty file is a plan of nothing, whatever the flaws."""
    assert replay_plan(small(), STREAM, FLAWS).num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReplayOptions(speed=0), "speed: 0 is not a speed"),
        (ReplayOptions(late=1.5), "late: 1.5 is not a share"),
        (ReplayOptions(late=0.6, disorder=0.6), "add up to more than 1.*an event is one or the other"),
        (ReplayOptions(max_delay=STREAM.allowed_lateness), "Choose less than 10m"),
        (ReplayOptions(start=0, speed=math.inf, late=0.1), "none can be out of order or late"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: ReplayOptions, message: str) -> None:
    """Each with what would make sense."""
    with pytest.raises(SettingsError, match=message):
        replay_plan(small(0), STREAM, options)


@pytest.mark.kafka
def test_kafka_has_exactly_the_plan(kafka_topics: TestTopics, events: pa.Table) -> None:
    """With kept times, each key has its records in the plan's order, with the plan's arrivals and bytes."""
    own = kafka_topics.with_arrival("producer").ensure()
    stream = own.streams["transactions"]
    plan = replay_plan(events, stream, FLAWS)
    before = time.time_ns() // 1000
    report = send(own.settings, stream, [plan], speed=math.inf, shifted=False)
    after = time.time_ns() // 1000
    with Reader(own.settings, stream.topic) as reader:
        found = list(reader.all())
    expected = pl.DataFrame(plan)
    assert report.records == len(found) == expected.height
    assert all(before <= (record.sent_at or 0) <= after for record in found)
    sent_by_key = expected.group_by("key", maintain_order=True).agg("value", pl.col("arrival_time").dt.epoch("ms"))
    found_by_key = {}
    for record in found:
        found_by_key.setdefault((record.key or b"").decode(), []).append((record.value, record.arrival // 1000))
    assert found_by_key == {
        key: list(zip(values, stamps, strict=True)) for key, values, stamps in sent_by_key.iter_rows()
    }


@pytest.mark.kafka
def test_records_are_sent_when_they_are_due(kafka_topics: TestTopics) -> None:
    """At twenty times the speed no event is sent before its time has come."""
    own = kafka_topics.ensure()
    stream = own.streams["transactions"]
    options = ReplayOptions(start=time.time_ns() // 1000, speed=20)
    send(own.settings, stream, [replay_plan(small(0, 10, 20), stream, options)], speed=20, shifted=True)
    with Reader(own.settings, stream.topic) as reader:
        found = [(record.arrival, json.loads(record.value)["event_time"]) for record in reader.all()]
    assert len(found) == 3
    for arrived, event_time in found:
        assert arrived // 1000 >= int(datetime.fromisoformat(event_time).timestamp() * 1000)


def test_records_that_are_due_do_not_wait_for_others() -> None:
    """Each look at the clock sends all that is due by then."""
    looks = iter([0, 5, 10, 10, 35])
    assert list(_portions(np.array([0, 10, 10, 20, 30]), lambda: next(looks))) == [(0, 1), (1, 3), (3, 5)]


@pytest.mark.kafka
def test_topic_that_is_not_there_is_an_error(kafka_topics: TestTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made by accident, and the error names the topic."""
    monkeypatch.setattr(clients, "CONNECT_TIMEOUT_MS", 1_000)
    with pytest.raises(KafkaError, match=r"sending to topic .*-transactions failed"):
        send(
            kafka_topics.settings,
            kafka_topics.streams["transactions"],
            [replay_plan(small(0), STREAM, ReplayOptions())],
            speed=math.inf,
            shifted=False,
        )


@pytest.mark.kafka
def test_command_reports_what_it_sent(kafka_topics: TestTopics, events: pa.Table, tmp_path: Path) -> None:
    """`nightjar replay … --json` counts events, flaws and malformed records by form and reason."""
    pq.write_table(events, tmp_path / "events.parquet")
    settings = kafka_topics.settings
    environment = {
        "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "NIGHTJAR_ARRIVAL": "producer",
        **{
            f"NIGHTJAR_{name.upper()}": value
            for name, value in settings.model_dump().items()
            if name.endswith("_topic")
        },
    }
    topic = kafka_topics.streams["transactions"].topic
    declaration = SHIPPED.read_text(encoding="utf-8").replace('"transactions"', f'"{topic}"')
    (tmp_path / "streams.toml").write_text(declaration, encoding="utf-8")
    flaws = ("--disorder", "0.2", "--late", "0.05", "--duplicates", "0.1", "--malformed", "0.1", "--seed", "3")
    given = ("--stream", "transactions", "--streams", "streams.toml", "--speed", "max", "--keep-times")
    done = run("replay", "events.parquet", *given, *flaws, "--json", environment=environment, folder=tmp_path)
    report = json.loads(done.stdout)
    expected = Counter(replay_plan(events, STREAM, FLAWS)["kind"].to_pylist())
    assert report["records"] == sum(expected.values())
    assert report["events"] == events.num_rows
    assert (report["disordered"], report["late"]) == (expected[RecordKind.DISORDERED], expected[RecordKind.LATE])
    assert (report["duplicates"], report["malformed"]) == (
        expected[RecordKind.DUPLICATE],
        expected[RecordKind.MALFORMED],
    )
    assert sum(report["forms"].values()) == sum(report["reasons"].values()) == report["malformed"]
    assert "sending to" in done.stderr


@pytest.mark.kafka
def test_streams_sent_together_arrive_in_order(kafka_topics: TestTopics) -> None:
    """A record is appended before any, of whatever topic, that arrives more than a step after it."""
    own = kafka_topics.with_arrival("producer").ensure()
    tables = generate(Options(events=2_000, days=1, customers=200, terminals=50, seed=5))
    streams = {name: own.streams[name] for name in tables}
    plans = {name: replay_plan(tables[name], stream, FLAWS) for name, stream in streams.items()}
    begins = min(microseconds(plan["arrival_time"][0].as_py()) for plan in plans.values())
    sent: list[int] = []
    send_together(own.settings, streams, plans, speed=math.inf, begins=begins, progress=sent.append)
    with Reader(own.settings, *(stream.topic for stream in streams.values())) as reader:
        records = list(reader.all())
    assert sum(sent) == len(records) == sum(plan.num_rows for plan in plans.values())
    latest = 0
    for record in sorted(records, key=lambda record: record.sent_at or 0):
        assert record.arrival > latest - STEP
        latest = max(latest, record.arrival)
