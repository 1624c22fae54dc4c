"""How the records of a stream are written: the keys `format`, `schema_file`, `message`, `envelope` and `changes` of its
declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from nightjar.rules.errors import DeclarationError, shortened
from nightjar.rules.names import did_you_mean


class Format(StrEnum):
    """How the value of a record is written."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Envelope(StrEnum):
    """What stands around the event in a record."""

    CLOUDEVENTS = "cloudevents"
    DEBEZIUM = "debezium"


class Change(StrEnum):
    """What has happened to a row, by Debezium's letter."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"

    @property
    def letter(self) -> str:
        """The member `op` of Debezium's envelope."""
        return "r" if self is Change.SNAPSHOT else self.value[0]


ENCODING_KEYS = ("format", "schema_file", "message", "envelope", "changes")

# What is an event if the declaration does not say.
_CHANGES = (Change.CREATE, Change.UPDATE, Change.SNAPSHOT)
_MAX_SCHEMA = 1 << 20

_Named = TypeVar("_Named", bound=StrEnum)


@dataclass(frozen=True)
class Encoding:
    """How the records of a stream are written. With neither JSON nor a schema a record begins with the id of its
    schema in the registry."""

    format: Format = Format.JSON
    schema_file: str | None = None
    """As it is declared."""
    schema: bytes | None = None
    """The content of the schema file."""
    is_descriptor: bool = False
    """Whether that is a compiled FileDescriptorSet of Protobuf."""
    message: str | None = None
    """The full name of the Protobuf message; None: the file's only one, or the one that the record names."""
    envelope: Envelope | None = None
    changes: tuple[Change, ...] = ()
    """Those that are events, in Debezium's envelope."""

    @property
    def uses_registry(self) -> bool:
        """Whether records name a schema in the registry."""
        return self.format is not Format.JSON and self.schema is None


PLAIN = Encoding()


def encoding(declared: Mapping[str, Any], folder: Path | None) -> Encoding:
    """The declaration's keys ENCODING_KEYS. folder: that `schema_file` is relative to.

    Raises:
        DeclarationError: one of them is wrong; where: the key.
    """
    form = _one_of(Format, "format", declared.get("format", Format.JSON))
    envelope = _one_of(Envelope, "envelope", declared["envelope"]) if "envelope" in declared else None
    file, message = declared.get("schema_file"), declared.get("message")
    if form is Format.JSON and file is not None:
        raise DeclarationError("JSON has no schema", where="schema_file", remedy='Add format = "avro" or "protobuf"')
    if form is not Format.PROTOBUF and message is not None:
        raise DeclarationError(f"{form} has no messages", where="message", remedy="Leave it out")
    if message is not None and (not isinstance(message, str) or not message):
        raise DeclarationError(f"{message!r} is not a name", where="message", remedy='As in message = "shop.Payment"')
    if "changes" in declared and envelope is not Envelope.DEBEZIUM:
        raise DeclarationError("is of Debezium's envelope", where="changes", remedy='Add envelope = "debezium"')
    schema = None if file is None else _content(file, folder)
    is_descriptor = form is Format.PROTOBUF and file is not None and not str(file).endswith(".proto")
    changes = _changes(declared.get("changes", list(_CHANGES))) if envelope is Envelope.DEBEZIUM else ()
    return Encoding(form, file, schema, is_descriptor, message, envelope, changes)


def _one_of(kind: type[_Named], key: str, value: Any) -> _Named:
    if not isinstance(value, str) or value not in list(kind):
        names = [each.value for each in kind]
        remedy = did_you_mean(str(value), names, "It is one of")
        raise DeclarationError(f"{shortened(repr(value))} is not known", where=key, remedy=remedy)
    return kind(value)


def _changes(written: Any) -> tuple[Change, ...]:
    if not isinstance(written, list | tuple) or not written:
        raise DeclarationError(f"{written!r} is not a list", where="changes", remedy='As in ["create", "update"]')
    changes = tuple(_one_of(Change, "changes", change) for change in written)
    if len(set(changes)) < len(changes):
        raise DeclarationError("names a change twice", where="changes", remedy="Name each once")
    return changes


def _content(file: Any, folder: Path | None) -> bytes:
    if not isinstance(file, str) or not file:
        raise DeclarationError(f"{file!r} is not a file", where="schema_file", remedy='As in "schemas/payment.avsc"')
    path = (folder or Path()) / file
    try:
        with path.open("rb") as opened:
            content = opened.read(_MAX_SCHEMA + 1)
    except (OSError, ValueError) as failure:
        why = getattr(failure, "strerror", None) or str(failure)
        remedy = "The path is relative to the file that declares the stream"
        raise DeclarationError(f"{path} cannot be read ({why})", where="schema_file", remedy=remedy) from None
    if len(content) > _MAX_SCHEMA:
        raise DeclarationError(f"{path} has more than {_MAX_SCHEMA} bytes", where="schema_file", remedy="Shorten it")
    return content
