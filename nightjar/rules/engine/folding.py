"""Purpose: fold rows that pass the horizon into steps, for the measures with a resolution (S14.3).

How it works: the horizon of a stream with such measures moves on by a quarter of the coarsest resolution. What passes
it is added to the steps of each group-by and resolution, and to the delta of the advance. A late row is kept until
every row that is evaluated from then on has arrived after it and may count it (S8.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from nightjar.rules.engine.folds import Folds, Held, past_columns, renamed
from nightjar.rules.engine.past import Past
from nightjar.rules.engine.plan import Fold, Plan
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.steps import Steps
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array

# An event counts that came at most so many times the allowed lateness after it happened (S14.4): those of the horizon,
# whatever else is kept.
MOST_LATE = 2
# The horizon moves on in so many parts of a resolution: what a fold is written in, and how long rows are kept beyond.
_PARTS = 4


class Folding:
    """The steps of all group-bys, over one store."""

    def __init__(self, store: EventStore, masks: Masks) -> None:
        self._store, self._masks = store, masks
        self._steps: dict[tuple[tuple[str, ...], int], Steps] = {}
        self._held: dict[Fold, Held] = {}
        self._restored: list[Folds] = []

    def use(self, plan: Plan, horizon: int) -> None:
        """Keep what the plan needs from now on. What is new counts the events from the horizon (µs) on."""
        wanted = {fold: reach for group in plan.groups for fold, reach in group.folds.items()}
        held = {fold: self._held.get(fold) or _new(fold, horizon) for fold in wanted}
        self._held = {fold: replace(held[fold], reach=reach) for fold, reach in wanted.items()}
        self._keep()

    def _keep(self) -> None:
        of_steps: dict[tuple[tuple[str, ...], int], dict[Fold, Held]] = {}
        for fold, held in self._held.items():
            of_steps.setdefault((fold.group_by, fold.resolution), {})[fold] = held
        self._steps = {key: self._steps.get(key) or Steps(self._store, self._masks, *key) for key in of_steps}
        for key, folds in of_steps.items():
            self._steps[key].use(folds)

    def of(self, group_by: tuple[str, ...]) -> dict[int, Steps]:
        """The steps of a group-by, by their resolution (µs)."""
        return {resolution: steps for (fields, resolution), steps in self._steps.items() if fields == group_by}

    @property
    def held(self) -> dict[str, tuple[int, int]]:
        """See Position."""
        return {fold.name: (held.born, held.since) for fold, held in self._held.items()}

    @property
    def groups(self) -> int:
        """How many groups have steps at most."""
        return sum(steps.groups for steps in self._steps.values())

    def horizon(self, plan: Plan, settled: int, since: int) -> int:
        """The event time (µs) up to which rows need not be kept as such. since: the same so far; rows before it, which
        a restored engine may hold for a while, count for nothing."""
        stream, target = self._store.stream, self.target(plan, settled)
        if self._store.last_late < 0:
            return target
        rows = self._store.held(0, self._store.rows)
        times = self._store.times[rows]
        rows = rows[(self._store.late[rows] != 0) & (times >= since) & (times < target)]
        # a row that is evaluated has an event time from `settled` on, and an arrival at most the skew before that
        hidden = rows[self._store.arrival(rows) >= settled - stream.max_future_skew]
        return min(target, int(self._store.times[hidden].min(initial=target)))

    def target(self, plan: Plan, settled: int) -> int:
        """The same (µs) without late events."""
        part = max(1, plan.resolution // _PARTS)
        return (settled - max(plan.of_rows, self._store.stream.allowed_lateness)) // part * part

    def needed_since(self, plan: Plan, settled: int) -> int:
        """Event time (µs) from which on the windows with a resolution of rows from `settled` (µs) on hold events."""
        wanted = ((fold, reach) for group in plan.groups for fold, reach in group.folds.items())
        return min(((settled - reach) // fold.resolution * fold.resolution for fold, reach in wanted), default=settled)

    def settle(self, since: int, horizon: int, settled: int) -> dict[str, pa.Table]:
        """Fold the rows from `since` on that the horizon has passed (µs); returns what has been added."""
        found = {}
        if horizon > since:
            rows = self._store.held(0, self._store.rows)
            times = self._store.times[rows]
            rows = rows[(times >= since) & (times < horizon)]
            tables = {steps.key: steps.fold(rows) for steps in self._steps.values()} if len(rows) else {}
            found = {key: table for key, table in tables.items() if table is not None}
        for steps in self._steps.values():
            steps.settle(horizon, settled)
        return found

    def take_in(self, past: Past, rows: Int64Array) -> dict[str, pa.Table]:
        """Take in the past of folds, as far as they are held; returns all their steps, which replace what was returned
        before. rows: of the store, which `past` does not have."""
        found = {}
        for key, steps in self._steps.items():
            # one that no rule has needed meanwhile, and that has begun again since, keeps what it has
            old = {fold: self._held[fold] for fold in steps.folds if past.completes(fold.name, self._held[fold])}
            if old:
                new = {f: replace(held, born=past.born, since=past.spans[f.name][0]) for f, held in old.items()}
                self._held |= new
                more = [renamed(past.folds[steps.key], past_columns(new))] if steps.key in past.folds else []
                here = Steps(self._store, self._masks, *key)
                here.use(new)
                more += [added] if len(rows) and (added := here.fold(rows)) is not None else []
                self._steps[key], tables = steps.reborn(old, new, more)
                if tables is not None:
                    found[steps.key] = tables
        return found

    def restore(self, folds: Folds) -> None:
        """Take what another engine had added, until `resume`."""
        if folds:
            self._restored.append(folds)

    def resume(self, held: Mapping[str, tuple[int, int]], horizon: int) -> None:
        """Continue as the engine which held that; what it did not hold is new."""
        for fold, known in self._held.items():
            if fold.name in held:
                known.born, known.since = held[fold.name]
            else:
                fresh = _new(fold, horizon)
                known.born, known.since = fresh.born, fresh.since
        self._keep()
        for steps in self._steps.values():
            if tables := [folds[steps.key] for folds in self._restored if steps.key in folds]:
                steps.adopt(tables)
        self._restored = []

    def tables(self) -> dict[str, pa.Table]:
        """All steps, as `restore` takes them."""
        found = {steps.key: steps.table() for steps in self._steps.values()}
        return {key: table for key, table in found.items() if table.num_rows}


def _new(fold: Fold, horizon: int) -> Held:
    return Held(horizon, horizon // fold.resolution * fold.resolution)
