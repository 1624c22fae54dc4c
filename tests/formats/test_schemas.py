"""Schemas by their ids: asked for once, kept for ever, and the same for everybody, whatever the registry says later."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from nightjar.formats import schemas as kept
from nightjar.formats.avro import AvroSchema
from nightjar.formats.decoding import check_schema, recorded
from nightjar.formats.encoding import Encoder
from nightjar.formats.errors import CompilerError, RegistryError, SchemaError
from nightjar.formats.protobuf import compiled
from nightjar.formats.records import HEADER_LIST, Raw, Records
from nightjar.formats.registry import Registry
from nightjar.formats.schemas import Schemas, Unusable
from nightjar.rules.encodings import Format
from nightjar.rules.errors import DeclarationError
from nightjar.rules.events import Reason, Rejection
from nightjar.rules.streams import Stream, streams_from_mapping
from tests.support.schema_registry import Reference, SchemaRegistry, schema_registry

MINUTE = 60_000_000
NOON = 1_767_614_400_000_000
FIELDS = {"id": "string", "at": "timestamp", "amount": {"type": "decimal(12,2)", "from": "price.amount"}}
KEYS = {"event_id": "id", "event_time": "at", "entities": ["id"], "fields": FIELDS}
PRICE = {"type": "record", "name": "Price", "namespace": "shop", "fields": [{"name": "amount", "type": "string"}]}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": "shop.Price"},
    ],
}
PRICE_PROTO = 'syntax = "proto3"; package shop; message Price { string amount = 1; }'
PAYMENT_PROTO = """
syntax = "proto3";
package shop;
import "shop/price.proto";
import "google/protobuf/timestamp.proto";
message Payment { string id = 1; google.protobuf.Timestamp at = 2; Price price = 3; }
"""
EVENT = {"id": "p1", "at": "2026-01-05T12:00:00Z", "price": {"amount": "19.99"}}


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


@pytest.fixture
def registry(server: SchemaRegistry, tmp_path: Path) -> Registry:
    """As nightjar reaches it."""
    assert server.login is not None
    login = tmp_path / "login"
    login.write_text(":".join(server.login) + "\n")
    return Registry(server.url, login)


@pytest.fixture
def schemas(registry: Registry, tmp_path: Path) -> Schemas:
    return Schemas(tmp_path / "schemas", registry)


def declared(topic: str, **keys: object) -> Stream:
    return streams_from_mapping({"payments": {**KEYS, "topic": topic, **keys}}, "tests")["payments"]


def forget() -> None:
    """As in another process."""
    kept._KNOWN.clear()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_record_is_read_by_the_schema_that_it_names(
    server: SchemaRegistry, registry: Registry, schemas: Schemas, form: str
) -> None:
    """With a reference to another schema; and once more from what is kept, without the registry."""
    if form == "avro":
        server.register("price-value", json.dumps(PRICE))
        server.register("avro-payments-value", json.dumps(PAYMENT), references=[Reference("shop.Price", "price-value")])
    else:
        server.register("price-proto", PRICE_PROTO, "PROTOBUF")
        reference = Reference("shop/price.proto", "price-proto")
        server.register("protobuf-payments-value", PAYMENT_PROTO, "PROTOBUF", [reference])
    stream = declared(f"{form}-payments", format=form)
    raw = Encoder(stream, registry).encode(json.dumps(EVENT).encode()).value
    event = recorded(Raw(raw, NOON), stream, schemas)
    assert event == {"id": "p1", "at": NOON, "amount": Decimal("19.99")}
    forget()
    gone = Schemas(schemas.folder, Registry("http://127.0.0.1:9"))
    assert recorded(Raw(raw, NOON), stream, gone) == event


@pytest.mark.slow
def test_fields_are_found_by_name_as_the_schema_grows(
    server: SchemaRegistry, registry: Registry, schemas: Schemas
) -> None:
    """In another order, with a new field and another unit; a required field that is no longer there is missing."""
    price = {**PRICE, "name": "Inner"}
    fields = [
        {"name": "new", "type": "long", "default": 0},
        {"name": "price", "type": price},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": ["null", "string"]},
    ]
    stream, found = declared("grown", format="avro"), []
    server.register("price2-value", json.dumps(PRICE))
    for schema in ({**PAYMENT, "fields": fields[1:]}, {**PAYMENT, "fields": fields}, {**PAYMENT, "fields": fields[2:]}):
        httpx.put(
            f"{server.url}/config/grown-value", json={"compatibility": "NONE"}, auth=server.login, trust_env=False
        )
        server.register("grown-value", json.dumps(schema))
        event = {name: value for name, value in EVENT.items() if name in {f["name"] for f in schema["fields"]}}
        raw = Encoder(stream, registry).encode(json.dumps(event).encode()).value
        found.append(recorded(Raw(raw, NOON), stream, schemas))
    assert found[0] == found[1] == {"id": "p1", "at": NOON, "amount": Decimal("19.99")}
    assert found[2] == Rejection(Reason.MISSING_FIELD, "amount (price.amount) is absent")


@pytest.mark.slow
def test_what_was_unknown_stays_so_for_what_came_then(server: SchemaRegistry, schemas: Schemas) -> None:
    """A schema that is registered after its first record counts for what comes a minute later, in every process."""
    server.register("probe-value", json.dumps(PRICE))
    number = server.register("last-value", json.dumps({**PRICE, "name": "Last"})) + 1
    unknown = Unusable(f"the registry has no schema {number}")
    assert schemas.find(number, NOON, Format.AVRO) == unknown
    assert server.register("late-value", json.dumps({**PRICE, "name": "Late"})) == number
    for _ in range(2):
        assert schemas.find(number, NOON, Format.AVRO) == unknown
        assert schemas.find(number, NOON + MINUTE, Format.AVRO) == unknown
        assert isinstance(schemas.find(number, NOON + MINUTE + 1, Format.AVRO), AvroSchema)
        assert schemas.find(number, NOON, Format.AVRO) == unknown
        forget()
    answers = [json.loads((schemas.folder / str(number) / f"{at}.json").read_text()) for at in range(2)]
    assert answers[0] == {"unknown_until": NOON + MINUTE}
    assert answers[1]["format"] == "avro"


@pytest.mark.slow
def test_an_id_that_stays_unknown_is_asked_for_ever_more_rarely(schemas: Schemas) -> None:
    at, asked = NOON, []
    for _ in range(6):
        assert isinstance(schemas.find(999_999, at, Format.AVRO), Unusable)
        asked.append(schemas.since(999_999, Format.AVRO) - at)
        at = schemas.since(999_999, Format.AVRO) + 1
    assert asked[:4] == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE]
    assert asked[4:] == [10 * MINUTE, 10 * MINUTE]


@pytest.mark.slow
def test_made_up_ids_are_asked_for_up_to_a_number(schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_IDS", 3)
    found = [schemas.find(10**6 + n, NOON, Format.AVRO) for n in range(6)]
    assert [each.reason for each in found if isinstance(each, Unusable)] == [
        *(f"the registry has no schema {10**6 + n}" for n in range(3)),
        *(f"schema {10**6 + n} is not asked for: records have named 3 others" for n in range(3, 6)),
    ]


def test_processes_that_ask_at_once_have_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that writes it."""
    arrivals = iter(range(NOON, NOON + 100 * MINUTE, MINUTE))

    def asked(*_: object) -> dict[str, int]:
        return {"unknown_until": next(arrivals)}

    monkeypatch.setattr(Schemas, "_asked", asked)
    schemas = Schemas(tmp_path, Registry("http://127.0.0.1:9"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: schemas._answer(5, 0, 0), range(40)))
    assert len({json.dumps(answer) for answer in answers}) == 1
    assert [path.name for path in (tmp_path / "5").iterdir()] == ["0.json"]


def _of(field: object) -> str:
    return json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": field}]})


def doubling(levels: int) -> object:
    """A type that has two of a type that has two of a type."""
    kind: object = "long"
    for level in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}" if level else "long"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    return kind


NESTED_ERROR = {"type": "error", "name": "E", "fields": [{"name": "e", "type": ["null", "E"]}]}
WIDE = {"type": "record", "name": "W", "fields": [{"name": f"n{at}", "type": "null"} for at in range(99)]}
WIDE["fields"] = [*WIDE["fields"], {"name": "b", "type": "boolean"}]
UNUSABLE = [
    (_of(NESTED_ERROR), "AVRO", "contains itself"),
    (_of(doubling(30)), "AVRO", "has more than 10,000 fields"),
    (_of({"type": "array", "items": WIDE}), "AVRO", "too few bytes"),
    (_of(["null", "Node"]), "AVRO", "contains itself"),
    (_of({"type": "array", "items": "null"}), "AVRO", "too few bytes"),
    ('"string"', "AVRO", "is not of a record"),
    ('{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}', "JSON", "is json"),
    (PRICE_PROTO, "PROTOBUF", "is protobuf"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "kind", "why"), UNUSABLE)
def test_what_cannot_be_used_is_refused_with_the_reason(
    server: SchemaRegistry, schemas: Schemas, schema: str, kind: str, why: str
) -> None:
    number = server.register(f"odd-{abs(hash(schema))}-value", schema, kind)
    found = schemas.find(number, NOON, Format.AVRO)
    assert isinstance(found, Unusable)
    assert why in found.reason
    rejection = recorded(Raw(b"\0" + number.to_bytes(4, "big") + b"x", NOON), declared("odd", format="avro"), schemas)
    assert rejection == Rejection(Reason.UNKNOWN_SCHEMA, found.reason)


@pytest.mark.slow
def test_a_registry_that_does_not_answer_is_an_error_and_not_an_answer(server: SchemaRegistry, tmp_path: Path) -> None:
    """Nothing is kept of it: neither where nobody listens nor with a wrong login."""
    (tmp_path / "login").write_text("somebody:else")
    (tmp_path / "nothing").write_text("somebody")
    assert server.login is not None
    (tmp_path / "right").write_text(":".join(server.login))
    for registry, why in (
        (Registry("http://127.0.0.1:9"), "Connection refused"),
        (Registry(server.url, tmp_path / "login"), "it answers 401"),
        (Registry(server.url, tmp_path / "absent"), "cannot be read"),
        (Registry(server.url, tmp_path / "nothing"), "has no colon"),
        (Registry(server.url.removesuffix("/v7") + "/elsewhere", tmp_path / "right"), "object of JSON|answers 404"),
        (Registry(server.url, tmp_path / "right", tmp_path / "no.pem"), "certificate cannot be read"),
    ):
        with pytest.raises(RegistryError, match=why):
            Schemas(tmp_path / "schemas", registry).find(1, NOON, Format.AVRO)
        assert not (tmp_path / "schemas" / "1").exists()


def test_a_stream_is_held_against_its_schema_file(tmp_path: Path) -> None:
    """A file that is no schema, and one that lacks a field; not one that lacks what stands beside the value."""
    file = tmp_path / "payment.avsc"

    def checked(schema: object, **fields: object) -> None:
        file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
        body = {**KEYS, "fields": {**FIELDS, **fields}, "format": "avro", "schema_file": "payment.avsc"}
        check_schema(streams_from_mapping({"payments": body}, "tests", tmp_path)["payments"])

    whole = {**PAYMENT, "fields": [*PAYMENT["fields"][:2], {"name": "price", "type": PRICE}]}
    checked(whole, key={"type": "string", "from": "$key"}, note={"type": "string", "optional": True})
    with pytest.raises(DeclarationError, match=r"payments.fields.note: the schema has no note"):
        checked(whole, note="string")
    with pytest.raises(DeclarationError, match="is not a schema of Avro"):
        checked("{")
    with pytest.raises(DeclarationError, match="is not a schema of Avro"):
        checked(PAYMENT)


def test_what_a_schema_does_not_allow_is_not_encoded(tmp_path: Path) -> None:
    (tmp_path / "price.avsc").write_text(json.dumps({**PAYMENT, "fields": PAYMENT["fields"][:2]}))
    body = {**KEYS, "fields": {"id": "string", "at": "timestamp"}, "format": "avro", "schema_file": "price.avsc"}
    encoder = Encoder(streams_from_mapping({"payments": body}, "tests", tmp_path)["payments"])
    for content, why in (
        ({"id": "a"}, "the field at is absent"),
        ({"id": "a", "at": "noon"}, "no time"),
        ({"id": 5, "at": 1}, "no string"),
        ({"id": "a", "at": 1, "more": 2}, "no field more"),
    ):
        with pytest.raises(SchemaError, match=why):
            encoder.encode(json.dumps(content).encode())
    assert encoder.encode(b"no object").value == b"no object"


FIXED = {"type": "fixed", "name": "F", "size": 8}


def test_what_is_encoded_is_read_again(tmp_path: Path) -> None:
    """Digits, a union whose first type does not fit, fixed decimals and dates; the second message of a file."""
    fields = [
        {"name": "id", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "amount", "type": {**FIXED, "logicalType": "decimal", "precision": 18, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    declared = {"id": "string", "at": "timestamp", "amount": "decimal(18,2)", "day": "string"}
    body = {**KEYS, "fields": declared, "format": "avro", "schema_file": "s.avsc"}
    stream = streams_from_mapping({"payments": body}, "tests", tmp_path)["payments"]
    raw = b'{"id": "p1", "at": "2026-01-05T12:00:00Z", "amount": -1234567890123456.78, "day": "2026-01-05"}'
    event = recorded(Raw(Encoder(stream).encode(raw).value, NOON), stream)
    assert event == {"id": "p1", "at": NOON, "amount": Decimal("-1234567890123456.78"), "day": "2026-01-05"}
    with pytest.raises(SchemaError, match="no decimal of so few digits"):
        Encoder(stream).encode(raw.replace(b".78", b".789"))


def test_json_keeps_its_digits_where_the_key_stands_beside_it() -> None:
    fields = {"id": {"type": "string", "from": "$key"}, "at": "timestamp", "amount": "decimal(18,2)"}
    stream = streams_from_mapping({"payments": {**KEYS, "fields": fields}}, "tests")["payments"]
    record = Encoder(stream).encode(
        b'{"$key": "a", "at": 1, "amount": 1234567890123456.78, "x": [true, null, "\\u00e9"]}'
    )
    assert record.key == b"a"
    assert record.value == '{"at":1,"amount":1234567890123456.78,"x":[true,null,"é"]}'.encode()


def test_a_change_in_protobuf_is_read_though_no_field_is_its_operation(tmp_path: Path) -> None:
    """And it is the second message of its file."""
    rows = "message Row { string id = 1; int64 at = 2; google.protobuf.Struct more = 3; }"
    change = "message Other {} message Change { Row before = 1; Row after = 2; string op = 3; }"
    imports = 'syntax = "proto3"; import "google/protobuf/struct.proto";'
    (tmp_path / "c.proto").write_text(f"{imports} {rows} {change}")
    fields = {"id": "string", "at": "timestamp", "n": {"type": "int64", "from": "more.n"}}
    body = {**KEYS, "fields": fields, "format": "protobuf", "schema_file": "c.proto", "envelope": "debezium"}
    stream = streams_from_mapping({"payments": {**body, "message": "Change"}}, "tests", tmp_path)["payments"]
    raw = Encoder(stream).encode(b'{"op": "c", "after": {"id": "a", "at": 5, "more": {"n": 7}}}').value
    assert recorded(Raw(raw, NOON), stream) == {"id": "a", "at": 5_000, "n": 7}


@pytest.mark.slow
def test_the_message_that_a_record_names_is_the_declared_one(
    server: SchemaRegistry, registry: Registry, schemas: Schemas
) -> None:
    text = 'syntax = "proto3"; package p; message A { message In { string id = 1; int64 at = 2; } } message B {}'
    server.register("placed-value", text, "PROTOBUF")
    stream = declared("placed", format="protobuf", message="p.A.In", fields={"id": "string", "at": "timestamp"})
    raw = Encoder(stream, registry).encode(b'{"id": "a", "at": 5}').value
    assert raw[5:8] == bytes((4, 0, 0))  # two steps: the first message, and the first in it
    assert recorded(Raw(raw, NOON), stream, schemas) == {"id": "a", "at": 5_000}


def test_a_failure_of_the_compiler_is_no_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A refusal says what is wrong in the text, and is kept; without a compiler nothing is."""
    with pytest.raises(SchemaError, match=r'^is not a schema of Protobuf: 1:.*"Nothing" is not defined'):
        compiled('syntax = "proto3"; message A { Nothing a = 1; }')
    monkeypatch.setattr("sys.executable", str(tmp_path / "false"))
    (tmp_path / "false").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "false").chmod(0o700)
    with pytest.raises(CompilerError, match="ended with 1"):
        compiled(PRICE_PROTO)


def test_only_headers_that_are_fields_are_kept() -> None:
    """A record may have hundreds of thousands of others."""
    fields = {**FIELDS, "tenant": {"type": "string", "from": "$headers.tenant"}}
    stream = streams_from_mapping({"payments": {**KEYS, "fields": fields}}, "tests")["payments"]
    listed = [
        [{"key": "x", "value": b"1"}, {"key": "tenant", "value": b"a"}, {"key": "tenant", "value": None}],
        None,
        [],
        [{"key": "y", "value": b"2"}] * 1000,
        [{"key": "tenant", "value": b"b"}],
    ]
    headers = pa.array([[{"key": "tenant", "value": b"z"}], *listed], HEADER_LIST)[1:]
    values = pa.array([b"{}"] * 5, pa.binary())
    read = Records.read(values, pa.repeat(0, 5), None, headers, stream)
    assert read.headers is not None
    assert [len(of) for of in read.headers.to_pylist()] == [2, 0, 0, 0, 1]
    beside = read.beside(range(5))
    assert beside is not None
    assert [of["$headers"] for of in beside] == [{"tenant": None}, {}, {}, {}, {"tenant": "b"}]
