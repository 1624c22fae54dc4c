"""The different values of a window in the order of their first appearance, for the few rows that have an alert."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel


@kernel
def listed(rows, at, low, end, excluding, late, order, marks, word, bit, values, column, wanted, most):
    """(found, kept, others) of the windows of the rows at at[wanted[i]] (see windows.changes).

    found: int64 (wanted, most), of which the first kept[i] are the values that appear first in window i; others[i]: how
    many other different values there are. A row counts where the bit of the word of its marks is set; values:
    int32 or int64. wanted[i] < 0 is an empty window.
    """
    found = np.zeros((len(wanted), most), np.int64)
    kept = np.zeros(len(wanted), np.int64)
    others = np.zeros(len(wanted), np.int64)
    rest = np.empty(64, np.int64)
    for i in range(len(wanted)):
        k = wanted[i]
        if k < 0:
            continue
        own = order[rows[at[k]]]
        n = 0
        m = 0
        for p in range(low[k], end[k] + (not excluding)):
            if not (marks[p, word] >> bit) & 1 or (late[rows[p]] and order[rows[p]] > own):
                continue
            value = np.int64(values[p, column])
            j = 0
            while j < n and found[i, j] != value:
                j += 1
            if j < n:
                continue
            if n < most:
                found[i, n] = value
                n += 1
                continue
            if m == len(rest):
                longer = np.empty(2 * m, np.int64)
                longer[:m] = rest
                rest = longer
            rest[m] = value
            m += 1
        in_order = np.sort(rest[:m])
        for j in range(m):
            others[i] += j == 0 or in_order[j] != in_order[j - 1]
        kept[i] = n
    return found, kept, others
