"""A declaration that is made from a schema has its types, and says what it guesses."""

import io
import json
import time
import tomllib
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass

from checks.fuzz.hostile_formats import AVRO, PROTOBUF
from nightjar.formats.decoding import check_schema
from nightjar.formats.protobuf import ProtobufSchema, compiled
from nightjar.formats.wire import header, place_of
from nightjar.kafka.clients import producer
from nightjar.operations.infer_draft import InferenceError
from nightjar.operations.infer_schema import declaration_of_file
from nightjar.rules.errors import DeclarationError
from nightjar.rules.streams import Stream, streams_from_mapping
from tests.support.command import run
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.support.topics import TestTopics

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "long"}]}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "payment_id", "type": "string"},
        {"name": "created_at", "type": TIME},
        {"name": "customer", "type": ["null", CUSTOMER]},
        {"name": "amount", "type": DECIMAL},
        {"name": "sent_time", "type": "long"},
        {"name": "booked", "type": ["null", DATE]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "extra", "type": {"type": "map", "values": "string"}},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "int", "string"]},
    ],
}
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Node { Node next = 1; string label = 2; }
message Payment {
  string payment_id = 1;
  google.protobuf.Timestamp created_at = 2;
  optional string card_token = 3;
  google.protobuf.DoubleValue score = 4;
  repeated Node nodes = 5;
  map<string, string> extra = 6;
  google.protobuf.Struct free = 7;
  uint64 cents = 8;
  int64 sent_time = 9;
}
"""


def fields_of(text: str) -> list[str]:
    return text.partition(".fields]\n")[2].splitlines()


def test_of_avro(tmp_path: Path) -> None:
    (tmp_path / "payment.avsc").write_text(json.dumps(PAYMENT))
    text = declaration_of_file(tmp_path / "payment.avsc", "payments")
    assert 'event_id = "payment_id"  # ? by its name\n' in text
    assert 'event_time = "created_at"  # ? the only time' in text
    assert fields_of(text) == [
        'payment_id = "string"',
        'created_at = "timestamp"',
        'id = {type = "int64", from = "customer.id"}  # may be NULL',
        'amount = "decimal(18,2)"  # ? the schema has 38 digits; those of more than 18 are refused',
        'sent_time = "int64"  # ? a time, perhaps: type = "timestamp" and its unit',
        'booked = "string"  # ? a date, as text; may be NULL',
        'tags = {type = "string", from = "tags[0]", optional = true}  # ? the first of a list',
        'note = "string"  # ? int64 or string: a string takes them; may be NULL',
        "# left out: extra, which is a map: declare the path to one of its keys",
        "# left out: raw, which is bytes",
    ]
    check_schema(declared(text, "payments"))


def test_of_protobuf(tmp_path: Path) -> None:
    (tmp_path / "payment.proto").write_text(PROTO)
    with pytest.raises(InferenceError, match=r"several messages\. Give --message, one of shop\.Node, shop\.Payment"):
        declaration_of_file(tmp_path / "payment.proto", "payments")
    text = declaration_of_file(tmp_path / "payment.proto", "payments", "shop.Payment")
    assert 'message = "shop.Payment"' in text
    assert fields_of(text) == [
        'payment_id = "string"',
        'created_at = "timestamp"',
        'card_token = {type = "string", optional = true}',
        'score = {type = "double", optional = true}',
        'label = {type = "string", from = "nodes[0].label", optional = true}  # ? the first of a list',
        'cents = "int64"  # ? numbers from 2^63 on are refused',
        'sent_time = "int64"  # ? a time, perhaps: type = "timestamp" and its unit',
        "# left out: nodes[0].next, which contains itself",
        "# left out: extra, which is a map: declare the path to one of its keys",
        "# left out: free, whose members the schema does not name",
    ]
    check_schema(declared(text, "payments"))


@pytest.mark.parametrize("number", [*AVRO, *PROTOBUF])
def test_of_any_schema_it_is_one(number: int, tmp_path: Path) -> None:
    file = tmp_path / ("s.avsc" if number in AVRO else "s.proto")
    file.write_text(json.dumps(AVRO[number]) if number in AVRO else PROTOBUF[number])
    text = declaration_of_file(file, "s", "shop.Payment" if number == 12 else None)
    assert tomllib.loads(text)["streams"]["s"]["fields"]
    if '_id = ""' not in text and '_time = ""' not in text:
        check_schema(declared(text, "s"))


@pytest.mark.parametrize("content", ["", "[]", '"string"', '{"type": "record"}'])
def test_what_is_no_schema_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "s.avsc").write_text(content)
    with pytest.raises(InferenceError, match="the schema is not"):
        declaration_of_file(tmp_path / "s.avsc", "s")
    with pytest.raises(DeclarationError, match="cannot be read"):
        declaration_of_file(tmp_path / "t.avsc", "s")


def declared(text: str, name: str) -> Stream:
    """The stream; the file's schema is read from where it says."""
    return streams_from_mapping(tomllib.loads(text)["streams"], "test")[name]


@pytest.fixture(scope="module")
def registry() -> Any:
    with schema_registry(asks_for_login=False) as running:
        yield running


@pytest.mark.kafka
@pytest.mark.slow
def test_of_the_schema_that_a_topics_records_name(kafka_topics: TestTopics, registry: SchemaRegistry) -> None:
    """Of several the newest; shares are of the examples."""
    own = kafka_topics.ensure()
    avro, protobuf = (own.streams[name].topic for name in ("transactions", "logins"))
    former = {**PAYMENT, "fields": PAYMENT["fields"][:2]}
    numbers = [registry.register(f"{avro}-value", json.dumps(each)) for each in (former, PAYMENT)]
    number = registry.register(f"{protobuf}-value", PROTO, "PROTOBUF")
    now = time.time_ns() // 1_000_000
    with producer(own.settings) as client:
        for at in range(20):
            row = {"payment_id": f"p{at}", "created_at": now, "amount": b"\5", "sent_time": now, "booked": None}
            row |= {"customer": None if at % 2 else {"id": at % 5}, "tags": [], "extra": {}, "raw": b"", "note": 5}
            schema, of = (former, numbers[0]) if at < 4 else (PAYMENT, numbers[1])
            client.send(avro, value=header(of) + encoded(schema, row))
            client.send(protobuf, value=header(number) + message(f"p{at}", now, token="c" if at % 4 else None))
    environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": own.settings.bootstrap, "NIGHTJAR_SCHEMA_REGISTRY": registry.url}
    lines = inferred(avro, environment).splitlines()
    assert lines[0].startswith(f"# From schema {numbers[1]} of the registry, and examples: 20.")
    assert 'format = "avro"' in lines
    assert 'event_id = "payment_id"  # ? it differs in each of these records' in lines
    assert 'event_time = "created_at"  # ? other times are sent_time' in lines
    assert 'id = {type = "int64", from = "customer.id"}  # absent in 20.0%; NULL in 40.0%; may be NULL' in lines
    assert any(line.startswith('sent_time = {type = "timestamp", unit = "ms"}  # absent in 20.0%') for line in lines)
    assert "# 16 of 20 records are events by this declaration." in lines
    assert "# 4 missing_field" in lines
    lines = inferred(protobuf, environment).splitlines()
    assert 'format = "protobuf"' in lines
    assert 'created_at = "timestamp"' in lines
    assert 'card_token = {type = "string", optional = true}  # absent in 25.0%' in lines
    assert "# 20 of 20 records are events by this declaration." in lines


def inferred(topic: str, environment: dict[str, str]) -> str:
    done = run("stream", "infer", "--topic", topic, "--name", "s", environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    physical = json.loads(json.dumps(schema).replace('"logicalType": "decimal"', '"doc": "decimal"'))
    names = {field["name"] for field in schema["fields"]}
    kept = {name: value for name, value in row.items() if name in names}
    fastavro.schemaless_writer(target, fastavro.parse_schema(physical), kept)
    return target.getvalue()


def message(identifier: str, now: int, token: str | None) -> bytes:
    of: Any = GetMessageClass(_MESSAGE)(payment_id=identifier, sent_time=now)
    of.created_at.FromMilliseconds(now)
    if token is not None:
        of.card_token = token
    return place_of(_MESSAGE) + bytes(of.SerializeToString())


_MESSAGE = ProtobufSchema(compiled(PROTO)).message("shop.Payment")
