"""Converts columns of any scalar type to a field's declared type, without rounding or guessing.

A string accepts any scalar as its text. A timestamp accepts timestamps of any unit (without a zone: UTC; finer than a
microsecond: truncated), dates, ISO 8601 text and integer epoch milliseconds. A decimal accepts what it can hold
exactly, and doubles by their shortest text: 12.34 fits decimal(12,2), 0.1 + 0.2 does not. NaN is NULL, infinity is
rejected.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, parse_timestamp
from rules.types import STRING, FieldType, Kind

_MICROSECONDS = pa.timestamp("us", "UTC")


class MisfitError(ValueError):
    """A column cannot be converted to its declared type.

    row, value: the first row that cannot be converted (from 0) and its value; row is None if the column's type itself
    is the reason.
    """

    def __init__(self, why: str, row: int | None = None, value: Any = None) -> None:
        self.row = row
        self.value = value
        super().__init__(why)


def as_declared(column: pa.ChunkedArray, declared: FieldType) -> pa.ChunkedArray:
    """The column in its field's Arrow type. Raises MisfitError if a value does not fit."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    convert = _CONVERSIONS[declared.kind]
    try:
        return _converted(column, declared, convert)
    except _REFUSALS as refusal:
        why = str(refusal).splitlines()[0]
    row = _first_misfit(column, declared, convert)
    if row is None:
        raise MisfitError(why)
    raise MisfitError(why, row, _shown(column[row]))


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # a time outside Python's range of years
        return value.value


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError)
Conversion = Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray]


def _converted(column: pa.ChunkedArray, declared: FieldType, convert: Conversion) -> pa.ChunkedArray:
    if column.type == declared.arrow and declared.kind is not Kind.TIMESTAMP and declared.kind is not Kind.DOUBLE:
        return column
    if pa.types.is_null(column.type):
        return column.cast(declared.arrow)
    return convert(column, declared.arrow)


def _first_misfit(column: pa.ChunkedArray, declared: FieldType, convert: Conversion) -> int | None:
    """Index of the first row that cannot be converted, by bisection; None if even an empty column cannot be."""
    fits, fails = -1, len(column)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            _converted(column.slice(0, middle), declared, convert)
            fits = middle
        except _REFUSALS:
            fails = middle
    return fails - 1 if fails else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (_is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            or pa.types.is_decimal(column.type)):  # fmt: skip
        raise ValueError("not a number")
    return column


def _string(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column.cast(kind)


def _int64(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return _number(column).cast(kind)


def _double(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    doubles = _number(column).cast(kind, safe=False)
    doubles = pc.if_else(pc.is_nan(doubles), pa.scalar(None, kind), doubles)
    if pc.any(pc.is_inf(doubles)).as_py():
        raise ValueError("infinite values are not allowed")
    return doubles


def _boolean(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not _is_text(column.type):
        raise ValueError("not a boolean")
    return column.cast(kind)


def _decimal(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    column = _number(column)
    if pa.types.is_floating(column.type):
        column = column.cast(STRING.arrow)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    if _is_text(column.type):
        column = column.cast(pa.decimal128(38, max(kind.scale, 18)))
    return column.cast(kind)


def _timestamp(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if _is_text(column.type):
        column = _times_of_text(column)
    elif pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
    elif not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        raise ValueError("not a time")
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    finer = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    cut = column.cast(pa.timestamp("us", zone), safe=not finer)
    times = cut.cast(kind) if zone else pc.assume_timezone(cut, "UTC")
    ends = pc.min_max(times.cast(pa.int64())).as_py()
    if ends["min"] is not None and not MIN_TIMESTAMP <= ends["min"] <= ends["max"] <= MAX_TIMESTAMP:
        raise ValueError("not a time in the years 1 to 9999")
    return times


def _times_of_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's own parser is a hundred times faster; it rejects the formats that only ours accepts.
    for kind in (_MICROSECONDS, pa.timestamp("us")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    times = []
    for text in column.to_pylist():
        instant = None if text is None else parse_timestamp(text, zone_required=False)
        if text is not None and instant is None:
            raise ValueError("not a time; write it like 2018-04-01T12:00:00Z")
        times.append(instant)
    return pa.chunked_array([pa.array(times, pa.int64()).cast(_MICROSECONDS)])


_CONVERSIONS: dict[Kind, Conversion] = {
    Kind.STRING: _string,
    Kind.INT64: _int64,
    Kind.DOUBLE: _double,
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP: _timestamp,
    Kind.DECIMAL: _decimal,
}
