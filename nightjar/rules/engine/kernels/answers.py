"""All aggregates of the same windows in one call: for a small batch a call takes as long as the sums. Those of `ranked`
are apart."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import floats, order, sliding, steps, totals, windows
from nightjar.rules.engine.kernels.segments import first_of
from nightjar.rules.functions import (
    COUNT,
    DEVIATION,
    DISTINCT,
    FIRST,
    GREATEST,
    LAST,
    LEAST,
    MEAN,
    SPREAD,
    SUM,
    TOTALS,
)

# The facts: narrow, wide, or wide with the bits of doubles.
NARROW, WIDE, DOUBLE = range(3)
# Rows of a window that are brought into the cache ahead.
_FETCHED = 64
# Beyond which no integer and no double is.
_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


@kernel
def _of_integers(what, changes, marks, word, bit, values, column, scale, before, to, found, doubles, flags):
    run_first, fill, begin, ops = changes
    a, b, c = to
    if what == TOTALS:
        return totals.sums(
            run_first,
            fill,
            begin,
            ops,
            marks,
            word,
            bit,
            values,
            column,
            scale,
            before,
            found[a],
            doubles[b],
            flags[a],
            flags[b],
        )
    if what == SPREAD:
        return totals.spreads(
            run_first,
            fill,
            begin,
            ops,
            marks,
            word,
            bit,
            values,
            column,
            scale,
            before,
            found[a],
            doubles[b],
            flags[a],
            flags[b],
            doubles[c],
            flags[c],
        )
    if what == DISTINCT:
        order.distincts(run_first, fill, begin, ops, marks, word, bit, values, column, found[a])
    elif what in (FIRST, LAST):
        order.ends(run_first, fill, begin, ops, marks, word, bit, values, column, what == LAST, found[a], flags[a])
    else:
        order.extremes(
            run_first, fill, begin, ops, marks, word, bit, values, column, what == GREATEST, found[a], flags[a]
        )
    return 0


@kernel
def _of_doubles(what, changes, marks, word, bit, values, column, to, doubles, flags):
    run_first, fill, begin, ops = changes
    if what == DEVIATION:
        return floats.stddevs(run_first, fill, begin, ops, marks, word, bit, values, column, doubles[to], flags[to])
    if what in (SUM, MEAN):
        return floats.sums(
            run_first, fill, begin, ops, marks, word, bit, values, column, what == MEAN, doubles[to], flags[to]
        )
    order.extremes(
        run_first, fill, begin, ops, marks, word, bit, values, column, what == GREATEST, doubles[to], flags[to]
    )
    return 0


@kernel
def _slide(asked):
    """Whether all that is asked can be read from windows that slide: else the changes are needed for the rest."""
    for j in range(len(asked)):
        what, kind = asked[j, 0], asked[j, 3]
        if not (
            what in (COUNT, LEAST, GREATEST)
            or (kind != DOUBLE and what == DISTINCT)
            or (kind != DOUBLE and what == TOTALS)
        ):
            return False
    return True


@kernel
def _of_slid_integers(what, windows, marks, word, bit, values, column, scale, before, to, held, found, doubles, flags):
    """As _of_integers. windows: see sliding.py."""
    a, b, _ = to
    if what == TOTALS:
        return sliding.sums(
            *windows, marks, word, bit, values, column, scale, before, held, found[a], doubles[b], flags[a], flags[b]
        )
    if what == DISTINCT:
        sliding.distincts(*windows, marks, word, bit, values, column, held, found[a])
    else:
        largest = what == GREATEST
        nothing = _LEAST if largest else _GREATEST
        sliding.extremes(*windows, marks, word, bit, values, column, largest, nothing, held[0], found[a], flags[a])
    return 0


@kernel
def _of_slid_doubles(what, windows, marks, word, bit, values, column, to, held, doubles, flags):
    """The extremes of doubles. windows: see sliding.py."""
    largest = what == GREATEST
    nothing = -np.inf if largest else np.inf
    sliding.extremes(
        *windows, marks, word, bit, values, column, largest, nothing, held[0].view(np.float64), doubles[to], flags[to]
    )


@kernel
def _fetch(fill, marks, narrow, wide, scratch):
    """Bring the facts of short windows into the cache, of all of them at once: else each waits for memory in turn.

    scratch: at least one element per run.
    """
    for r in range(len(fill)):
        sum_of_facts = np.int64(0)
        for p in range(fill[r, 0], min(fill[r, 1], fill[r, 0] + _FETCHED), 8):
            sum_of_facts += first_of(marks, p) + first_of(narrow, p) + first_of(wide, p)
        scratch[r] = sum_of_facts


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
    before,
    found,
    flags,
):
    """Answer every asked[j] about the windows of the rows at at[k], from low[k] to before end[k] (see windows.changes).

    asked: int64 (questions, 9): a Computation's code, word and bit of the marks, kind and column of the facts, then the
    rows of found (int64, doubles as their bits) and flags (uint8) to write to: the answer's, or for TOTALS and
    SPREAD those of sum, mean and deviation; then an Aggregate's share (see ranked). flags: whether the answer is not
    NULL; of a sum of integers whether it exceeds 64 bits; of counts and sums of doubles they are unused. scales[j]: the
    divisor of the mean and the deviation, in ranked of the quantile. before[j]: int64 (rows, 8), what the windows hold
    besides (see kernels.steps); of one question without rows where they hold nothing. Returns how many answers exceed
    their types.
    """
    fill, begin, ops, slid = windows.changes(
        run_first, rows, at, low, end, excluding, late, last_late, arrivals, _slide(asked)
    )
    changes = run_first, fill, begin, ops
    _fetch(fill, marks, narrow, wide, found[len(found) - 1])
    own = 0 if excluding else 1
    slides = run_first, slid, low, end, own
    held = np.empty((3, sliding.widest(*slides) + 1), np.int64)
    doubles = found.view(np.float64)
    wide_doubles = wide.view(np.float64)
    overflown = 0
    for j in range(len(asked)):
        what, word, bit, kind, column = asked[j, 0], asked[j, 1], asked[j, 2], asked[j, 3], asked[j, 4]
        to = asked[j, 5], asked[j, 6], asked[j, 7]
        scale = scales[j]
        besides = before[min(j, len(before) - 1)]
        # of the windows with changes, and then, in place of what these have in none, of those that slide
        if len(slid) < len(run_first) - 1:
            if what == COUNT:
                totals.counts(*changes, marks, word, bit, found[to[0]])
            elif kind == DOUBLE:
                overflown += _of_doubles(what, changes, marks, word, bit, wide_doubles, column, to[0], doubles, flags)
            elif kind == WIDE:
                overflown += _of_integers(
                    what, changes, marks, word, bit, wide, column, scale, besides, to, found, doubles, flags
                )
            else:
                overflown += _of_integers(
                    what, changes, marks, word, bit, narrow, column, scale, besides, to, found, doubles, flags
                )
        if len(slid):
            if what == COUNT:
                sliding.counts(*slides, marks, word, bit, held, found[to[0]])
            elif kind == DOUBLE:
                _of_slid_doubles(what, slides, marks, word, bit, wide_doubles, column, to[0], held, doubles, flags)
            elif kind == WIDE:
                overflown += _of_slid_integers(
                    what, slides, marks, word, bit, wide, column, scale, besides, to, held, found, doubles, flags
                )
            else:
                overflown += _of_slid_integers(
                    what, slides, marks, word, bit, narrow, column, scale, besides, to, held, found, doubles, flags
                )
        if what == COUNT:
            for k in range(len(besides)):
                found[to[0], k] += besides[k, steps.COUNT]
        if len(besides) and (what in (LEAST, GREATEST)):
            steps.with_extremes(besides, kind == DOUBLE, what == GREATEST, found[to[0]], flags[to[0]])
    return overflown
