"""Purpose: which events are violations of the rules whose alerts other rules look at (S23).

How it works: whether an event is a violation follows from the events up to it, as it saw them. So it is a mark of the
event's row, like those of nested conditions: set for the rows to evaluate before anything counts it, and, where an
event came late that had arrived before what was held, for all rows behind it, settled ones too.

Known limitation: rules that are looked at are evaluated twice, for their marks and for their own alerts.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine import evaluation, nested
from nightjar.rules.engine.plan import GroupPlan
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.timeline import Runs, Timeline


def mark(timeline: Timeline, masks: Masks, plan: GroupPlan, runs: Runs, base: int, horizon: int) -> None:
    """Mark the rows of a timeline by what is no matter of fields: nested conditions and violations.

    To be called after the rows from `base` on have been inserted, and before anything is evaluated. runs: what is to be
    evaluated then; horizon: µs, see Runs.
    """
    if plan.nested is None:
        timeline.marked = frozenset()  # the rows that come meanwhile are not marked
    else:
        nested.mark(timeline, masks, plan.nested, base, horizon)
    if plan.looked_at is None:
        timeline.violations = frozenset()
        return
    versions = (version for of_rule in plan.looked_at.versions.values() for version in of_rule)
    # one that was evaluated as another version of a rule was looked at may have had no mark of its own
    wanted = frozenset((*version.key, version.effective, plan.violations.get(version.key)) for version in versions)
    if not wanted <= timeline.violations:
        every = timeline.everything(horizon, late=False)
        runs = every if every.rows > runs.rows else runs
    elif timeline.is_displaced(base):
        runs = timeline.behind_inserted(plan.looked_at.reach, horizon, late=False)
    timeline.violations = wanted
    if runs.rows:
        _mark(timeline, masks, plan, plan.looked_at, runs, base)


def _mark(timeline: Timeline, masks: Masks, plan: GroupPlan, looked_at: GroupPlan, runs: Runs, base: int) -> None:
    rows = timeline.rows[runs.at].astype(np.int64)
    held = {text: np.zeros(len(rows), np.uint8) for text in plan.violations.values()}
    for program in evaluation.evaluate(timeline, masks, looked_at, runs):
        for result in program.violated:
            if (text := plan.violations.get(result.compiled.version.key)) is not None:
                held[text][result.violated] = 1
    changed = set[int]().union(*(masks.revise(text, rows, violated) for text, violated in held.items()))
    if changed:
        timeline.take_marks(changed, runs.at, base)
