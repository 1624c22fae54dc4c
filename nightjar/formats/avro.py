"""Avro: records by the schema that they were written with; fields are found by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import fastavro

from nightjar.formats.errors import SchemaError, UndecodableError
from nightjar.rules.envelopes import inner_steps
from nightjar.rules.event_values import EXACT
from nightjar.rules.field_paths import ABSENT, FieldPath
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

# Times that are numbers of this unit; a field's declaration need not say so.
_UNITS = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
_MAX_NESTING = 50
# Types within a schema, and values that a byte of a list may become: a few bytes could become gigabytes.
_MAX_NODES, _MAX_VALUES_A_BYTE = 10_000, 20
_OTHER_TYPES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum")
_UNUSABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, fastavro.schema.SchemaParseException)
_UNDECODABLE = (EOFError, MemoryError, IndexError, KeyError, TypeError, ValueError, ArithmeticError)

# Bytes of a decimal, and its scale; those of a field have 8, and 18.
MAX_DECIMAL = 100

_Found = TypeVar("_Found", int, str)
_Scalar = Callable[[Mapping[str, Any], Any], Any]
_Node = str | list[Any] | dict[str, Any]


class AvroSchema:
    """A schema, and those of the types that it refers to, which come before those that refer to them.

    Raises:
        SchemaError: it is not one, its type contains itself, or a few bytes could be a list of any length.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        try:
            written = [_without_errors(json.loads(each)) for each in (*references, text)]
            self.root, self._named = _parsed(written)
            """The record, as fastavro has parsed it."""
            self.physical: Any = _parsed([_physical(each) for each in written])[0]
            """As fastavro decodes records, and encodes them."""
            if not isinstance(self.root, dict) or self.root["type"] != "record":
                raise SchemaError("is not of a record, which an event is")
            self._nodes = 0
            self._check(self.root, ())
        except _UNUSABLE as failure:
            raise SchemaError(f"is not a schema of Avro ({type(failure).__name__}: {failure})") from None

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The content of a record.

        Raises:
            UndecodableError: it is not such a record, or has bytes behind it.
        """
        source = io.BytesIO(raw)
        try:
            content: Any = fastavro.schemaless_reader(source, self.physical, None)
        except _UNDECODABLE:
            raise UndecodableError("it ends early, or was written with another schema") from None
        if source.tell() != len(raw):
            raise UndecodableError(f"it has {len(raw) - source.tell()} bytes more than its schema says")
        return dict(content)

    def written(self, content: Any, scalar: _Scalar) -> Any:
        """A record's content in JSON's types as fastavro encodes it.

        scalar: the value that a type has for one of JSON; ValueError or TypeError if it has none.
        """
        return self._written(self.root, content, scalar)

    def _written(self, node: _Node, value: Any, scalar: _Scalar) -> Any:
        node = self.resolved(node)
        if isinstance(node, list):
            for branch in node:
                try:
                    return self._written(branch, value, scalar)
                except (ValueError, TypeError, ArithmeticError):
                    continue
            raise TypeError("none of the union's types has it")
        if node == "null" and value is None:
            return None
        if isinstance(node, str):
            return scalar({"type": node}, value)
        kind = node["type"]
        if kind == "record" and isinstance(value, dict):
            fields = {field["name"]: field for field in node["fields"]}
            if unknown := value.keys() - fields.keys():
                raise TypeError(f"no field {min(unknown)}")
            if lacking := [name for name, field in fields.items() if name not in value and "default" not in field]:
                raise TypeError(f"the field {lacking[0]} is absent")
            return {name: self._written(fields[name]["type"], each, scalar) for name, each in value.items()}
        if kind == "map" and isinstance(value, dict):
            return {key: self._written(node["values"], each, scalar) for key, each in value.items()}
        if kind == "array" and isinstance(value, list):
            return [self._written(node["items"], each, scalar) for each in value]
        return scalar(node, value)

    def types_at(self, steps: Sequence[str | int]) -> Iterator[_Node]:
        """The types, other than null, that the value at these steps can have."""
        return self._at(steps, self.root)

    def _at(self, steps: Sequence[str | int], node: _Node) -> Iterator[_Node]:
        node = self.resolved(node)
        if isinstance(node, list):
            for branch in node:
                yield from self._at(steps, branch)
        elif not steps:
            yield from () if node == "null" else (node,)
        elif isinstance(node, dict):
            step, kind = steps[0], node["type"]
            if kind == "record":
                of_name = (field["type"] for field in node["fields"] if field["name"] == step)
                yield from (found for field in of_name for found in self._at(steps[1:], field))
            elif kind == ("map" if isinstance(step, str) else "array"):
                yield from self._at(steps[1:], node["values" if kind == "map" else "items"])

    def resolved(self, node: _Node) -> _Node:
        """A type that is referred to by its name, in one of the ways to do so."""
        while not isinstance(node, list):
            inner = node if isinstance(node, str) else node["type"]
            if not isinstance(inner, str):
                node = inner
            elif inner in self._named and not (isinstance(node, dict) and "name" in node):
                node = self._named[inner]
            else:
                return inner if isinstance(node, dict) and len(node) == 1 else node
        return node

    def _check(self, node: _Node, around: tuple[str, ...]) -> tuple[int, int]:
        """How few bytes can be a value, and of how many values it then consists at most. around: the names of the
        types that it is within."""
        node = self.resolved(node)
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise SchemaError(f"has more than {_MAX_NODES:,} fields, with those of types that it uses again")
        if len(around) > _MAX_NESTING:
            raise SchemaError(f"is nested deeper than {_MAX_NESTING} levels")
        if isinstance(node, str):
            return int(node != "null"), 1
        if isinstance(node, list):
            branches = [self._check(branch, (*around, "")) for branch in node]
            return max(((1 + size, values) for size, values in branches), key=lambda of: of[1] / of[0], default=(1, 1))
        match node["type"]:
            case "record":
                if node["name"] in around:
                    raise SchemaError(f"has a type that contains itself, {node['name']}", remedy="Such are not read")
                parts = [self._check(field["type"], (*around, node["name"])) for field in node["fields"]]
                return sum(size for size, _ in parts), 1 + sum(values for _, values in parts)
            case "array":
                size, values = self._check(node["items"], (*around, ""))
                if values > _MAX_VALUES_A_BYTE * size:
                    raise SchemaError("has a list of elements with too few bytes", remedy="Such are not read")
                return 1, 1
            case "map":
                self._check(node["values"], (*around, ""))
                return 1, 1
            case "fixed":
                return int(node["size"]), 1
            case kind if kind in _OTHER_TYPES:
                return int(kind != "null"), 1
            case kind:
                raise SchemaError(f"has the unknown type {kind}")


class AvroReader:
    """Decodes the records of a stream that were written with a schema.

    Raises:
        SchemaError: a time of the stream has several units.
    """

    def __init__(self, schema: AvroSchema, stream: Stream) -> None:
        self._schema = schema
        self._decimals: list[tuple[FieldPath, int]] = []
        self.scales: dict[str, int] = {}
        """Fields whose values in a column, where they are bytes, are numbers (signed, big-endian) of this scale."""
        types = {
            name: [node for steps in inner_steps(stream.path(name), stream.encoding) for node in schema.types_at(steps)]
            for name in stream.recorded
        }
        self._has = {name for name, found in types.items() if found}
        units = {}
        for name, kind in stream.recorded.items():
            if kind.kind is Kind.TIMESTAMP and (unit := _only(map(_unit, types[name]), name, "units of time")):
                units[name] = unit
            if (scale := _only(map(scale_of, types[name]), name, "scales")) is not None:
                self.scales[name] = scale
                steps = inner_steps(stream.path(name), stream.encoding)
                self._decimals += [(FieldPath(each), scale) for each in steps]
        self.stream = stream.with_units(units)
        """The stream, with the units of its times."""

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The content of a record; UndecodableError as of AvroSchema."""
        content = self._schema.decode(raw)
        for path, scale in self._decimals:
            path.change(content, partial(_decimal, scale))
        return content

    def read(self, raw: bytes) -> dict[str, Any]:
        """A record for `column` and `document`; UndecodableError as of AvroSchema."""
        return self._schema.decode(raw)

    def column(self, records: Sequence[dict[str, Any]], step: str) -> list[Any]:
        """What records have at the first step of a path; decimals as in `scales`."""
        return [record.get(step, ABSENT) for record in records]

    def document(self, record: dict[str, Any]) -> dict[str, Any]:
        """The content of a record; decimals as in `scales`."""
        return record

    def has(self, name: str) -> bool:
        """Whether a record can have a value for the field."""
        return name in self._has


def _parsed(written: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """The last of some schemas, and all named types."""
    named: dict[str, Any] = {}
    *_, last = (fastavro.parse_schema(each, named_schemas=named) for each in written)
    return last, named


def _without_errors(node: Any) -> Any:
    """A schema with records in the place of what Avro calls an error, which is one."""
    if isinstance(node, list):
        return [_without_errors(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _without_errors(value) for key, value in node.items()}
    return {**found, "type": "record"} if node.get("type") == "error" and "fields" in node else found


def _physical(node: Any) -> Any:
    """A schema whose times are numbers, as in other formats, and whose decimals are bytes: fastavro rounds those that
    have more digits than the schema says."""
    if isinstance(node, list):
        return [_physical(each) for each in node]
    if not isinstance(node, dict):
        return node
    is_physical = _unit(node) or node.get("logicalType") in ("decimal", "uuid")
    return {key: _physical(value) for key, value in node.items() if not (is_physical and key == "logicalType")}


def _unit(node: _Node) -> str | None:
    """The unit of a type of times."""
    kind = node.get("logicalType") if isinstance(node, dict) else None
    return _UNITS.get(kind) if isinstance(kind, str) else None


def scale_of(node: _Node) -> int | None:
    """The digits after the point of a type of decimals."""
    if not isinstance(node, dict) or node.get("logicalType") != "decimal":
        return None
    scale = node.get("scale", 0)
    if type(scale) is not int or not 0 <= scale <= MAX_DECIMAL:
        raise SchemaError(f"has a decimal of scale {scale!r}", remedy=f"0 to {MAX_DECIMAL} is read")
    return scale


def _decimal(scale: int, value: Any) -> Any:
    if type(value) is not bytes or len(value) > MAX_DECIMAL:
        return value
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, EXACT)


def _only(found: Iterable[_Found | None], name: str, what: str) -> _Found | None:
    """The only one of what the types of a field say, if any says something."""
    different = {each for each in found if each is not None}
    if len(different) > 1:
        raise SchemaError(f"gives {name} several {what}", remedy="Read another field")
    return different.pop() if different else None
