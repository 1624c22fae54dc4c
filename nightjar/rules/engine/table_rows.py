"""The rows of all tables with their history, and which of them an event sees (S22).

How it works: changes of rows have positions, which are those of their records on the topic. Of each event it is noted
up to which position changes were known when it was first evaluated, so that an event evaluated again, also after a
restart, sees what it saw then. Changes are columns sorted by key, time and position; a new batch of them is a part of
its own, merged with the part before it once that is not much larger. So there are few parts, and a change costs little.
Values of rows (S22.9) are columns of their own, in the order in which they came, and a change has the row's number.

What it does not do: drop anything. A change that would go beyond the bounds of rules/tables.py is left out, and so is
every change of its record; as that follows from the records alone, every host leaves out the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine.columns import Column, Mask, logical
from nightjar.rules.engine.kernels.tables import look_up
from nightjar.rules.engine.strings import Int64Array, StringTable
from nightjar.rules.table_values import physical_value
from nightjar.rules.tables import MAX_CHANGES, MAX_KEY_BYTES, Asked, values_of
from nightjar.rules.types import BOOLEAN, FieldType, Kind

# Of an event that sees every change: more than any position.
EVERY = 1 << 62
_BEFORE = -(1 << 62)
# A part is merged with the one before it unless that has at least this many times its changes.
_MUCH_LARGER = 4
# What a value counts of MAX_KEY_BYTES, also where it is NULL: about what it takes. A text counts besides.
_VALUE = 8


@dataclass(frozen=True)
class Change:
    """One record: some keys of a table are set, or removed.

    position: of the record among all, ascending. arrival: of the record, µs. valid_from: the event time from which on
    the keys' rows are so, µs. author, reason: who wrote it and why, if it says so. id: what an approval names it by;
    approver: who has approved it, where that was needed: then position and arrival are those of the approval. values:
    where the table has some, those of each key by name, as table_values.declared_values has them; empty: all are NULL.
    """

    position: int
    arrival: int
    table: str
    keys: Sequence[str] | Sequence[int]
    is_set: bool
    valid_from: int
    author: str = ""
    reason: str = ""
    id: str = ""
    approver: str = ""
    values: Sequence[Mapping[str, Any]] = ()


@dataclass
class _Part:
    """Changes, sorted by key, valid_from and position; those of one record and key in its order.

    row: whether the row is set; of a table with values the number of these, 0 where it is removed.
    """

    keys: npt.NDArray[np.int32]
    valid_from: Int64Array
    position: Int64Array
    row: npt.NDArray[np.bool_] | npt.NDArray[np.int32]

    @classmethod
    def sorted(cls, parts: Sequence[_Part]) -> _Part:
        columns = [np.concatenate(of) for of in zip(*map(_Part.columns, parts), strict=True)]
        order = np.lexsort(columns[2::-1])
        return cls(*(column[order] for column in columns))

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.keys, self.valid_from, self.position, self.row


class _Values:
    """The values of one field, by the numbers of rows; those of the number 0, where there is no row, are NULL."""

    def __init__(self, kind: FieldType) -> None:
        self.kind = kind
        self._column, self._texts, self._rows = Column(kind.kind), StringTable(), 0
        self.add([None])

    def add(self, values: Sequence[Any]) -> None:
        """Add values, as JSON has them."""
        old, self._rows = self._rows, self._rows + len(values)
        for array in self._column.arrays:
            array.reserve(self._rows, [slice(0, old)])
        valid = np.array([value is not None for value in values], np.uint8)
        if self.kind.kind is Kind.STRING:
            written = self._texts.intern(pa.array(values, pa.string()))
        else:
            dtype = np.float64 if self.kind.kind is Kind.DOUBLE else np.int64
            written = np.array([physical_value(value, self.kind) or 0 for value in values], dtype)
        self._column.put(slice(old, self._rows), written, valid, [slice(0, old)])

    def at(self, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The values of rows as predicates see them: int64, float64, boolean or large_string."""
        at = rows.astype(np.int64)
        values, valid = self._column.at(at), self._column.valid(at)
        if self.kind.kind is Kind.STRING:
            return self._texts.strings(values)
        typed = values.astype(np.bool_) if self.kind.kind is Kind.BOOLEAN else values
        return pa.array(typed, mask=None if valid is None else valid == 0)

    def declared(self, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The same in their declared type."""
        at = rows.astype(np.int64)
        if self.kind.kind is Kind.STRING:
            return self.at(at)
        return logical(self._column.at(at), self._column.valid(at), self.kind)


class _Table:
    def __init__(self, kind: FieldType) -> None:
        self.kind = kind
        self.keys = StringTable()
        self.values = {name: _Values(of_value) for name, of_value in values_of(kind).items()}
        self.parts: list[_Part] = []
        self.fresh: list[_Part] = []  # not yet among `parts`
        self._rows = 1

    def numbered(self, change: Change) -> npt.NDArray[np.bool_] | npt.NDArray[np.int32]:
        """What the change has as `row`, for each of its keys; its values are added."""
        count = len(change.keys)
        if not self.values:
            return np.full(count, change.is_set)
        if not change.is_set:
            return np.zeros(count, np.int32)
        written = change.values or [{}] * count
        for name, column in self.values.items():
            column.add([values.get(name) for values in written])
        self._rows += count
        return np.arange(self._rows - count, self._rows, dtype=np.int32)

    def rows(self, keys: pa.Array, times: Int64Array, known: Int64Array) -> npt.NDArray[Any]:
        """What the change that decides at each event has as `row`; 0 where there is none."""
        self.merge()
        found = np.zeros(len(times), np.int32 if self.values else np.uint8)
        asked = self.keys.find(self.texts(keys))
        best_from, best_position = np.full(len(times), _BEFORE), np.full(len(times), _BEFORE)
        for part in self.parts:
            look_up(*part.columns(), asked, times, known, best_from, best_position, found)
        return found

    def texts(self, keys: pa.Array) -> pa.Array:
        return keys if self.kind.kind is Kind.STRING else keys.cast(pa.string())

    def merge(self) -> None:
        if self.fresh:
            self.parts.append(_Part.sorted(self.fresh))
            self.fresh = []
        while len(self.parts) > 1 and len(self.parts[-2].keys) < _MUCH_LARGER * len(self.parts[-1].keys):
            self.parts[-2:] = [_Part.sorted(self.parts[-2:])]


class TableRows:
    """The rows of the tables of some declarations (name to type of the key).

    position: that after the last record that was read. left_out: how many changes were beyond the bounds, or of a table
    that is not declared.
    """

    def __init__(self, tables: Mapping[str, FieldType]) -> None:
        self.position = 0
        self.left_out = 0
        self._tables = {name: _Table(kind) for name, kind in tables.items()}
        self._changes = self._bytes = 0
        self._positions, self._arrivals = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        self._latest = _BEFORE

    def __contains__(self, table: str) -> bool:
        """Whether its rows are here."""
        return table in self._tables

    def add(self, changes: Iterable[Change], position: int) -> None:
        """Add the changes of records up to below a position, in order; records without a change have been skipped."""
        positions, arrivals = list[int](), list[int]()
        for change in changes:
            if change.position < self.position:
                continue
            if not self._has_room(change):
                self.left_out += len(change.keys)
                continue
            table, rows = self._tables[change.table], len(change.keys)
            codes = table.keys.intern(table.texts(pa.array(change.keys, table.kind.arrow))).astype(np.int32)
            begins, place = np.full(rows, change.valid_from), np.full(rows, change.position)
            table.fresh.append(_Part(codes, begins, place, table.numbered(change)))
            # a producer's clock may go back, and an arrival is to be that of all records before it
            self._latest = max(self._latest, change.arrival)
            positions.append(change.position)
            arrivals.append(self._latest)
        self._positions.append(np.array(positions, np.int64))
        self._arrivals.append(np.array(arrivals, np.int64))
        self.position = max(self.position, position)

    def _has_room(self, change: Change) -> bool:
        if change.table not in self._tables:
            return False
        size = sum(len(str(key).encode()) for key in change.keys)
        if change.is_set:
            values = self._tables[change.table].values
            texts = [name for name, column in values.items() if column.kind.kind is Kind.STRING]
            size += _VALUE * len(values) * len(change.keys)
            size += sum(len(text.encode()) for each in change.values for name in texts if (text := each.get(name)))
        if self._changes + len(change.keys) > MAX_CHANGES or self._bytes + size > MAX_KEY_BYTES:
            return False
        self._changes, self._bytes = self._changes + len(change.keys), self._bytes + size
        return True

    def known_at(self, arrivals: Int64Array) -> Int64Array:
        """For each event that arrived then (µs) the position before which changes had arrived."""
        self._positions, self._arrivals = [np.concatenate(self._positions)], [np.concatenate(self._arrivals)]
        before = np.searchsorted(self._arrivals[0], arrivals, side="right")
        return np.append(-1, self._positions[0])[before] + 1

    def holds(self, table: str, keys: pa.Array, times: Int64Array, known: Int64Array) -> Mask:
        """Whether the table has the key (of the declared type, not NULL) at each event: uint8.

        times: event time, µs. known: see the module; EVERY for all changes.
        """
        held: Mask = (self._tables[table].rows(keys, times, known) != 0).view(np.uint8)
        return held

    def column(self, asked: Asked, keys: pa.Array, times: Int64Array, known: Int64Array) -> pa.Array:
        """What is asked of a table at each event, as predicates see it; keys, times, known: as of `holds`.

        Whether it has the key is NULL where that is; a value also where the table does not have the key, or no value.
        """
        if asked.value is not None:
            of = self._tables[asked.table]
            return of.values[asked.value].at(of.rows(keys, times, known))
        held = self.holds(asked.table, keys, times, known).astype(np.bool_)
        return pa.array(held, BOOLEAN.arrow, mask=keys.is_null().to_numpy(zero_copy_only=False))

    def was_changed(self, table: str, keys: pa.Array, *, valid_by: int, arrived_since: int) -> bool:
        """Whether a change of one of the keys is valid by that event time and arrived then or after (both µs)."""
        of = self._tables[table]
        of.merge()
        codes = of.keys.find(of.texts(keys))
        (known,) = self.known_at(np.array([arrived_since - 1])).tolist()
        return any(
            bool((np.isin(part.keys, codes) & (part.valid_from <= valid_by) & (part.position >= known)).any())
            for part in of.parts
        )

    def keys_at(self, table: str, time: int) -> pa.Array:
        """The keys that the table has at an event time (µs), in the order in which they first came: string."""
        return self._held_at(table, time)[0]

    def rows_at(self, table: str, time: int) -> pa.Table:
        """The same with the values of their rows: `key`, and the fields of values in their declared types."""
        keys, rows = self._held_at(table, time)
        values = {name: column.declared(rows) for name, column in self._tables[table].values.items()}
        return pa.table({"key": keys, **values})

    def _held_at(self, table: str, time: int) -> tuple[pa.Array, npt.NDArray[Any]]:
        """The keys, as `keys_at` has them, and what decides of each (_Table.rows)."""
        of = self._tables[table]
        keys = of.keys.strings(np.arange(of.keys.count))
        every = np.full(len(keys), time), np.full(len(keys), EVERY)
        typed = keys if of.kind.kind is Kind.STRING else keys.cast(of.kind.arrow)
        rows = of.rows(typed, *every)
        held = rows.nonzero()[0]
        return keys.take(pa.array(held)), rows[held]
