"""Rows marked by predicates, once, as they come: kernels test a bit of a row instead of evaluating anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numba import njit

from rules.engine.frames import LazyColumns, physical_array, physical_numbers
from rules.engine.plan import MaskKey
from rules.engine.store import EventStore, Mask
from rules.engine.strings import Int64Array, grown
from rules.predicates import Predicate, truths

_BITS = 64
# Rows marked at once: what is known of them while they are marked stays in the cache, however many are held.
_STRETCH = 1 << 14


class Mark(NamedTuple):
    """Where a combination of predicates stands: a bit of a word of every row's marks."""

    word: int
    bit: int


@njit(cache=True)
def _set(word, bits, bit):  # type: ignore[no-untyped-def]
    for i in range(len(bits)):
        word[i] = (word[i] & ~(np.int64(1) << bit)) | (np.int64(bits[i]) << bit)


class Masks:
    """The marks of every store row: `words`, each int64 (rows and room), with a bit for each combination.

    A combination keeps its bit as long as it is used, so that a change of rules touches the bits of what it adds.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._rows = 0
        self._predicates: dict[str, Predicate] = {}
        self._places: dict[MaskKey, Mark] = {}
        self._free: list[Mark] = []
        self.words: list[Int64Array] = []

    def use(self, predicates: Mapping[str, Predicate], keys: Collection[MaskKey]) -> set[int]:
        """Mark by these from now on; returns the words that have other bits than before.

        Predicates that are new are evaluated over all rows.
        """
        # each predicate by itself too, whether or not a rule asks for it so: what is known need not be evaluated again
        wanted = dict.fromkeys([*keys, *map(_alone, predicates)])
        self._free += [self._places.pop(key) for key in self._places.keys() - wanted.keys()]
        fresh = [key for key in wanted if key not in self._places]
        new = {text: predicate for text, predicate in predicates.items() if text not in self._predicates}
        known = {text for key in fresh for text in key.predicates} - new.keys()
        self._predicates = dict(predicates)
        marks = {key: self._free.pop() if self._free else self._another() for key in fresh}
        for old in range(0, self._rows, _STRETCH):
            rows = slice(old, min(old + _STRETCH, self._rows))
            held = self._evaluated(new, rows) | {text: self.at(_alone(text), rows) for text in known}
            for key, (word, bit) in marks.items():
                _set(self.words[word][rows], self._combined(key, held, rows), bit)
        self._places |= marks
        return {mark.word for mark in marks.values()}

    def _another(self) -> Mark:
        """A place that none has had. The others of a new word are free."""
        word = len(self.words)
        self.words.append(np.zeros(max(64, self._rows), np.int64))
        self._free += [Mark(word, bit) for bit in reversed(range(1, _BITS))]
        return Mark(word, 0)

    def extend(self) -> None:
        """Mark the rows that the store has got since the last call."""
        old, self._rows = self._rows, self._store.rows
        if old == self._rows:
            return
        self.words = [grown(word, self._rows) for word in self.words]
        for at in range(old, self._rows, _STRETCH):
            self._mark(slice(at, min(at + _STRETCH, self._rows)))

    def keep(self, rows: Int64Array) -> None:
        """Follow the store in forgetting all but these rows."""
        self.words = [word[rows] for word in self.words]
        self._rows = len(rows)

    def __getitem__(self, key: MaskKey) -> Mark:
        return self._places[key]

    def at(self, key: MaskKey, rows: Int64Array | slice) -> Mask:
        """Which rows are marked so: uint8, one place a row."""
        word, bit = self._places[key]
        return ((self.words[word][rows] >> bit) & 1).astype(np.uint8)

    def _mark(self, rows: slice) -> None:
        """Mark new rows by everything."""
        held = self._evaluated(self._predicates, rows)
        highest = max((word * _BITS + bit for word, bit in self._places.values()), default=-1)
        bits = np.zeros((highest + 1, rows.stop - rows.start), np.uint8)
        for key, (word, bit) in self._places.items():
            bits[word * _BITS + bit] = self._combined(key, held, rows)
        packed = np.packbits(bits, axis=0, bitorder="little")
        marks = np.zeros((rows.stop - rows.start, len(self.words)), np.int64)
        marks.view(np.uint8)[:, : len(packed)] = packed.T
        for number, column in enumerate(self.words):
            column[rows] = marks[:, number]

    def _evaluated(self, predicates: Mapping[str, Predicate], rows: slice) -> dict[str, Mask]:
        columns = LazyColumns(
            lambda name: physical_array(self._store, name, rows), lambda name: physical_numbers(self._store, name, rows)
        )
        return dict(zip(predicates, truths([*predicates.values()], columns, rows.stop - rows.start), strict=True))

    def _combined(self, key: MaskKey, held: Mapping[str, Mask], rows: slice) -> Mask:
        parts = [held[text] for text in key.predicates]
        if key.field is not None:
            parts.append(self._store.columns[key.field].valid[rows])
        if not parts:
            return np.ones(rows.stop - rows.start, np.uint8)
        return parts[0] if len(parts) == 1 else np.bitwise_and.reduce(parts)


def _alone(text: str) -> MaskKey:
    return MaskKey(frozenset((text,)))
