"""Writes records of nightjar's own in Avro, by a schema that is derived from their type.

Times are timestamp-micros, members that are JSON strings of it. What a record may lack is null by default, so that
a later release can add members: readers with the former schema read its records, and the other way round.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping
from typing import Any

import fastavro

from nightjar.contracts.record_type import Member, RecordType
from nightjar.formats.wire import header
from nightjar.rules.types import Kind

_NAMESPACE = "nightjar"
_TYPES: Mapping[Kind, Any] = {
    Kind.STRING: "string",
    Kind.INT64: "long",
    Kind.BOOLEAN: "boolean",
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
}


def avro_schema(record_type: RecordType, always_there: Collection[str]) -> str:
    """The schema's text. always_there: the members that every record has."""
    fields = [_field(name, member, name in always_there) for name, member in record_type.members.items()]
    about = {"type": "record", "name": record_type.name, "namespace": _NAMESPACE, "doc": record_type.about}
    return json.dumps(about | {"fields": fields})


def _field(name: str, member: Member, is_always_there: bool) -> dict[str, Any]:
    about = f"{member.about}; JSON" if member.is_json else member.about
    kind = "string" if member.is_json else _TYPES[member.kind]
    field = {"name": name, "doc": about, "type": kind}
    return field if is_always_there else field | {"type": ["null", kind], "default": None}


class AvroWriter:
    """Encodes rows. schema: as `avro_schema` returned it; number: its id in the registry."""

    def __init__(self, schema: str, number: int) -> None:
        self._schema = fastavro.parse_schema(json.loads(schema))
        self._header = header(number)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """The record's value in Confluent's wire format. row: as `RecordType.row` returns it; times are µs."""
        target = io.BytesIO(self._header)
        target.seek(len(self._header))
        fastavro.schemaless_writer(target, self._schema, row)
        return target.getvalue()
