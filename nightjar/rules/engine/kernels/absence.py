"""Which rows to look at again where rules wait for what follows (S19), and what has followed them.

Rows are places of an arena in which every group's rows are side by side, in order of time (see kernels.segments).
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.segments import END, START
from nightjar.rules.engine.kernels.windows import earliest


@kernel
def before(touched, first, places, spans, rows, times, late, within):
    """The places of rows at most `within` (µs) before a new row on time, in its group; and of those of its time.

    touched, first, places: the new rows, as segments.insert returns them.
    """
    found = np.empty(16, np.int64)
    n = 0
    for t in range(len(touched)):
        start, end = np.int64(spans[touched[t], START]), np.int64(spans[touched[t], END])
        stop = start
        for i in range(first[t], first[t + 1]):
            p = places[i]
            if late[rows[p]]:
                continue
            a = earliest(times, stop, p, times[p] - within)
            stop = max(stop, earliest(times, p, end, times[p] + 1))
            if n + stop - a > len(found):
                bigger = np.empty(2 * (n + stop - a), np.int64)
                bigger[:n] = found[:n]
                found = bigger
            for q in range(a, stop):
                found[n] = q
                n += 1
    return found[:n]


@kernel
def between(groups, spans, times, since, until):
    """The places of the groups' rows from `since` to before `until` (µs)."""
    total = 0
    for g in groups:
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        total += earliest(times, start, end, until) - earliest(times, start, end, since)
    found = np.empty(total, np.int64)
    n = 0
    for g in groups:
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        for p in range(earliest(times, start, end, since), earliest(times, start, end, until)):
            found[n] = p
            n += 1
    return found


@kernel
def runs(at, codes, spans):
    """Runs of places in ascending order, as segments.affected returns them. codes: the group of each."""
    run_first = np.empty(len(at) + 1, np.int64)
    run_start = np.empty(len(at), np.int64)
    r = 0
    for k in range(len(at)):
        if k == 0 or codes[k] != codes[k - 1]:
            run_first[r] = k
            run_start[r] = spans[codes[k], START]
            r += 1
    run_first[r] = len(at)
    return run_first[: r + 1], run_start[:r]


@kernel
def followed(run_first, at, codes, spans, rows, times, late, marks, word, bit, within):
    """Of each row whether another one on time with this mark has its time, or is at most `within` (µs) after it."""
    found = np.zeros(len(at), np.uint8)
    for r in range(len(run_first) - 1):
        a, b = run_first[r], run_first[r + 1]
        start, end = np.int64(spans[codes[a], START]), np.int64(spans[codes[a], END])
        low = earliest(times, start, at[a] + 1, times[at[a]])
        high = earliest(times, at[b - 1], end, times[at[b - 1]] + within + 1)
        # of each place how many rows before it have the mark
        count = np.empty(high - low + 1, np.int32)
        count[0] = 0
        for p in range(low, high):
            meets = (marks[p, word] >> bit) & 1 and not late[rows[p]]
            count[p - low + 1] = count[p - low] + (1 if meets else 0)
        first, last = low, low
        for k in range(a, b):
            p = at[k]
            while times[first] < times[p]:
                first += 1
            while last < high and times[last] <= times[p] + within:
                last += 1
            own = count[p - low + 1] - count[p - low]
            found[k] = count[last - low] - count[first - low] > own
    return found
