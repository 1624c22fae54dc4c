"""From the content of a record, written as JSON, to its bytes: for what replays events and for cases.

Beside the value's content the JSON has the record's key at `$key` and its headers at `$headers`, as files of events do.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from nightjar.formats.avro import AvroSchema
from nightjar.formats.decoding import schema_of_file
from nightjar.formats.errors import SchemaError
from nightjar.formats.protobuf import ProtobufSchema
from nightjar.formats.registry import Registry
from nightjar.formats.schemas import Schema, usable
from nightjar.formats.wire import header, place_of
from nightjar.rules.encodings import Format
from nightjar.rules.event_values import EXACT, JsonNumber
from nightjar.rules.events import read_json
from nightjar.rules.field_paths import HEADERS, KEY
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import parse_timestamp

_PER_SECOND = {"timestamp-millis": 1_000, "timestamp-micros": 1_000_000, "timestamp-nanos": 1_000_000_000}
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Encoded:
    """A record for Kafka."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Encoder:
    """Encodes the records of a stream. registry: that is asked for the newest schema of the topic's values, where the
    stream has no schema file.

    Raises:
        SchemaError: there is no schema, or it cannot be used.
    """

    def __init__(self, stream: Stream, registry: Registry | None = None) -> None:
        self._stream = stream
        self._header = b""
        self._schema: Schema | None = None
        if stream.encoding.schema is not None:
            self._schema = schema_of_file(stream.encoding)
        elif stream.encoding.format is not Format.JSON:
            subject = f"{stream.topic}-value"
            found = None if registry is None else registry.latest(subject)
            if found is None:
                raise SchemaError("there is no schema", where=subject, remedy="Register it, or declare schema_file")
            number, registered = found
            self._schema = usable(registered, stream.encoding.format)
            self._header = header(number)
            if isinstance(self._schema, ProtobufSchema):
                self._header += place_of(self._schema.message(stream.encoding.message))

    @property
    def is_needed(self) -> bool:
        """Whether records are anything but their JSON."""
        return self._schema is not None or self._stream.reads_key or self._stream.reads_headers

    def encode(self, raw: bytes) -> Encoded:
        """The record of this JSON; what is no object is sent as it is.

        Raises:
            SchemaError: the schema does not allow the content.
        """
        if not self.is_needed:
            return Encoded(raw)
        try:
            content = read_json(raw.decode())
        except ValueError:
            return Encoded(raw)
        if not isinstance(content, dict):
            return Encoded(raw)
        key, headers = content.pop(KEY, None), content.pop(HEADERS, None)
        headers = headers if isinstance(headers, dict) else {}
        return Encoded(
            self._value(content),
            None if key is None else _beside(key),
            tuple((name, b"" if value is None else _beside(value)) for name, value in headers.items()),
        )

    def _value(self, content: dict[str, Any]) -> bytes:
        if self._schema is None:
            return _json(content).encode(errors="surrogatepass")
        if isinstance(self._schema, AvroSchema):
            return self._header + _avro(self._schema, content)
        return self._header + _protobuf(self._schema, content, self._stream.encoding.message)


def _beside(value: Any) -> bytes:
    """A key or a header: a text as it is."""
    return (value if isinstance(value, str) else _json(value)).encode(errors="surrogatepass")


def _json(value: Any) -> str:
    """JSON with its numbers as they are written."""
    if isinstance(value, dict):
        members = (f"{json.dumps(key, ensure_ascii=False)}:{_json(each)}" for key, each in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, JsonNumber) else json.dumps(value, ensure_ascii=False)


def _avro(schema: AvroSchema, content: Mapping[str, Any]) -> bytes:
    target = io.BytesIO()
    try:
        fastavro.schemaless_writer(target, schema.physical, schema.written(content, _scalar))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as failure:
        raise SchemaError(f"the schema does not allow the record: {failure}") from None
    return target.getvalue()


def _scalar(node: Mapping[str, Any], value: Any) -> Any:
    """A value of JSON as Avro's type has it; ValueError, TypeError or ArithmeticError if it has none such."""
    kind, logical = node["type"], node.get("logicalType")
    is_number = isinstance(value, JsonNumber)
    if not isinstance(value, str | bool):
        raise TypeError(f"no {kind}")
    if logical in _PER_SECOND and not is_number:
        instant = parse_timestamp(value, zone_required=True) if isinstance(value, str) else None
        if instant is None:
            raise ValueError("no time")
        return instant * _PER_SECOND[logical] // _MICROSECONDS
    if logical == "date" and not is_number:
        return date.fromisoformat(str(value))
    if logical == "decimal" and isinstance(value, str):
        number = Decimal(value).scaleb(int(node.get("scale", 0)), EXACT)
        if number != int(number):
            raise ValueError("no decimal of so few digits")
        size = node["size"] if kind == "fixed" else int(number).bit_length() // 8 + 1
        return int(number).to_bytes(size, "big", signed=True)
    match kind:
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long" if is_number:
            return int(value)
        case "float" | "double" if is_number:
            return float(value)
        case "string" | "enum" if isinstance(value, str) and not is_number:
            return str(value)
    raise TypeError(f"no {kind}")


def _protobuf(schema: ProtobufSchema, content: dict[str, Any], name: str | None) -> bytes:
    message = GetMessageClass(schema.message(name))()
    try:
        json_format.ParseDict(_without_numbers(content), message)
    except (json_format.ParseError, ValueError, TypeError) as failure:
        raise SchemaError(f"the schema does not allow the record: {failure}") from None
    return message.SerializeToString(deterministic=True)


def _without_numbers(value: Any) -> Any:
    """JSON with its numbers as Python's."""
    if isinstance(value, dict):
        return {key: _without_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_numbers(each) for each in value]
    if isinstance(value, JsonNumber):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value
