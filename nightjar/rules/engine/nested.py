"""Purpose: which events count for measures whose `where` looks at other measures, at the events themselves (S18.3).

How it works: whether such a condition holds at an event follows from the events up to it, as that event saw them,
whoever asks later. So it is a mark of the event's row like any other. It is set for rows that arrive, and again for
those behind them in whose inner windows they may be, before anything is evaluated that looks at it.

Known limitation: windows of inner measures are filled again for each group of a batch, however long they are.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine import measures
from nightjar.rules.engine.computed import Measured
from nightjar.rules.engine.plan import NestedConditions
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.predicates import truths


def mark(timeline: Timeline, masks: Masks, nested: NestedConditions, base: int, horizon: int) -> None:
    """Mark the rows of a timeline after those from `base` on have been inserted. horizon: µs, see Runs."""
    texts = frozenset(nested.texts)
    # all where rules, or the timeline, are new
    known = texts <= timeline.marked
    runs = timeline.behind_inserted(nested.reach, horizon) if known else timeline.everything(horizon)
    timeline.marked = texts
    if runs.rows:
        _mark(timeline, masks, nested, base, runs)


def _mark(timeline: Timeline, masks: Masks, nested: NestedConditions, base: int, runs: Runs) -> None:
    rows = timeline.rows[runs.at].astype(np.int64)
    answers = measures.answer(timeline, masks, runs, nested.aggregates)
    measured = Measured(timeline.store, nested, answers, rows)
    changed = set[int]()
    for each, holds in zip(nested.conditions, truths(nested.whens, measured.columns, len(rows)), strict=True):
        counts = holds.copy()
        for aggregate, _ in each.measures.values():
            counts[measured[nested.places[aggregate]].overflow] = 0
        changed |= masks.revise(each.text, rows, counts)
    if changed:
        timeline.take_marks(changed, runs.at, base)
