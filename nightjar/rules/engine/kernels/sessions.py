"""Where the sessions of rows begin (S21): behind the last pause between rows of the group, whatever their marks."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel


@kernel
def begins(run_first, rows, times, at, low, gap, late, last_late, order):
    """found[k]: the place where the session of the row at at[k] begins, but not before low[k].

    A session has no pause longer than `gap` (µs) between two rows. low: places, ascending within a run; nothing before
    them matters. Arrays are by place in the arena, but for late and order (by store row) and those of runs (see
    kernels.windows). As a late row counts only for rows that arrived after it, the session of each row is followed by
    itself in a run where one has seen fewer than another.
    """
    found = np.empty(len(at), np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        oldest = last_late
        if last_late >= 0:
            for k in range(first, last):
                oldest = min(oldest, order[rows[at[k]]])
        contended = False
        if last_late > oldest:
            for p in range(low[first], at[last - 1]):
                contended = contended or (late[rows[p]] and order[rows[p]] > oldest)
        begin = at[first]
        for k in range(first, last):
            if contended or k == first:
                newest = order[rows[at[k]]]
                begin = at[k]
                p = at[k] - 1
                while p >= low[k]:
                    if not contended or not late[rows[p]] or order[rows[p]] <= newest:
                        if times[begin] - times[p] > gap:
                            break
                        begin = p
                    p -= 1
            else:
                for p in range(at[k - 1] + 1, at[k] + 1):
                    if times[p] - times[p - 1] > gap:
                        begin = p
            found[k] = max(begin, low[k])
    return found
