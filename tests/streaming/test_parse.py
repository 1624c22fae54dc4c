"""The JVM and `rules.events.parse_event` read every record alike: what the JVM types is what parse_event says."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rules.events import MAX_STRING, Rejection, check_skew, parse_event
from rules.streams import Stream, streams_from_mapping
from streaming.pack import Packer
from streaming.parse import column_of, parsed
from streaming.rulebook import Route
from streaming.wire import Kind, from_ipc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ARRIVAL = 1_522_540_800_000_000  # 2018-04-01, µs
STREAM: Stream = streams_from_mapping(
    {
        "things": {
            "topic": "things",
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "allowed_lateness": "10m",
            "max_future_skew": "1m",
            "fields": {
                "id": "string", "at": "timestamp", "who": "string", "amount": "decimal(12,2)", "fine": "decimal(18,18)",
                "whole": "decimal(12,0)", "number": "int64", "ratio": "double", "flag": "boolean", "seen": "timestamp",
                "note": {"type": "string", "optional": True}, "fee": {"type": "decimal(12,2)", "optional": True},
                "until": {"type": "timestamp", "optional": True},
            },
        }
    },
    "tests",
)["things"]  # fmt: skip
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, value binary, "
    "headers array<struct<key string, value binary>>"
)
PLAIN: dict[str, str] = {
    "id": '"a"', "at": "1522540800000", "who": '"w"', "amount": "12.34", "fine": "0.5", "whole": "7", "number": "5",
    "ratio": "1.5", "flag": "true", "seen": '"2018-04-01T00:00:00Z"', "note": '"n"', "fee": "0.5",
    "until": '"2018-04-02T00:00:00Z"',
}  # fmt: skip


def written(**changes: str | None) -> str:
    """A record by the literal text of its fields; None leaves one out."""
    fields = {**PLAIN, **changes}
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items() if text is not None) + "}"


TEXTS = [
    '"x"', '""', "null", "5", "-0", "0", "1.10", "1e3", "1E400", "-1.5e-7", "true", "{}", '{"a": 1}', "[]", "[1, 2]",
    '"5"', '"12.34"', '"1e2"', '"+5"', '".5"', '"5."', '"007.10"', '"-0.00"', '"NaN"', '"Infinity"', "12.340",
    "12.345", "12.3400000000000000000001", "0.1000000000000000055", "1234567.120000000000001", "1234e-2", "12e-400",
    "9999999999.99", "99999999999.99", "10000000.5", "0.0005", "0.123456789012345678", "0.1234567890123456789", "5.0",
    "9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "1" * 400, "1522540800000",
    '"1522540800000"', '"152254080\\u0030000"', "-1522540800000", "1522540800000.0", "1", "253402300799999",
    '"2018-04-01T00:00:00.123456789Z"', '"2018-04-01 00:00+05:30"', '"2018-04-01T00:00:00"', '"2018-04-01"',
    '"2018-02-30T00:00:00Z"', '"2018-04-01T24:00:00Z"', '"2018-04-01T00:00:60Z"', '"2018-04-01T00:00:00+18:00"',
    '"2018-04-01T00:00:00+18:01"', '"2018-04-01T00:00:00+05:60"', '"0000-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"',
    '"0001-01-01T00:00:00+05:00"', '" 2018-04-01T00:00:00Z"', '"2018-04-01T00:00:00z"', '"2018-04-01T00:00:00Z\\n"',
    '"\\ud800"', '"\\ud83d\\ude00"', '"\\\\ud800"', '"é"', '"\\u00e9"', '"a\\tb"',
    '"\\udc00"', '"\\uDFFF"', f'"{"x" * MAX_STRING}"', f'"{"x" * (MAX_STRING + 1)}"',
    '"12.34\\n"', '"7\\n"', '"1522540800000\\n"', '"\ufffd"',
]  # fmt: skip
WHOLE = [
    "", " ", "null", "[]", "1", '"x"', "{}", "{", "}", "not json", written() + " ", " \n" + written(), written() + "x",
    written() + written(), written() + "}", written() + ', "e": true}', "[" + written() + "]", "\ufeff" + written(),
    written().replace('"', "'"), written()[:-1] + ",}", written()[:-1] + ', "ratio": NaN}', written() + "\x00",
    written()[:-1] + ', "extra": {"a": [1, {"b": "}"}], "c": 1e999}}', written()[:-1] + ', "extra": [01]}',
    written()[:-1] + ', "extra": "\x01"}', written()[:-1] + ', "id": null}', written()[:-1] + ', "id": "b"}',
    written()[:-1] + ', "amount": "x"}', written(amount='"x"')[:-1] + ', "amount": 1}',
    "{" + '"a":{' * 1200 + "}" * 1201,
    written() + ', "x": 1', written() + ', "record": ' + written(who='"v"'), written() + ' ,"x": {}',
    written() + ', "x": 1}',
    written()[:-1] + ', "x": ' + "[" * 99 + "]" * 99 + "}", written()[:-1] + ', "x": ' + "[" * 100 + "]" * 100 + "}",
    written()[:-1] + ', "x": "' + "[{" * 100 + '"}', written()[:-1] + ', "x": ' + '{"a":' * 990 + "1" + "}" * 991,
    written()[:-1] + ', "AMOUNT": 1}', written(id='"\\u0061"'), "// c\n" + written(), written()[:-1] + ', "x": +1}',
]  # fmt: skip


NO_NOTE = written(note=None, ratio="null")
NO_NOTES = written(note=None, fee=None, until=None)[:-1] + ', "NOTE": "x", "x": {"note": "y"}}'


def records() -> list[bytes | None]:
    """Every text in every field, fields left out, and records that are odd as a whole."""
    of_fields = [written(**{name: text}) for name in STREAM.fields for text in TEXTS]
    without = [written(**{name: None}) for name in STREAM.fields]
    nulls = [written(ratio="null", who=None), written(ratio="null", who="null")]
    nulls += [written(note=None, fee=None, until=None), written(note=None, fee="null", who=None), NO_NOTE, NO_NOTES]
    broken = [b"\xff\xfe", written(who='"w').encode() + b"\xff" + b'"}', written().encode().replace(b'"w"', b'"\xff"')]
    future = [written(at=str(ARRIVAL // 1000 + skew)) for skew in (59_999, 60_000, 60_001)]
    return [text.encode() for text in [*of_fields, *without, *nulls, *future, *WHOLE]] + broken


@pytest.fixture(scope="module")
def read(spark: "SparkSession") -> pa.Table:
    """The records as the JVM parsed them, by offset."""
    arrival = datetime.fromtimestamp(ARRIVAL / 1_000_000, UTC)
    rows: list[Any] = [("things", 0, at, arrival, value, None) for at, value in enumerate(records())]
    return parsed(spark.createDataFrame(rows, SCHEMA), [STREAM]).coalesce(1).toArrow()


@pytest.mark.parametrize(
    ("headers", "sent_at"),
    [
        (None, None), ([], None), ([("traceparent", b"00-1-2-01")], None), ([("sent_at", b"7")], 7),
        ([("a", None), ("sent_at", b"7"), ("sent_at", b"8")], 7), ([("sent_at", None)], None),
        ([("sent_at", b"soon")], None), ([("sent_at", b"9" * 30)], None), ([("sent_at", b"\xff")], None),
    ],
)  # fmt: skip
def test_headers_of_anybody_are_read_or_passed_over(
    spark: "SparkSession", headers: list[tuple[str, bytes | None]] | None, sent_at: int | None
) -> None:
    """A record may have headers of others only, and a `sent_at` that is no number."""
    rows: list[Any] = [("things", 0, 0, datetime.fromtimestamp(ARRIVAL / 1_000_000, UTC), written().encode(), headers)]
    found = parsed(spark.createDataFrame(rows, SCHEMA), [STREAM]).toArrow()
    assert found.column("sent_at").to_pylist() == [sent_at]


def test_the_jvm_and_parse_event_agree_on_every_record(read: pa.Table) -> None:
    """What the JVM typed is what parse_event says; what the packer asks parse_event about is typed or quarantined."""
    expected: dict[int, dict[str, Any]] = {}
    refused: dict[int, str] = {}
    for offset, raw in enumerate(records()):
        event = parse_event(raw or b"", STREAM)
        found = event if isinstance(event, Rejection) else check_skew(event["at"], ARRIVAL, STREAM)
        if isinstance(found, Rejection):
            refused[offset] = found.reason.value
        else:
            expected[offset] = event  # type: ignore[assignment]

    packer = Packer({"things": STREAM}, (Route("things", "who"),), 4, 2, "rule-status", "clock", bounded=True)
    events: dict[int, dict[str, Any]] = {}
    quarantined: dict[int, str] = {}
    for _, kind, payload in packer.packed(read):
        if kind is Kind.EVENTS:
            table = from_ipc(payload)
            plain = {name: _plain(table.column(name)) for name in STREAM.fields}
            for at, offset in enumerate(table.column("offset").to_pylist()):
                events[offset] = {name: column[at] for name, column in plain.items()}
        else:
            for line in payload.decode().split("\n"):
                record = json.loads(line.split("\t", 2)[2])
                quarantined[record["offset"]] = record["reason"]

    assert quarantined == refused
    assert {o: (records()[o], e) for o, e in events.items() if e != expected.get(o)} == {}
    assert events.keys() == expected.keys()


def test_an_ordinary_record_is_no_python_object(read: pa.Table) -> None:
    """A plain record, one with explicit nulls, and one without its optional fields are typed by the JVM."""
    typed = set(read.filter(read.column(column_of(STREAM)).is_valid()).column("offset").to_pylist())
    values = records()
    for plain in (
        written(amount="5"),
        written(ratio="null"),
        written(seen='"2018-04-01T00:00:00.123456789Z"'),
        NO_NOTE,
    ):
        assert values.index(plain.encode()) in typed


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
