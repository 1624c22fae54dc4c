"""Long windows, carried from one batch to the next: a batch adds and removes what has changed (see kernels.carried).

A group's aggregates over a stretch of its rows are kept where its window is long. A window of a later batch takes rows
in behind the stretch and leaves out its first ones. The stretch follows the windows only once they are some way ahead:
an event somewhat out of order still lies behind it, and one further back costs filling the window again.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels import carried, ranked
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.functions import COUNT

# Windows of fewer rows are filled again in less time than finding out what has changed takes.
LONG = 8192
# A stretch follows its windows once they are ahead by this share of their rows.
_AHEAD = 16
# Groups per question; further ones displace those that have not been used for the longest time.
_GROUPS = 256


class _Carried(NamedTuple):
    """A stretch (first place, place behind the last), the store rows at both ends, and what is known of it."""

    stretch: tuple[int, int]
    ends: tuple[int, int]
    state: Int64Array
    offsets: Int64Array


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
        self._carried: dict[int, _Carried] = {}
        # of groups whose windows had too many values: how many rows they have when it is tried again
        self._again_at: dict[int, int] = {}

    def answer(
        self, timeline: Timeline, runs: Runs, low: Int64Array, end: Int64Array, found: Int64Array, flags: Mask
    ) -> tuple[int, npt.NDArray[np.bool_]]:
        """Answer about the rows of runs whose windows are long. low, end: where the window of each row begins and ends.

        Writes to found and flags as kernels.answers does. Returns how many answers exceed their types, and which rows
        of the runs are still to be answered.
        """
        left = np.ones(runs.rows, np.bool_)
        overflown = 0
        firsts = runs.first[:-1]
        for run in np.flatnonzero(end[firsts] - low[firsts] >= LONG).tolist():
            first, last = int(runs.first[run]), int(runs.first[run + 1])
            rows = slice(first, last)
            if not _in_order(timeline, runs.at[rows], low[rows]):
                continue
            group = int(timeline.store.codes(timeline.group_by)[timeline.rows[runs.at[first]]])
            carrying = self._moved(timeline, group, int(runs.start[run]), low[rows], end[rows])
            if carrying is None:
                continue
            window = first, last, end, low, self._own, *carrying.stretch
            overflown += self._kernels.answer(
                carrying.state,
                carrying.offsets,
                self._asked,
                self._scales,
                window,
                timeline.marks.all,
                timeline.narrow.all,
                timeline.wide.all,
                found,
                flags,
            )
            left[rows] = False
        return overflown, left

    def _moved(self, timeline: Timeline, group: int, start: int, low: Int64Array, end: Int64Array) -> _Carried | None:
        """A stretch that all windows of a run begin in and end behind; None where there is none, or no room for it.

        start: the place where the group's rows begin.
        """
        wanted = int(low[0]), int(end[0])
        rows = wanted[1] - wanted[0]
        if low[-1] > wanted[1]:
            return None
        moved = None
        known = self._carried.pop(group, None)
        if known is not None and _is_there(timeline, known, start, wanted):
            moved = self._follow(timeline, known, low, end)
        if moved is None and rows >= self._again_at.get(group, 0):
            # also where a window has outgrown the room that it was given
            empty = _Carried((wanted[0], wanted[0]), (-1, -1), *carried.states(self._asked, rows))
            moved = self._follow(timeline, empty, low, end)
            if moved is None:
                self._again_at[group] = 2 * rows
        if moved is None:
            return None
        self._carried[group] = moved
        if len(self._carried) > _GROUPS:
            del self._carried[next(iter(self._carried))]
        return moved

    def _follow(self, timeline: Timeline, known: _Carried, low: Int64Array, ends: Int64Array) -> _Carried | None:
        """The stretch moved on to the windows, if they are some way ahead; None where it has no room for them."""
        (begin, end), new = known.stretch, known.stretch
        wanted = int(low[0]), int(ends[0])
        if (wanted[0] - begin) + (wanted[1] - end) > (wanted[1] - wanted[0]) // _AHEAD or low[-1] > end:
            new = wanted
        facts: tuple[Any, ...] = timeline.marks.all, timeline.narrow.all, timeline.wide.all
        ahead = int(ends[-1]) + 1 - new[1]
        if not self._kernels.move(known.state, known.offsets, self._asked, known.stretch, new, ahead, *facts):
            return None
        at_ends = int(timeline.rows[new[0]]), int(timeline.rows[new[1] - 1])
        return _Carried(new, at_ends, known.state, known.offsets)


@cache
def load_kernels() -> None:
    """Load the kernels, or compile them, which takes seconds: before a batch with a long window waits for it."""
    asked, nothing = np.array([[COUNT, 0, 0, 0, -1, 0, 1, 1, 0]]), np.empty(0, np.int64)
    facts = np.empty((0, 1), np.uint8), np.empty((0, 1), np.int32), np.empty((0, 1), np.int64)
    state, offsets = carried.states(asked, 0)
    carried.move(state, offsets, asked, (0, 0), (0, 0), 0, *facts)
    window = 0, 0, nothing, nothing, 0, 0, 0
    found, flags = np.empty((2, 0), np.int64), np.empty((2, 0), np.uint8)
    carried.answer(state, offsets, asked, np.ones(1), window, *facts, found, flags)


def _is_there(timeline: Timeline, known: _Carried, start: int, wanted: tuple[int, int]) -> bool:
    """Whether a stretch is still where it was, with the same rows, and before the windows that are wanted.

    A group's rows are in order, and only the first ones are ever removed: with the same rows at both ends, as far apart
    as before, nothing has come between them.
    """
    begin, end = known.stretch
    if not (start <= begin <= wanted[0] and end <= wanted[1]):
        return False
    return (int(timeline.rows[begin]), int(timeline.rows[end - 1])) == known.ends


def _in_order(timeline: Timeline, at: Int64Array, low: Int64Array) -> bool:
    """Whether the windows of a run's rows begin one after the other, and no late row is left out of any."""
    store = timeline.store
    if store.last_late >= 0 and store.last_late > store.order[timeline.rows[at]].min():
        return False
    return not np.count_nonzero(low[1:] < low[:-1])
