"""The types of stream fields, and their Arrow types."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.errors import DeclarationError

# 18 digits always fit in a signed 64-bit integer, as which the engine stores a decimal.
MAX_PRECISION = 18


class Kind(StrEnum):
    """The families of field types, by the names used in a declaration."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"


@dataclass(frozen=True)
class FieldType:
    """A field's type; `precision` and `scale` (digits in all, digits after the point) belong to decimals only."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> FieldType:
        """The type written in a declaration, such as `string` or `decimal(12,2)`; DeclarationError for any other."""
        if isinstance(text, str):
            written = re.sub(r"\s+", "", text)
            if found := re.fullmatch(r"decimal\(([0-9]{1,4}),([0-9]{1,4})\)", written, re.ASCII):
                return _checked_decimal(text, int(found[1]), int(found[2]))
            if written in set(Kind) - {Kind.DECIMAL}:
                return cls(Kind(written))
        raise DeclarationError(f"{text!r} is not a type", remedy=_type_remedy(text))

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return self.kind.value

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the field's column in a batch of events."""
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]

    @property
    def is_number(self) -> bool:
        """Whether it can be summed and averaged."""
        return self.kind in (Kind.INT64, Kind.DOUBLE, Kind.DECIMAL)


def decimals_of(whole: npt.NDArray[Any], validity: pa.Buffer | None, kind: pa.DataType) -> pa.Array:
    """Decimals of numbers (int64) of their smallest unit.

    validity: Arrow's bitmap, None if none is NULL. kind: decimal128.
    """
    words = np.empty((len(whole), 2), np.int64)
    words[:, 0] = whole
    words[:, 1] = words[:, 0] >> 63
    return pa.Array.from_buffers(kind, len(whole), [validity, pa.py_buffer(words)])


# All points in time, in Arrow.
INSTANT = pa.timestamp("us", "UTC")
_ARROW = {
    Kind.STRING: pa.string(),
    Kind.INT64: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIMESTAMP: INSTANT,
}

STRING = FieldType(Kind.STRING)
INT64 = FieldType(Kind.INT64)
DOUBLE = FieldType(Kind.DOUBLE)
BOOLEAN = FieldType(Kind.BOOLEAN)
TIMESTAMP = FieldType(Kind.TIMESTAMP)


def decimal(precision: int, scale: int) -> FieldType:
    """decimal(precision, scale), with 1 ≤ precision ≤ 18 and 0 ≤ scale ≤ precision."""
    return _checked_decimal(f"decimal({precision},{scale})", precision, scale)


def _checked_decimal(text: str, precision: int, scale: int) -> FieldType:
    if not 1 <= precision <= MAX_PRECISION:
        raise DeclarationError(
            f"{text!r} has {precision} digits", remedy=f"A decimal has 1 to {MAX_PRECISION} digits, as in decimal(12,2)"
        )
    if scale > precision:
        raise DeclarationError(
            f"{text!r} has more digits after the point than digits", remedy="The second number is at most the first"
        )
    return FieldType(Kind.DECIMAL, precision, scale)


_ALIASES = {
    "int": "int64",
    "integer": "int64",
    "long": "int64",
    "bigint": "int64",
    "float": "double",
    "float64": "double",
    "number": "double",
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "datetime": "timestamp",
    "date": "timestamp",
    "numeric": "decimal(12,2)",
    "decimal": "decimal(12,2)",
}


def _type_remedy(text: object) -> str:
    listed = "Types are string, int64, double, boolean, timestamp and decimal(p,s), as in decimal(12,2)"
    lowered = str(text).strip().lower()
    near = _ALIASES.get(lowered) or next(iter(difflib.get_close_matches(lowered, list(Kind))), None)
    return f"Did you mean {near}? {listed}" if near else listed
