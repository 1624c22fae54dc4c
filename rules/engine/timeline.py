"""One group-by's rows in law 1's order, and which of them a batch makes worth evaluating."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rules.engine.kernels import segments
from rules.engine.masks import Masks
from rules.engine.store import LONG_AGO, EventStore
from rules.engine.strings import Int64Array, grown


@dataclass(frozen=True)
class Needed:
    """Which rows a group-by still needs, as event times in µs.

    horizon: rows before it are in no window; settled: rows before it are not evaluated any more; reach: the widest
    window.
    """

    horizon: int
    settled: int
    reach: int

    @property
    def since(self) -> int:
        """Event time (µs) before which no row can be in a window of a row to evaluate."""
        return max(self.horizon, self.settled - self.reach)


@dataclass(frozen=True)
class Runs:
    """Rows to evaluate, cut into stretches of one group each (see kernels.windows).

    horizon: event time (µs) before which rows are in no window.
    """

    first: Int64Array
    start: Int64Array
    at: Int64Array
    horizon: int

    @property
    def rows(self) -> int:
        """How many rows there are to evaluate."""
        return len(self.at)


class Timeline:
    """The retained rows of every group of one group-by, in an arena (see kernels.segments).

    `rows`, `times`, `facts`: by place, store rows, their times, and what `use` says of them.
    """

    def __init__(self, store: EventStore, masks: Masks, group_by: tuple[str, ...]) -> None:
        self.store = store
        self.group_by = group_by
        self.rows: Int64Array = np.zeros(256, np.int64)
        self.times: Int64Array = np.zeros(256, np.int64)
        self.facts: Int64Array = np.zeros((256, 0), np.int64)
        self._masks = masks
        # what `measures` has found out about aggregates, which holds until the facts change
        self.asked: dict[Any, Any] = {}
        # event time (µs) from which on no row of the store has been let go
        self.complete_since = LONG_AGO
        # the facts' columns; there may be more, for facts to come
        self._places: dict[int | str, int] = {}
        self._used = 0
        self._start: Int64Array = np.zeros(64, np.int64)
        self._end: Int64Array = np.zeros(64, np.int64)
        self._room: Int64Array = np.zeros(64, np.int64)
        self._slot: Int64Array = np.full(64, -1, np.int64)

    def use(self, names: Iterable[int | str], changed: Collection[int]) -> None:
        """Keep these facts from now on: words of marks (int), and fields (str).

        changed: the words that have other bits than when they were used last.
        """
        self.asked = {}
        wanted = dict.fromkeys(names)
        self._places = {name: at for name, at in self._places.items() if name in wanted}
        fresh = [name for name in wanted if name not in self._places]
        if len(wanted) > self.facts.shape[1]:
            facts = np.zeros((len(self.rows), len(wanted) + len(wanted) // 4), np.int64)
            facts[:, : self.facts.shape[1]] = self.facts
            self.facts = facts
        free = (at for at in range(self.facts.shape[1]) if at not in {*self._places.values()})
        self._places |= dict(zip(fresh, list(free), strict=False))
        for name in [*fresh, *(name for name in changed if name in wanted and name not in fresh)]:
            segments.fill(self._start, self._end, self.rows, self._source(name), self.facts, self._places[name])

    def fact(self, name: int | str) -> int:
        """Which of the facts is a word of marks or a field."""
        return self._places[name]

    def _source(self, name: int | str) -> Int64Array:
        if isinstance(name, int):
            return self._masks.words[name]
        return self.store.columns[name].values.view(np.int64)

    def insert(self, base: int, needed: Needed) -> Runs:
        """Insert the store's rows from `base` on; rows that are not needed may go. Returns what to evaluate again."""
        store, ids = self.store, self.store.ids
        groups = store.codes(self.group_by)[base : store.rows]
        if (gone := store.times[base : store.rows] < needed.horizon).any():
            groups = np.where(gone, -1, groups)
        self.complete_since = max(self.complete_since, needed.since)
        count = store.code_count(self.group_by)
        if count > len(self._slot):
            old = len(self._slot)
            self._start, self._end, self._room, self._slot = (
                grown(a, count) for a in (self._start, self._end, self._room, self._slot)
            )
            self._slot[old:] = -1
        fresh = np.empty((len(groups), self.facts.shape[1]), np.int64)
        for name, at in self._places.items():
            fresh[:, at] = self._source(name)[base : store.rows]
        while True:
            used, touched, first, places = segments.insert(
                groups, base, fresh, store.times, ids.hashes, ids.ends, ids.heap, needed.since,
                self._slot, self._start, self._end, self._room, self.rows, self.times, self.facts, self._used,
            )  # fmt: skip
            if used >= 0:
                break
            self._make_room(int(touched[0]))
        self._used = used
        first_of, start, at = segments.affected(
            touched, first, places, base, self._start, self._end, self.rows, self.times,
            store.late, store.order, store.newest, needed.reach, needed.settled,
        )  # fmt: skip
        return Runs(first_of, start, at, needed.horizon)

    def renumber(self, new_row: Int64Array) -> None:
        """Follow the store in forgetting rows: new_row is each old row's number, -1 for those before the horizon."""
        segments.renumber(self._start, self._end, self._room, self.rows, new_row)

    def _make_room(self, needed: int) -> None:
        held = int((self._end - self._start).sum())
        size = max(2 * (held + held // 4 + len(self._start)) + needed, 256)
        rows, times, facts = (np.zeros((size, *a.shape[1:]), np.int64) for a in (self.rows, self.times, self.facts))
        self._used = segments.compact(
            self._start, self._end, self._room, self.rows, self.times, self.facts, rows, times, facts
        )
        self.rows, self.times, self.facts = rows, times, facts

    def retained(self, since: int) -> int:
        """Rows at or after `since` (µs) that belong to a group."""
        rows = self.store.rows
        return int(((self.store.codes(self.group_by)[:rows] >= 0) & (self.store.times[:rows] >= since)).sum())
