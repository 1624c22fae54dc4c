"""The value of one field of an event: from JSON, from the text of a table's cell, and why a value is none.

A cell means what JSON of the same characters means: a number where the field takes one, true or false where it takes a
boolean, else a text. So an event is the same from JSON lines, CSV, and text columns of Parquet.
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, local_timestamp, parse_timestamp, timestamp_mistake
from nightjar.rules.types import FieldType, Kind
from nightjar.rules.written_times import WrittenTime

# Characters of a declared string: an id, an address, a device. Every record that repeats them stays within Kafka's
# limits, whatever is sent.
MAX_STRING = 2048
# No double or decimal(18,s) needs more; Python converts longer text slowly or not at all.
_MAX_NUMBER = 400
# Raises if a decimal has more digits than any that fits a field.
EXACT = Context(prec=400, traps=[Inexact, InvalidOperation, Overflow])
_INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


class JsonNumber(str):
    """A JSON number as its literal text, so that no digit is lost before the field's type is known."""

    __slots__ = ()


def typed(value: Any, declared: FieldType, zone: ZoneInfo | None = None, written: WrittenTime | None = None) -> Any:
    """A JSON value, its numbers as JsonNumber, in its field's type; None if it does not fit.

    zone: of a time written without one; None refuses such times. written: how the field's times are written, if that
    is declared.
    """
    is_number, is_text = isinstance(value, JsonNumber), _is_text(value)
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
                return _time(value, zone) if written is None else written.of_text(value, zone)
            if not is_number:
                return None
            return _milliseconds(value) if written is None else written.of_number(value)


def typed_text(text: str, declared: FieldType, zone: ZoneInfo | None = None, written: WrittenTime | None = None) -> Any:
    """The text of a cell in its field's type; None if it does not fit. zone, written: as in `typed`."""
    match declared.kind:
        case Kind.TIMESTAMP if written is not None:
            return written.of_number(text) if _JSON_NUMBER.fullmatch(text) else written.of_text(text, zone)
        case Kind.STRING:
            return text
        case Kind.BOOLEAN:
            return _BOOLEANS.get(text.lower())
        case Kind.TIMESTAMP if not _INTEGER.fullmatch(text):
            return _time(text, zone)
        case Kind.DECIMAL:
            return _decimal(text, declared)
        case _:
            return typed(JsonNumber(text), declared) if _JSON_NUMBER.fullmatch(text) else None


def too_long(value: Any, declared: FieldType) -> str | None:
    """What is wrong with a text that is longer than a field takes, to follow the field's name."""
    if declared.kind is Kind.STRING and isinstance(value, str) and len(value) > MAX_STRING:
        return f"has {len(value)} characters, more than {MAX_STRING}"
    return None


def mistake(value: Any, declared: FieldType, zone: ZoneInfo | None = None, written: WrittenTime | None = None) -> str:
    """Why a JSON value does not fit, in words that do not repeat it."""
    if isinstance(value, dict | list):
        return "it is a list" if isinstance(value, list) else "it is an object"
    if isinstance(value, bool):
        return "it is a boolean"
    if isinstance(value, bytes):
        return "it is bytes, which are not text"
    if not isinstance(value, str):
        return "JSON has no such value"
    if isinstance(value, JsonNumber) or written is not None:
        return text_mistake(value, declared, zone, written)
    match declared.kind:
        case Kind.STRING:
            return "it has half of a surrogate pair"
        case Kind.TIMESTAMP if _INTEGER.fullmatch(value):
            return "write epoch milliseconds without quotes"
        case Kind.INT64 | Kind.DOUBLE if _JSON_NUMBER.fullmatch(value):
            return "write a number without quotes"
        case Kind.BOOLEAN:
            return "write true or false, without quotes"
        case _:
            return text_mistake(value, declared, zone)


def text_mistake(
    text: str, declared: FieldType, zone: ZoneInfo | None = None, written: WrittenTime | None = None
) -> str:
    """Why the text of a cell does not fit, in words that do not repeat it."""
    match declared.kind:
        case Kind.TIMESTAMP if written is not None:
            return written.mistake(text)
        case Kind.BOOLEAN:
            return "write true or false"
        case Kind.TIMESTAMP if not _JSON_NUMBER.fullmatch(text):
            return timestamp_mistake(text, zone)
        case Kind.TIMESTAMP if not _INTEGER.fullmatch(text):
            return "epoch milliseconds are a whole number"
        case Kind.TIMESTAMP:
            return "as epoch milliseconds it lies outside the years 1 to 9999"
    if not (_DECIMAL if declared.kind is Kind.DECIMAL else _JSON_NUMBER).fullmatch(text):
        return _number_mistake(text)
    if declared.kind is Kind.INT64:
        return "it lies beyond 64 bits" if _INTEGER.fullmatch(text) else "it has a point or an exponent"
    if declared.kind is not Kind.DECIMAL:
        return "doubles reach about 1.8e308"
    return f"at most {declared.precision - declared.scale} digits before the point and {declared.scale} after it"


def _number_mistake(text: str) -> str:
    if len(text) > _MAX_NUMBER:
        return "it is not a number"
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return "it is not a number; write null, or an empty cell, for no value"
    if text != text.strip():
        return "it has white space around it"
    if re.fullmatch(r"-?[0-9.]*[0-9],[0-9]+|-?[0-9]+(,[0-9]{3})+(\.[0-9]+)?", text, re.ASCII):
        return "it has a comma; write 1234.50"
    if re.fullmatch(r"[+-]?[0-9]*\.?[0-9]*", text, re.ASCII) and any(map(str.isdigit, text)):
        return "write it like 0.5 or 7, without a plus sign or leading zeros"
    return "it is not a number"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonNumber)


def _time(text: str, zone: ZoneInfo | None) -> int | None:
    instant = parse_timestamp(text, zone_required=True)
    return local_timestamp(text, zone) if instant is None and zone is not None else instant


def _milliseconds(text: str) -> int | None:
    milliseconds = _int64(text)
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
    if len(text) > _MAX_NUMBER or not _DECIMAL.fullmatch(text):
        return None
    value = Decimal(text)
    try:
        held = value.quantize(_unit(declared.scale), context=EXACT)
    except (Inexact, InvalidOperation):
        return None
    if held.is_zero():
        return abs(held)
    return held if held.adjusted() < declared.precision - declared.scale else None


@cache
def _unit(scale: int) -> Decimal:
    """The smallest decimal above zero of a scale."""
    return Decimal(1).scaleb(-scale)


def _is_encodable(text: str) -> bool:
    """Whether the text is valid in UTF-8: JSON can spell half a surrogate pair, which is not."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
