"""Aggregates of windows that slide: stretches of the walk that never begin or end before the one of the row before.

So windows are in the runs that `windows.changes` leaves out. Instead of the changes from row to row, each kernel
reads the rows of a run once, in order, and has the answer at each row from what it holds of the places before: there is
hardly a branch that depends on the data. Like `windows._slid` none allocates; `held` is scratch for the widest run.

Each is handed `(run_first, slid, low, end, own)`: the runs `slid` of run_first; the window of row k holds the places
from low[k] to before end[k] + own, where own is 0 if it excludes the row itself, else 1. `marks`, `word`, `bit`,
`values` and `column` are as in `totals`.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import totals

_LOW = np.int64(0xFFFFFFFF)
# Slots of the table of values at first: enough for most runs.
SLOTS = 256


@kernel
def widest(run_first, slid, low, end, own):
    """How many places the longest of the runs reads."""
    most = 0
    for i in range(len(slid)):
        first, last = run_first[slid[i]], run_first[slid[i] + 1]
        most = max(most, end[last - 1] + own - low[first])
    return most


@kernel
def counts(run_first, slid, low, end, own, marks, word, bit, held, out):
    """As totals.counts. held: int64 (3, places + 1), of which one row has how many rows count before each place."""
    for i in range(len(slid)):
        first, last = run_first[slid[i]], run_first[slid[i] + 1]
        base = low[first]
        n = np.int64(0)
        for p in range(base, end[last - 1] + own):
            held[0, p - base] = n
            n += (marks[p, word] >> bit) & 1
        held[0, end[last - 1] + own - base] = n
        for k in range(first, last):
            out[k] = held[0, end[k] + own - base] - held[0, low[k] - base]


@kernel
def sums(
    run_first,
    slid,
    low,
    end,
    own,
    marks,
    word,
    bit,
    values,
    column,
    scale,
    before,
    held,
    exact,
    means,
    beyond,
    some,
):
    """As totals.sums. held: int64 (3, places + 1), the totals before each place."""
    overflown = 0
    for i in range(len(slid)):
        first, last = run_first[slid[i]], run_first[slid[i] + 1]
        base = low[first]
        stop = end[last - 1] + own
        n = np.int64(0)
        high = np.int64(0)
        lower = np.int64(0)
        for p in range(base, stop):
            held[0, p - base], held[1, p - base], held[2, p - base] = n, high, lower
            counted = (marks[p, word] >> bit) & 1
            n += counted
            high += counted * (np.int64(values[p, column]) >> 32)
            lower += counted * (np.int64(values[p, column]) & _LOW)
        held[0, stop - base], held[1, stop - base], held[2, stop - base] = n, high, lower
        for k in range(first, last):
            a, b = low[k] - base, end[k] + own - base
            all_n, all_high, all_low = held[0, b] - held[0, a], held[1, b] - held[1, a], held[2, b] - held[2, a]
            if len(before):
                all_n, all_high, all_low = all_n + before[k, 0], all_high + before[k, 1], all_low + before[k, 2]
            exact[k], means[k], beyond[k] = totals.read(all_n, all_high, all_low, scale)
            some[k] = all_n > 0
            overflown += beyond[k]
    return overflown


@kernel
def extremes(run_first, slid, low, end, own, marks, word, bit, values, column, largest, nothing, held, out, found):
    """As order.extremes. nothing: what no value is beyond, of the type of `out`; held: of that type, (places + 1).

    The window is read as two parts. Of the older one, up to `middle`, `held` has the extreme from each place on; of the
    newer one `newer` is the extreme. When the window has left the older one, all that it holds becomes the older one:
    so a place is read twice, however long windows are.
    """
    for i in range(len(slid)):
        first, last = run_first[slid[i]], run_first[slid[i] + 1]
        base = middle = b = low[first]
        newest = base - 1
        newer = nothing
        for k in range(first, last):
            a, stop = low[k], end[k] + own
            while b < stop:
                if (marks[b, word] >> bit) & 1:
                    newest = b
                    newer = max(newer, values[b, column]) if largest else min(newer, values[b, column])
                b += 1
            if a >= middle:
                middle = b
                newer = nothing
                best = nothing
                held[b - base] = nothing
                for p in range(b - 1, a - 1, -1):
                    if (marks[p, word] >> bit) & 1:
                        best = max(best, values[p, column]) if largest else min(best, values[p, column])
                    held[p - base] = best
            found[k] = newest >= a
            best = max(held[a - base], newer) if largest else min(held[a - base], newer)
            out[k] = best if newest >= a else 0


@kernel
def _links(run, base, stop, marks, word, bit, values, column, table, held):
    """For each place from `base` on where the same value was before and comes next, until all are linked or the table
    is full; returns the place that it has come to.

    held[0] and held[1], both from base on: the place before and the next; where there is none, base - 1 and stop. A
    row that does not count is as if it had its value on both sides.
    """
    p = base
    used = 0
    slots = np.uint64(len(table) - 1)
    while p < stop and 2 * used <= len(table):
        if not (marks[p, word] >> bit) & 1:
            held[0, p - base] = stop
            held[1, p - base + 1] = base - 1
            p += 1
            continue
        key = np.int64(values[p, column])
        h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        at = (h ^ (h >> np.uint64(32))) & slots
        while (table[at, 0] == run) & (table[at, 1] != key):  # one branch, which is seldom taken
            at = (at + np.uint64(1)) & slots
        is_new = table[at, 0] != run
        earlier = base - 1 if is_new else table[at, 2]
        table[at, 0] = run
        table[at, 1] = key
        table[at, 2] = p
        used += 1 if is_new else 0
        held[0, p - base] = earlier
        held[1, earlier - base + 1] = p  # of the first of each value to where nothing reads
        held[1, p - base + 1] = stop
        p += 1
    return p


@kernel
def _distincts(first, last, low, end, own, held, out):
    base = a = b = low[first]
    n = np.int64(0)
    for k in range(first, last):
        stop = end[k] + own
        while b < stop:
            n += held[0, b - base] < a
            b += 1
        while a < low[k]:
            n -= held[1, a - base + 1] >= b
            a += 1
        out[k] = n


@kernel
def distincts(run_first, slid, low, end, own, marks, word, bit, values, column, held, out):
    """As order.distincts. held: int64 (3, places + 1)."""
    empty = np.full((SLOTS, 3), -1, np.int64)  # the run that has taken the slot, the value, and its latest place
    for i in range(len(slid)):
        first, last = run_first[slid[i]], run_first[slid[i] + 1]
        base, stop = low[first], end[last - 1] + own
        table = empty
        p = _links(slid[i], base, stop, marks, word, bit, values, column, table, held)
        while p < stop:
            table = np.full((4 * len(table), 3), -1, np.int64)
            p = _links(slid[i], base, stop, marks, word, bit, values, column, table, held)
        _distincts(first, last, low, end, own, held, out)
