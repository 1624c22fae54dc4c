"""Records in Avro, Protobuf and envelopes: the same one by one as by columns, and what their libraries say."""

import io
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from checks.fuzz.formats import compared
from checks.fuzz.hostile_formats import STREAMS, HostileFormats, known_schemas
from checks.fuzz.parsing import Findings
from nightjar.formats.avro import AvroReader, AvroSchema
from nightjar.formats.decoding import recorded
from nightjar.formats.protobuf import MessageReader, ProtobufSchema, compiled
from nightjar.formats.records import Raw
from nightjar.rules.events import Rejection, parse_recorded
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.timestamps import microseconds

RECORDS = 4_000
WHOLE = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "nanos", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}]},
        {"name": "count", "type": ["int", "long"]},
        {"name": "ratio", "type": ["double", "null"]},
        {"name": "flag", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}},
    ],
}
FIELDS = {
    "id": "string",
    "millis": "timestamp",
    "micros": "timestamp",
    "nanos": "timestamp",
    "price": "decimal(18,2)",
    "count": "int64",
    "ratio": "double",
    "flag": "boolean",
    "kind": "string",
}
KEYS = {"event_id": "id", "event_time": "millis", "entities": ["id"], "fields": FIELDS}
(STREAM,) = streams_from_mapping({"s": {**KEYS, "format": "avro"}}, "tests").values()
INSTANTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))  # noqa: DTZ001
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@pytest.mark.parametrize("name", STREAMS)
def test_hostile_records_are_the_same_one_by_one_as_by_columns(name: str) -> None:
    """`python -m checks.fuzz events` does it with millions."""
    findings, source = Findings(), HostileFormats(name, random.Random(3))  # noqa: S311
    with known_schemas() as schemas:
        counts = compared(STREAMS[name], [source.record() for _ in range(RECORDS)], schemas, findings)
    assert findings.counts == {}
    assert counts["used"] > RECORDS / 50
    assert len(counts) >= 6  # most reasons


@given(
    st.fixed_dictionaries(
        {
            "id": TEXT,
            "millis": INSTANTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
            "micros": st.none() | INSTANTS,
            "nanos": INT64,
            "price": st.none() | st.decimals(-(10**15), 10**15, places=2),
            "count": INT64,
            "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.booleans(),
            "kind": st.sampled_from(["CARD", "CASH"]),
        }
    )
)
def test_avro_is_read_as_fastavro_writes_it(values: dict[str, Any]) -> None:
    """With fastavro's own conversion of logical types."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(WHOLE), values)
    reader = AvroReader(AvroSchema(json.dumps(WHOLE)), STREAM)
    content = reader.decode(target.getvalue())
    for unit, name in ((timedelta(milliseconds=1), "millis"), (timedelta(microseconds=1), "micros")):
        if values[name] is not None:
            assert content[name] == (values[name] - datetime(1970, 1, 1, tzinfo=UTC)) // unit
    event = parse_recorded(content, reader.stream)
    expected = {**values, "nanos": values["nanos"] // 1000}
    for name in ("millis", "micros"):
        expected[name] = None if values[name] is None else microseconds(values[name])
    assert event == expected


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message M {
  enum Kind { CARD = 0; CASH = 1; }
  message Price { int64 cents = 1; }
  string id = 1;
  google.protobuf.Timestamp at = 2;
  optional int64 count = 3;
  google.protobuf.DoubleValue ratio = 4;
  Kind kind = 5;
  repeated Price prices = 6;
  map<string, bool> flags = 7;
  uint32 small = 8;
}
"""
MESSAGE_FIELDS = {
    "id": "string",
    "at": "timestamp",
    "count": {"type": "int64", "optional": True},
    "ratio": {"type": "double", "optional": True},
    "kind": "string",
    "second": {"type": "int64", "from": "prices[1].cents", "optional": True},
    "flag": {"type": "boolean", "from": "flags.yes", "optional": True},
    "small": "int64",
}
MESSAGE_KEYS = {"event_id": "id", "event_time": "at", "entities": ["id"], "fields": MESSAGE_FIELDS}
(MESSAGES,) = streams_from_mapping({"s": {**MESSAGE_KEYS, "format": "protobuf"}}, "tests").values()


@given(
    st.fixed_dictionaries(
        {"id": TEXT, "at": INSTANTS, "kind": st.sampled_from(["CARD", "CASH"])},
        optional={
            "count": INT64.map(str),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "prices": st.lists(st.fixed_dictionaries({"cents": INT64.map(str)}), max_size=3),
            "flags": st.dictionaries(st.sampled_from(["yes", "no"]), st.booleans()),
            "small": st.integers(0, 2**32 - 1),
        },
    )
)
def test_protobuf_is_read_as_its_own_library_shows_it(values: dict[str, Any]) -> None:
    """With the JSON that the library makes of a message."""
    schema = ProtobufSchema(compiled(PROTO))
    made = {**values, "at": values["at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")}
    raw = json_format.ParseDict(made, GetMessageClass(schema.message())()).SerializeToString()
    shown = json_format.MessageToDict(GetMessageClass(schema.message()).FromString(raw))
    prices = shown.get("prices", [])
    reader = MessageReader(schema.message(), MESSAGES)
    assert parse_recorded(reader.decode(raw), reader.stream) == {
        "id": shown["id"],
        "at": microseconds(values["at"]),
        "count": int(shown["count"]) if "count" in shown else None,
        "ratio": shown.get("ratio"),
        "kind": shown.get("kind", "CARD"),
        "second": int(prices[1].get("cents", 0)) if len(prices) > 1 else None,
        "flag": shown.get("flags", {}).get("yes"),
        "small": shown.get("small", 0),
    }


DECIMALS = [
    (10**30, 2, None),
    (123456789012345678, 2, "1234567890123456.78"),
    (-1, 2, "-0.01"),
    (5, 1, "0.50"),
    (55, 3, None),
]


@pytest.mark.parametrize(("number", "scale", "digits"), DECIMALS)
def test_no_decimal_is_rounded(number: int, scale: int, digits: str | None) -> None:
    """Also one with more digits than its schema says, which fastavro would round."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": scale}
    schema = AvroSchema(json.dumps({**WHOLE, "fields": [WHOLE["fields"][0], {"name": "price", "type": price}]}))
    fields = {"id": "string", "price": "decimal(18,2)", "at": {"type": "timestamp", "from": "$headers.at"}}
    declared = {**KEYS, "event_time": "at", "format": "avro", "fields": fields}
    (stream,) = streams_from_mapping({"s": declared}, "tests").values()
    target = io.BytesIO()
    fastavro.schemaless_writer(target, schema.physical, {"id": "a", "price": number.to_bytes(16, "big", signed=True)})
    content = AvroReader(schema, stream).decode(target.getvalue())
    assert content["price"] == Decimal(number).scaleb(-scale)
    event = parse_recorded(content, stream, beside={"$headers": {"at": "0"}})
    if digits is None:
        assert isinstance(event, Rejection)
        assert "at most 16 digits before the point and 2 after it" in event.detail
    else:
        assert event == {"id": "a", "price": Decimal(digits), "at": 0}


def test_a_record_without_the_registrys_header_is_refused() -> None:
    with known_schemas() as schemas:
        for raw in (b"", b"\0\0\0\0", b"\1\0\0\0\1", b"{}"):
            found = recorded(Raw(raw, 0), STREAMS["avro"], schemas)
            assert "does not begin with a zero byte" in getattr(found, "detail", "")
