"""Each record read by columns equals the result of `nightjar.rules.events.parse_event`."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.fuzz.parsing import READINGS
from nightjar.formats.records import Records
from nightjar.ingestion.kafka_source import record_columns
from nightjar.ingestion.parsing import Parsed, parse_columns, parse_events
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.events import Rejection, check_skew, parse_event
from nightjar.rules.streams import Stream, streams_from_mapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARRIVAL = 1_522_540_800_000_000  # 2018-04-01, µs
THINGS = {**READINGS, "topic": "things", "allowed_lateness": "10m", "max_future_skew": "1m"}
STREAM: Stream = streams_from_mapping({"things": THINGS}, "tests")["things"]
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, value binary, "
    "headers array<struct<key string, value binary>>"
)
PLAIN: dict[str, str] = {
    "id": '"a"',
    "at": "1522540800000",
    "who": '"w"',
    "amount": "12.34",
    "fine": "0.5",
    "whole": "7",
    "number": "5",
    "ratio": "1.5",
    "flag": "true",
    "seen": '"2018-04-01T00:00:00Z"',
    "note": '"n"',
    "fee": "0.5",
    "until": '"2018-04-02T00:00:00Z"',
    "coin": "1.5",
}


def written(**changes: str | None) -> str:
    """A record by the literal text of its fields; None leaves one out."""
    fields = {**PLAIN, **changes}
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items() if text is not None) + "}"


TEXTS = [
    '"x"',
    '""',
    "null",
    "5",
    "-0",
    "0",
    "1.10",
    "1e3",
    "1E400",
    "-1.5e-7",
    "true",
    "{}",
    '{"a": 1}',
    "[]",
    "[1, 2]",
    '"5"',
    '"12.34"',
    '"1e2"',
    '"+5"',
    '".5"',
    '"5."',
    '"007.10"',
    '"-0.00"',
    '"NaN"',
    '"Infinity"',
    "12.340",
    "12.345",
    "12.3400000000000000000001",
    "0.1000000000000000055",
    "1234567.120000000000001",
    "1234e-2",
    "12e-400",
    "9999999999.99",
    "99999999999.99",
    "10000000.5",
    "0.0005",
    "0.123456789012345678",
    "0.1234567890123456789",
    "5.0",
    "0.009",
    "0.0845",
    "69371613.60",
    '"69371613.60"',
    '"0.0845"',
    '"007.50"',
    '"1e3"',
    '"1234567890123456"',
    "9223372036854775807",
    "9223372036854775808",
    "123456789012345678901234567890",
    "1" * 400,
    "1522540800000",
    '"1522540800000"',
    '"152254080\\u0030000"',
    "-1522540800000",
    "1522540800000.0",
    "1",
    "253402300799999",
    '"2018-04-01T00:00:00.123456789Z"',
    '"2018-04-01 00:00+05:30"',
    '"2018-04-01T00:00:00"',
    '"2018-04-01"',
    '"2018-02-30T00:00:00Z"',
    '"2018-04-01T24:00:00Z"',
    '"2018-04-01T00:00:60Z"',
    '"2018-04-01T00:00:00+18:00"',
    '"2018-04-01T00:00:00+18:01"',
    '"2018-04-01T00:00:00+05:60"',
    '"0000-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59Z"',
    '"0001-01-01T00:00:00+05:00"',
    '" 2018-04-01T00:00:00Z"',
    '"2018-04-01T00:00:00z"',
    '"2018-04-01T00:00:00Z\\n"',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\\\ud800"',
    '"é"',
    '"\\u00e9"',
    '"a\\tb"',
    '"\\udc00"',
    '"\\uDFFF"',
    f'"{"x" * MAX_STRING}"',
    f'"{"x" * (MAX_STRING + 1)}"',
    '"12.34\\n"',
    '"7\\n"',
    '"1522540800000\\n"',
    '"\ufffd"',
]
WHOLE = [
    "",
    " ",
    "null",
    "[]",
    "1",
    '"x"',
    "{}",
    "{",
    "}",
    "not json",
    written() + " ",
    " \n" + written(),
    written() + "x",
    written() + written(),
    written() + "}",
    written() + ', "e": true}',
    "[" + written() + "]",
    "\ufeff" + written(),
    written().replace('"', "'"),
    written()[:-1] + ",}",
    written()[:-1] + ', "ratio": NaN}',
    written() + "\x00",
    written()[:-1] + ', "extra": {"a": [1, {"b": "}"}], "c": 1e999}}',
    written()[:-1] + ', "extra": [01]}',
    written()[:-1] + ', "extra": "\x01"}',
    written()[:-1] + ', "id": null}',
    written()[:-1] + ', "id": "b"}',
    written()[:-1] + ', "amount": "x"}',
    written(amount='"x"')[:-1] + ', "amount": 1}',
    "{" + '"a":{' * 1200 + "}" * 1201,
    written() + ', "x": 1',
    written() + ', "record": ' + written(who='"v"'),
    written() + ' ,"x": {}',
    written() + ', "x": 1}',
    written()[:-1] + ', "x": ' + "[" * 99 + "]" * 99 + "}",
    written()[:-1] + ', "x": ' + "[" * 100 + "]" * 100 + "}",
    written()[:-1] + ', "x": "' + "[{" * 100 + '"}',
    written()[:-1] + ', "x": ' + '{"a":' * 990 + "1" + "}" * 991,
    written(amount=None)[:-1] + ', "\\u0061mount": 12.3400000000000000000001}',
    written(amount=None)[:-1] + ', "\\u0061mount" :12e-1}',
    written()[:-1] + ', "AMOUNT": 1}',
    written(id='"\\u0061"'),
    "// c\n" + written(),
    written()[:-1] + ', "x": +1}',
]


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


def read(values: list[bytes | None], arrival: int = ARRIVAL) -> tuple[dict[int, dict[str, Any]], dict[int, Rejection]]:
    """The events and the rejections by their place, which are the same of a few records as of their columns."""
    given = Records(pa.array(values, pa.binary()), pa.repeat(arrival, len(values))), STREAM
    found = _placed(parse_columns(*given), len(values))
    assert _placed(parse_events(*given), len(values)) == found
    return found


def _placed(parsed: Parsed, records: int) -> tuple[dict[int, dict[str, Any]], dict[int, Rejection]]:
    assert parsed.events.schema == STREAM.schema
    plain = {name: _plain(parsed.events.column(name)) for name in STREAM.fields}
    events = {row: {name: column[at] for name, column in plain.items()} for at, row in enumerate(parsed.rows.tolist())}
    assert len(events) + len(parsed.rejected) == records
    return events, dict(parsed.rejected)


def expected(values: list[bytes | None]) -> tuple[dict[int, dict[str, Any]], dict[int, Rejection]]:
    """The same, record by record."""
    events, rejected = {}, {}
    for row, raw in enumerate(values):
        event = parse_event(raw or b"", STREAM)
        found = event if isinstance(event, Rejection) else check_skew(event["at"], ARRIVAL, STREAM) or event
        if isinstance(found, Rejection):
            rejected[row] = found
        else:
            events[row] = found
    return events, rejected


@pytest.mark.spark
@pytest.mark.parametrize(
    ("headers", "sent_at"),
    [
        (None, None),
        ([], None),
        ([("traceparent", b"00-1-2-01")], None),
        ([("sent_at", b"7")], 7),
        ([("a", None), ("sent_at", b"7"), ("sent_at", b"8")], 7),
        ([("sent_at", None)], None),
        ([("sent_at", b"soon")], None),
        ([("sent_at", b"9" * 30)], None),
        ([("sent_at", b"\xff")], None),
    ],
)
def test_headers_of_anybody_are_read_or_passed_over(
    spark: "SparkSession", headers: list[tuple[str, bytes | None]] | None, sent_at: int | None
) -> None:
    """A record may have headers of others only, and a `sent_at` that is no number."""
    rows: list[Any] = [("things", 0, 0, datetime.fromtimestamp(ARRIVAL / 1_000_000, UTC), written().encode(), headers)]
    found = record_columns(spark.createDataFrame(rows, SCHEMA)).toArrow()
    assert found.column("sent_at").to_pylist() == [sent_at]


def test_columns_and_parse_event_agree_on_every_record() -> None:
    """Typed alike, or rejected for the same reason."""
    values = records()
    events, rejected = read(values)
    wanted, refused = expected(values)
    assert {row: (values[row], why, refused.get(row)) for row, why in rejected.items() if why != refused.get(row)} == {}
    assert {row: (values[row], e, wanted.get(row)) for row, e in events.items() if e != wanted.get(row)} == {}


def test_each_record_alone_is_read_as_among_others() -> None:
    """A column's values are typed together, and none has to do with another."""
    values = records()
    events, rejected = read(values)
    for row in range(0, len(values), 7):
        alone = read([values[row]])
        assert alone == ({0: events[row]} if row in events else {}, {0: rejected[row]} if row in rejected else {})


_NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.decimals(-10_000, 10_000, places=2).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,9})\.[0-9]{1,14}", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
_TIMES = st.one_of(
    st.datetimes().map(lambda at: json.dumps(at.isoformat() + "Z")),
    st.from_regex(
        r'"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?'
        r'(Z|[+-][01][0-9]:[0-6][0-9])"',
        fullmatch=True,
    ),
)
_VALUES = st.one_of(_NUMBERS, _NUMBERS.map(json.dumps), _TIMES, st.text().map(json.dumps), st.sampled_from(TEXTS))


@given(st.lists(st.dictionaries(st.sampled_from(list(PLAIN)), _VALUES, max_size=4), min_size=1, max_size=8))
def test_any_values_are_read_as_parse_event_reads_them(changes: list[dict[str, str]]) -> None:
    """Numbers of any length, times of any form, texts of any characters, in any field."""
    values: list[bytes | None] = [written(**each).encode() for each in changes]
    assert read(values) == expected(values)


def test_an_ordinary_record_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain record, one with explicit nulls, one without its optional fields, ones whose other numbers are long, and
    ones with amounts as text."""
    monkeypatch.setattr("nightjar.ingestion.parsing.recorded", lambda *_: pytest.fail("it was"))
    plain = [written(amount="5"), written(ratio="null"), written(seen='"2018-04-01T00:00:00.123456Z"'), NO_NOTE]
    plain += [written(number="-9223372036854775808"), written(ratio="0.12345678901234567")]
    plain += [written(amount=text) for text in ('"12.34"', '"-0.05"', '"5"', '"1234567890.10"')]
    values: list[bytes | None] = [text.replace('"fine": 0.5', '"fine": 0.0005').encode() for text in plain]
    parsed = parse_columns(Records(pa.array(values, pa.binary()), pa.repeat(ARRIVAL, len(values))), STREAM)
    assert parsed.rows.tolist() == list(range(len(plain)))


def test_there_may_be_nothing_to_read() -> None:
    """No records, or none that is an object."""
    assert read([]) == ({}, {})
    assert set(read([b"", None, b"7"])[1]) == {0, 1, 2}


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
