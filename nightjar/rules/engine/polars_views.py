"""Physical columns as Polars Series, which predicates run on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.rules.engine.columns import Mask, bitmap_of
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array, StringTable
from nightjar.rules.predicates import Columns, Numbers, Truth
from nightjar.rules.tables import Asked, asked_of
from nightjar.rules.types import Kind

# Physical values of texts, -1 for NULL, and the table of their codes.
Codes = tuple[Int64Array, StringTable]

_ARROW = {np.dtype(np.int64): pa.int64(), np.dtype(np.float64): pa.float64()}


class LazyColumns(Columns):
    """Columns by name, each created when it is first read."""

    def __init__(
        self,
        make: Callable[[str], pa.Array],
        numbers: Callable[[str], Numbers],
        codes: Callable[[str], Codes | None],
    ) -> None:
        super().__init__()
        self._make, self._numbers, self._codes = make, numbers, codes
        self._made: dict[str, Numbers] = {}

    def __missing__(self, name: str) -> pl.Series:
        self[name] = column = pl.Series(name, self._make(name))
        return column

    def numbers(self, name: str) -> Numbers:
        """A column of numbers, sharing the engine's memory."""
        if name not in self._made:
            self._made[name] = self._numbers(name)
        return self._made[name]

    def equal(self, name: str, text: pa.Array) -> tuple[Truth, Truth]:
        """The same by codes, where there are some."""
        found = self._codes(name)
        if found is None:
            return super().equal(name, text)
        codes, table = found
        valid = codes >= 0
        return (codes == table.find(text)[0]) & valid, valid


def number_array(values: np.ndarray, valid: Mask | None) -> pa.Array:
    """An Arrow array that shares the memory of values (int64 or float64), NULL where valid is 0."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_ARROW[values.dtype], len(values), [bitmap_of(valid), pa.py_buffer(values)])


def physical_array(store: EventStore, name: str, rows: Int64Array | slice) -> pa.Array:
    """A field of the store's rows as predicates see it: decimals and timestamps as int64, strings as strings;
    or what a table has for a field's values."""
    if (asked := _asked(store, name)) is not None:
        return store.of_table(asked, rows)
    kind = store.stream.fields[name].kind
    if kind is Kind.STRING:
        return store.array(name, np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)
    values, valid = store.physical(name, rows), store.valid(name, rows)
    if kind is Kind.BOOLEAN:
        return pa.array(values.astype(np.bool_), mask=None if valid is None else valid == 0)
    return number_array(values, valid)


def _asked(store: EventStore, name: str) -> Asked | None:
    """What a name is about, if it is no field."""
    return None if name in store.stream.fields else asked_of(name)


def physical_codes(store: EventStore, name: str, rows: Int64Array | slice) -> Codes | None:
    """A field of texts of the store's rows; None of event ids, of which equal ones may have several codes, and of what
    tables have."""
    if name == store.stream.event_id or name not in store.stream.fields:
        return None
    return store.physical(name, rows), store.texts(name)


def physical_numbers(store: EventStore, name: str, rows: Int64Array | slice) -> Numbers:
    """A field of numbers of the store's rows, or of what a table has."""
    if (asked := _asked(store, name)) is not None:
        found = store.of_table(asked, rows)
        is_valid = found.is_valid().to_numpy(zero_copy_only=False) if found.null_count else None
        return (found.fill_null(0) if found.null_count else found).to_numpy(zero_copy_only=False), is_valid
    valid = store.valid(name, rows)
    return store.physical(name, rows), None if valid is None else valid.view(np.bool_)


def frame(columns: dict[str, pa.Array]) -> pl.DataFrame:
    """A Polars frame of the columns, sharing their memory.

    Column by column: a whole Arrow batch goes through Polars' thread pool, which on a busy machine takes far longer.
    """
    return pl.DataFrame([pl.Series(name, array) for name, array in columns.items()])
