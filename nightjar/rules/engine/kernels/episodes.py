"""Where the episodes of rows begin (S12), found by following them from one to the next.

Whatever came before, an episode opens at a *fresh* row: one that may open it, with no other such row within an
episode's length before it that no closing row separates from it. So nothing before a fresh row matters.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.windows import earliest

_LONG_AGO = -(1 << 62)


@kernel
def _follow(
    first, last, p, newest, rows, times, at, over, reach, marks, word, bit, until_word, until_bit, late, order, low
):
    """low of the rows at at[first:last], for which late rows count that arrived no later than `newest`.

    reach: µs, how long before a row those may lie that it depends on: the latest fresh row one length less, as that it
    is fresh takes one more. p: the first place of their run that one of them depends on.
    """
    begin = np.int64(-1)  # of the open episode, or the last
    latest = fresh = _LONG_AGO  # times of the latest row that may open an episode, and of the latest fresh one
    bound = after = p
    k = first
    while k < last:
        time = times[p]
        seen = not late[rows[p]] or order[rows[p]] <= newest
        if seen and (marks[p, word] >> bit) & 1:
            if time - latest > over:
                fresh = time
            if begin < 0 or time - times[begin] > over:
                begin = p
            latest = time
        if p == at[k]:
            if fresh < time + over - reach:
                while times[bound] < time - over:
                    bound += 1
                low[k] = max(bound, after)
            else:
                low[k] = begin if begin >= 0 and time - times[begin] <= over else p
            k += 1
        if seen and until_bit >= 0 and (marks[p, until_word] >> until_bit) & 1:
            begin = np.int64(-1)
            latest = _LONG_AGO
            after = p + 1
        p += 1


@kernel
def begins(
    run_first,
    run_start,
    rows,
    times,
    at,
    over,
    reach,
    horizon,
    marks,
    word,
    bit,
    until_word,
    until_bit,
    late,
    last_late,
    order,
):
    """low[k]: the place where the episode of the row at at[k] begins, or at[k] where the row is in none.

    Arrays are by place in the arena, but for late and order (by store row) and those of runs (see kernels.windows).
    over, reach: µs, see _follow; word, bit: the mark of the rows that may open an episode; until_word, until_bit: of
    those that close it, -1 for none. Rows before `horizon` (µs) are in no episode. As a late row counts only for rows
    that arrived after it, each row of a run that has seen fewer than the others is followed to by itself.
    """
    low = np.empty(len(at), np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        p = earliest(times, run_start[r], at[first], max(times[at[first]] - reach, horizon))
        oldest = last_late
        for k in range(first, last):
            oldest = min(oldest, order[rows[at[k]]])
        contended = False
        if last_late > oldest:
            for q in range(p, at[last - 1]):
                contended = contended or (late[rows[q]] and order[rows[q]] > oldest)
        step = 1 if contended else last - first
        for k in range(first, last, step):
            begin = earliest(times, p, at[k], max(times[at[k]] - reach, horizon))
            newest = np.int64(order[rows[at[k]]] if contended else last_late)
            _follow(
                k,
                k + step,
                begin,
                newest,
                rows,
                times,
                at,
                over,
                reach,
                marks,
                word,
                bit,
                until_word,
                until_bit,
                late,
                order,
                low,
            )
    return low
