"""One group-by's rows in law 1's order, and which of them a batch makes worth evaluating."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rules.engine.kernels import segments
from rules.engine.store import EventStore
from rules.engine.strings import Int64Array, grown


@dataclass(frozen=True)
class Runs:
    """Rows to evaluate, cut into stretches of one group each (see kernels.windows)."""

    first: Int64Array
    start: Int64Array
    at: Int64Array

    @property
    def rows(self) -> int:
        """How many rows there are to evaluate."""
        return len(self.at)


class Timeline:
    """The retained rows of every group of one group-by. `rows` and `times` are the arena: store rows, their times.

    Columns of the store that rules need stand in the arena a second time, so that kernels read a window in order.
    """

    def __init__(self, store: EventStore, group_by: tuple[str, ...]) -> None:
        self.store = store
        self.group_by = group_by
        self.rows: Int64Array = np.zeros(256, np.int64)
        self.times: Int64Array = np.zeros(256, np.int64)
        self._used = 0
        self._start: Int64Array = np.zeros(64, np.int64)
        self._end: Int64Array = np.zeros(64, np.int64)
        self._room: Int64Array = np.zeros(64, np.int64)
        self._slot: Int64Array = np.full(64, -1, np.int64)
        self._columns: dict[Hashable, tuple[Callable[[], npt.NDArray[Any]], npt.NDArray[Any]]] = {}

    def insert(self, base: int, horizon: int, reach: int) -> Runs:
        """Insert the store's rows from `base` on; rows before `horizon` (µs) may go. Returns what to evaluate again.

        reach: the widest window in microseconds.
        """
        store = self.store
        groups = store.codes(self.group_by)[base : store.rows]
        count = store.code_count(self.group_by)
        if count > len(self._slot):
            old = len(self._slot)
            self._start, self._end, self._room, self._slot = (
                grown(a, count) for a in (self._start, self._end, self._room, self._slot)
            )
            self._slot[old:] = -1
        ids = store.ids
        while True:
            used, touched, first, places, since = segments.insert(
                groups, base, store.times, ids.hashes, ids.ends, ids.heap, horizon,
                self._slot, self._start, self._end, self._room, self.rows, self.times, self._used,
            )  # fmt: skip
            if used >= 0:
                break
            self._make_room(int(touched[0]))
        self._used = used
        for source, column in self._columns.values():
            segments.refill(touched, since, self._end, self.rows, source(), column)
        run_first, run_start, at = segments.affected(
            touched, first, places, self._start, self._end, self.rows, self.times, store.late, reach
        )
        return Runs(run_first, run_start, at)

    def column(self, name: Hashable, source: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """A column of the store in the order of the arena, kept from now on. source: gives the store's column."""
        if name not in self._columns:
            whole = source()
            column = np.zeros(len(self.rows), whole.dtype)
            segments.refill(np.arange(len(self._start)), self._start, self._end, self.rows, whole, column)
            self._columns[name] = source, column
        return self._columns[name][1]

    def forget_columns(self) -> None:
        """Keep no column any more; those that are asked for are made anew."""
        self._columns = {}

    def renumber(self, new_row: Int64Array) -> None:
        """Follow the store in forgetting rows: new_row is each old row's number, -1 for those before the horizon."""
        segments.renumber(self._start, self._end, self._room, self.rows, new_row)

    def _make_room(self, needed: int) -> None:
        held = int((self._end - self._start).sum())
        size = max(2 * (held + held // 4 + len(self._start)) + needed, 256)
        rows, times = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._used = segments.compact(self._start, self._end, self._room, self.rows, self.times, rows, times)
        self.rows, self.times = rows, times
        self.forget_columns()

    def retained(self, horizon: int) -> int:
        """Rows at or after `horizon` (µs) that belong to a group."""
        rows = self.store.rows
        return int(((self.store.codes(self.group_by)[:rows] >= 0) & (self.store.times[:rows] >= horizon)).sum())
