"""Chains of rows that meet some conditions, one after the other (S20), each found in one pass over a run.

The latest row with which a chain of the first so many steps begins never moves back as rows are added, and any earlier
row that meets the first step begins one with the same rest. So a window that begins later needs no pass of its own.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel


@kernel(inline="always")
def _meets(marks, p, steps, step):
    return (marks[p, steps[step, 0]] >> steps[step, 1]) & 1


@kernel(inline="always")
def _seen(p, rows, late, order, newest):
    return not late[rows[p]] or order[rows[p]] <= newest


@kernel
def _follow(first, last, begin, newest, rows, at, low, late, order, marks, steps, latest, found):
    """found of the rows at at[first:last], of whose windows none begins before the place `begin`.

    newest: late rows count that arrived no later. latest: scratch, an int64 a step.
    """
    final = len(steps) - 1
    begun = 0  # rows that begin a chain, so far
    latest[:] = 0  # by steps, how many there were up to the one that begins the latest chain of so many
    before, counted = 0, begin  # how many of them are before the place `counted`
    k = first
    for p in range(begin, at[last - 1] + 1):
        if p == at[k]:
            if _meets(marks, p, steps, final):
                while counted < low[k]:
                    before += _seen(counted, rows, late, order, newest) and _meets(marks, counted, steps, 0)
                    counted += 1
                while counted > low[k]:
                    counted -= 1
                    before -= _seen(counted, rows, late, order, newest) and _meets(marks, counted, steps, 0)
                found[k] = max(latest[final - 1] - before, 0)
            k += 1
        if not _seen(p, rows, late, order, newest):
            continue
        for step in range(final - 1, 0, -1):  # the last first: a row serves one step of a chain
            if _meets(marks, p, steps, step):
                latest[step] = latest[step - 1]
        if _meets(marks, p, steps, 0):
            begun += 1
            latest[0] = begun


@kernel
def chains(run_first, rows, at, low, late, last_late, order, marks, steps, found):
    """found[k]: with how many of the rows from low[k] on a chain begins that ends with the row at at[k].

    Arrays are by place in the walk, but for late and order (by store row) and those of runs (see kernels.windows).
    steps: int64 (steps, 2), the word and bit of the rows that meet each; at least two. As a late row counts only for
    rows that arrived after it, each row of a run that has seen fewer than the others is followed to by itself.
    """
    found[:] = 0
    latest = np.empty(len(steps), np.int64)
    final = len(steps) - 1
    for r in range(len(run_first) - 1):
        # only rows that meet the last step end a chain
        first, last = run_first[r], run_first[r + 1]
        while first < last and not _meets(marks, at[first], steps, final):
            first += 1
        while last > first and not _meets(marks, at[last - 1], steps, final):
            last -= 1
        if first == last:
            continue
        begin = low[first]
        oldest = last_late
        for k in range(first, last):
            begin = min(begin, low[k])
            if last_late >= 0:
                oldest = min(oldest, order[rows[at[k]]])
        contended = False
        if last_late > oldest:
            for p in range(begin, at[last - 1]):
                contended = contended or (late[rows[p]] and order[rows[p]] > oldest)
        if not contended:
            _follow(first, last, begin, last_late, rows, at, low, late, order, marks, steps, latest, found)
            continue
        for k in range(first, last):
            if _meets(marks, at[k], steps, final):
                newest = np.int64(order[rows[at[k]]])
                _follow(k, k + 1, low[k], newest, rows, at, low, late, order, marks, steps, latest, found)
