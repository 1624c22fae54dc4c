"""Purpose: where the measures of a rule with `reset_after_alert` begin at each row: behind the latest violation (S13).

How it works: whether a row is a violation depends on the violations before it. So every group is walked through from
where older ones no longer count: its next rows are evaluated with what is known, up to the first violation among them,
and then again those behind it. All groups go on at once, and a stretch is about as long as the last was good for.

Known limitation: a batch costs some calls of the kernels for each violation that a group's rows still depend on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels import resets
from nightjar.rules.engine.plan import CompiledRule
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.measures import RESET_CELL
from nightjar.rules.retention import window

# Rows of a group that are first evaluated at once.
_STRETCH = 32


def after_violations(
    timeline: Timeline,
    masks: Masks,
    compiled: CompiledRule,
    runs: Runs,
    violated: Callable[[Runs, Int64Array], Mask],
) -> Int64Array:
    """Of each row of the runs the place in the arena from which others count for the version.

    violated: where the version is violated (uint8) at the rows of some runs, given the same of them.
    """
    word, bit = masks[compiled.seen]
    width = window(compiled.rule)
    first, start, places, since = resets.walks(
        runs.first,
        runs.start,
        timeline.rows,
        timeline.times,
        runs.at,
        width,
        RESET_CELL * width,
        runs.horizon,
        timeline.marks.all,
        timeline.marks[word],
        bit,
        timeline.store.late,
    )
    ahead = first[:-1].copy()
    size, last = np.full(len(ahead), _STRETCH), np.full(len(ahead), -1)
    found = np.zeros(len(places), np.int64)
    while True:
        walks, begin, rows, after = resets.stretches(first, ahead, size, timeline.times, since, last)
        if not len(rows):
            break
        stretches = Runs(begin, start[walks], places[rows], runs.horizon, runs.folded)
        resets.take(walks, begin, rows, after, violated(stretches, after), places, ahead, size, last, found)
    after_rows: Int64Array = resets.at_rows(runs.first, runs.at, first, places, found)
    return after_rows
