"""Schemas by their ids: asked for once, kept for ever, and the same for everybody, whatever the registry says later."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from nightjar.formats import schemas as kept
from nightjar.formats.avro import AvroSchema
from nightjar.formats.decoding import check_schema, recorded
from nightjar.formats.encoding import Encoder
from nightjar.formats.errors import RegistryError, SchemaError
from nightjar.formats.records import Raw
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
    for _ in range(13):
        assert isinstance(schemas.find(999_999, at, Format.AVRO), Unusable)
        asked.append(schemas.since(999_999, Format.AVRO) - at)
        at = schemas.since(999_999, Format.AVRO) + 1
    assert asked[:4] == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE]
    assert asked[-1] == 24 * 60 * MINUTE


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


UNUSABLE = [
    (_of(["null", "Node"]), "AVRO", "contains itself"),
    (_of({"type": "array", "items": "null"}), "AVRO", "without bytes"),
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
    for registry, why in (
        (Registry("http://127.0.0.1:9"), "Connection refused"),
        (Registry(server.url, tmp_path / "login"), "it answers 401"),
        (Registry(server.url, tmp_path / "absent"), "cannot be read"),
        (Registry(server.url, tmp_path / "nothing"), "has no colon"),
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
