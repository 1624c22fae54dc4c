"""Converts columns of any scalar type to a field's declared type, without rounding or guessing.

Text, as in CSV, means what it means in the stream's JSON (`nightjar.rules.event_values`): what Arrow certainly reads
alike is converted at once, the rest value by value.

Of other types a string accepts any scalar as its text. A timestamp accepts timestamps of any unit (finer than a
microsecond: truncated) and integer epoch milliseconds; times without a zone, and dates, only if their zone is given. A
decimal accepts what it can hold exactly, and doubles by their shortest text: 12.34 fits decimal(12,2), 0.1 + 0.2 does
not. NaN is NULL, infinity is rejected.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.errors import shortened
from nightjar.rules.event_values import MAX_STRING, text_mistake, too_long, typed_text
from nightjar.rules.predicates.doubles import to_double
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, NO_ZONE, iso_text, local_timestamp
from nightjar.rules.types import INSTANT, STRING, FieldType, Kind
from nightjar.rules.written_times import WrittenTime

_WHOLE = r"-?(?:0|[1-9][0-9]{0,17})"
# The texts that Arrow reads as `typed_text` does.
_PLAIN = {
    Kind.INT64: rf"^{_WHOLE}$",
    Kind.DOUBLE: rf"^{_WHOLE}(?:\.[0-9]{{1,18}})?$",
    Kind.DECIMAL: rf"^{_WHOLE}(?:\.[0-9]{{1,18}})?$",
    Kind.BOOLEAN: r"^(?i:true|false)$",
}
_TIME = r"^(?:19|2[0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
_MILLISECONDS = r"^-?(?:0|[1-9][0-9]{0,13})$"
# Local time (µs) from which on Arrow leaves out that clocks are changed: the end of 2037, as tables of zones end there.
_ARROW_KNOWS_ZONES_UNTIL = (date(2037, 1, 1) - date(1970, 1, 1)) // timedelta(microseconds=1)


class MisfitError(ValueError):
    """A column cannot be converted to its declared type.

    row, value: the first row that cannot be converted (from 0) and its value; row is None if the column's type itself
    is the reason. zone_missing: the zone of times would help.
    """

    def __init__(self, why: str, row: int | None = None, value: Any = None) -> None:
        self.row = row
        self.value = value
        self.zone_missing = NO_ZONE in why or _NO_ZONE in why
        super().__init__(why)


def _raised(misfit: MisfitError) -> None:
    raise misfit


def as_declared(
    column: pa.ChunkedArray,
    declared: FieldType,
    zone: ZoneInfo | None = None,
    written: WrittenTime | None = None,
    misfit: Callable[[MisfitError], None] = _raised,
) -> pa.ChunkedArray:
    """The column in its field's Arrow type.

    zone: of times without one, and of dates, which are then its midnight. written: how texts and numbers are written
    that are times, if that is declared; its zone comes first. misfit: is called for each value that does not fit, in
    the order of rows, which then is NULL.

    Raises:
        MisfitError: the column's type does not fit; of a value by default, and otherwise what `misfit` raises.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if written is not None:
        zone = zone if written.zone is None else ZoneInfo(written.zone)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
            column = _as_text(column)
    if _is_text(column.type):
        return _of_text(column, declared, zone, written, misfit)
    convert = _CONVERSIONS[declared.kind]
    parts, begin = [], 0
    while True:
        rest = column.slice(begin)
        try:
            parts += _converted(rest, declared, convert, zone).chunks
            return pa.chunked_array(parts, declared.arrow)
        except _REFUSALS as refusal:
            why = str(refusal).splitlines()[0]
        row = _first_misfit(rest, declared, convert, zone)
        if row is None:
            raise MisfitError(why)
        misfit(MisfitError(why, begin + row, _shown(rest[row])))
        parts += [*_converted(rest.slice(0, row), declared, convert, zone).chunks, pa.nulls(1, declared.arrow)]
        begin += row + 1


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# Text


def _of_text(
    column: pa.ChunkedArray,
    declared: FieldType,
    zone: ZoneInfo | None,
    written: WrittenTime | None = None,
    misfit: Callable[[MisfitError], None] = _raised,
) -> pa.ChunkedArray:
    texts = column.cast(pa.string())
    if declared.kind is Kind.STRING:
        # no text has more characters than bytes, which take a tenth of the time to count
        if not pc.any(pc.greater(pc.binary_length(texts), MAX_STRING)).as_py():
            return texts
        long = pc.greater(pc.utf8_length(texts), MAX_STRING)
        if not pc.any(long).as_py():
            return texts
        for row in pc.indices_nonzero(long).to_pylist():
            text = texts[row].as_py()
            misfit(MisfitError(f"it {too_long(text, declared)}", row, shortened(text, 60)))
        return pc.if_else(long, pa.scalar(None, texts.type), texts)
    read = pa.chunked_array([pa.nulls(len(texts), declared.arrow)])
    if written is None:
        with suppress(pa.ArrowInvalid):  # a day that no month has, a decimal of too many digits: found value by value
            read = _plain_times(texts, zone) if declared.kind is Kind.TIMESTAMP else _plain(texts, declared)
    left = pc.indices_nonzero(pc.and_(pc.is_valid(texts), pc.is_null(read))).to_numpy()
    if not left.size:
        return read
    values = []
    for row, text in zip(left.tolist(), texts.take(pa.array(left)).to_pylist(), strict=True):
        value = typed_text(text, declared, zone, written)
        if value is None:
            misfit(MisfitError(text_mistake(text, declared, zone, written), row, shortened(text, 80)))
        values.append(value)
    held = pa.int64() if declared.kind is Kind.TIMESTAMP else declared.arrow
    mask = np.zeros(len(texts), np.bool_)
    mask[left] = True
    others = pa.array(values, held).cast(declared.arrow)
    return pa.chunked_array([pc.replace_with_mask(read.combine_chunks(), mask, others)])


def _plain(texts: pa.ChunkedArray, declared: FieldType) -> pa.ChunkedArray:
    """The plain texts' values; NULL for others."""
    plain = _matching(texts, _PLAIN[declared.kind])
    if declared.kind is Kind.DECIMAL:
        plain = plain.cast(pa.decimal128(38, 18))
    return plain.cast(declared.arrow)


def _plain_times(texts: pa.ChunkedArray, zone: ZoneInfo | None) -> pa.ChunkedArray:
    found = _matching(texts, _TIME + _ZONE).cast(INSTANT)
    if zone is not None:
        local = _matching(texts, f"{_TIME}$").cast(pa.timestamp("us"))
        found = pc.coalesce(found, _in_utc(local, zone))
    milliseconds = _matching(texts, _MILLISECONDS).cast(pa.int64())
    found = pc.coalesce(found, milliseconds.cast(pa.timestamp("ms", "UTC")).cast(INSTANT))
    instants = found.cast(pa.int64())
    known = pc.and_(pc.greater_equal(instants, MIN_TIMESTAMP), pc.less_equal(instants, MAX_TIMESTAMP))
    return pc.if_else(known, found, pa.scalar(None, INSTANT))


def _matching(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


# Other types

_NO_ZONE = "its zone is missing"
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError)
Conversion = Callable[[pa.ChunkedArray, pa.DataType, ZoneInfo | None], pa.ChunkedArray]


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # a time outside Python's range of years
        return value.value


def _converted(
    column: pa.ChunkedArray, declared: FieldType, convert: Conversion, zone: ZoneInfo | None
) -> pa.ChunkedArray:
    if column.type == declared.arrow and declared.kind is not Kind.TIMESTAMP and declared.kind is not Kind.DOUBLE:
        return column
    if pa.types.is_null(column.type):
        return column.cast(declared.arrow)
    return convert(column, declared.arrow, zone)


def _first_misfit(
    column: pa.ChunkedArray, declared: FieldType, convert: Conversion, zone: ZoneInfo | None
) -> int | None:
    """Index of the first row that cannot be converted, by bisection; None if even an empty column cannot be."""
    fits, fails = -1, len(column)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            _converted(column.slice(0, middle), declared, convert, zone)
            fits = middle
        except _REFUSALS:
            fails = middle
    return fails - 1 if fails else None


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise ValueError("not a number")
    return column


def _string(column: pa.ChunkedArray, _kind: pa.DataType, _: ZoneInfo | None) -> pa.ChunkedArray:
    return _of_text(_as_text(column), STRING, None)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as JSON writes them."""
    if pa.types.is_floating(column.type):  # 1.0 as in JSON, where Arrow writes 1
        return _texts(column, lambda values: map(str, values.to_numpy(zero_copy_only=False)))
    if pa.types.is_decimal(column.type):
        return _texts(column, lambda values: (format(value, "f") for value in values.to_pylist()))
    return column.cast(pa.string())


def _texts(column: pa.ChunkedArray, texts: Callable[[pa.Array], Any]) -> pa.ChunkedArray:
    """The column as text, where `texts` gives those of an array without NULLs."""
    array = column.combine_chunks()
    known = array.drop_null()
    found = pa.array(texts(known), pa.string())
    places = pc.if_else(array.is_valid(), pc.cumulative_sum(array.is_valid().cast(pa.int64())), None)
    return pa.chunked_array([found.take(pc.subtract(places, 1))])


def _int64(column: pa.ChunkedArray, kind: pa.DataType, _: ZoneInfo | None) -> pa.ChunkedArray:
    return _number(column).cast(kind)


def _double(column: pa.ChunkedArray, kind: pa.DataType, _: ZoneInfo | None) -> pa.ChunkedArray:
    column = _number(column)
    if pa.types.is_decimal(column.type):  # Arrow's cast is not to the nearest double
        scale = max(column.type.scale, 0)
        units = pl.Series(column.cast(pa.decimal128(38, scale))).to_physical()
        doubles = pa.chunked_array([to_double(units, scale).to_arrow()])
    else:
        doubles = column.cast(kind, safe=False)
    if pc.any(pc.is_inf(doubles)).as_py():
        raise ValueError("infinite values are not allowed")
    return doubles


def _boolean(_column: pa.ChunkedArray, _kind: pa.DataType, _: ZoneInfo | None) -> pa.ChunkedArray:
    raise ValueError("not a boolean")


def _decimal(column: pa.ChunkedArray, kind: pa.DataType, _: ZoneInfo | None) -> pa.ChunkedArray:
    column = _number(column)
    if pa.types.is_floating(column.type):
        column = column.cast(STRING.arrow).cast(pa.decimal128(38, max(kind.scale, 18)))
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    return column.cast(kind)


def _timestamp(column: pa.ChunkedArray, kind: pa.DataType, zone: ZoneInfo | None) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
    elif pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(column.type):
        raise ValueError("not a time")
    if column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    cut = column.cast(pa.timestamp("us", column.type.tz))
    if column.type.tz is None:
        if zone is None:
            raise ValueError(_NO_ZONE)
        cut = _in_utc(cut, zone)
    times = cut.cast(kind)
    ends = pc.min_max(times.cast(pa.int64())).as_py()
    if ends["min"] is not None and not MIN_TIMESTAMP <= ends["min"] <= ends["max"] <= MAX_TIMESTAMP:
        raise ValueError("not a time in the years 1 to 9999")
    return times


def _in_utc(local: pa.ChunkedArray, zone: ZoneInfo) -> pa.ChunkedArray:
    """ArrowInvalid for a time that the zone does not have, or has twice."""
    times = local.cast(pa.int64())
    later = pc.fill_null(pc.greater_equal(times, _ARROW_KNOWS_ZONES_UNTIL), fill_value=False)
    if not pc.any(later).as_py():
        return pc.assume_timezone(local, zone.key).cast(INSTANT)
    earlier = pc.if_else(later, pa.scalar(None, local.type), local)
    found = pc.assume_timezone(earlier, zone.key).cast(INSTANT)
    different = pc.unique(times.filter(later))
    if pc.max(different).as_py() > MAX_TIMESTAMP:
        raise pa.ArrowInvalid("not a time in the years 1 to 9999")
    instants = [local_timestamp(iso_text(time).removesuffix("Z"), zone) for time in different.to_pylist()]
    if None in instants:
        raise pa.ArrowInvalid("the zone does not have it, or has it twice")
    places = pc.index_in(times, different)
    return pc.coalesce(found, pa.chunked_array([pa.array(instants, pa.int64()).cast(INSTANT)]).take(places))


_CONVERSIONS: dict[Kind, Conversion] = {
    Kind.STRING: _string,
    Kind.INT64: _int64,
    Kind.DOUBLE: _double,
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP: _timestamp,
    Kind.DECIMAL: _decimal,
}
