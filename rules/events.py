"""Parse one event's JSON: the slow, obvious reference for the parse by columns (ingestion/parsing.py)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import StrEnum
from typing import Any

from rules.durations import format_duration
from rules.errors import printable, shortened
from rules.streams import Stream
from rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, parse_timestamp
from rules.types import FieldType, Kind

# Characters of a declared string: an id, an address, a device. Every record that repeats them stays within Kafka's
# limits, whatever is sent.
MAX_STRING = 2048
# Levels of objects and lists in a record, including undeclared fields: a fixed bound, since what a parser can read
# depends on how deep its stack is already.
MAX_NESTING = 100
# No double or decimal(18,s) needs more; Python converts longer text slowly or not at all.
_MAX_NUMBER = 400
# Raises if a decimal does not fit the field's digits exactly.
_EXACT = Context(prec=40, traps=[Inexact, InvalidOperation, Overflow])
_INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
# A bracket, or a string with all the brackets in it.
_BRACKET = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
_WHITE_SPACE = " \t\r\n"  # JSON's
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)

# In the place of a Reason in the lake: the event was erased with the person that it was about.
ERASED = "forgotten"


class Reason(StrEnum):
    """Why an event goes to quarantine."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_ID = "no_id"
    MISSING_FIELD = "missing_field"
    MISTYPED_FIELD = "mistyped_field"
    FUTURE_EVENT_TIME = "future_event_time"


@dataclass(frozen=True)
class Rejection:
    """An event that cannot be used: the reason's code, and the detail for a person."""

    reason: Reason
    detail: str


class _Number(str):
    """A JSON number as its literal text, so that no digit is lost before the field's type is known."""

    __slots__ = ()


def parse_event(raw: bytes | str | Mapping[str, Any], stream: Stream) -> dict[str, Any] | Rejection:
    """The declared fields of one event in declaration order, or why it cannot be used.

    Values: str, int, float, bool, Decimal (of the field's scale), int microseconds since 1970 UTC for a timestamp, and
    None for an explicit null, and for an optional field that is absent. Any other absent field is missing; unknown keys
    are ignored. A string takes numbers and booleans as text; an int64 takes integers only; a decimal takes numbers and
    numeric strings that fit it exactly; a timestamp takes ISO 8601 text with a zone, or integer epoch milliseconds. A
    mapping may also hold Decimal and aware datetime.
    """
    if isinstance(raw, Mapping):
        fields: Any = {key: _as_json(value) for key, value in raw.items()}
    else:
        try:
            fields = _read(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
        except ValueError as failure:
            return Rejection(Reason.NOT_JSON, _short(str(failure)))
    if not isinstance(fields, dict):
        return Rejection(Reason.NOT_AN_OBJECT, f"the JSON is {'no object' if stream.sensitive else _short(fields)}")
    if fields.get(stream.event_id) in (None, ""):
        return Rejection(Reason.NO_ID, f"{stream.event_id} is absent, null or empty")
    event: dict[str, Any] = {}
    for name, declared in stream.fields.items():
        value = fields.get(name)
        if name not in fields and name not in stream.optional:
            return Rejection(Reason.MISSING_FIELD, f"{name} is absent")
        if name == stream.event_time and value is None:
            return Rejection(Reason.MISSING_FIELD, f"{name} is null")
        event[name] = None if value is None else _typed(value, declared)
        if declared.kind is Kind.STRING and isinstance(value, str) and len(value) > MAX_STRING:
            return Rejection(Reason.MISTYPED_FIELD, f"{name} has {len(value)} characters, more than {MAX_STRING}")
        if value is not None and event[name] is None:
            shown = "a value that is not shown" if name in stream.sensitive else _short(value)
            return Rejection(Reason.MISTYPED_FIELD, f"{name} is {shown}, which is not a valid {declared}")
    return event


def _read(text: str) -> Any:
    """The JSON of a text, its numbers as written; ValueError if it is not JSON, or nested too deep."""
    if not text.strip(_WHITE_SPACE):
        raise ValueError("the record is empty")
    # Only a text with this many brackets can be this deep, and hardly any has them.
    if text.count("{") + text.count("[") > MAX_NESTING and _depth(text) > MAX_NESTING:
        raise ValueError(f"it is nested deeper than {MAX_NESTING} levels")
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)


def _depth(text: str) -> int:
    """How many brackets are open at once, outside strings."""
    deepest = depth = 0
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket[0] in "}]":
            depth -= 1
    return deepest


def check_skew(event_time_us: int, arrival_us: int, stream: Stream) -> Rejection | None:
    """The rejection of an event whose time is further after its arrival than the stream allows."""
    skew = event_time_us - arrival_us
    if skew <= stream.max_future_skew:
        return None
    allowed = format_duration(stream.max_future_skew)
    return Rejection(
        Reason.FUTURE_EVENT_TIME, f"{stream.event_time} is {format_duration(skew)} after arrival; {allowed} are allowed"
    )


def _typed(value: Any, declared: FieldType) -> Any:
    """The value in its field's type, None if it does not fit."""
    is_number, is_text = isinstance(value, _Number), isinstance(value, str) and not isinstance(value, _Number)
    match declared.kind:
        case Kind.STRING:
            if isinstance(value, bool):
                return "true" if value else "false"
            return str(value) if is_number or (is_text and _is_encodable(value)) else None
        case Kind.BOOLEAN:
            return value if isinstance(value, bool) else None
        case Kind.INT64:
            return _int64(value) if is_number else None
        case Kind.DOUBLE:
            return _double(value) if is_number else None
        case Kind.DECIMAL:
            return _decimal(value, declared) if is_number or is_text else None
        case Kind.TIMESTAMP:
            if is_text:
                return parse_timestamp(value, zone_required=True)
            milliseconds = _int64(value) if is_number else None
            if milliseconds is None or not MIN_TIMESTAMP <= milliseconds * 1000 <= MAX_TIMESTAMP:
                return None
            return milliseconds * 1000


def _int64(text: str) -> int | None:
    if len(text) > _MAX_NUMBER or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if value in _INT64 else None


def _double(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _decimal(text: str, declared: FieldType) -> Decimal | None:
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        return None
    value = Decimal(text)
    try:
        held = value.quantize(Decimal(1).scaleb(-declared.scale), context=_EXACT)
    except (Inexact, InvalidOperation):
        return None
    fits = abs(held).scaleb(declared.scale, _EXACT) < 10**declared.precision
    return (abs(held) if held.is_zero() else held) if fits else None


def _is_encodable(text: str) -> bool:
    """Whether the text is valid in UTF-8: JSON can spell half a surrogate pair, which is not."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _as_json(value: Any) -> Any:
    """A value of a mapping as it would be read from JSON."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _Number(repr(value))
    if isinstance(value, Decimal):
        return _Number(format(value, "f"))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str) else json.dumps(value, default=str)
    return printable(shortened(text, 80))
