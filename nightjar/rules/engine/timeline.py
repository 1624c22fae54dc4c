"""One group-by's rows in S1.1's order, and which of them to evaluate after a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.arena import Arena
from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.facts import Name
from nightjar.rules.engine.kernels import absence, segments
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.steps import Steps
from nightjar.rules.engine.store import LONG_AGO, EventStore
from nightjar.rules.engine.strings import Int64Array

# Rows taken in at once: few enough that what they are read from stays in the cache.
_STRETCH = 1 << 16
_NO_PLACES: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True)
class Needed:
    """The rows that a group-by still needs, as event times in µs."""

    horizon: int
    """Rows before it are no longer there."""
    settled: int
    """Rows before it are no longer evaluated."""
    reach: int
    """The widest window."""
    looks_at_others: bool = False
    """Whether a row may depend on the result of another that has seen more late rows."""
    folded: int = LONG_AGO
    """Rows before it are in steps for the measures with a resolution."""
    kept: int = 0
    """So long before `settled` rows may be in a window, in µs, where rules wait for what follows an event (S19)."""

    @property
    def since(self) -> int:
        """Event time (µs) before which no row can be in a window of a row to evaluate."""
        return max(self.horizon, self.settled - max(self.reach, self.kept))


@dataclass(frozen=True)
class Clocks:
    """The stream's clock before and after a batch, in µs."""

    before: int
    now: int


@dataclass(frozen=True)
class Runs:
    """Rows to evaluate, split into ranges of one group each (see kernels.windows)."""

    first: Int64Array
    start: Int64Array
    at: Int64Array
    horizon: int
    """Event time (µs) before which rows are in no window."""
    folded: int = LONG_AGO
    """Event time (µs) before which rows are in no window of a measure with a resolution."""
    longest: int = 0
    """No window has more rows than this, or 0 where that is not known."""

    @property
    def rows(self) -> int:
        """The number of rows to evaluate."""
        return len(self.at)


def _counted(groups: npt.NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """The groups that occur, and where the rows of each would begin, side by side; with the end of the last."""
    counts = np.bincount(groups[groups >= 0])
    touched = counts.nonzero()[0]
    return touched, np.append(0, np.cumsum(counts[touched]))


class Timeline(Arena):
    """The retained rows of every group of one group-by, in an arena.

    `rows`, `times`, `marks`, `narrow`, `wide`: by place, store rows, their times, and the facts chosen by `use`.
    steps: by resolution (µs), the steps that earlier rows have been folded into.
    """

    def __init__(self, store: EventStore, masks: Masks, group_by: tuple[str, ...]) -> None:
        super().__init__()
        self.store = store
        self.group_by = group_by
        self.steps: dict[int, Steps] = {}
        self._masks = masks
        # by the identity of aggregates what `measures` has computed for them, until facts or rows' numbers change
        self.asked: dict[int, Any] = {}
        # event time (µs) from which no row of the store has been evicted
        self.complete_since = LONG_AGO
        self._fields: tuple[str, ...] = ()
        self._words: tuple[int, ...] = ()
        # nested conditions by which the rows are marked; and the groups of the last rows to be inserted, where the rows
        # of each begin, and their places
        self.marked: frozenset[str] = frozenset()
        # rule, version and effective time of those by whose violations they are marked, and the mark, if it has one
        self.violations: frozenset[tuple[str, int, int, str | None]] = frozenset()
        self._inserted = (_NO_PLACES, np.zeros(1, np.int64), _NO_PLACES)
        self._casts = 0  # those of the store when the facts were chosen

    def use(self, words: Collection[int], fields: Collection[str], changed: Collection[int]) -> None:
        """Keep these facts from now on: words of marks, and fields.

        changed: the words whose bits have changed since they were last used.
        """
        self.asked = {}
        self._words, self._fields, self._casts = tuple(words), tuple(fields), self.store.casts
        long = [name for name in fields if self.store.source(name).itemsize > self.narrow.all.itemsize]
        for facts, names, other in (
            (self.marks, words, changed),
            (self.narrow, [name for name in fields if name not in long], ()),
            (self.wide, long, ()),
        ):
            facts.use(names, other, self._fill, self._used)

    def _fill(self, name: Name, facts: npt.NDArray[Any], at: int) -> None:
        segments.fill(self._spans, self.rows, self._source(name), facts, at)

    def _source(self, name: Name) -> npt.NDArray[Any]:
        if isinstance(name, int):
            return self._masks.words[:, name]
        source = self.store.source(name)
        return source.view(np.int64) if source.dtype == np.float64 else source

    def insert(self, base: int, needed: Needed) -> Runs:
        """Insert the store's rows from `base` on; unneeded rows may be evicted. Returns what to evaluate again."""
        store = self.store
        groups = self._groups_since(base, needed)
        if not self._used and len(groups) > _STRETCH and not store.late[base : store.rows].any():
            self._place_all(groups, base, needed.since)
            self.forget_marks()
            first_of, start, at, longest = segments.whole(self._spans, self.times, needed.settled)
            return Runs(first_of, start, at, needed.horizon, needed.folded, longest)
        touched, first, places = self._inserted = self._place(groups, base, needed.since, groups)
        first_of, start, at, longest = segments.affected(
            touched,
            first,
            places,
            base,
            self._spans,
            self.rows,
            self.times,
            store.late,
            store.order,
            store.newest,
            needed.reach,
            needed.settled,
            needed.looks_at_others,
        )
        return Runs(first_of, start, at, needed.horizon, needed.folded, longest)

    def forget_marks(self) -> None:
        """Have all rows marked anew by what is no matter of fields."""
        self.marked, self.violations = frozenset(), frozenset()

    def is_displaced(self, base: int) -> bool:
        """Whether a late row among those from `base` on arrived before a row that was there."""
        rows = np.arange(base, self.store.rows)
        late = rows[self.store.late[rows] != 0]
        return bool((self.store.order[late] <= self.store.newest).any())

    def behind_inserted(self, reach: int, horizon: int, *, late: bool = True) -> Runs:
        """The rows of the last `insert`, and those behind them in their groups as far as `reach` (µs) after the last;
        late ones too if `late`, each in a run of its own. horizon: see Runs; rows before it are left out."""
        touched, first, places = self._inserted
        starts, ends = (self._spans[touched, at].astype(np.int64) for at in (segments.START, segments.END))
        begins, last = places[first[:-1]], places[first[1:] - 1]
        for at in np.flatnonzero(last + 1 < ends):
            behind = self.times[last[at] + 1 : ends[at]]
            ends[at] = last[at] + 1 + np.searchsorted(behind, self.times[last[at]] + reach, "right")
        return self._runs(starts, begins, ends, horizon, with_late=late)

    def everything(self, horizon: int, *, late: bool = True) -> Runs:
        """All rows from the horizon on, as `behind_inserted`."""
        starts, ends = (self._spans[:, at].astype(np.int64) for at in (segments.START, segments.END))
        some = ends > starts
        starts, ends = starts[some], ends[some]
        return self._runs(starts, starts, ends, horizon, with_late=late)

    def _runs(self, starts: Int64Array, begins: Int64Array, ends: Int64Array, horizon: int, *, with_late: bool) -> Runs:
        """Runs of the places from `begins` to below `ends`, from the horizon on, of segments that begin at `starts`."""
        begins = begins.copy()
        for at in np.flatnonzero(self.times[begins] < horizon):
            begins[at] += np.searchsorted(self.times[begins[at] : ends[at]], horizon)
        sizes = ends - begins
        groups = np.repeat(np.arange(len(sizes)), sizes)
        at = np.arange(len(groups)) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
        late = self.store.late[self.rows[at]] != 0
        on_time = np.bincount(groups[~late], minlength=len(sizes))
        runs, starts_on_time, at_on_time = on_time[on_time > 0], starts[on_time > 0], at[~late]
        if not with_late:
            return Runs(np.append(0, np.cumsum(runs)), starts_on_time, at_on_time, horizon)
        runs = np.concatenate([runs, np.ones(np.count_nonzero(late), np.int64)])
        return Runs(
            np.append(0, np.cumsum(runs)),
            np.concatenate([starts_on_time, starts[groups[late]]]),
            np.concatenate([at_on_time, at[late]]),
            horizon,
        )

    def take_marks(self, words: Collection[int], places: Int64Array, base: int) -> None:
        """Take over these words of the rows in some places. base: the store's rows from there on are new."""
        rows = self.rows[places]
        for word in words:
            if word in self.marks:
                self.marks.all[places, self.marks[word]] = self._masks.words[rows, word]
        if int(rows.min()) < base:  # what is carried of long windows may have counted them
            self.asked = {}

    def insert_waiting(self, base: int, needed: Needed, clocks: Clocks, withins: Collection[int]) -> Runs:
        """As `insert`, for rules that wait for what follows an event for one of these times (µs, ascending): what to
        evaluate is due by now, and has become so, or something has come since that changes what holds there."""
        store, shortest, longest = self.store, min(withins), max(withins)
        groups = self._groups_since(base, needed)
        touched, first, places = self._inserted = self._place(groups, base, needed.since, groups)
        arena = self._spans, self.rows, self.times
        affected = segments.affected(
            touched,
            first,
            places,
            base,
            *arena,
            store.late,
            store.order,
            store.newest,
            needed.reach,
            needed.settled,
            False,
        )
        found = [affected[2], absence.before(touched, first, places, *arena, store.late, longest)]
        if clocks.now > clocks.before:
            codes = store.codes(self.group_by)
            for within in withins:
                since, until = clocks.before - within, clocks.now - within
                rows = store.between(since, until)
                due = np.unique(codes[rows[store.late[rows] == 0]])
                found.append(absence.between(due[due >= 0], self._spans, self.times, since, until))
        at = np.unique(np.concatenate(found))
        times = self.times[at]
        # rows before the horizon stay for a while after it has moved, longer in an engine that was restored
        at = at[(times >= needed.horizon) & (times < clocks.now - shortest) & (store.late[self.rows[at]] == 0)]
        first_of, start = absence.runs(at, store.codes(self.group_by)[self.rows[at]], self._spans)
        # where groups lie depends on what has been evicted: not so in which order their rows arrived
        groups = np.argsort(store.order[self.rows[at[first_of[:-1]]]])
        sizes = np.diff(first_of)[groups]
        ends = np.cumsum(sizes)
        at = at[np.arange(len(at)) + np.repeat(first_of[groups] - ends + sizes, sizes)]
        first_of, start = np.append(0, ends), start[groups]
        return Runs(first_of, start, at, needed.horizon, needed.folded)

    def followed(self, runs: Runs, word: int, bit: int, within: int) -> Mask:
        """Of each row of the runs whether another one on time, which has this mark, follows it in its group: has its
        time, or is at most `within` (µs) after it. uint8."""
        codes = self.store.codes(self.group_by)[self.rows[runs.at]]
        arena = self._spans, self.rows, self.times
        marks = self.marks.all, self.marks[word], bit
        found: Mask = absence.followed(runs.first, runs.at, codes, *arena, self.store.late, *marks, within)
        return found

    def take_in(self, base: int, horizon: int) -> None:
        """Insert the store's rows from `base` on that are not before `horizon` (µs), as many as there are: room is made
        for all of them at once. None of them is to be evaluated."""
        self._place_all(self._groups_since(base, Needed(horizon, LONG_AGO, 0)), base, horizon)

    def _place_all(self, groups: npt.NDArray[Any], base: int, since: int) -> None:
        """Insert many rows, a stretch at a time; room is made for all of them at once."""
        for at in range(0, len(groups), _STRETCH):
            stretch = groups[at : at + _STRETCH]
            placed = segments.append(
                stretch,
                base + at,
                *self._fresh(base + at, len(stretch)),
                *self._ordering,
                self._spans,
                *self._arena,
            )
            if placed < len(stretch):
                self._place(stretch[placed:], base + at + placed, since, groups[at + placed :])

    def _groups_since(self, base: int, needed: Needed) -> npt.NDArray[Any]:
        """The groups of the store's rows from `base` on, -1 for those in none; the arena has a segment for each."""
        store = self.store
        if store.casts > self._casts:
            self.use(self._words, self._fields, ())
        groups = store.codes(self.group_by)[base : store.rows]
        if (gone := store.gone(base, needed.horizon)) is not None:
            groups = np.where(gone, np.int32(-1), groups)
        self.complete_since = max(self.complete_since, needed.since)
        self._have_groups(store.code_count(self.group_by))
        return groups

    def _place(
        self, groups: npt.NDArray[Any], base: int, since: int, foreseen: npt.NDArray[Any]
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Insert the rows from `base` on into these groups; returns touched, first and places of segments.insert.

        foreseen: the groups of all rows to make room for, if room has to be made.
        """
        fresh = [*self._fresh(base, len(groups))]
        while True:
            used, touched, first, places = segments.insert(
                groups,
                base,
                *fresh,
                *self._ordering,
                since,
                self._spans,
                *self._arena,
                self._used,
                self._limit,
                self._holes,
            )
            if used >= 0:
                self._used = used
                return touched, first, places
            self._make_room(*_counted(foreseen), since)

    @property
    def _ordering(self) -> tuple[Any, ...]:
        """What the kernels order the store's rows by."""
        ids = self.store.ids
        return self.store.times, self.store.ties, ids.ends, ids.heap

    def _fresh(self, base: int, count: int) -> Iterator[npt.NDArray[Any]]:
        """The facts of the store's rows from `base` on."""
        for facts in (self.marks, self.narrow, self.wide):
            fresh = np.empty((count, facts.all.shape[1]), facts.all.dtype)
            for name, at in facts.items():
                fresh[:, at] = self._source(name)[base : base + count]
            yield fresh

    def renumber(self, new_row: Int64Array) -> None:
        """Drop rows as the store does: new_row is each old row's new number, -1 for those before the horizon."""
        segments.renumber(self._spans, self.rows, new_row)
        self.asked = {}

    def retained(self, since: int) -> int:
        """Rows at or after `since` (µs) that belong to a group."""
        codes, times = self.store.codes(self.group_by), self.store.times
        return sum(int(np.count_nonzero((times[rows] >= since) & (codes[rows] >= 0))) for rows in self.store.live)
