"""What a schema says of the values of its records: their places, the types that fields take them as, and doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from nightjar.formats.avro import AvroSchema, scale_of
from nightjar.formats.protobuf import TIMESTAMP_MESSAGE, WRAPPER_MESSAGES, is_free, is_map
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.types import MAX_PRECISION

# A stream has fewer fields than that, and messages that use others twice could have any number.
_MOST = 1_000
_FIRST_OF_A_LIST = "? the first of a list"
_A_MAP = "which is a map: declare the path to one of its keys"

_Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Leaf:
    """A value that records can have.

    keys: `type`, and others of a field's declaration; empty if no field takes the value, and notes say why; is_absent:
    whether a record may lack it; is_null: whether it may be NULL.
    """

    path: FieldPath
    keys: Mapping[str, str] = field(default_factory=dict)
    is_absent: bool = False
    is_null: bool = False
    notes: tuple[str, ...] = ()


def outline(schema: AvroSchema | Descriptor) -> list[Leaf]:
    """The values of a schema's records, in its order; only the first 1,000."""
    found = _Avro(schema).leaves() if isinstance(schema, AvroSchema) else _message(schema, Leaf(FieldPath(())), ())
    return list(islice(found, _MOST))


# Avro

_NUMBERS = {"int": "int64", "long": "int64", "float": "double", "double": "double"}
_AVRO = {**_NUMBERS, "boolean": "boolean", "string": "string", "enum": "string"}
_TIMES = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
_LOCAL_TIMES = ("local-timestamp-millis", "local-timestamp-micros")
_AS_TEXT = {"date": "int", "time-millis": "int", "time-micros": "long"}


class _Avro:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def leaves(self) -> Iterator[Leaf]:
        return self._of(self._schema.root, Leaf(FieldPath(())))

    def _of(self, node: Any, at: Leaf) -> Iterator[Leaf]:
        """The values at a place. at: what is known of it."""
        node = self._schema.resolved(node)
        if isinstance(node, list):
            branches = [self._schema.resolved(branch) for branch in node]
            others = [branch for branch in branches if branch != "null"]
            at = Leaf(at.path, {}, at.is_absent, at.is_null or len(others) < len(branches), at.notes)
            yield from self._of(others[0], at) if len(others) == 1 else self._of_several(others, at)
            return
        kind = node if isinstance(node, str) else node["type"]
        if kind == "record" and node["fields"]:
            for each in node["fields"]:
                yield from self._of(each["type"], _within(at, each["name"]))
        elif kind == "array":
            yield from self._of(node["items"], _within(at, 0, is_absent=True, note=_FIRST_OF_A_LIST))
        else:
            yield _leaf(at, *_avro_type(node, kind))

    def _of_several(self, branches: list[Any], at: Leaf) -> Iterator[Leaf]:
        keys = [_avro_type(each, each if isinstance(each, str) else each["type"])[0] for each in branches]
        types = sorted({each.get("type", "") for each in keys})
        if not types or not all(types):
            yield _leaf(at, {}, "which has several types, some of which no field takes")
        elif len(types) == 1 and types[0] != "timestamp":
            yield _leaf(at, {"type": types[0]})
        elif types == ["double", "int64"]:
            yield _leaf(at, {"type": "double"}, "? a whole number or a double")
        else:
            yield _leaf(at, {"type": "string"}, f"? {' or '.join(types)}: a string takes them")


def _avro_type(node: Any, kind: str) -> tuple[dict[str, str], str]:
    """The keys of a field that takes a type, and a note."""
    logical = node.get("logicalType") if isinstance(node, dict) else None
    if kind in ("bytes", "fixed") and (scale := scale_of(node)) is not None:
        precision = node.get("precision", 0)
        if scale > MAX_PRECISION:
            return {"type": "double"}, f"? {scale} digits after the point, more than a decimal has"
        fits = isinstance(precision, int) and 0 < precision <= MAX_PRECISION
        kept = max(precision, scale) if fits else MAX_PRECISION
        note = "" if fits else f"? the schema has {precision} digits; those of more than {MAX_PRECISION} are refused"
        return {"type": f"decimal({kept},{scale})"}, note
    if kind == "long" and logical in _TIMES:
        return {"type": "timestamp"}, ""
    if kind == "long" and logical in _LOCAL_TIMES:
        return {"type": "timestamp", "zone": "UTC"}, "? times without a zone: say which it is"
    if logical is not None and _AS_TEXT.get(logical) == kind:
        return {"type": "string"}, f"? a {logical.partition('-')[0]}, as text"
    if kind in _AVRO:
        return {"type": _AVRO[kind]}, ""
    if kind == "map":
        return {}, _A_MAP
    if kind == "null":
        return {}, "which is NULL in all records"
    return {}, "which is bytes" if kind in ("bytes", "fixed") else "which has no fields"


# Protobuf

_WHOLE = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)


def _message(message: Descriptor, of: Leaf, around: tuple[str, ...]) -> Iterator[Leaf]:
    """The values of a message. of: what is known of its place; around: the messages that it is within."""
    if not message.fields:
        yield _leaf(of, {}, "which has no fields")
    for each in message.fields:
        at = _within(of, each.name, is_absent=each.has_presence and not each.is_required)
        if is_map(each):
            yield _leaf(at, {}, _A_MAP)
            continue
        if each.is_repeated:
            at = _within(at, 0, is_absent=True, note=_FIRST_OF_A_LIST)
        inner = each.message_type
        if inner is None or inner.full_name in (TIMESTAMP_MESSAGE, *WRAPPER_MESSAGES) or is_free(each):
            yield _leaf(at, *_protobuf_type(each))
        elif inner.full_name in (*around, message.full_name):
            yield _leaf(at, {}, "which contains itself")
        else:
            yield from _message(inner, at, (*around, message.full_name))


def _protobuf_type(of: FieldDescriptor) -> tuple[dict[str, str], str]:
    """As of Avro."""
    if is_free(of):
        return {}, "whose members the schema does not name"
    inner = of.message_type
    if inner is not None and inner.full_name == TIMESTAMP_MESSAGE:
        return {"type": "timestamp"}, ""
    scalar = of if inner is None else inner.fields_by_name["value"]
    if scalar.enum_type is not None:
        return {"type": "string"}, ""
    if scalar.type == FieldDescriptor.TYPE_BYTES:
        return {}, "which is bytes"
    if scalar.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return {"type": "int64"}, "? numbers from 2^63 on are refused"
    if scalar.cpp_type in _WHOLE:
        return {"type": "int64"}, ""
    if scalar.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return {"type": "double"}, ""
    return {"type": "boolean" if scalar.cpp_type == FieldDescriptor.CPPTYPE_BOOL else "string"}, ""


def _within(at: Leaf, step: str | int, *, is_absent: bool = False, note: str = "") -> Leaf:
    notes = (*at.notes, *filter(None, [note]))
    return Leaf(
        FieldPath((*at.path.steps, step)), {}, at.is_absent or is_absent, at.is_null, tuple(dict.fromkeys(notes))
    )


def _leaf(at: Leaf, keys: Mapping[str, str], note: str = "") -> Leaf:
    return Leaf(at.path, keys, at.is_absent, at.is_null, (*at.notes, *filter(None, [note])))
