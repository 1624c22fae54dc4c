"""Entries of a ledger, each row's chained from the newest to the oldest."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel


@kernel
def link(rows, start, newest, previous):
    """Make entries start, start + 1, … the newest of these rows. newest: entry + 1 of each store row, 0 for none."""
    for i in range(len(rows)):
        previous[start + i] = newest[rows[i]] - 1
        newest[rows[i]] = start + i + 1


@kernel
def find(rows, subjects, newest, previous, subject_of):
    """The newest entry about each subject at each row, -1 for none."""
    found = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        entry = newest[rows[i]] - 1
        while entry >= 0 and subject_of[entry] != subjects[i]:
            entry = previous[entry]
        found[i] = entry
    return found
