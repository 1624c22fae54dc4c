"""Rows marked by predicates, once, as they come: kernels read a uint8 a row instead of evaluating anything."""

from __future__ import annotations

import numpy as np

from rules.engine.frames import LazyColumns, physical_array
from rules.engine.plan import MaskKey
from rules.engine.store import EventStore, Mask
from rules.engine.strings import Int64Array, grown
from rules.predicates import Predicate, truths


class Masks:
    """For every predicate, and every combination of them asked for, a column of the store's rows."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._rows = 0
        self._predicates: dict[str, Predicate] = {}
        self._columns: dict[MaskKey, Mask] = {}

    def use(self, predicates: dict[str, Predicate]) -> None:
        """Mark by these predicates from now on; what is new is evaluated over all rows, the rest forgotten."""
        fresh = {text: p for text, p in predicates.items() if text not in self._predicates}
        self._columns = {key: mask for key, mask in self._columns.items() if key.predicates <= predicates.keys()}
        self._predicates = predicates
        self._mark(fresh, 0, self._rows)

    def extend(self) -> None:
        """Mark the rows that the store has got since the last call."""
        old, new = self._rows, self._store.rows
        self._rows = new
        if old == new:
            return
        for key, mask in self._columns.items():
            self._columns[key] = grown(mask, new)
        self._mark(self._predicates, old, new)
        for key, mask in self._columns.items():
            if not self._is_plain(key):
                mask[old:new] = self._combined(key, old, new)

    def keep(self, rows: Int64Array) -> None:
        """Follow the store in forgetting all but these rows."""
        self._columns = {key: mask[rows] for key, mask in self._columns.items()}
        self._rows = len(rows)

    def __getitem__(self, key: MaskKey) -> Mask:
        """uint8, one place a store row (and room)."""
        if key not in self._columns:
            mask = np.zeros(max(64, self._rows), np.uint8)
            mask[: self._rows] = self._combined(key, 0, self._rows)
            self._columns[key] = mask
        return self._columns[key]

    def _is_plain(self, key: MaskKey) -> bool:
        return len(key.predicates) == 1 and key.field is None

    def _combined(self, key: MaskKey, old: int, new: int) -> Mask:
        parts = [self._columns[MaskKey(frozenset((text,)))][old:new] for text in key.predicates]
        if key.field is not None:
            parts.append(self._store.columns[key.field].valid[old:new])
        if not parts:
            return np.ones(new - old, np.uint8)
        combined = parts[0]
        for part in parts[1:]:
            combined = combined & part
        return combined

    def _mark(self, predicates: dict[str, Predicate], old: int, new: int) -> None:
        if not predicates:
            return
        columns = LazyColumns(lambda name: physical_array(self._store, name, slice(old, new)))
        for text, found in zip(predicates, truths([*predicates.values()], columns, new - old), strict=True):
            key = MaskKey(frozenset((text,)))
            if key not in self._columns:
                self._columns[key] = np.zeros(max(64, new), np.uint8)
            self._columns[key][old:new] = found
