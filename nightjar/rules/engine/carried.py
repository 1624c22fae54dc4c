"""Long windows, carried from one batch to the next: a batch adds and removes what has changed (see kernels.carried).

A group's aggregates over a stretch of its rows are kept where its window is long. A window of a later batch takes rows
in behind the stretch and leaves out its first ones. The stretch follows the windows only once they are some way ahead:
an event somewhat out of order still lies behind it, and one further back costs filling the window again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels import carried, ranked
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.functions import COUNT

# Windows of fewer rows are filled again in less time than finding out what has changed takes.
LONG = 256
# So are those that have not so many times as many rows as are evaluated: all are read once.
_TIMES = 4
# The most rows that are evaluated at once where windows are carried: of those that are left the answers are copied.
MOST_ROWS = 1 << 17
# A stretch follows its windows once they are ahead by this share of their rows.
_AHEAD = 16
# Words of the states of one question: 128 MB. Windows of further groups are filled again.
_MOST_WORDS = 1 << 24


class LongWindows:
    """The long windows of one timeline that some aggregates are about.

    asked, scales: what they are, as in kernels.answers, excluding: whether a window leaves out its own row. What has
    been carried is valid until the timeline's rows get other numbers or its facts change. are_ranked: whether they are
    for kernels.ranked.
    """

    def __init__(
        self, asked: Int64Array, scales: npt.NDArray[np.float64], *, excluding: bool, are_ranked: bool
    ) -> None:
        self._kernels: Any = ranked if are_ranked else carried
        self._asked, self._scales, self._own = asked, scales, 0 if excluding else 1
        self._sizes = carried.sizes_of(asked)
        # of both only what is written to takes memory
        self._held: Int64Array = np.zeros((0, 8), np.int64)
        self._room: Int64Array = np.zeros(0, np.int64)
        self._used: Int64Array = np.zeros(1, np.int64)

    def answer(
        self, timeline: Timeline, runs: Runs, low: Int64Array, end: Int64Array, found: Int64Array, flags: Mask
    ) -> tuple[int, npt.NDArray[np.bool_]]:
        """Answer about the rows of runs whose windows are long. low, end: where the window of each row begins and ends.

        Writes to found and flags as kernels.answers does. Returns how many answers exceed their types, and which rows
        of the runs are still to be answered.
        """
        left = np.ones(runs.rows, np.bool_)
        firsts, store = runs.first[:-1], timeline.store
        if (end[firsts] - low[firsts]).max(initial=0) < LONG:
            return 0, left
        self._make_room(store.code_count(timeline.group_by))
        plan = carried.plan_runs(
            runs.first,
            runs.start,
            runs.at,
            low,
            end,
            timeline.rows,
            store.codes(timeline.group_by),
            store.last_late,
            store.order,
            self._held,
            self._used,
            self._sizes,
            (LONG, _TIMES, _AHEAD, len(self._room)),
        )
        overflown = self._kernels.answer_runs(
            runs.first,
            low,
            end,
            self._own,
            plan,
            self._held,
            self._room,
            self._sizes,
            self._asked,
            self._scales,
            timeline.marks.all,
            timeline.narrow.all,
            timeline.wide.all,
            found,
            flags,
            left,
        )
        return overflown, left

    def _make_room(self, groups: int) -> None:
        if not len(self._room):
            self._room = np.zeros(_MOST_WORDS, np.int64)
        if groups > len(self._held):
            held, known = np.zeros((2 * groups, 8), np.int64), np.flatnonzero(self._held.any(axis=1))
            held[known] = self._held[known]
            self._held = held


@cache
def load_kernels() -> None:
    """Load the kernels, or compile them, which takes seconds: before a batch with a long window waits for it."""
    asked, nothing = np.array([[COUNT, 0, 0, 0, -1, 0, 1, 1, 0]]), np.empty(0, np.int64)
    first, table = np.zeros(1, np.int64), np.empty((0, 8), np.int64)
    sizes, limits = carried.sizes_of(asked), (LONG, _TIMES, _AHEAD, 0)
    rows = codes = orders = np.empty(0, np.int32)
    runs = first, nothing, nothing, nothing, nothing
    plan = carried.plan_runs(*runs, rows, codes, -1, orders, table, nothing, sizes, limits)
    facts = np.empty((0, 1), np.uint8), np.empty((0, 1), np.int32), np.empty((0, 1), np.int64)
    found, flags, left = np.empty((2, 0), np.int64), np.empty((2, 0), np.uint8), np.empty(0, np.bool_)
    states = table, nothing, sizes, asked, np.ones(1)
    carried.answer_runs(first, nothing, nothing, 0, plan, *states, *facts, found, flags, left)
