"""Rows marked by predicates, once, as they come: kernels test a bit of a row instead of evaluating anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np
from numba import njit

from rules.engine.columns import Mask
from rules.engine.memory import RowArray
from rules.engine.plan import MaskKey
from rules.engine.polars_views import LazyColumns, physical_array, physical_numbers
from rules.engine.store import EventStore
from rules.engine.strings import Int64Array
from rules.predicates import Predicate, truths

_BITS = 8
# Rows marked at once: what is known of them while they are marked stays in the cache, however many are held.
_STRETCH = 1 << 14
_ALL = np.ones(1, np.uint8)


class Mark(NamedTuple):
    """Where a combination of predicates stands: a bit of a word of every row's marks."""

    word: int
    bit: int


class Marks:
    """The marks of some rows, as they were when somebody asked."""

    def __init__(self, words: Mask, places: Mapping[MaskKey, Mark]) -> None:
        self._words, self._places = words, places
        self._known: dict[MaskKey, Mask] = {}

    def __getitem__(self, key: MaskKey) -> Mask:
        """Which of the rows are marked so: uint8, one place a row."""
        if key not in self._known:
            word, bit = self._places[key]
            self._known[key] = (self._words[:, word] >> np.uint8(bit)) & np.uint8(1)
        return self._known[key]


@njit(cache=True)
def _set(words, word, first, bits, bit):  # type: ignore[no-untyped-def]
    for i in range(len(bits)):
        words[first + i, word] = (words[first + i, word] & ~(1 << bit)) | (bits[i] << bit)


class Masks:
    """The marks of every store row: `words`, uint8 (rows and room, words), with a bit for each combination.

    A combination keeps its bit as long as it is used, so that a change of rules touches the bits of what it adds.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._rows = 0
        self._predicates: dict[str, Predicate] = {}
        self._places: dict[MaskKey, Mark] = {}
        self._free: list[Mark] = []
        self._words = RowArray(np.uint8, 0)

    @property
    def words(self) -> Mask:
        """The marks."""
        return self._words.all

    def use(self, predicates: Mapping[str, Predicate], keys: Collection[MaskKey]) -> set[int]:
        """Mark by these from now on; returns the words that have other bits than before.

        Predicates that are new are evaluated over all rows.
        """
        # each predicate by itself too, whether or not a rule asks for it so: what is known need not be evaluated again
        wanted = dict.fromkeys([*keys, *map(_alone, predicates)])
        self._free += [place for key, place in self._places.items() if key not in wanted]
        # a new one, as `of` has given the old one away
        self._places = {key: place for key, place in self._places.items() if key in wanted}
        fresh = [key for key in wanted if key not in self._places]
        new = {text: predicate for text, predicate in predicates.items() if text not in self._predicates}
        known = {text for key in fresh for text in key.predicates} - new.keys()
        self._predicates = dict(predicates)
        self._have_free(len(fresh))
        marks = {key: self._free.pop() for key in fresh}
        for rows in self._store.live:
            for old in range(rows.start, min(rows.stop, self._rows), _STRETCH):
                stretch = slice(old, min(old + _STRETCH, rows.stop, self._rows))
                held = self._evaluated(new, stretch) | {text: self.at(_alone(text), stretch) for text in known}
                for key, (word, bit) in marks.items():
                    marked = np.broadcast_to(self._combined(key, held, stretch), stretch.stop - stretch.start)
                    _set(self.words, word, old, marked.copy(), bit)
        self._places = self._places | marks
        return {mark.word for mark in marks.values()}

    def _have_free(self, marks: int) -> None:
        """Have so many places that are free, or that none has had."""
        words = self.words.shape[1]
        more = -((len(self._free) - marks) // _BITS)
        if more > 0:
            self._words.widen(words + more, self._store.live)
            self._free += [Mark(word, bit) for word in range(words, words + more) for bit in range(_BITS)][::-1]

    def extend(self) -> None:
        """Mark the rows that the store has got since the last call."""
        old, self._rows = self._rows, self._store.rows
        if old == self._rows:
            return
        self._words.reserve(self._rows, self._store.live)
        for at in range(old, self._rows, _STRETCH):
            self._mark(slice(at, min(at + _STRETCH, self._rows)))

    def release(self, rows: slice) -> None:
        """Follow the store in giving back the memory of these rows."""
        self._words.release(rows)

    def keep(self, rows: Int64Array) -> None:
        """Follow the store in dropping all but these rows."""
        self._words.keep(rows)
        self._rows = len(rows)

    def __getitem__(self, key: MaskKey) -> Mark:
        return self._places[key]

    def of(self, rows: Int64Array) -> Marks:
        """All marks of the rows."""
        return Marks(self.words[rows], self._places)

    def at(self, key: MaskKey, rows: Int64Array | slice) -> Mask:
        """Which rows are marked so: uint8, one place a row."""
        word, bit = self._places[key]
        marked: Mask = (self.words[rows, word] >> np.uint8(bit)) & np.uint8(1)
        return marked

    def _mark(self, rows: slice) -> None:
        """Mark new rows by everything."""
        held = self._evaluated(self._predicates, rows)
        words = np.zeros((self.words.shape[1], rows.stop - rows.start), np.uint8)
        for key, (word, bit) in self._places.items():
            words[word] |= self._combined(key, held, rows) << bit
        self.words[rows] = words.T

    def _evaluated(self, predicates: Mapping[str, Predicate], rows: slice) -> dict[str, Mask]:
        columns = LazyColumns(
            lambda name: physical_array(self._store, name, rows), lambda name: physical_numbers(self._store, name, rows)
        )
        return dict(zip(predicates, truths([*predicates.values()], columns, rows.stop - rows.start), strict=True))

    def _combined(self, key: MaskKey, held: Mapping[str, Mask], rows: slice) -> Mask:
        """One place a row, or one for all."""
        parts = [held[text] for text in key.predicates]
        if key.field is not None and (valid := self._store.valid(key.field, rows)) is not None:
            parts.append(valid)
        return reduce(np.bitwise_and, parts) if parts else _ALL


def _alone(text: str) -> MaskKey:
    return MaskKey(frozenset((text,)))
