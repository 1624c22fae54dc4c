"""Rows marked by predicates, once, as they arrive: kernels test a bit of a row instead of evaluating anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels.marks import set_bits
from nightjar.rules.engine.memory import RowArray
from nightjar.rules.engine.plan import IN_TIME, MaskKey
from nightjar.rules.engine.polars_views import LazyColumns, physical_array, physical_codes, physical_numbers
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.predicates import Predicate, truths

_BITS = 8
# Rows marked at once: few enough that intermediate results stay in the cache.
_STRETCH = 1 << 14


class Mark(NamedTuple):
    """The position of a combination of predicates: a bit of a word of every row's marks."""

    word: int
    bit: int


class Marks:
    """The marks of some rows at one point in time."""

    def __init__(self, words: Mask, places: Mapping[MaskKey, Mark]) -> None:
        self._words, self._places = words, places
        self._known: dict[MaskKey, Mask] = {}

    def __getitem__(self, key: MaskKey) -> Mask:
        """Which of the rows have this mark: uint8, one element per row."""
        if key not in self._known:
            word, bit = self._places[key]
            self._known[key] = (self._words[:, word] >> np.uint8(bit)) & np.uint8(1)
        return self._known[key]


class _Marking:
    """How to set some marks, from which of `texts` hold at a row and which of `fields` are not NULL."""

    def __init__(self, marks: Mapping[MaskKey, Mark]) -> None:
        self.texts = [*dict.fromkeys(text for key in marks for text in key.predicates)]
        self.fields = [*dict.fromkeys(key.field for key in marks if key.field is not None)]
        numbers = {text: at for at, text in enumerate(self.texts)}
        of_fields = {field: at for at, field in enumerate(self.fields, len(self.texts))}
        needed = [[numbers[t] for t in key.predicates] + [of_fields[f] for f in (key.field,) if f] for key in marks]
        self._needed = np.array([at for each in needed for at in each], np.int64)
        self._begin = np.cumsum([0, *map(len, needed)])
        self._places = np.array([*marks.values()], np.int64).reshape(-1, 2)

    def set(self, words: Mask, store: EventStore, rows: slice, held: Mapping[str, Mask]) -> None:
        """Set the marks of the store's rows. held: where each of the texts holds, uint8 per row."""
        known = np.empty((len(self.texts) + len(self.fields), rows.stop - rows.start), np.uint8)
        for at, text in enumerate(self.texts):
            known[at] = held[text]
        for at, field in enumerate(self.fields, len(self.texts)):
            valid = store.valid(field, rows)
            known[at] = 1 if valid is None else valid
        set_bits(words, rows.start, known, self._needed, self._begin, self._places)


class Masks:
    """The marks of every store row: `words`, uint8 (rows and room, words), with a bit for each combination.

    A combination keeps its bit as long as it is used, so that a change of rules touches the bits of what it adds.
    most_late: µs, the greatest lateness that is IN_TIME; None: any.
    """

    def __init__(self, store: EventStore, most_late: int | None = None) -> None:
        self._store, self._most_late = store, most_late
        self._rows = 0
        self._predicates: dict[str, Predicate] = {}
        self._places: dict[MaskKey, Mark] = {}
        self._marking = _Marking({})  # all of them
        self._combined: dict[str, list[MaskKey]] = {}  # those of texts that are revised
        self._free: list[Mark] = []
        self._words = RowArray(np.uint8, 0)

    @property
    def words(self) -> Mask:
        """The marks."""
        return self._words.all

    def use(self, predicates: Mapping[str, Predicate], keys: Collection[MaskKey]) -> set[int]:
        """Mark by these from now on; returns the words whose bits have changed.

        Predicates that are new are evaluated over all rows.
        """
        # each predicate by itself too, whether or not a rule needs that: known results are not evaluated again
        wanted = dict.fromkeys([*keys, *map(_alone, predicates)])
        self._free += [place for key, place in self._places.items() if key not in wanted]
        # a new one, as `of` has returned the old one
        self._places = {key: place for key, place in self._places.items() if key in wanted}
        fresh = [key for key in wanted if key not in self._places]
        new = {text: predicate for text, predicate in predicates.items() if text not in self._predicates}
        known = {text for key in fresh for text in key.predicates} - new.keys()
        self._predicates = dict(predicates)
        self._have_free(len(fresh))
        marks = {key: self._free.pop() for key in fresh}
        marking = _Marking(marks)
        for rows in self._store.live:
            for old in range(rows.start, min(rows.stop, self._rows), _STRETCH):
                stretch = slice(old, min(old + _STRETCH, rows.stop, self._rows))
                held = self._truths(new, stretch) | {text: self.at(_alone(text), stretch) for text in known}
                marking.set(self.words, self._store, stretch, held)
        self._places = self._places | marks
        self._combined = {}
        self._marking = _Marking(self._places)
        return {mark.word for mark in marks.values()}

    def _have_free(self, marks: int) -> None:
        """Make at least this many positions available."""
        words = self.words.shape[1]
        more = -((len(self._free) - marks) // _BITS)
        if more > 0:
            self._words.widen(words + more, self._store.live)
            self._free += [Mark(word, bit) for word in range(words, words + more) for bit in range(_BITS)][::-1]

    def extend(self) -> None:
        """Mark the rows added to the store since the last call."""
        old, self._rows = self._rows, self._store.rows
        if old == self._rows:
            return
        self._words.reserve(self._store.room, self._store.live)
        for at in range(old, self._rows, _STRETCH):
            rows = slice(at, min(at + _STRETCH, self._rows))
            self._marking.set(self.words, self._store, rows, self._truths(self._predicates, rows))

    def revise(self, text: str, rows: Int64Array, holds: Mask) -> set[int]:
        """Mark different rows by whether this predicate holds there, which fields alone do not determine.

        holds: uint8 per row. Returns the words of which bits have changed.
        """
        if text not in self._combined:
            self._combined[text] = [key for key in self._places if text in key.predicates]
        changed = set[int]()
        for key in self._combined[text]:
            word, bit = self._places[key]
            marked = holds
            for other in key.predicates - {text}:
                marked = marked & self.at(_alone(other), rows)
            if key.field is not None and (valid := self._store.valid(key.field, rows)) is not None:
                marked = marked & valid
            old = self.words[rows, word]
            new = (old & np.uint8(255 - (1 << bit))) | (marked << np.uint8(bit))
            if not np.array_equal(old, new):
                self.words[rows, word] = new
                changed.add(word)
        return changed

    def release(self, rows: slice) -> None:
        """Release the memory of these rows, as the store does."""
        self._words.release(rows)

    def keep(self, rows: Int64Array) -> None:
        """Drop all but these rows, as the store does."""
        self._words.keep(rows)
        self._rows = len(rows)

    def __getitem__(self, key: MaskKey) -> Mark:
        return self._places[key]

    def of(self, rows: Int64Array) -> Marks:
        """All marks of the rows."""
        return Marks(self.words[rows], self._places)

    def at(self, key: MaskKey, rows: Int64Array | slice) -> Mask:
        """Which rows have this mark: uint8, one element per row."""
        word, bit = self._places[key]
        marked: Mask = (self.words[rows, word] >> np.uint8(bit)) & np.uint8(1)
        return marked

    def _truths(self, predicates: Mapping[str, Predicate], rows: slice) -> dict[str, Mask]:
        columns = LazyColumns(
            lambda name: physical_array(self._store, name, rows),
            lambda name: physical_numbers(self._store, name, rows),
            lambda name: physical_codes(self._store, name, rows),
        )
        held = dict(zip(predicates, truths([*predicates.values()], columns, rows.stop - rows.start), strict=True))
        if IN_TIME in held and self._most_late is not None:
            held[IN_TIME] = (self._store.lateness(rows) <= self._most_late).view(np.uint8)
        return held


def _alone(text: str) -> MaskKey:
    return MaskKey(frozenset((text,)))
