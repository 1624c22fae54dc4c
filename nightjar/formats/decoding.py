"""From the bytes of a record to its content, by the format that its stream declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor

from nightjar.formats.avro import AvroReader, AvroSchema
from nightjar.formats.errors import SchemaError, UndecodableError
from nightjar.formats.protobuf import MessageReader, ProtobufSchema, compiled
from nightjar.formats.records import Raw
from nightjar.formats.schemas import Schemas, Unusable
from nightjar.rules.encodings import Encoding, Envelope, Format
from nightjar.rules.errors import DeclarationError
from nightjar.rules.events import Reason, Rejection, parse_recorded
from nightjar.rules.streams import Stream

# Of Confluent's wire format: a zero byte, the schema's id, and of Protobuf the message's place in the schema.
_MAGIC, _ID_END = 0, 5
_MAX_INDEXES = 20
_KEPT = 256

_NOT_DECODED = {Format.AVRO: Reason.NOT_AVRO, Format.PROTOBUF: Reason.NOT_PROTOBUF}

Reader = AvroReader | MessageReader


class RefusedError(Exception):
    """A record that cannot be decoded."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection


@dataclass
class Decoded:
    """Contents of records with one schema, and their rows."""

    reader: Reader
    rows: list[int] = field(default_factory=list)
    documents: list[Any] = field(default_factory=list)


def recorded(raw: Raw, stream: Stream, schemas: Schemas | None = None) -> dict[str, Any] | Rejection:
    """The fields that a record has (rules.events.parse_recorded), or why it is not an event; without derived fields.

    Raises:
        RegistryError
    """
    if stream.encoding.format is Format.JSON or (not raw.value and stream.encoding.envelope is Envelope.DEBEZIUM):
        return parse_recorded(raw.value, stream, beside=raw.beside)
    try:
        reader, begin = _reader(raw.value, raw.arrival, stream, schemas)
        return parse_recorded(reader.decode(raw.value[begin:]), reader.stream, beside=raw.beside)
    except RefusedError as refusal:
        return refusal.rejection
    except UndecodableError as why:
        return Rejection(_NOT_DECODED[stream.encoding.format], str(why))


def decoded(
    raw: Sequence[bytes | None], arrivals: Sequence[int], stream: Stream, schemas: Schemas | None
) -> list[Decoded]:
    """The contents of records that are not JSON; of those that cannot be decoded none."""
    found: dict[int, Decoded] = {}
    known = _KnownReaders(stream, schemas)
    for at, (value, arrival) in enumerate(zip(raw, arrivals, strict=True)):
        try:
            reader, begin = known.of(value or b"", arrival)
            document = reader.decode((value or b"")[begin:])
        except (RefusedError, UndecodableError):
            continue
        group = found.get(id(reader)) or found.setdefault(id(reader), Decoded(reader))
        group.rows.append(at)
        group.documents.append(document)
    return list(found.values())


class _KnownReaders:
    """The readers of records, looked up once for all that begin alike."""

    def __init__(self, stream: Stream, schemas: Schemas | None) -> None:
        self._stream, self._schemas = stream, schemas
        self._file = _file_reader(stream) if stream.encoding.schema is not None else None
        # the first message of a schema has one byte more, which is 0
        self._beginning = _ID_END + (stream.encoding.format is Format.PROTOBUF)
        self._known: dict[bytes, tuple[Reader, int, int]] = {}

    def of(self, raw: bytes, arrival: int) -> tuple[Reader, int]:
        """What decodes a record, and where what it decodes begins."""
        if self._file is not None:
            return self._file, 0
        beginning = raw[: self._beginning]
        reader, since, end = self._known.get(beginning, (None, 0, 0))
        if reader is not None and arrival > since:
            return reader, end
        reader, end = _reader(raw, arrival, self._stream, self._schemas)
        if end == self._beginning and self._schemas is not None:
            self._known[beginning] = reader, self._schemas.since(_number(raw), self._stream.encoding.format), end
        return reader, end


def check_schema(stream: Stream) -> None:
    """Check a stream against its schema file.

    Raises:
        DeclarationError: the file is not such a schema, or lacks a field that every event has.
    """
    if stream.encoding.schema is None:
        return
    where = f"streams.{stream.name}"
    try:
        reader = _file_reader(stream)
    except SchemaError as refusal:
        raise DeclarationError(f"the schema {refusal.what}", where=where, remedy=refusal.remedy) from None
    for name in stream.recorded:
        if name not in stream.optional and not stream.path(name).is_beside and not reader.has(name):
            if stream.encoding.envelope is Envelope.CLOUDEVENTS and stream.path(name).steps[0] != "data":
                continue
            place = stream.shown_place(name)
            remedy = "Give the path to it as `from`, or declare it optional"
            raise DeclarationError(f"the schema has no {place}", where=f"{where}.fields.{name}", remedy=remedy)


def _reader(raw: bytes, arrival: int, stream: Stream, schemas: Schemas | None) -> tuple[Reader, int]:
    """What decodes a record, and where what it decodes begins."""
    if stream.encoding.schema is not None:
        return _file_reader(stream), 0
    form = stream.encoding.format
    if len(raw) < _ID_END or raw[0] != _MAGIC:
        what = "it does not begin with a zero byte and the id of a schema in the registry"
        raise RefusedError(Rejection(_NOT_DECODED[form], what))
    number = _number(raw)
    if schemas is None:
        raise ValueError(f"stream {stream.name} needs a registry")
    schema = schemas.find(number, arrival, form)
    if isinstance(schema, Unusable):
        raise RefusedError(Rejection(Reason.UNKNOWN_SCHEMA, schema.reason))
    indexes, end = (None, _ID_END) if isinstance(schema, AvroSchema) else _indexes(raw)
    try:
        return _kept_reader(schema, indexes, stream), end
    except SchemaError as refusal:
        raise RefusedError(Rejection(Reason.UNKNOWN_SCHEMA, f"schema {number} {refusal.what}")) from None


def _number(raw: bytes) -> int:
    """The id of a record's schema."""
    return int.from_bytes(raw[1:_ID_END], "big")


def _indexes(raw: bytes) -> tuple[tuple[int, ...], int]:
    """The message's place in its schema, and where it ends: a count and so many numbers, or 0 for the first."""
    numbers = _varints(raw, _ID_END)
    try:
        count, end = next(numbers)
        if count == 0:
            return (0,), end
        if not 0 < count <= _MAX_INDEXES:
            raise UndecodableError("the message's place in its schema is not one")
        places = [next(numbers) for _ in range(count)]
    except (StopIteration, RuntimeError, IndexError):
        raise UndecodableError("it ends within the message's place in its schema") from None
    return tuple(place for place, _ in places), places[-1][1]


def place_of(message: Descriptor) -> bytes:
    """A message's place in its schema, as `_indexes` reads it."""
    indexes: list[int] = []
    within: Descriptor | None = message
    while within is not None:
        around = within.containing_type
        siblings = within.file.message_types_by_name.values() if around is None else around.nested_types
        indexes.insert(0, list(siblings).index(within))
        within = around
    if indexes == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    """A number from 0 on, as `_varints` reads it."""
    left, found = 2 * number, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _varints(raw: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Signed numbers of variable length from there on, each with where it ends."""
    while True:
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 35:
                break
        yield (value >> 1) ^ -(value & 1), at


def _file_reader(stream: Stream) -> Reader:
    return _kept_reader(schema_of_file(stream.encoding), None, stream)


@lru_cache(maxsize=_KEPT)
def schema_of_file(encoding: Encoding) -> AvroSchema | ProtobufSchema:
    """The schema of a stream's own file."""
    content = encoding.schema or b""
    if encoding.is_descriptor:
        return ProtobufSchema(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SchemaError("is not UTF-8") from None
    return AvroSchema(text) if encoding.format is Format.AVRO else ProtobufSchema(compiled(text))


# What decodes the records of a stream with a schema, by the objects themselves, which are kept with it so that no
# others get their identity.
_READERS: dict[tuple[int, int, tuple[int, ...] | None], tuple[Any, Stream, Reader | SchemaError]] = {}


def _kept_reader(schema: AvroSchema | ProtobufSchema, indexes: tuple[int, ...] | None, stream: Stream) -> Reader:
    key = id(schema), id(stream), indexes
    if (kept := _READERS.get(key)) is not None:
        return _usable(kept[2])
    made: Reader | SchemaError
    try:
        if isinstance(schema, AvroSchema):
            made = AvroReader(schema, stream)
        else:
            made = MessageReader(schema.message(stream.encoding.message, indexes), stream)
    except SchemaError as refusal:
        made = refusal
    if len(_READERS) >= _KEPT:
        _READERS.clear()
    _READERS[key] = schema, stream, made
    return _usable(made)


def _usable(made: Reader | SchemaError) -> Reader:
    if isinstance(made, SchemaError):
        raise made
    return made
