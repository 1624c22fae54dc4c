"""How far back violations count that a rule's measures start again after (S13): what to walk through, row by row."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.windows import earliest

_LONG_AGO = -(1 << 62)


@kernel
def walks(run_first, run_start, rows, times, at, width, cell, horizon, marks, word, bit, late):
    """(first, start, places, since): for each run the rows on which the measures at its rows to evaluate depend.

    Walk w consists of the arena places places[first[w]:first[w + 1]], in order, of the segment that starts at start[w]:
    of on-time rows that the rule evaluates (a bit of their marks) up to the last to evaluate. since: event time (µs) a
    row, before which violations no longer count there. width: µs, the widest window; cell: µs, how
    far apart violations are forgotten. Rows before `horizon` (µs) are not looked at.
    """
    runs = len(run_first) - 1
    total = 0
    begins = np.empty(runs, np.int64)
    for r in range(runs):
        oldest = times[at[run_first[r]]] // cell * cell - cell
        begins[r] = earliest(times, run_start[r], at[run_first[r]], max(oldest - width, horizon))
        total += at[run_first[r + 1] - 1] + 1 - begins[r]
    first = np.zeros(runs + 1, np.int64)
    places = np.empty(total, np.int64)
    since = np.empty(total, np.int64)
    n = 0
    for r in range(runs):
        latest = fresh = _LONG_AGO
        begin = n
        for p in range(begins[r], at[run_first[r + 1] - 1] + 1):
            if late[rows[p]] or not (marks[p, word] >> bit) & 1:
                continue
            time = times[p]
            if time - latest > width:
                fresh = time
            latest = time
            bound = time // cell * cell
            if fresh >= bound - cell:
                bound = fresh
            if p <= at[run_first[r]]:  # violations before this no longer count for any row to evaluate
                while begin < n and times[places[begin]] < bound:
                    begin += 1
            places[n] = p
            since[n] = bound
            n += 1
        kept = n - begin
        for i in range(kept):
            places[first[r] + i] = places[begin + i]
            since[first[r] + i] = since[begin + i]
        n = first[r] + kept
        first[r + 1] = n
    return first, run_start.copy(), places[:n].copy(), since[:n].copy()


@kernel
def stretches(first, ahead, size, times, since, last):
    """(walks, first, rows, after): the next rows of every walk that has some, at most size[w] from ahead[w] on.

    after: of each row the place from which rows count, behind the last violation last[w] (-1: none) if that counts.
    """
    walks = np.empty(len(ahead), np.int64)
    count = 0
    total = 0
    for w in range(len(ahead)):
        if ahead[w] < first[w + 1]:
            walks[count] = w
            count += 1
            total += min(size[w], first[w + 1] - ahead[w])
    begin = np.zeros(count + 1, np.int64)
    rows = np.empty(total, np.int64)
    after = np.zeros(total, np.int64)
    n = 0
    for i in range(count):
        w = walks[i]
        for k in range(ahead[w], min(ahead[w] + size[w], first[w + 1])):
            rows[n] = k
            if last[w] >= 0 and times[last[w]] >= since[k]:
                after[n] = last[w] + 1
            n += 1
        begin[i + 1] = n
    return walks[:count].copy(), begin, rows, after


@kernel
def take(walks, begin, rows, after, violated, places, ahead, size, last, found):
    """Take over what holds of some `stretches`: up to the first violation of each, after which others count.

    violated: uint8 a row. found: of every row of the walks what `after` is there; ahead, size, last: see stretches.
    """
    for i in range(len(walks)):
        w = walks[i]
        for n in range(begin[i], begin[i + 1]):
            found[rows[n]] = after[n]
            ahead[w] = rows[n] + 1
            if violated[n]:
                last[w] = places[rows[n]]
                size[w] = max(8, n + 1 - begin[i])
                break
        else:
            size[w] *= 2


@kernel
def at_rows(run_first, at, first, places, found):
    """`found` at the rows to evaluate at[run_first[r]:run_first[r + 1]] of walk r; 0 at those that it leaves out."""
    after = np.zeros(len(at), np.int64)
    for r in range(len(run_first) - 1):
        i = first[r]
        for k in range(run_first[r], run_first[r + 1]):
            while i < first[r + 1] and places[i] < at[k]:
                i += 1
            if i < first[r + 1] and places[i] == at[k]:
                after[k] = found[i]
    return after
