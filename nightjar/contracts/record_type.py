"""A type of record: its members in order, from which its JSON Schema and its checked decoder are derived.

Anybody may write to a topic. The decoder trusts nothing: it returns None for anything else, and raises nothing.
It also reads records of other releases: the column of a missing member is None, unless the member is required.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nightjar.rules.canonical import canonical
from nightjar.rules.timestamps import iso_text, microseconds, parse_timestamp
from nightjar.rules.types import Kind

Row = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}


@dataclass(frozen=True)
class Member:
    """A member of a record."""

    about: str
    kind: Kind = Kind.STRING
    """The type of its column."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Its JSON Schema beyond the kind."""
    is_json: bool = False
    """Whether it is an object or an array, whose text the column holds."""
    nullable: bool = False
    """Whether null is a valid value."""
    optional: bool = False
    """Whether some records lack it."""

    def value(self, written: Any) -> Any:
        """Its column's value: text, int, bool or µs; None for null.

        Raises:
            ValueError or TypeError: any other.
        """
        return None if written is None else _READ[self.kind](written)

    def written(self, value: Any) -> Any:
        """The record's value for a value of its column; times are µs or aware datetimes."""
        if value is None:
            return None
        if self.kind is Kind.TIMESTAMP:
            return iso_text(microseconds(value) if isinstance(value, datetime) else value)
        return _json(value) if self.is_json else value

    def json_schema(self) -> Row:
        """The member's JSON Schema."""
        found = {"description": self.about} | ({} if self.is_json else _SCHEMAS[self.kind]) | dict(self.schema)
        if not self.nullable:
            return found
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
        return found | {"type": [found["type"], "null"]}


@dataclass(frozen=True)
class RecordType:
    """A type of record. check: whether a JSON object and its row are valid; may raise what `row` catches."""

    name: str
    about: str
    members: Mapping[str, Member]
    check: Callable[[Mapping[str, Any], Row], bool] = lambda _written, _row: True

    def row(self, value: bytes | None, names: Iterable[str] | None = None) -> Row | None:
        """The columns of a record's value; None if it is not such a record.

        names: the columns to read; the other members may hold anything.
        """
        found = self._read(value, names)
        return None if found is None else found[1]

    def read(self, value: bytes | None) -> Row | None:
        """The record that a value holds, as written; None if it is not such a record."""
        found = self._read(value)
        return None if found is None else found[0]

    def _read(self, value: bytes | None, names: Iterable[str] | None = None) -> tuple[Row, Row] | None:
        """The JSON object and its row."""
        try:
            written = json.loads(value or b"")
            wanted = self.members if names is None else names
            row = {name: self.members[name].value(written.get(name)) for name in wanted}
            return (written, row) if self.check(written, row) else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None

    def record(self, row: Mapping[str, Any]) -> Row:
        """The record of a row, its members in order, without the optional ones that are None."""
        return {
            name: member.written(row[name])
            for name, member in self.members.items()
            if not member.optional or row.get(name) is not None
        }

    def json_schema(self) -> Row:
        """The JSON Schema of a record as nightjar writes it. Later releases may add members."""
        return {
            "$schema": DIALECT,
            "title": self.name,
            "description": self.about,
            "type": "object",
            "properties": {name: member.json_schema() for name, member in self.members.items()},
            "required": [name for name, member in self.members.items() if not member.optional],
        }


def _json(text: str) -> Any:
    """The value of a column that holds JSON; text that is not JSON is returned as it is, as `_text` wrote it."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    text.encode()  # JSON can spell half a surrogate pair, which a text column cannot hold
    return text


def int64(value: Any) -> int:
    """An integer that fits in 64 bits.

    Raises:
        ValueError: any other value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r} is not an int64")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not a boolean")
    return value


def _timestamp(value: Any) -> int:
    read = parse_timestamp(value, zone_required=True)
    if read is None:
        raise ValueError(f"{value!r} is not a time")
    return read


_READ: dict[Kind, Callable[[Any], Any]] = {
    Kind.STRING: _text,
    Kind.INT64: int64,
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP: _timestamp,
}
_SCHEMAS: dict[Kind, Row] = {
    Kind.STRING: {"type": "string"},
    Kind.INT64: INT64,
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
}
