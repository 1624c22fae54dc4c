"""Steps of windows with a resolution (S14): rows folded into one per step and group, and read as totals.

Every window holds a group's steps from some step on: all steps lie before all rows that are evaluated. So of counts
and sums a step has those of the steps before it in its segment (`sums` has those of all), and of extremes that of
itself and all steps after it: a window takes one step to read, however long it is.

A *fold* has some columns, in this order: the count; the sum, in two words, `high * 2**32 + low`; the sum of the
squares, in four words of 32 bits with room for carries; or an extreme. Columns that a fold does not have are -1.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.segments import END, ROOM, START, widen
from nightjar.rules.engine.kernels.totals import square
from nightjar.rules.engine.kernels.windows import opening

COUNT, HIGH, LOW, SQUARES, EXTREME = 0, 1, 2, 3, 7
COLUMNS = 8  # of a fold at most
# How the values of one column are put together.
ADDED, LEAST, GREATEST = range(3)
LARGEST = np.int64((1 << 63) - 1)
SMALLEST = np.int64(-(1 << 63))
_LOW_WORD = np.int64(0xFFFFFFFF)


@kernel
def ordered(bits):
    """The bits of a double as an integer in the order of the doubles; and back."""
    return bits ^ ((bits >> 63) & LARGEST)


@kernel
def fold(order, first, counted, values, is_double, columns, how, out):
    """out[i, column]: what the rows order[first[i]:first[i + 1]] that are `counted` (uint8) fold into, for each of the
    columns of a fold.

    values: int64, or empty where only the count is needed. out is filled with the column's neutral values.
    """
    squares = np.zeros(4, np.int64)
    for i in range(len(first) - 1):
        for j in range(first[i], first[i + 1]):
            p = order[j]
            if not counted[p]:
                continue
            out[i, columns[COUNT]] += 1
            if columns[HIGH] >= 0:
                out[i, columns[HIGH]] += values[p] >> 32
                out[i, columns[LOW]] += values[p] & _LOW_WORD
            if columns[SQUARES] >= 0:
                squares[:] = 0
                square(values[p], 1, squares)
                for w in range(4):
                    out[i, columns[SQUARES + w]] += squares[w]
            if columns[EXTREME] >= 0:
                x = ordered(values[p]) if is_double else values[p]
                at = columns[EXTREME]
                out[i, at] = max(out[i, at], x) if how[at] == GREATEST else min(out[i, at], x)


@kernel
def _put(wide, place, sums, g, values, i, how):
    """Give a step the values of row i, after those of the earlier steps."""
    for c in range(values.shape[1]):
        if how[c] == ADDED:
            wide[place, c] = sums[g, c]
            sums[g, c] += values[i, c]
        else:
            wide[place, c] = values[i, c]


@kernel
def _spread_back(wide, start, first_new, end, how):
    """Bring extremes of the steps from `first_new` on to those before them, as far as they change."""
    for c in range(wide.shape[1]):
        if how[c] == ADDED:
            continue
        for p in range(end - 2, start - 1, -1):
            x = wide[p + 1, c]
            better = x > wide[p, c] if how[c] == GREATEST else x < wide[p, c]
            if better:
                wide[p, c] = x
            elif p < first_new:
                break


@kernel
def append(groups, steps, values, how, since, sums, spans, rows, arena_times, marks, narrow, wide, used, limit, holes):
    """Add rows of values, in the order of (group, step), to their groups' segments, behind the steps there.

    A row of the last step there adds to it. how: of each column. Returns (used, touched, first) as segments.insert:
    used -1 where the arena's use would be above `limit`, and nothing is added then. A full segment evicts steps before
    `since` (µs).
    """
    # which rows are of which group
    n = len(groups)
    touched = np.empty(n, np.int64)
    first = np.zeros(n + 1, np.int64)
    count = 0
    for i in range(n):
        if i == 0 or groups[i] != groups[i - 1]:
            touched[count] = groups[i]
            count += 1
        first[count] = i + 1
    # room for them
    for t in range(count):
        g, more = touched[t], first[t + 1] - first[t]
        if np.int64(spans[g, END]) - np.int64(spans[g, START]) + more > spans[g, ROOM]:
            used = widen(g, more, since, spans, rows, arena_times, marks, narrow, wide, used, limit, holes)
            if used < 0:
                return used, touched[:count], first[: count + 1]
    # the rows, of which the first may add to a step
    for t in range(count):
        g = touched[t]
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        if start == end:
            sums[g] = 0
        first_new = end
        for i in range(first[t], first[t + 1]):
            if end > start and arena_times[end - 1] == steps[i]:
                first_new = min(first_new, end - 1)
                for c in range(values.shape[1]):
                    if how[c] == ADDED:
                        sums[g, c] += values[i, c]
                    elif how[c] == GREATEST:
                        wide[end - 1, c] = max(wide[end - 1, c], values[i, c])
                    else:
                        wide[end - 1, c] = min(wide[end - 1, c], values[i, c])
                continue
            arena_times[end] = steps[i]
            _put(wide, end, sums, g, values, i, how)
            end += 1
        spans[g, END] = end
        _spread_back(wide, start, first_new, end, how)
    return used, touched[:count], first[: count + 1]


@kernel
def carry(sums, groups, columns):
    """Bring the lower words of the sums of some groups into 32 bits. columns: of one fold."""
    for g in groups:
        if columns[HIGH] >= 0:
            sums[g, columns[HIGH]] += sums[g, columns[LOW]] >> 32
            sums[g, columns[LOW]] &= _LOW_WORD
        if columns[SQUARES] >= 0:
            for w in range(3):
                a, b = columns[SQUARES + w], columns[SQUARES + w + 1]
                sums[g, b] += sums[g, a] >> 32
                sums[g, a] &= _LOW_WORD


@kernel
def before(run_first, groups, times, at, over, resolution, since, spans, step_times, wide, sums, columns, out):
    """out[k]: the columns of one fold, over the steps that the windows of the rows at at[k] hold.

    groups: of each run. since: µs, steps before it do not count. out: zeros, int64 (rows, COLUMNS); words of sums may
    be below 0, and are carried by who reads them.
    """
    for r in range(len(run_first) - 1):
        g = groups[r]
        if g >= len(spans):
            continue
        a, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        for k in range(run_first[r], run_first[r + 1]):
            bound = max(opening(times[at[k]], over, resolution), since)
            b = end
            while a < b:
                middle = (a + b) >> 1
                if step_times[middle] < bound:
                    a = middle + 1
                else:
                    b = middle
            if a == end:
                break  # the windows of later rows begin no earlier
            for i in range(EXTREME):
                c = columns[i]
                if c >= 0:
                    out[k, i] = sums[g, c] - wide[a, c]
            if columns[EXTREME] >= 0:
                out[k, EXTREME] = wide[a, columns[EXTREME]]


@kernel
def with_extremes(before, is_double, largest, out, found):
    """Put the extremes of steps (`before`) to those of rows: out[k] where found[k]; doubles as their bits."""
    for k in range(len(before)):
        if before[k, COUNT] == 0:
            continue
        x = before[k, EXTREME]
        if found[k]:
            own = ordered(out[k]) if is_double else out[k]
            x = max(x, own) if largest else min(x, own)
        out[k] = ordered(x) if is_double else x
        found[k] = 1


@kernel
def values_of(spans, sums, step_times, wide, how, groups, steps, values):
    """Every step as a row: of counts and sums its own, of extremes that of it and all after it."""
    n = 0
    for g in range(len(spans)):
        end = np.int64(spans[g, END])
        for p in range(np.int64(spans[g, START]), end):
            groups[n] = g
            steps[n] = step_times[p]
            for c in range(wide.shape[1]):
                if how[c] == ADDED:
                    values[n, c] = (wide[p + 1, c] if p + 1 < end else sums[g, c]) - wide[p, c]
                else:
                    values[n, c] = wide[p, c]
            n += 1
