"""Rows marked by predicates, once, as they come: kernels test a bit of a row instead of evaluating anything."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from rules.engine.frames import LazyColumns, physical_array, physical_numbers
from rules.engine.plan import MaskKey
from rules.engine.store import EventStore, Mask
from rules.engine.strings import Int64Array, grown
from rules.predicates import Predicate, truths


class Mark(NamedTuple):
    """Where a combination of predicates stands: a bit of a word of every row's marks."""

    word: int
    bit: int


class Masks:
    """The marks of every store row: `words` (rows and room, words), int64, with a bit for each combination."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._rows = 0
        self._predicates: dict[str, Predicate] = {}
        self._keys: list[MaskKey] = []
        self._places: dict[MaskKey, Mark] = {}
        self.words: Int64Array = np.zeros((64, 1), np.int64)

    def use(self, predicates: dict[str, Predicate], keys: Collection[MaskKey]) -> None:
        """Mark by these from now on; predicates that are new are evaluated over all rows."""
        held = {text: self.at(key) for text in predicates if (key := MaskKey(frozenset((text,)))) in self._places}
        fresh = {text: predicate for text, predicate in predicates.items() if text not in held}
        held |= self._evaluated(fresh, 0, self._rows)
        # each predicate by itself too, whether or not a rule asks for it so: what is known need not be evaluated again
        alone = [MaskKey(frozenset((text,))) for text in predicates]
        self._predicates, self._keys = predicates, [*dict.fromkeys([*keys, *alone])]
        self._places = {key: Mark(*divmod(at, 64)) for at, key in enumerate(self._keys)}
        self.words = np.zeros((max(64, self._rows), max(1, -(-len(self._keys) // 64))), np.int64)
        self._mark(held, 0, self._rows)

    def extend(self) -> None:
        """Mark the rows that the store has got since the last call."""
        old, new = self._rows, self._store.rows
        self._rows = new
        if old < new:
            self.words = grown(self.words, new)
            self._mark(self._evaluated(self._predicates, old, new), old, new)

    def keep(self, rows: Int64Array) -> None:
        """Follow the store in forgetting all but these rows."""
        self.words = self.words[rows]
        self._rows = len(rows)

    def __getitem__(self, key: MaskKey) -> Mark:
        return self._places[key]

    def at(self, key: MaskKey, rows: Int64Array | None = None) -> Mask:
        """Which rows (None: all) are marked so: uint8, one place a row."""
        word, bit = self._places[key]
        of_rows = self.words[: self._rows, word] if rows is None else self.words[rows, word]
        return ((of_rows >> bit) & 1).astype(np.uint8)

    def _evaluated(self, predicates: dict[str, Predicate], old: int, new: int) -> dict[str, Mask]:
        rows = slice(old, new)
        columns = LazyColumns(
            lambda name: physical_array(self._store, name, rows), lambda name: physical_numbers(self._store, name, rows)
        )
        return dict(zip(predicates, truths([*predicates.values()], columns, new - old), strict=True))

    def _mark(self, held: dict[str, Mask], old: int, new: int) -> None:
        bits = np.ones((len(self._keys), new - old), np.uint8)
        for at, (texts, field) in enumerate(self._keys):
            for text in texts:
                bits[at] &= held[text]
            if field is not None:
                bits[at] &= self._store.columns[field].valid[old:new]
        packed = np.packbits(bits, axis=0, bitorder="little")
        self.words[old:new].view(np.uint8)[:, : len(packed)] = packed.T
