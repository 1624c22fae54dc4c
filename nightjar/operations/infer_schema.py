"""Writes a stream's declaration from a schema: of a file, or the one that the records of a topic name in a registry.

Types, and what may be absent or NULL, are the schema's. With records, shares and the guesses of id, time and entities
are of the values that these have; of a file they are by the names.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from nightjar.formats.avro import AvroSchema
from nightjar.formats.decoding import recorded, schema_of_file
from nightjar.formats.errors import SchemaError, UndecodableError
from nightjar.formats.outline import Leaf, outline
from nightjar.formats.protobuf import ProtobufSchema
from nightjar.formats.records import Raw
from nightjar.formats.registry import Registry
from nightjar.formats.schemas import Schema, Schemas, Unusable
from nightjar.formats.wire import HEADER_BYTES, place_in, schema_of
from nightjar.operations.infer_draft import (
    OF_TIME,
    Draft,
    Field,
    Found,
    InferenceError,
    can_be_declared,
    check_name,
    chosen,
    number,
    words,
    written,
)
from nightjar.rules.encodings import Format, encoding
from nightjar.rules.errors import printable
from nightjar.rules.event_values import JsonNumber
from nightjar.rules.field_paths import ABSENT, BLOCKED

_AVRO_FILES = (".avsc",)
# The last four: a FileDescriptorSet.
_PROTOBUF_FILES = (".proto", ".desc", ".pb", ".binpb", ".protoset")
_WHOLE = re.compile(r"-?[0-9]{1,20}", re.ASCII)
SCHEMA_FILES = (*_AVRO_FILES, *_PROTOBUF_FILES)


def name_schemas(records: Sequence[bytes]) -> bool:
    """Whether most records begin with the id of a schema in a registry."""
    return 2 * sum(schema_of(record) is not None for record in records) > len(records)


def declaration_of_file(file: Path, name: str, message: str | None = None) -> str:
    """The TOML text that declares a stream of the records of a schema's file. message: of several in a file.

    Raises:
        InferenceError: it is no such file, or a stream cannot have the name.
        DeclarationError: the file cannot be read.
    """
    check_name(name)
    form = Format.AVRO if file.suffix in _AVRO_FILES else Format.PROTOBUF
    keys = {"format": form.value, "schema_file": str(file)}
    if message is not None:
        keys["message"] = message
    try:
        schema = schema_of_file(encoding(keys | {"schema_file": file.name}, file.parent))
        leaves = outline(schema if isinstance(schema, AvroSchema) else schema.message(message))
    except SchemaError as refusal:
        remedy = refusal.remedy.replace("Declare message", "Give --message") or "Give a schema of a record"
        raise InferenceError(f"the schema {refusal.what}", where=str(file), remedy=remedy) from None
    fields, left_out = chosen(leaves, _refused, lambda name, leaf: _field(name, leaf, []))
    return written(Draft(name, name, f"From {printable(file.name)}.", fields, left_out, 0, keys), lambda _: [])


def declaration_of_records(records: Sequence[bytes], registry: Registry, name: str, topic: str) -> str:
    """The TOML text that declares a stream of records that name schemas: by the newest of those.

    Raises:
        InferenceError: it is unknown or cannot be used, or a stream cannot have the name.
        RegistryError: the registry cannot be asked.
    """
    check_name(name)
    latest = max((found, at) for at, record in enumerate(records) if (found := schema_of(record)) is not None)
    newest, example = latest[0], records[latest[1]]
    registered = registry.schema(newest)
    if registered is None or registered.format is Format.JSON:
        what = "does not have" if registered is None else "has as JSON's, not Avro's or Protobuf's,"
        raise InferenceError(f"the registry {what} schema {newest}, which records name", where=topic)
    form, now = registered.format, time.time_ns() // 1000
    with tempfile.TemporaryDirectory(prefix="nightjar-") as folder:
        schemas = Schemas(Path(folder), registry)
        schema = schemas.find(newest, now, form)
        try:
            if isinstance(schema, Unusable):
                raise SchemaError(schema.reason)
            message = schema if isinstance(schema, AvroSchema) else schema.message(None, place_in(example)[0])
            leaves = outline(message)
        except (SchemaError, UndecodableError) as refusal:
            what = getattr(refusal, "what", str(refusal))
            raise InferenceError(f"schema {newest}: {what}", where=topic) from None
        contents = [_content(record, schemas, form, now) for record in records if schema_of(record) is not None]
        known = [content for content in contents if content is not None]
        fields, left_out = chosen(leaves, _refused, lambda name, leaf: _field(name, leaf, known))
        about = f"From schema {newest} of the registry, and examples: {len(known):,}."
        draft = Draft(name, topic, about, fields, left_out, len(known), {"format": form.value})
        return written(draft, lambda stream: [recorded(Raw(record, now), stream, schemas) for record in records])


def _content(record: bytes, schemas: Schemas, form: Format, arrival: int) -> dict[str, Any] | None:
    """What a record has; None if it cannot be decoded."""
    named_schema = schema_of(record)
    schema: Schema | Unusable = Unusable("") if named_schema is None else schemas.find(named_schema, arrival, form)
    try:
        if isinstance(schema, AvroSchema):
            return schema.decode(record[HEADER_BYTES:])
        if isinstance(schema, ProtobufSchema):
            place, begin = place_in(record)
            message = GetMessageClass(schema.message(None, place)).FromString(record[begin:])
            found: dict[str, Any] = json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            return found
    except (SchemaError, UndecodableError, DecodeError, ValueError, json_format.Error):
        pass
    return None


def _refused(leaf: Leaf) -> str | None:
    """Why no field has what is there."""
    if not can_be_declared(leaf.path):
        return "which has too many steps"
    return None if leaf.keys else leaf.notes[-1]


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number as text, which Protobuf's JSON has for those of 64 bits."""
    return isinstance(value, str) and _WHOLE.fullmatch(value) is not None


def _field(name: str, leaf: Leaf, contents: Sequence[dict[str, Any]]) -> Field:
    found = Found(leaf.path)
    keys: dict[str, Any] = dict(leaf.keys)
    is_whole = keys["type"] == "int64"
    for content in contents:
        value = leaf.path.value(content)
        if value is ABSENT or value is BLOCKED:
            continue
        found.add(JsonNumber(value) if type(value) is int or (is_whole and _is_whole(value)) else value)
    doubts = [*leaf.notes, *(["may be NULL"] if leaf.is_null else [])]
    if is_whole and found.known:
        as_number, of_number = number(found)
        keys = as_number if as_number["type"] == "timestamp" else keys
        doubts += of_number
    elif is_whole and words(found.key) & OF_TIME:
        doubts.append('? a time, perhaps: type = "timestamp" and its unit')
    if str(leaf.path) != name:
        keys["from"] = str(leaf.path)
    if leaf.is_absent:
        keys["optional"] = True
    return Field(name, found, keys, doubts, may_lack=leaf.is_null or 0 in leaf.path.steps)
