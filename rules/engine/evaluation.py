"""Rules at rows: which version each row sees, the measures, and whether the condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules.engine import measures
from rules.engine.frames import LazyColumns, number_array, physical_array, physical_numbers
from rules.engine.masks import Masks
from rules.engine.measures import Values
from rules.engine.plan import Aggregate, CompiledRule, GroupPlan
from rules.engine.store import Mask
from rules.engine.strings import Int64Array
from rules.engine.timeline import Runs, Timeline
from rules.predicates import Numbers, truths
from rules.types import Kind


@dataclass(frozen=True)
class Overflow:
    """A measure whose exact value at an evaluated row leaves the range of its type."""

    measure: str
    at: int


@dataclass(frozen=True)
class Evaluated:
    """One version of a rule at the rows that see it.

    rows: all evaluated store rows of the group-by; sees: uint8 a row, whether this version applies and its `where`
    holds there; violated: the places in rows where the condition holds too; values: each measure at all rows.
    """

    compiled: CompiledRule
    rows: Int64Array
    sees: Mask
    violated: Int64Array
    values: dict[str, Values]
    overflows: list[Overflow]

    @property
    def seen(self) -> Int64Array:
        """The places in rows that the version sees."""
        return np.flatnonzero(self.sees)


def evaluate(timeline: Timeline, masks: Masks, plan: GroupPlan, runs: Runs) -> Iterator[Evaluated]:
    """Every version that applies to some row of the runs, evaluated where it applies."""
    rows = timeline.rows[runs.at]
    applicable = _applicable(plan, timeline.store.times[rows])
    wanted = [plan.compiled[key] for key in applicable if key in plan.compiled]
    if not wanted:
        return
    values = measures.evaluate(timeline, masks, runs, (a for c in wanted for a in c.measures.values()))
    conditions = _conditions(timeline, plan, wanted, values, rows)
    sees = {key: masks.at(key, rows) for key in {compiled.seen for compiled in wanted}}
    for compiled, condition in zip(wanted, conditions, strict=True):
        seen = sees[compiled.seen]
        where = applicable[compiled.version.rule.id, compiled.version.version]
        if where is not None:
            seen = seen & where
        of_rule = {name: values[aggregate] for name, aggregate in compiled.measures.items()}
        overflows = [Overflow(name, int(at)) for name, found in of_rule.items() for at in found.overflow if seen[at]]
        violated = condition & seen
        if overflows:
            violated[[overflow.at for overflow in overflows]] = 0
        yield Evaluated(compiled, rows, seen, violated.nonzero()[0], of_rule, overflows)


def _applicable(plan: GroupPlan, times: Int64Array) -> dict[tuple[str, int], np.ndarray | None]:
    """For each version that some row sees: uint8 a row, or None where all rows see it (law 5)."""
    found: dict[tuple[str, int], np.ndarray | None] = {}
    first, last = int(times.min()), int(times.max())
    for rule_id, versions in plan.versions.items():
        newest = versions[-1]
        if newest.effective <= first:
            found[rule_id, newest.version] = None
            continue
        chosen = np.full(len(times), -1, np.int64)
        for place, version in enumerate(versions):
            if version.effective <= last:
                chosen[times >= version.effective] = place
        for place, version in enumerate(versions):
            where = chosen == place
            if where.any():
                found[rule_id, version.version] = where.view(np.uint8)
    return found


def _conditions(
    timeline: Timeline, plan: GroupPlan, wanted: list[CompiledRule], values: dict[Aggregate, Values], rows: Int64Array
) -> list[Mask]:
    """Each rule's `when` at every row."""

    def column(name: str) -> pa.Array:
        if name not in plan.measured:
            return physical_array(timeline.store, name, rows)
        aggregate, kind = plan.measured[name]
        found = values[aggregate]
        if kind.kind is Kind.STRING:
            assert aggregate.field is not None
            return timeline.store.strings(aggregate.field, found.codes)
        if kind.kind is Kind.BOOLEAN:
            return pa.array(found.values.astype(np.bool_), mask=None if found.valid is None else found.valid == 0)
        return number_array(found.values, found.valid)

    def numbers(name: str) -> Numbers:
        if name not in plan.measured:
            return physical_numbers(timeline.store, name, rows)
        found = values[plan.measured[name][0]]
        return found.values, None if found.valid is None else found.valid.view(np.bool_)

    return truths([compiled.when for compiled in wanted], LazyColumns(column, numbers), len(rows))
