"""Values that rows of tables have beside their keys (S22.9): as JSON has them, as people write them, and as columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from nightjar.rules.names import did_you_mean
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.rules.types import FieldType, Kind

# Characters of a text.
MAX_VALUE = 256

_INT64 = 1 << 63
# Of a decimal as it is written: more than any that is declared has.
_MAX_DIGITS = 40
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)
_DOUBLE = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_EXAMPLES = {
    Kind.STRING: f"It is a text of at most {MAX_VALUE} characters",
    Kind.INT64: "It is a whole number",
    Kind.DOUBLE: "It is a number, as in 0.25",
    Kind.DECIMAL: "It is a number with at most so many digits, as in 500.00",
    Kind.BOOLEAN: "It is true or false",
    Kind.TIMESTAMP: "It is a point in time with its zone, as in 2026-01-05T12:00:00Z",
}


def is_text(text: str) -> bool:
    """Whether it is text, which half of a surrogate pair is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def declared_values(written: Mapping[str, Any], fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The values of a row by the names of their fields, each in the one form that `declared_value` gives it; a field
    that is not written, or null, is left out.

    Raises:
        ValueError: with what is wrong; a second argument is the remedy.
    """
    for name in written:
        if name not in fields:
            known = did_you_mean(str(name), fields, "Value fields are") if fields else "The table has keys only"
            raise ValueError(f"{name!r:.40} is not a value field of the table", known)
    found = {name: declared_value(value, fields[name]) for name, value in written.items() if value is not None}
    return {name: found[name] for name in fields if name in found}


def declared_value(value: Any, kind: FieldType) -> Any:
    """A value as JSON has it, in one form: decimals with their declared digits and times (UTC) are texts.

    value: as a record has it; of a decimal also a number. Raises ValueError as `declared_values`.
    """
    try:
        found = _declared(value, kind)
    except (ArithmeticError, ValueError):
        found = None
    if found is None:
        raise ValueError(f"{value!r:.60} is not {_article(kind)} {kind}", _EXAMPLES[kind.kind])
    return found


def _article(kind: FieldType) -> str:
    return "an" if kind.kind is Kind.INT64 else "a"


def _declared(value: Any, kind: FieldType) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match kind.kind:
        case Kind.STRING if isinstance(value, str) and len(value) <= MAX_VALUE and is_text(value):
            return value
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.INT64 if is_whole and -_INT64 <= value < _INT64:
            return value
        case Kind.DOUBLE if is_whole or isinstance(value, float | Decimal):
            number = float(value)
            return number + 0.0 if math.isfinite(number) else None  # -0.0 is 0.0
        case Kind.DECIMAL if is_whole or isinstance(value, Decimal) or _is_number(value):
            return _decimal(Decimal(value), kind)
        case Kind.TIMESTAMP if isinstance(value, str):
            instant = parse_timestamp(value, zone_required=True)
            return None if instant is None else iso_text(instant)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_DIGITS and _NUMBER.fullmatch(value) is not None


def _decimal(number: Decimal, kind: FieldType) -> str | None:
    # digits and exponent first: what follows is exact, and takes as long as they are large
    if not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS or len(number.as_tuple().digits) > _MAX_DIGITS:
        return None
    scaled = Fraction(number) * 10**kind.scale
    if scaled.denominator != 1 or abs(scaled.numerator) >= 10**kind.precision:
        return None
    return format(Decimal(scaled.numerator).scaleb(-kind.scale), "f")


def value_of_text(text: str, kind: FieldType) -> Any:
    """The value that somebody wrote at a command, or in a file; None for an empty text.

    Raises:
        ValueError: as `declared_value`.
    """
    if not text:
        return None
    match kind.kind:
        case Kind.INT64 if _WHOLE.fullmatch(text):
            return declared_value(int(text), kind)
        case Kind.DOUBLE if _DOUBLE.fullmatch(text):
            return declared_value(float(text), kind)
        case Kind.BOOLEAN if text.lower() in ("true", "false"):
            return text.lower() == "true"
    return declared_value(text, kind)


def physical_value(value: Any, kind: FieldType) -> Any:
    """What `declared_value` has found, as predicates see it: times (µs) and decimals (of their least unit) as int."""
    if value is None or kind.kind not in (Kind.DECIMAL, Kind.TIMESTAMP):
        return value
    return parse_timestamp(value, zone_required=True) if kind.kind is Kind.TIMESTAMP else _units(value)


def _units(text: str) -> int:
    """A decimal that has all its digits, of its smallest unit."""
    return int(text.replace(".", ""))


def text_size(values: Mapping[str, Any]) -> int:
    """How many characters values have as a person reads them."""
    return sum(len(shown_value(value)) for value in values.values())


def shown_value(value: Any) -> str:
    """A value for a person; nothing for NULL."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def shown_values(values: Mapping[str, Any]) -> str:
    """Values for a person: country=DE, limit=500.00."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in values.items())
