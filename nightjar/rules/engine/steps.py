"""Purpose: what is kept of rows before the horizon for measures with a resolution: one row per step and group (S14).

How it works: a *fold* is what the measures of one function, field and condition need of a step: a few columns. All
folds of a group-by and a resolution share their rows, in an arena like that of a timeline. A fold counts from when the
first rule needed it (`since`), and is dropped with the last.

What it does not do: hold single events. So an id is unknown once its event is folded, and nothing is added to a fold
but rows that pass the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine.arena import Arena
from nightjar.rules.engine.facts import Name
from nightjar.rules.engine.folds import NEUTRAL, STEP, Held, column_of, groups_of, key_of, merged, renamed
from nightjar.rules.engine.kernels import segments, steps
from nightjar.rules.engine.memory import allocate
from nightjar.rules.engine.plan import Fold
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.types import Kind

_NONE: Int64Array = np.zeros(0, np.int64)


@dataclass
class _Kept:
    """A fold, from when it counts, and its columns in the arena, in the order of kernels.steps, -1 for none."""

    held: Held
    columns: Int64Array


class Steps(Arena):
    """The steps of one group-by and resolution (µs)."""

    def __init__(self, store: EventStore, masks: Masks, group_by: tuple[str, ...], resolution: int) -> None:
        super().__init__()
        self.group_by, self.resolution = group_by, resolution
        self.folds: dict[Fold, _Kept] = {}
        self._store, self._masks = store, masks
        self._how: Int64Array = np.zeros(0, np.int64)  # how the values of each column are put together
        self._sums: Int64Array = np.zeros((0, 0), np.int64)  # of each group, of the columns that are added

    @property
    def key(self) -> str:
        """The name of its tables."""
        return key_of(self.group_by, self.resolution)

    @property
    def since(self) -> int:
        """Event time (µs) before which no step counts for any fold."""
        return min(kept.held.since for kept in self.folds.values())

    @property
    def groups(self) -> int:
        """The number of groups that have a step."""
        return int(np.count_nonzero(self._spans[:, segments.END] > self._spans[:, segments.START]))

    def use(self, held: Mapping[Fold, Held]) -> None:
        """Keep these folds from now on. A new one has nothing in the steps that are there."""
        hows = {column_of(fold, known, at): fold.how(at) for fold, known in held.items() for at in fold.columns}
        fresh: list[int] = []

        def fill(name: Name, facts: npt.NDArray[Any], at: int) -> None:
            facts[: self._used, at] = NEUTRAL[hows[str(name)]]
            fresh.append(at)

        self.wide.use(hows, (), fill, self._used)
        self._have_sums()
        self._sums[:, fresh] = 0
        self._how = np.full(self.wide.all.shape[1], steps.ADDED)
        for name, at in self.wide.items():
            self._how[at] = hows[str(name)]
        self.folds = {}
        for fold, known in held.items():
            columns = np.full(steps.COLUMNS, -1)
            for at in fold.columns:
                columns[at] = self.wide[column_of(fold, known, at)]
            self.folds[fold] = _Kept(known, columns)

    def _have_sums(self) -> None:
        shape = len(self._spans), self.wide.all.shape[1]
        if self._sums.shape != shape:
            sums = allocate(shape, np.int64)
            sums[: len(self._sums), : self._sums.shape[1]] = self._sums
            self._sums = sums

    def settle(self, horizon: int, settled: int) -> None:
        """Drop the steps that no window reaches any more, of a row from `settled` (µs) on, or of one before."""
        for kept in self.folds.values():
            reached = min(horizon, settled - kept.held.reach) // self.resolution * self.resolution
            kept.held.since = max(kept.held.since, reached)

    def fold(self, rows: Int64Array) -> pa.Table | None:
        """Add rows of the store, all of them later than those added before; returns what has been added."""
        codes = self._store.codes(self.group_by)[rows]
        rows, codes = rows[codes >= 0], codes[codes >= 0]
        times = self._store.times[rows] // self.resolution * self.resolution
        order = np.lexsort((times, codes))
        codes, times = codes[order], times[order]
        new = np.ones(len(rows), np.bool_)
        new[1:] = (codes[1:] != codes[:-1]) | (times[1:] != times[:-1])
        first = np.append(np.flatnonzero(new), len(rows))
        values = self._neutral(len(first) - 1)
        for fold, kept in self.folds.items():
            counted = self._masks.at(fold.mask, rows)
            field = _NONE if fold.field is None else self._store.physical(fold.field, rows).view(np.int64)
            is_double = fold.field is not None and self._store.stream.fields[fold.field].kind is Kind.DOUBLE
            steps.fold(order, first, counted, field, is_double, kept.columns, self._how, values)
        counts = [kept.columns[steps.COUNT] for kept in self.folds.values()]
        some = np.flatnonzero(values[:, counts].any(axis=1))
        if not len(some):
            return None
        first = first[some]
        self._append(codes[first].astype(np.int64), times[first], values[some])
        groups = [self._store.array(name, rows[order[first]]) for name in self.group_by]
        return self._table(groups, times[first], values[some])

    def adopt(self, tables: list[pa.Table]) -> None:
        """Start with the rows of the tables; the steps are empty."""
        table = merged(tables, self.since)
        fields = [table.column(name).combine_chunks() for name in groups_of(table)]
        codes = self._store.encode(self.group_by, fields, table.num_rows)
        times = table.column(STEP).to_numpy()
        order = np.lexsort((times, codes))
        values = self._neutral(len(order))
        for name, at in self.wide.items():
            if name in table.column_names:
                values[:, at] = table.column(str(name)).to_numpy()[order]
        self._append(codes[order], times[order], values)

    def reborn(
        self, old: Mapping[Fold, Held], new: Mapping[Fold, Held], past: list[pa.Table]
    ) -> tuple[Steps, pa.Table | None]:
        """The same steps, where some folds have a past: and all rows of these, None if there is none.

        old, new: these folds before and from now on; past: rows to add, with the columns of `new`.
        """
        here = self.table()
        kept = {f: kept.held for f, kept in self.folds.items() if f not in old}
        for fold, held in old.items():
            own = {column_of(fold, held, at): column_of(fold, new[fold], at) for at in fold.columns}
            counted = pc.greater_equal(here.column(STEP), held.since)
            past = [*past, renamed(here.filter(counted), own)]
        found = Steps(self._store, self._masks, self.group_by, self.resolution)
        found.use({**kept, **new})
        table = merged(past, min(held.since for held in new.values()))
        of_kept = {column_of(f, held, at): column_of(f, held, at) for f, held in kept.items() for at in f.columns}
        found.adopt([table, *([renamed(here, of_kept)] if of_kept else [])])
        return found, table if table.num_rows else None

    def table(self) -> pa.Table:
        """All steps, as rows of which `adopt` makes the same."""
        lengths = self._spans[:, segments.END] - self._spans[:, segments.START]
        count = int(lengths.sum(dtype=np.int64))
        groups, times = np.empty(count, np.int64), np.empty(count, np.int64)
        values = np.empty((count, len(self._how)), np.int64)
        steps.values_of(self._spans, self._sums, self.times, self.wide.all, self._how, groups, times, values)
        return self._table(self._store.decode(self.group_by, groups), times, values)

    def before(
        self,
        run_first: Int64Array,
        groups: npt.NDArray[np.integer[Any]],
        times: Int64Array,
        at: Int64Array,
        over: int,
        folds: list[Fold],
    ) -> Int64Array:
        """The columns of each of the folds over the steps in the windows of the rows at at[k]: int64 (folds, rows, 8).

        run_first: see Runs; groups: of each run; times: by place; over: µs.
        """
        found = np.zeros((len(folds), len(at), steps.COLUMNS), np.int64)
        for out, fold in zip(found, folds, strict=True):
            kept = self.folds[fold]
            steps.before(
                run_first,
                groups,
                times,
                at,
                over,
                self.resolution,
                kept.held.since,
                self._spans,
                self.times,
                self.wide.all,
                self._sums,
                kept.columns,
                out,
            )
        return found

    def _neutral(self, rows: int) -> Int64Array:
        neutral = np.array([NEUTRAL[how] for how in self._how.tolist()], np.int64)
        return np.tile(neutral, (rows, 1))

    def _table(self, groups: list[pa.Array], times: Int64Array, values: Int64Array) -> pa.Table:
        fields = (self._store.stream.fields[name].arrow for name in self.group_by)
        columns = {str(at): array.cast(kind) for at, (array, kind) in enumerate(zip(groups, fields, strict=True))}
        columns[STEP] = pa.array(times)
        return pa.table(columns | {str(name): pa.array(values[:, at]) for name, at in self.wide.items()})

    def _append(self, groups: Int64Array, times: Int64Array, values: Int64Array) -> None:
        """Add rows in the order of (group, step)."""
        self._have_groups(self._store.code_count(self.group_by))
        self._have_sums()
        since = self.since
        while True:
            used, touched, first = steps.append(
                groups,
                times,
                values,
                self._how,
                since,
                self._sums,
                self._spans,
                *self._arena,
                self._used,
                self._limit,
                self._holes,
            )
            if used >= 0:
                break
            self._make_room(touched, first, since)
        self._used = used
        for kept in self.folds.values():
            steps.carry(self._sums, touched, kept.columns)
