"""Protobuf: messages by the schema that they were written with; fields are found by name.

Of a message only what the fields of a stream are read from is decoded to values. A field that has not been set is
absent where its presence is known, and has its default where it is not (numbers, texts and booleans of proto3 without
`optional`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from nightjar.formats.errors import CompilerError, SchemaError, UndecodableError
from nightjar.rules.encodings import Envelope
from nightjar.rules.envelopes import inner_steps
from nightjar.rules.errors import shortened
from nightjar.rules.field_paths import ABSENT, BLOCKED
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
WRAPPER_MESSAGES = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_FREE = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))
_NANOSECONDS = 1_000_000_000
_COMPILER_SECONDS = 60
# A file's name that no other has, of those that it may import.
_MAIN = "nightjar.main.proto"
_IMPORTED = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}/){0,20}[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}\.proto")
_WHOLE = 2.0**53
# What messages of the library have by these names, a field would hide.
_HIDDEN = ("HasField", "DESCRIPTOR", "FromString")

# Parts of values that are read: keys to parts; a leaf has none.
_Tree = dict[str | int, "_Tree"]
_Read = Callable[[Any], Any]
_UNREADABLE = (DecodeError, ValueError, json_format.Error)


class _Part(NamedTuple):
    """A field of a message that is read. value: of what the library has for it; None: it is the value."""

    name: str
    has_presence: bool
    value: _Read | None


def compiled(text: str, references: Mapping[str, str] | None = None) -> bytes:
    """The FileDescriptorSet of source text.

    references: the texts of the files that it imports, by the names that it imports them by.

    Raises:
        SchemaError: the compiler refuses it.
        CompilerError: the compiler could not do its work.
    """
    sources = {**(references or {}), _MAIN: text}
    if odd := next((name for name in references or () if not _IMPORTED.fullmatch(name) or name == _MAIN), None):
        raise SchemaError(f"imports {shortened(odd)!r}, which is not the path of a file")
    if any("\ud800" <= character <= "\udfff" for source in sources.values() for character in source):
        raise SchemaError("has half of a surrogate pair")
    with tempfile.TemporaryDirectory(prefix="nightjar-protobuf-") as folder:
        for name, content in sources.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        target = Path(folder, "descriptors")
        options = [f"--descriptor_set_out={target}", "--include_imports", f"--proto_path={folder}"]
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "grpc_tools.protoc", *options, _MAIN],
                cwd=folder,
                capture_output=True,
                timeout=_COMPILER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompilerError(f"the compiler of Protobuf took more than {_COMPILER_SECONDS} s") from None
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").splitlines()
            said = next((line for line in lines if re.match(r"[^ ]+\.proto:", line)), None)
            if said is None or ended.returncode != 1:
                last = lines[-1] if lines else "nothing"
                raise CompilerError(f"the compiler of Protobuf ended with {ended.returncode} and said {last}")
            raise SchemaError(
                f"is not a schema of Protobuf: {said.removeprefix(f'{folder}/').removeprefix(f'{_MAIN}:')}"
            )
        return target.read_bytes()


class ProtobufSchema:
    """The messages of a file of Protobuf. content: a FileDescriptorSet, whose last file is the one.

    Raises:
        SchemaError: it is not one.
    """

    def __init__(self, content: bytes) -> None:
        pool = DescriptorPool()
        self._named: dict[str, Descriptor] = {}
        try:
            files = FileDescriptorSet.FromString(content).file
            for file in files:
                pool.Add(file)
            self._top = list(pool.FindFileByName(files[-1].name).message_types_by_name.values())
        except (DecodeError, TypeError, ValueError, KeyError, IndexError) as failure:
            what = f"is not a FileDescriptorSet ({type(failure).__name__})"
            raise SchemaError(what, remedy="protoc writes one: --include_imports --descriptor_set_out=FILE") from None

    def message(self, name: str | None = None, indexes: Sequence[int] | None = None) -> Descriptor:
        """The message of this full name, at these indexes, or the only one of the file.

        Raises:
            SchemaError: there is none.
        """
        named = self._named = self._named or {message.full_name: message for message in self._all(self._top)}
        if indexes is not None:
            found, within = None, self._top
            for index in indexes:
                if index not in range(len(within)):
                    raise SchemaError(f"has no message number {index} where a record names it")
                found = within[index]
                within = list(found.nested_types)
            if found is None:
                raise SchemaError("has no message that a record names")
            if name is not None and found.full_name != name:
                raise SchemaError(f"the record is a {found.full_name}, and {name} is declared")
            return found
        if name is None and len(self._top) == 1:
            return self._top[0]
        if name not in named:
            what = "has several messages" if name is None else f"has no message {name}"
            raise SchemaError(what, remedy=f"Declare message, one of {', '.join(sorted(named))}")
        return named[name]

    def _all(self, messages: Sequence[Descriptor]) -> list[Descriptor]:
        return [each for message in messages for each in (message, *self._all(message.nested_types))]


class MessageReader:
    """Decodes what a stream's fields are read from."""

    def __init__(self, message: Descriptor, stream: Stream) -> None:
        self._class: type[Message] = GetMessageClass(message)
        tree: _Tree = {}
        units = {}
        self._has = set()
        for name, kind in stream.recorded.items():
            for steps in inner_steps(stream.path(name), stream.encoding):
                within = tree
                for step in steps:
                    within = within.setdefault(step, {})
                if (leaf := _leaf(message, steps)) is not None:
                    self._has.add(name)
                    if kind.kind is Kind.TIMESTAMP and _is_message(leaf, TIMESTAMP_MESSAGE):
                        units[name] = "ns"
        if stream.encoding.envelope is Envelope.DEBEZIUM:
            for member in ("op", "before", "after"):
                tree.setdefault(member, {})
        self._parts = _parts(message, tree)
        self._document = _of_parts(self._parts)
        self.scales: Mapping[str, int] = {}
        """As of AvroReader; Protobuf has no decimals."""
        self.stream = stream.with_units(units)
        """The stream, with the units of its times."""

    def has(self, name: str) -> bool:
        """Whether a message can have a value for the field."""
        return name in self._has

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The content of a message, as far as it is read.

        Raises:
            UndecodableError: it is not such a message.
        """
        return self.document(self.read(raw))

    def read(self, raw: bytes) -> Message:
        """A message for `column` and `document`; UndecodableError as of `decode`."""
        try:
            return self._class.FromString(raw)
        except _UNREADABLE:
            raise _undecodable() from None

    def column(self, messages: Sequence[Message], step: str) -> list[Any]:
        """What messages have at the first step of a path; BLOCKED for one that `document` refuses."""
        part = self._parts.get(step)
        if part is None:
            return [ABSENT] * len(messages)
        try:
            return _values(messages, part)
        except _UNREADABLE:
            return [_value_or_blocked(message, part) for message in messages]

    def document(self, message: Message) -> dict[str, Any]:
        """The content of a message, as far as it is read; UndecodableError as of `decode`."""
        try:
            content: dict[str, Any] = self._document(message)
        except _UNREADABLE:
            raise _undecodable() from None
        return content


def _undecodable() -> UndecodableError:
    return UndecodableError("it ends early, or is another message")


def _values(messages: Sequence[Message], part: _Part) -> list[Any]:
    """A part of each message, ABSENT where it has not been set."""
    name, has_presence, value = part
    if has_presence:
        held = [getattr(each, name) if each.HasField(name) else ABSENT for each in messages]
        return held if value is None else [ABSENT if each is ABSENT else value(each) for each in held]
    of_all = map(attrgetter(name), messages)
    return list(of_all if value is None else map(value, of_all))


def _value_or_blocked(message: Message, part: _Part) -> Any:
    try:
        return _values([message], part)[0]
    except _UNREADABLE:
        return BLOCKED


def _leaf(message: Descriptor, steps: Sequence[str | int]) -> FieldDescriptor | None:
    """The field of a path's value; None if the message has none."""
    within: Descriptor | None = message
    found: FieldDescriptor | None = None
    keys = iter(steps)
    for step in keys:
        if isinstance(step, int):
            continue
        if found is not None and is_free(found):
            return found
        found = None if within is None else _field(within, step)
        if found is None:
            return None
        if is_map(found):
            next(keys, None)  # the map's key
            found = _value_of(found)
        within = found.message_type
    return found


def _field(message: Descriptor, name: str) -> FieldDescriptor | None:
    """By its name, or the one that JSON has for it."""
    return message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)


def _value_of(entry: FieldDescriptor) -> FieldDescriptor:
    """The field of a map's values."""
    return cast("Descriptor", entry.message_type).fields_by_name["value"]


def _is_message(field: FieldDescriptor, name: str) -> bool:
    return field.message_type is not None and field.message_type.full_name == name


def is_free(field: FieldDescriptor) -> bool:
    """Whether it is JSON of any kind."""
    return field.message_type is not None and field.message_type.full_name in _FREE


def is_map(field: FieldDescriptor | None) -> bool:
    """Whether it is a map."""
    return field is not None and field.message_type is not None and field.message_type.GetOptions().map_entry


def _reader(message: Descriptor, tree: _Tree) -> _Read:
    """A message to the parts of it that are read."""
    return _of_parts(_parts(message, tree))


def _parts(message: Descriptor, tree: _Tree) -> dict[str, _Part]:
    """The parts of a message that are read, by the steps to them."""
    if hidden := next((name for name in _HIDDEN if name in message.fields_by_name), None):
        raise SchemaError(f"has a field of the name {hidden} in {message.full_name}", remedy="Such are not read")
    parts = {}
    for step, inner in tree.items():
        field = None if isinstance(step, int) else _field(message, step)
        if field is not None:
            parts[str(step)] = _Part(field.name, field.has_presence, _value_reader(field, inner))
    return parts


def _of_parts(parts: Mapping[str, _Part]) -> _Read:
    named = [(step, *part) for step, part in parts.items()]

    def read(of: Message) -> dict[str, Any]:
        return {
            step: value(getattr(of, name)) if value else getattr(of, name)
            for step, name, has_presence, value in named
            if not has_presence or of.HasField(name)
        }

    return read


def _value_reader(field: FieldDescriptor, tree: _Tree) -> _Read | None:
    """What a field has to values; None: they are as they are."""
    if not field.is_repeated:
        return _one_reader(field, tree)
    of_elements = {step: inner for each in tree.values() for step, inner in each.items()}
    if is_map(field):
        read = _one_reader(_value_of(field), of_elements) or _as_it_is
        return lambda held: {_key(key): read(held[key]) for key in held}
    read = _one_reader(field, of_elements) or _as_it_is
    return lambda held: [read(each) for each in held]


def _as_it_is(value: Any) -> Any:
    return value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one_reader(field: FieldDescriptor, tree: _Tree) -> _Read | None:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if field.message_type is None:
        return None
    name = field.message_type.full_name
    if name == TIMESTAMP_MESSAGE:
        return lambda time: time.seconds * _NANOSECONDS + time.nanos
    if name in WRAPPER_MESSAGES:
        return lambda wrapper: wrapper.value
    if name in _FREE:
        return lambda free: _with_whole_numbers(json_format.MessageToDict(free))
    return _reader(field.message_type, tree)


def _with_whole_numbers(value: Any) -> Any:
    """JSON without types, whose numbers are doubles, with whole ones as they were most likely written."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    is_whole = isinstance(value, float) and value.is_integer() and -_WHOLE <= value <= _WHOLE
    return int(value) if is_whole else value
