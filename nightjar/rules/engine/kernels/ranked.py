"""Modes and quantiles: what `answers` and `carried` do for the other functions.

They are apart because compiling them takes as long as a third of all the rest, and few rules have them.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import carried, modes, quantiles, windows
from nightjar.rules.engine.kernels.answers import DOUBLE, NARROW
from nightjar.rules.functions import MODE


@kernel
def answers(
    run_first,
    rows,
    at,
    low,
    end,
    excluding,
    late,
    last_late,
    arrivals,
    marks,
    narrow,
    wide,
    asked,
    scales,
    _before,
    found,
    flags,
):
    """Answer every asked[j] as kernels.answers does; nothing comes from _before. None can exceed its type: 0."""
    run = run_first, *windows.changes(run_first, rows, at, low, end, excluding, late, last_late, arrivals, False)[:3]
    doubles = found.view(np.float64)
    for j in range(len(asked)):
        mark = marks, asked[j, 1], asked[j, 2]
        kind, column, to, share, scale = asked[j, 3], asked[j, 4], asked[j, 5], asked[j, 8], scales[j]
        if asked[j, 0] == MODE:
            if kind == NARROW:
                modes.modes(*run, *mark, narrow, column, found[to], flags[to])
            else:
                modes.modes(*run, *mark, wide, column, found[to], flags[to])
        elif kind == NARROW:
            quantiles.quantiles(*run, *mark, narrow, column, False, share, scale, doubles[to], flags[to])
        else:
            quantiles.quantiles(*run, *mark, wide, column, kind == DOUBLE, share, scale, doubles[to], flags[to])
    return 0


@kernel
def move(state, offsets, asked, old, new, ahead, marks, narrow, wide):
    """Move the states as carried.move does."""
    for j in range(len(asked)):
        mark = marks, asked[j, 1], asked[j, 2]
        kind, column, share = asked[j, 3], asked[j, 4], asked[j, 8]
        held = state[offsets[j] : offsets[j + 1]]
        if asked[j, 0] == MODE:
            if kind == NARROW:
                moved = modes.move(held, old, new, ahead, *mark, narrow, column)
            else:
                moved = modes.move(held, old, new, ahead, *mark, wide, column)
            if not moved:
                return False
        elif kind == NARROW:
            quantiles.move(held, old, new, *mark, narrow, column, False, share)
        else:
            quantiles.move(held, old, new, *mark, wide, column, kind == DOUBLE, share)
    return True


@kernel
def answer(state, offsets, asked, scales, window, marks, narrow, wide, found, flags):
    """Answer every asked[j] as carried.answer does. None can exceed its type: 0."""
    doubles = found.view(np.float64)
    for j in range(len(asked)):
        mark = marks, asked[j, 1], asked[j, 2]
        kind, column, to, share, scale = asked[j, 3], asked[j, 4], asked[j, 5], asked[j, 8], scales[j]
        held = state[offsets[j] : offsets[j + 1]]
        if asked[j, 0] == MODE:
            if kind == NARROW:
                modes.answer(held, window, *mark, narrow, column, found[to], flags[to])
            else:
                modes.answer(held, window, *mark, wide, column, found[to], flags[to])
        elif kind == NARROW:
            quantiles.answer(held, window, *mark, narrow, column, False, share, scale, doubles[to], flags[to])
        else:
            quantiles.answer(held, window, *mark, wide, column, kind == DOUBLE, share, scale, doubles[to], flags[to])
    return 0


@kernel
def answer_runs(
    run_first, low, end, own, plan, held, room, sizes, asked, scales, marks, narrow, wide, found, flags, left
):
    """As carried.answer_runs."""
    offsets = np.empty(len(sizes) + 1, np.int64)
    for r in range(len(plan)):
        first, last, planned = run_first[r], run_first[r + 1], plan[r]
        if planned[carried.GROUP] == carried.NOT_CARRIED:
            continue
        known = held[planned[carried.GROUP]]
        state = carried.begun(planned, known, room, sizes, offsets, asked)
        if not len(state):
            continue
        old, new = (
            (planned[carried.OLD_BEGIN], planned[carried.OLD_END]),
            (planned[carried.NEW_BEGIN], planned[carried.NEW_END]),
        )
        if not move(state, offsets, asked, old, new, planned[carried.AHEAD], marks, narrow, wide):
            carried.give_up(known)
            continue
        window = first, last, end, low, own, new[0], new[1]
        answer(state, offsets, asked, scales, window, marks, narrow, wide, found, flags)
        left[first:last] = False
    return 0
