"""Generates records in Avro, Protobuf and envelopes, some damaged and some with what no event has, from a seed."""

from __future__ import annotations

import base64
import io
import json
import math
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nightjar.formats.avro import AvroSchema
from nightjar.formats.protobuf import ProtobufSchema, compiled
from nightjar.formats.registry import Registry
from nightjar.formats.schemas import Schemas
from nightjar.rules.streams import Stream, streams_from_mapping

# Arrivals up to then (µs) have a schema that was unknown.
UNKNOWN_UNTIL = 1_000
UNKNOWN, OTHER_FORMAT = 40, 50

_ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string"}]}
_CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
_TENTHS = {**_CENTS, "scale": 1}
_AT = {"type": "long", "logicalType": "timestamp-micros"}


def _record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Payment", "fields": [{"name": name, "type": kind} for name, kind in fields]}


# One stream's schema as it grew, by id.
AVRO = {
    1: _record(("id", "string"), ("at", _AT), ("amount", _CENTS), ("who", ["null", "string"]), ("score", "double")),
    2: _record(
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("id", ["string", "long"]),
        ("extra", {"type": "map", "values": "long"}),
        (
            "amount",
            [
                "null",
                {"type": "fixed", "name": "Cents", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 4},
            ],
        ),
        ("who", "string"),
        ("tags", {"type": "array", "items": ["string", "null"]}),
        ("score", ["float", "string", "null"]),
        ("address", ["null", _ADDRESS, "string"]),
        ("flag", "boolean"),
    ),
    3: _record(
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("at", {"type": "long", "logicalType": "timestamp-nanos"}),
        ("amount", "int"),
        ("who", {"type": "enum", "name": "Who", "symbols": ["A", "B", "C"]}),
        ("score", {"type": "int", "logicalType": "date"}),
        ("address", _ADDRESS),
        ("flag", ["null", "boolean", "bytes"]),
        ("tags", ["null", {"type": "array", "items": "string"}]),
    ),
    4: _record(("id", "long"), ("at", "long"), ("amount", "double"), ("who", "bytes"), ("score", "long")),
    5: _record(
        ("id", "string"), ("at", _AT), ("amount", ["string", _TENTHS, "null"]), ("who", "string"), ("score", _CENTS)
    ),
}
_PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
"""
PROTOBUF = {
    11: _PROTO
    + """message Payment {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  string amount = 3;
  optional string who = 4;
  double score = 5;
}""",
    12: _PROTO
    + """message Other { int64 id = 1; }
message Payment {
  enum Kind { UNKNOWN = 0; CARD = 1; }
  message Address { string country = 1; }
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  double amount = 3;
  google.protobuf.StringValue who = 4;
  float score = 5;
  Address address = 6;
  optional bool flag = 7;
  repeated string tags = 8;
  map<string, int64> extra = 9;
  Kind kind = 10;
  google.protobuf.Struct free = 11;
}""",
    13: _PROTO
    + """message Payment {
  bytes id = 1;
  int64 at = 2;
  uint64 amount = 3;
  repeated string who = 4;
  google.protobuf.Value score = 5;
  map<string, string> address = 6;
  bool flag = 7;
}""",
    # whose texts need not be UTF-8
    14: """syntax = "proto2";
message Payment {
  required string id = 1;
  optional int64 at = 2;
  optional string amount = 3;
  optional string who = 4 [default = "nobody"];
  optional double score = 5;
}""",
}
_FIELDS = {
    "id": "string",
    "at": "timestamp",
    "amount": {"type": "decimal(12,2)", "optional": True},
    "who": {"type": "string", "optional": True},
    "score": {"type": "double", "optional": True},
    "country": {"type": "string", "from": "address.country", "optional": True},
    "flag": {"type": "boolean", "optional": True},
    "tag": {"type": "string", "from": "tags[0]", "optional": True},
    "extra": {"type": "int64", "from": "extra.a", "optional": True},
}
_KEYS = {"event_id": "id", "event_time": "at", "entities": ["id"]}
_ROW = {"id": "string", "at": {"type": "timestamp", "unit": "us"}, "amount": "decimal(12,2)"}
DECLARED: dict[str, dict[str, Any]] = {
    "avro": {**_KEYS, "format": "avro", "fields": _FIELDS},
    "protobuf": {**_KEYS, "format": "protobuf", "fields": _FIELDS},
    "cloudevents": {
        **_KEYS,
        "envelope": "cloudevents",
        "fields": {
            "id": "string",
            "at": {"type": "timestamp", "from": "time"},
            "amount": {"type": "decimal(12,2)", "from": "data.amount"},
            "tenant": {"type": "int64", "from": "$headers.tenant", "optional": True},
            "key": {"type": "string", "from": "$key"},
        },
    },
    "debezium": {
        **_KEYS,
        "envelope": "debezium",
        "changes": ["create", "update", "delete"],
        "fields": {
            **_ROW,
            "lsn": {"type": "int64", "from": "$change.source.lsn"},
            "before": {"type": "decimal(12,2)", "from": "$change.before.amount", "optional": True},
            "key": {"type": "decimal(8,3)", "from": "$key", "optional": True},
            "sent": {"type": "timestamp", "from": "$headers.sent", "optional": True},
        },
    },
}
STREAMS = streams_from_mapping(DECLARED, "fuzz")

_STRINGS = (
    "",
    "x",
    "DE",
    "0",
    "-0",
    "19.99",
    "1e3",
    "007",
    "null",
    "2026-01-05T00:00:00Z",
    "é",
    "\0",
    "y" * 2048,
    "y" * 2049,
)
_LONGS = (
    0,
    1,
    -1,
    1_767_571_200_000,
    1_767_571_200_000_000,
    1_767_571_200_000_000_000,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
)
_DOUBLES = (0.0, -0.0, 19.99, 0.1, 1e15, 1e16, 1e300, 5e-324, math.inf, -math.inf, math.nan, 1234567890123.45)
_TIMES = (1_767_571_200_000_000, 1_767_571_200_123_456)


@dataclass(frozen=True)
class HostileRecord:
    """A record. value: None: a tombstone."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@contextmanager
def known_schemas() -> Iterator[Schemas]:
    """All schemas, kept as if a registry had answered, and a registry that has no others; one of the schemas was
    unknown for a while, one is of JSON."""
    kept: dict[int, list[dict[str, Any]]] = {
        number: [{"format": "avro", "schema": json.dumps(schema), "references": {}}] for number, schema in AVRO.items()
    }
    for number, text in PROTOBUF.items():
        descriptors = base64.b64encode(compiled(text)).decode()
        kept[number] = [{"format": "protobuf", "schema": text, "references": {}, "descriptors": descriptors}]
    kept[4].insert(0, {"unknown_until": UNKNOWN_UNTIL})
    kept[UNKNOWN] = [{"unknown_until": 2**62}]
    kept[OTHER_FORMAT] = [{"format": "json", "schema": "", "references": {}}]
    with tempfile.TemporaryDirectory(prefix="nightjar-") as folder, ThreadingHTTPServer(_ANY_PORT, _Empty) as server:
        for number, answers in kept.items():
            Path(folder, str(number)).mkdir()
            for at, answer in enumerate(answers):
                Path(folder, str(number), f"{at}.json").write_text(json.dumps(answer))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Schemas(Path(folder), Registry(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()


_ANY_PORT = ("127.0.0.1", 0)


class _Empty(BaseHTTPRequestHandler):
    """A registry without schemas."""

    def do_GET(self) -> None:
        answer = b'{"error_code": 40403, "message": "Schema not found"}'
        self.send_response(404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: thousands of ids are made up."""


class HostileFormats:
    """Records of one of STREAMS."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.stream: Stream = STREAMS[name]
        self._rng = rng
        makers: Mapping[str, Callable[[], HostileRecord]] = {
            "avro": self._avro,
            "protobuf": self._protobuf,
            "cloudevents": self._cloud_event,
            "debezium": self._change,
        }
        self._make = makers[name]
        self._schemas = {number: AvroSchema(json.dumps(schema)) for number, schema in AVRO.items()}
        self._messages = {number: ProtobufSchema(compiled(text)) for number, text in PROTOBUF.items()}

    def record(self) -> HostileRecord:
        """The next record."""
        made, rng = self._make(), self._rng
        if made.value is None or rng.random() < 0.8:
            return made
        value = bytearray(made.value)
        at = rng.randrange(len(value) + 1)
        match rng.randrange(5):
            case 0:
                value = value[:at]
            case 1:
                value[at:at] = rng.randbytes(rng.randrange(1, 4))
            case 2 if at < len(value):
                value[at] ^= 1 << rng.randrange(8)
            case 3 if len(value) > 5:
                value[1:5] = rng.choice((1, 2, 3, 4, 5, 11, 12, 13, 14, UNKNOWN, OTHER_FORMAT)).to_bytes(4, "big")
            case _:
                value = bytearray(rng.randbytes(rng.randrange(8)))
        return HostileRecord(bytes(value), made.key, made.headers)

    # Avro

    def _avro(self) -> HostileRecord:
        number = self._rng.choice((1, 1, 1, 2, 2, 3, 4, 5))
        target = io.BytesIO()
        schema = self._schemas[number]
        fastavro.schemaless_writer(target, schema.physical, self._datum(AVRO[number]))
        return HostileRecord(b"\0" + number.to_bytes(4, "big") + target.getvalue())

    def _datum(self, node: Any) -> Any:
        rng = self._rng
        if isinstance(node, list):
            return self._datum(rng.choice(node))
        kind = node if isinstance(node, str) else node["type"]
        logical = None if isinstance(node, str) else node.get("logicalType")
        if logical == "decimal":
            size = node.get("size") or rng.choice((1, 2, 4, 4, 4, 9))
            number = rng.choice(
                (0, 1999, -1, rng.randrange(10**6), rng.randrange(-(1 << 8 * size - 1), 1 << 8 * size - 1))
            )
            number = max(-(1 << 8 * size - 1), min(number, (1 << 8 * size - 1) - 1))
            return number.to_bytes(size, "big", signed=True)
        if logical and logical.startswith("timestamp"):
            divisor = {"timestamp-millis": 1000, "timestamp-micros": 1}.get(logical)
            time = rng.choice(_TIMES)
            usual = time * 1000 + 7 if divisor is None else time // divisor
            return rng.choice((*[usual] * 20, *_LONGS))
        match kind:
            case "record":
                return {field["name"]: self._datum(field["type"]) for field in node["fields"]}
            case "map":
                return {rng.choice("abc"): self._datum(node["values"]) for _ in range(rng.randrange(3))}
            case "array":
                return [self._datum(node["items"]) for _ in range(rng.randrange(3))]
            case "enum":
                return rng.choice(node["symbols"])
            case "null":
                return None
            case "boolean":
                return rng.random() < 0.5
            case "int":
                return rng.choice((0, 5, -5, 20_000, 2**31 - 1, -(2**31)))
            case "long":
                return rng.choice(_LONGS)
            case "float" | "double":
                return rng.choice((*_DOUBLES, rng.randrange(10**6) / 100))
            case "bytes":
                return rng.randbytes(3)
        return rng.choice((*_STRINGS, *(f"c{rng.randrange(100)}" for _ in range(20))))

    # Protobuf

    def _protobuf(self) -> HostileRecord:
        number = self._rng.choice((11, 11, 12, 12, 13, 14))
        schema = self._messages[number]
        indexes = (1,) if number == 12 else (0,)
        if self._rng.random() < 0.02:
            indexes = (0,)
        place = b"\0" if indexes == (0,) else bytes((2, 2 * indexes[0]))
        message = self._message(schema.message(None, indexes))
        value = message.SerializePartialToString()
        return HostileRecord(b"\0" + number.to_bytes(4, "big") + place + value)

    def _message(self, kind: Descriptor) -> Message:
        message, rng = GetMessageClass(kind)(), self._rng
        name = kind.full_name
        if name == "google.protobuf.Timestamp":
            seconds = rng.choice((*[1_767_571_200] * 8, 0, -1, -62_135_596_800, 253_402_300_799, 2**62, -(2**63)))
            message.seconds, message.nanos = seconds, rng.choice((0, 0, 123_456_789, 999_999_999, -5))  # type: ignore[attr-defined]
            return message
        for field in kind.fields:
            if rng.random() < 0.1:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                for _ in range(rng.randrange(3)):
                    of = field.message_type.fields_by_name["value"]
                    getattr(message, field.name)[rng.choice(("a", "country"))] = self._value(of)
            elif field.is_repeated:
                getattr(message, field.name).extend(self._value(field) for _ in range(rng.randrange(3)))
            elif field.message_type is None:
                setattr(message, field.name, self._value(field))
            elif field.message_type.full_name in ("google.protobuf.Struct", "google.protobuf.Value"):
                if field.message_type.full_name.endswith("Value"):
                    getattr(message, field.name).number_value = rng.choice((*_DOUBLES, 3.5))
            else:
                getattr(message, field.name).CopyFrom(self._message(field.message_type))
        return message

    def _value(self, field: Any) -> Any:
        rng = self._rng
        if field.enum_type is not None:
            return rng.choice((0, 1, 7))
        match field.cpp_type:
            case field.CPPTYPE_INT64:
                return rng.choice((*[_TIMES[0] // 1000] * 3, *_LONGS))
            case field.CPPTYPE_UINT64:
                return rng.choice((0, 1, 2**63, 2**64 - 1))
            case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
                return rng.choice((*_DOUBLES, rng.randrange(10**6) / 100))
            case field.CPPTYPE_BOOL:
                return rng.random() < 0.5
        if field.type == field.TYPE_BYTES:
            return rng.randbytes(2)
        return rng.choice((*_STRINGS, "19.99", *(f"c{rng.randrange(100)}" for _ in range(10))))

    # Envelopes

    def _cloud_event(self) -> HostileRecord:
        rng = self._rng
        attributes = {
            "specversion": rng.choice(("1.0", "1.0", "1.0", "1.0", "0.3", "")),
            "id": rng.choice((*_STRINGS, "e1", "e2", "e3")),
            "source": rng.choice(("/s", "/s", "/s", "")),
            "type": "payment",
            "time": rng.choice(("2026-01-05T00:00:00Z", "2026-01-05T00:00:00.123+01:00", "x")),
        }
        for name in list(attributes):
            if rng.random() < 0.03:
                del attributes[name]
        data = rng.choice(({"amount": self._literal()}, {"amount": self._literal()}, [], None, 5, {"amount": None}))
        key = rng.choice((b"k", b"17", b"", None, b"\xff"))
        headers: list[tuple[str, bytes | None]] = []
        if rng.random() < 0.7:
            headers.append(("tenant", rng.choice((b"17", b"-0", b"x", b"1.5", None, b"\xff", b"9" * 30))))
        if rng.random() < 0.1:
            headers.append(("tenant", b"18"))
        if rng.random() < 0.5:
            headers += [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
            return HostileRecord(_json(data), key, tuple(headers))
        return HostileRecord(_json({**attributes, "data": data, "$key": "spoofed"}), key, tuple(headers))

    def _change(self) -> HostileRecord:
        rng = self._rng
        if rng.random() < 0.03:
            return HostileRecord(None, b"k")
        rows = [
            {"id": rng.choice((*_STRINGS, "e1", "e2")), "at": rng.choice((*_TIMES, *_LONGS)), "amount": self._literal()}
            for _ in range(2)
        ]
        op = rng.choice(("c", "u", "d", "r", "t", "m", "c", "u", "d", "z", None, ["c"]))
        before = None if op in ("c", "r") else rows[0]
        after = None if op == "d" else rows[1]
        change = {"before": before, "after": after, "op": op, "source": {"lsn": rng.choice(_LONGS)}}
        if rng.random() < 0.3:
            change = {"schema": {"type": "struct"}, "payload": rng.choice((change, change, change, None, 5))}
        key = rng.choice((None, b"1.5", b"1.2345", b"007", b"x", b"\xff"))
        sent = rng.choice((b"1767571200000", b"2026-01-05T00:00:00Z", b"now", None))
        return HostileRecord(_json(change), key, (("sent", sent),) if rng.random() < 0.7 else ())

    def _literal(self) -> Any:
        """A number, or a text of one; json.dumps writes it as Python does."""
        return self._rng.choice(
            (19.99, "19.99", 5, 0, -0.0, "1e2", 1e15, 12345678901.5, 0.001, "x", True, 10**30, None)
        )


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
