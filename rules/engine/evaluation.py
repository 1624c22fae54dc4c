"""Rules at rows: which version each row sees, the measures, and whether the condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rules.engine import measures
from rules.engine.frames import number_array, physical_array, truths
from rules.engine.masks import Masks
from rules.engine.measures import Values
from rules.engine.plan import Aggregate, CompiledRule, GroupPlan
from rules.engine.strings import Int64Array
from rules.engine.timeline import Runs, Timeline
from rules.types import Kind


@dataclass(frozen=True)
class Overflow:
    """A measure whose exact value at an evaluated row leaves the range of its type."""

    measure: str
    at: int


@dataclass(frozen=True)
class Evaluated:
    """One version of a rule at the rows that see it.

    rows: all evaluated store rows of the group-by; seen: places in them where this version applies and its `where`
    holds; violated: the subset of `seen` where the condition holds; values: each measure at all rows.
    """

    compiled: CompiledRule
    rows: Int64Array
    seen: Int64Array
    violated: Int64Array
    values: dict[str, Values]
    overflows: list[Overflow]


def evaluate(timeline: Timeline, masks: Masks, plan: GroupPlan, runs: Runs) -> Iterator[Evaluated]:
    """Every version that applies to some row of the runs, evaluated where it applies."""
    rows = timeline.rows[runs.at]
    applicable = _applicable(plan, timeline.store.times[rows])
    wanted = [plan.compiled[key] for key in applicable if key in plan.compiled]
    if not wanted:
        return
    values = measures.evaluate(timeline, masks, runs, (a for c in wanted for a in c.measures.values()))
    for compiled, holds in zip(wanted, _conditions(timeline, wanted, values, rows), strict=True):
        seen = masks[compiled.seen][rows]
        where = applicable[compiled.version.rule.id, compiled.version.version]
        if where is not None:
            seen = seen & where
        of_rule = {name: values[aggregate] for name, aggregate in compiled.measures.items()}
        overflows = [
            Overflow(name, int(at)) for name, found in of_rule.items() for at in found.overflow if seen[at]
        ]
        if overflows:
            holds = holds.copy()
            holds[[o.at for o in overflows]] = 0
        yield Evaluated(
            compiled, rows, np.flatnonzero(seen), np.flatnonzero(holds & seen), of_rule, overflows
        )


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
    timeline: Timeline, wanted: list[CompiledRule], values: dict[Aggregate, Values], rows: Int64Array
) -> list[np.ndarray]:
    """Each rule's `when` at every row, uint8."""
    columns: dict[str, pa.Array] = {}
    for compiled in wanted:
        for name, column in compiled.columns.items():
            if column in compiled.when.columns and column not in columns:
                columns[column] = _measured(timeline, compiled, name, values[compiled.measures[name]])
        for field in compiled.when.columns - set(compiled.columns.values()):
            if field not in columns:
                columns[field] = physical_array(timeline.store, field, rows)
    return truths(columns, [compiled.when.expr for compiled in wanted], len(rows))


def _measured(timeline: Timeline, compiled: CompiledRule, name: str, found: Values) -> pa.Array:
    kind, aggregate = compiled.types[name].kind, compiled.measures[name]
    if kind is Kind.STRING:
        assert aggregate.field is not None
        return timeline.store.tables[aggregate.field].strings(np.where(found.valid != 0, found.values, -1))
    if kind is Kind.BOOLEAN:
        return pa.array(found.values.astype(np.bool_), mask=found.valid == 0)
    return number_array(found.values, found.valid)
