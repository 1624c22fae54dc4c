"""Columns of a batch, and columns of physical values: conversion between them, and how the store keeps the latter.

Physical values are int64 (numbers; decimals as scaled integers; timestamps and booleans as integers; strings as codes)
or float64 (doubles).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine.kernels.columns import write
from nightjar.rules.engine.memory import RowArray
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.types import FieldType, Kind, decimals_of

Mask = npt.NDArray[np.uint8]


# Up to this many rows are handled one by one where operations on their columns take longer; the results are the same.
FEW = 50

# Bytes that fit in one Arrow array of strings; more need an array of large_string.
_LARGEST_TEXT = (1 << 31) - 1
_WIDE = pa.large_string().id


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one contiguous batch; string columns that are too large for that become large_string."""
    # checked first, as it takes no time: what the columns are slices of
    large = table.get_total_buffer_size() > _LARGEST_TEXT
    for at, column in enumerate(table.columns if large else ()):
        if column.type == pa.string() and column.nbytes > _LARGEST_TEXT:
            table = table.set_column(at, table.field(at).with_type(pa.large_string()), column.cast(pa.large_string()))
    batches = table.to_batches()
    if len(batches) > 1:
        batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def columns_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns by name."""
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def as_declared(columns: Mapping[str, pa.Array]) -> pa.Table:
    """The reverse of `one_batch`: strings as string again, in as many chunks as they need."""
    wide = [name for name, column in columns.items() if column.type.id == _WIDE]
    if not wide:
        return pa.Table.from_arrays([*columns.values()], [*columns])
    rows = len(columns[wide[0]])
    if rows > 1 and any(columns[name].nbytes > _LARGEST_TEXT for name in wide):
        halves = slice(0, rows // 2), slice(rows // 2, rows)
        return pa.concat_tables(
            [as_declared({name: column[half] for name, column in columns.items()}) for half in halves]
        )
    # Arrow refuses to cast a slice far into a large array; a copy starts at 0
    cast = {name: columns[name].take(pa.array(np.arange(rows))).cast(pa.string()) for name in wide}
    return as_declared({**columns, **cast})


def table_of(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """The columns of the schema, cast to its types; nothing is done to those that have them."""
    fields = ((columns[field.name], field.type) for field in schema)
    cast = [column if column.type.equals(kind) else column.cast(kind) for column, kind in fields]
    return pa.Table.from_arrays(cast, schema=schema)


def validity(array: pa.Array) -> Mask:
    """uint8, 0 where NULL."""
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    return valid


def _words(array: pa.Array, dtype: type[np.generic], width: int = 1) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize * width
    return np.frombuffer(array.buffers()[1], dtype, len(array) * width, array.offset * size)


def physical(array: pa.Array, kind: Kind) -> npt.NDArray[Any]:
    """The column's numbers, arbitrary where NULL; not for strings."""
    if kind is Kind.DECIMAL:  # at most 18 digits: the low word of the 128 bits is the scaled integer
        return np.ascontiguousarray(_words(array, np.int64, 2)[::2])
    if kind is Kind.BOOLEAN:
        filled = pc.fill_null(array, pa.scalar(value=False)) if array.null_count else array
        return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)
    if kind is Kind.DOUBLE:
        return _words(array, np.float64) + 0.0  # -0.0 becomes 0.0: they are equal
    return _words(array, np.int64)


def bitmap_of(valid: Mask | None) -> pa.Buffer | None:
    """Arrow's validity bitmap; None if nothing is NULL."""
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def logical(values: npt.NDArray[np.generic], valid: Mask | None, kind: FieldType) -> pa.Array:
    """A pyarrow array of the field's declared type from its physical form; not for strings."""
    bitmap = bitmap_of(valid)
    if kind.kind is Kind.DECIMAL:
        # the widest precision the same bits may have: sums of 18 digits fit 19
        return decimals_of(values, bitmap, pa.decimal128(38, kind.scale))
    if kind.kind is Kind.BOOLEAN:
        return pa.array(values.astype(np.bool_), mask=None if valid is None else valid == 0)
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind.arrow, len(values), [bitmap, pa.py_buffer(values)])


def narrow(array: RowArray, rows: slice, values: Int64Array, live: Sequence[slice]) -> bool:
    """Write values to an array of int32, which becomes int64 if one does not fit; returns whether it did."""
    is_narrow = array.all.dtype == np.int32
    if is_narrow and write(values, array.all[rows]):
        return False
    if is_narrow:
        array.cast(np.int64, live)
    array.all[rows] = values
    return is_narrow


class Column:
    """One field's physical values and validity, one element per store row (with room to grow).

    wide: keep integers as int64 from the start.
    """

    def __init__(self, kind: Kind, *, wide: bool = False) -> None:
        self.kind = kind
        narrowest = np.int64 if wide else np.int32
        self.rows = RowArray({Kind.DOUBLE: np.float64, Kind.TIMESTAMP: np.int64}.get(kind, narrowest))
        self.null: RowArray | None = None  # uint8, 1 for NULL; None as long as nothing is

    @property
    def values(self) -> npt.NDArray[Any]:
        """int32, int64 or float64 (rows and room)."""
        return self.rows.all

    def at(self, rows: Int64Array | slice) -> npt.NDArray[Any]:
        """Physical values: int64 or float64."""
        values = self.rows.all[rows]
        return values.astype(np.int64) if values.dtype == np.int32 else values

    def valid(self, rows: Int64Array | slice) -> Mask | None:
        """uint8, 0 where NULL; None if nothing is."""
        if self.null is None:
            return None
        valid: Mask = 1 - self.null.all[rows]
        return valid

    def put(self, rows: slice, values: npt.NDArray[Any], valid: Mask | None, live: Sequence[slice]) -> bool:
        """Write physical values; returns whether the column's type had to change."""
        if valid is not None:
            if self.null is None:
                self.null = RowArray(np.uint8)
                self.null.reserve(len(self.rows.all), ())
            self.null.all[rows] = 1 - valid
        elif self.null is not None:
            self.null.all[rows] = 0
        if self.kind in (Kind.INT64, Kind.DECIMAL):
            return narrow(self.rows, rows, values, live)
        self.rows.all[rows] = values
        return False

    @property
    def arrays(self) -> list[RowArray]:
        """All arrays with one element per row."""
        return [self.rows] if self.null is None else [self.rows, self.null]
