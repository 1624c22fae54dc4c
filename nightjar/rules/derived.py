"""Derived fields: values that a stream's declaration computes from the other fields of an event, once for each event.

They follow from the event alone (S3.6), so all hosts have the same; the lake keeps them as it keeps other fields.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from nightjar.rules.computed import PLAIN_TYPES
from nightjar.rules.errors import DeclarationError
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.predicates import Columns, compile_value
from nightjar.rules.predicates.nodes import Family, Type
from nightjar.rules.streams import Stream
from nightjar.rules.types import (
    INT64,
    MAX_PRECISION,
    FieldType,
    Kind,
    decimal,
    decimals_of,
)


def derived_field(sql: str, fields: Mapping[str, FieldType]) -> tuple[FieldType, frozenset[str]]:
    """The type of an expression over an event's other fields, and those of them that it reads.

    Raises:
        PredicateError, DeclarationError: it is no expression, or no field can hold its value.
    """
    value = compile_value(sql, fields)
    return _field_type(value.type), value.columns


def _field_type(kind: Type) -> FieldType:
    digits = len(str(kind.limit))
    match kind.family:
        case plain if plain in PLAIN_TYPES:
            return PLAIN_TYPES[plain]
        case Family.EXACT if kind.scale == 0 and not kind.wide:
            return INT64
        case Family.EXACT if max(digits, kind.scale) <= MAX_PRECISION:
            return decimal(max(digits, kind.scale), kind.scale)
        case Family.EXACT:
            raise DeclarationError(
                f"its value may need {digits} digits, and a field has at most {MAX_PRECISION}",
                remedy="Write CAST(… AS DOUBLE) around one of the values",
            )
        case _:
            raise DeclarationError("its value is always NULL", remedy="Name a field in it")


def with_derived(events: pa.Table, stream: Stream) -> pa.Table:
    """Events (the fields that records have) with their derived fields, in the order of Stream.schema; other columns
    follow."""
    if not stream.derived:
        return events
    recorded = ((name, _physical(events.column(name), kind, name)) for name, kind in stream.recorded.items())
    physical = Columns(recorded)
    columns = {name: events.column(name) for name in events.column_names}
    for name, sql in stream.derived.items():
        value = compile_value(sql, stream.recorded)
        columns[name] = _logical(value.of(physical, events.num_rows), stream.fields[name])
    others = [name for name in events.column_names if name not in stream.fields]
    return pa.table({name: columns[name] for name in (*stream.fields, *others)})


def _physical(column: pa.ChunkedArray, kind: FieldType, name: str) -> pl.Series:
    """As predicates run on it."""
    series = pl.Series(name, column)
    if kind.kind is Kind.DECIMAL:
        return series.to_physical().cast(pl.Int64)
    return series.to_physical() if kind.kind is Kind.TIMESTAMP else series


def _logical(series: pl.Series, kind: FieldType) -> pa.Array:
    """The column of a field. A double that is no number, and a text that is too long for a field, are NULL."""
    match kind.kind:
        case Kind.STRING:
            fits = series.str.len_chars() <= MAX_STRING
            return pl.select(pl.when(fits).then(series)).to_series().to_arrow(compat_level=_OLDEST).cast(pa.string())
        case Kind.DOUBLE:
            return pl.select(pl.when(series.is_finite()).then(series)).to_series().to_arrow()
        case Kind.BOOLEAN:
            return series.cast(pl.Boolean).to_arrow()
    whole = series.cast(pl.Int64).to_arrow()
    if kind.kind is Kind.TIMESTAMP:
        return whole.view(kind.arrow)
    if kind.kind is Kind.INT64:
        return whole
    return decimals_of(whole.fill_null(0).to_numpy(), whole.is_valid().buffers()[1], kind.arrow)


_OLDEST = pl.CompatLevel.oldest()
