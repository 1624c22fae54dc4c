"""From the bytes of a record to its content, by the format that its stream declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nightjar.formats.avro import AvroReader, AvroSchema
from nightjar.formats.errors import SchemaError, UndecodableError
from nightjar.formats.protobuf import MessageReader, ProtobufSchema, compiled
from nightjar.formats.records import Raw
from nightjar.formats.schemas import Schemas, Unusable
from nightjar.formats.wire import HEADER_BYTES, place_in, schema_of
from nightjar.rules.encodings import Encoding, Envelope, Format
from nightjar.rules.errors import DeclarationError
from nightjar.rules.events import Reason, Rejection, parse_recorded
from nightjar.rules.streams import Stream

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
    """Records with one schema, as its reader has read them, and their rows."""

    reader: Reader
    rows: list[int] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    def documents(self) -> tuple[list[int], list[dict[str, Any]]]:
        """The rows and contents of those that can be read whole."""
        rows, contents = [], []
        for row, record in zip(self.rows, self.records, strict=True):
            try:
                contents.append(self.reader.document(record))
            except UndecodableError:
                continue
            rows.append(row)
        return rows, contents


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
    """The records that are not JSON, without those that cannot be decoded."""
    groups = _Groups(stream, schemas)
    for at, (value, arrival) in enumerate(zip(raw, arrivals, strict=True)):
        content = value or b""
        try:
            group, begin = groups.of(content, arrival)
            record = group.reader.read(content[begin:])
        except (RefusedError, UndecodableError):
            continue
        group.rows.append(at)
        group.records.append(record)
    return groups.found


class _Groups:
    """Records by what reads them, which is looked up once for all that begin alike."""

    def __init__(self, stream: Stream, schemas: Schemas | None) -> None:
        self._stream, self._schemas = stream, schemas
        self._by_reader: dict[int, Decoded] = {}
        self._file = self._group(_file_reader(stream)) if stream.encoding.schema is not None else None
        # the first message of a schema has one byte more, which is 0
        self._beginning = HEADER_BYTES + (stream.encoding.format is Format.PROTOBUF)
        self._known: dict[bytes, tuple[Decoded, int, int]] = {}

    @property
    def found(self) -> list[Decoded]:
        """All of them."""
        return list(self._by_reader.values())

    def of(self, raw: bytes, arrival: int) -> tuple[Decoded, int]:
        """Those that a record belongs to, and where what is decoded of it begins."""
        if self._file is not None:
            return self._file, 0
        beginning = raw[: self._beginning]
        known, since, end = self._known.get(beginning, (None, 0, 0))
        if known is not None and arrival > since:
            return known, end
        reader, end = _reader(raw, arrival, self._stream, self._schemas)
        group = self._group(reader)
        number = schema_of(raw)
        if end == self._beginning and self._schemas is not None and number is not None:
            self._known[beginning] = group, self._schemas.since(number, self._stream.encoding.format), end
        return group, end

    def _group(self, reader: Reader) -> Decoded:
        return self._by_reader.setdefault(id(reader), Decoded(reader))


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
    form, number = stream.encoding.format, schema_of(raw)
    if number is None:
        what = "it does not begin with a zero byte and the id of a schema in the registry"
        raise RefusedError(Rejection(_NOT_DECODED[form], what))
    if schemas is None:
        raise ValueError(f"stream {stream.name} needs a registry")
    schema = schemas.find(number, arrival, form)
    if isinstance(schema, Unusable):
        raise RefusedError(Rejection(Reason.UNKNOWN_SCHEMA, schema.reason))
    place, end = (None, HEADER_BYTES) if isinstance(schema, AvroSchema) else place_in(raw)
    try:
        return _kept_reader(schema, place, stream), end
    except SchemaError as refusal:
        raise RefusedError(Rejection(Reason.UNKNOWN_SCHEMA, f"schema {number} {refusal.what}")) from None


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
