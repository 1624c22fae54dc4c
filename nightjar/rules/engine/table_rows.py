"""The rows of all tables with their history, and which of them an event sees (S22).

How it works: changes of rows have positions, which are those of their records on the topic. Of each event it is noted
up to which position changes were known when it was first evaluated, so that an event evaluated again, also after a
restart, sees what it saw then. Changes are columns sorted by key, time and position; a new batch of them is a part of
its own, merged with the part before it once that is not much larger. So there are few parts, and a change costs little.

What it does not do: drop anything. A change that would go beyond the bounds of rules/tables.py is left out, and so is
every change of its record; as that follows from the records alone, every host leaves out the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels.tables import look_up
from nightjar.rules.engine.strings import Int64Array, StringTable
from nightjar.rules.tables import MAX_CHANGES, MAX_KEY_BYTES
from nightjar.rules.types import FieldType, Kind

# Of an event that sees every change: more than any position.
EVERY = 1 << 62
_BEFORE = -(1 << 62)
# A part is merged with the one before it unless that has at least this many times its changes.
_MUCH_LARGER = 4


@dataclass(frozen=True)
class Change:
    """One record: some keys of a table are set, or removed.

    position: of the record among all, ascending. arrival: of the record, µs. valid_from: the event time from which on
    the keys' rows are so, µs. author, reason: who wrote it and why, if it says so. id: what an approval names it by;
    approver: who has approved it, where that was needed: then position and arrival are those of the approval.
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


@dataclass
class _Part:
    """Changes, sorted by key, valid_from and position."""

    keys: npt.NDArray[np.int32]
    valid_from: Int64Array
    position: Int64Array
    is_set: npt.NDArray[np.bool_]

    @classmethod
    def sorted(cls, parts: Sequence[_Part]) -> _Part:
        columns = [np.concatenate(of) for of in zip(*map(_Part.columns, parts), strict=True)]
        order = np.lexsort(columns[2::-1])
        return cls(*(column[order] for column in columns))

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.keys, self.valid_from, self.position, self.is_set


@dataclass
class _Table:
    kind: FieldType
    keys: StringTable = field(default_factory=StringTable)
    parts: list[_Part] = field(default_factory=list)
    fresh: list[_Part] = field(default_factory=list)
    """Not yet among `parts`."""

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
            of_all = (change.valid_from, change.position, change.is_set)
            table.fresh.append(_Part(codes, *(np.full(rows, value) for value in of_all)))
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
        of = self._tables[table]
        of.merge()
        found = np.zeros(len(times), np.uint8)
        asked = of.keys.find(of.texts(keys))
        best_from, best_position = np.full(len(times), _BEFORE), np.full(len(times), _BEFORE)
        for part in of.parts:
            look_up(*part.columns(), asked, times, known, best_from, best_position, found)
        return found

    def was_changed(self, table: str, keys: pa.Array, *, valid_by: int, arrived_after: int) -> bool:
        """Whether a change of one of the keys is valid by that event time and arrived after that time (both µs)."""
        of = self._tables[table]
        of.merge()
        codes = of.keys.find(of.texts(keys))
        (known,) = self.known_at(np.array([arrived_after])).tolist()
        return any(
            bool((np.isin(part.keys, codes) & (part.valid_from <= valid_by) & (part.position >= known)).any())
            for part in of.parts
        )

    def keys_at(self, table: str, time: int) -> pa.Array:
        """The keys that the table has at an event time (µs), in the order in which they first came: string."""
        of = self._tables[table]
        keys = of.keys.strings(np.arange(of.keys.count))
        every = np.full(len(keys), time), np.full(len(keys), EVERY)
        typed = keys if of.kind.kind is Kind.STRING else keys.cast(of.kind.arrow)
        return keys.filter(pa.array(self.holds(table, typed, *every).astype(np.bool_)))
