"""Folded rows as tables: for durable state, and for an engine that is restored from it.

A table is of one group-by and resolution. Its columns: `0`, `1`, … are the values of the group-by's fields, `step` is
the begin of the step (µs), and the others are int64 columns of folds (see kernels.steps), each named after its fold,
the event time (µs) from which that has counted without a gap, and its place there. A row of one pass may continue a
step of an earlier one: what they hold adds up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine.kernels import steps

if TYPE_CHECKING:
    from nightjar.rules.engine.plan import Fold

STEP = "step"
# The values of a column of a step where nothing has counted, by how its values are put together.
NEUTRAL = {steps.ADDED: 0, steps.LEAST: int(steps.LARGEST), steps.GREATEST: int(steps.SMALLEST)}
_AGGREGATES = {steps.ADDED: "sum", steps.LEAST: "min", steps.GREATEST: "max"}

# Tables by group-by and resolution (`key_of`).
Folds = Mapping[str, pa.Table]


@dataclass
class Held:
    """Which steps of a fold count, as event times in µs: of the events from `born` on, those from `since` on.

    reach: µs, the widest window over it.
    """

    born: int
    since: int
    reach: int = 0

    @property
    def complete(self) -> int:
        """Event time (µs) from which on all events count."""
        return max(self.born, self.since)


AT_ANY_TIME = Held(0, 0)


def key_of(group_by: Iterable[str], resolution: int) -> str:
    """The name of a group-by and a resolution (µs)."""
    return json.dumps([resolution, *group_by])


def column_of(fold: Fold, held: Held, place: int) -> str:
    """The name of a fold's column."""
    return f"{fold.name}.{held.born}.{place}.{fold.how(place)}"


def past_columns(folds: Mapping[Fold, Held]) -> dict[str, str]:
    """Of a table of the past (see rules.engine.past), its columns' names there and here."""
    return {
        column_of(fold, AT_ANY_TIME, at): column_of(fold, held, at)
        for fold, held in folds.items()
        for at in fold.columns
    }


def renamed(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The groups and steps of a table, with these of its columns, and their new names."""
    found = [name for name in table.column_names if name in names]
    return table.select([*groups_of(table), STEP, *found]).rename_columns(
        [*groups_of(table), STEP, *(names[name] for name in found)]
    )


def how_of(column: str) -> int:
    """How the values of a column are put together."""
    return int(column.rpartition(".")[2])


def groups_of(table: pa.Table) -> list[str]:
    """The columns of a table that hold its groups."""
    return [name for name in table.column_names if name.isdecimal()]


def merged(tables: Iterable[pa.Table], since: int) -> pa.Table:
    """Tables of one group-by and resolution as one, with one row per group and step, of the steps from `since` (µs) on.

    What a table does not have of a column is neutral.
    """
    table = pa.concat_tables(tables, promote_options="default")
    table = table.filter(pc.greater_equal(table.column(STEP), since))
    keys = [*groups_of(table), STEP]
    columns = [name for name in table.column_names if name not in keys]
    found = table.group_by(keys, use_threads=False).aggregate([(c, _AGGREGATES[how_of(c)]) for c in columns])
    found = found.rename_columns([*keys, *columns] if found.column_names[0] in keys else [*columns, *keys])
    neutral = {c: pa.scalar(NEUTRAL[how_of(c)], pa.int64()) for c in columns}
    return pa.table(
        {
            name: pc.fill_null(found.column(name), neutral[name]) if name in neutral else found.column(name)
            for name in [*keys, *columns]
        }
    )


def concatenated(all_of: Iterable[Folds], since: int) -> dict[str, pa.Table]:
    """The tables of several, each group-by and resolution merged; `since` as in `merged`."""
    by_key: dict[str, list[pa.Table]] = {}
    for each in all_of:
        for key, table in each.items():
            by_key.setdefault(key, []).append(table)
    found = {key: merged(tables, since) for key, tables in by_key.items()}
    return {key: table for key, table in found.items() if table.num_rows}
