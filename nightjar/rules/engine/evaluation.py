"""Evaluate rules at rows: which version applies to each row, the measures, and whether the condition holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import overload

import numpy as np

from nightjar.rules.engine import measures, resets
from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.computed import Measured
from nightjar.rules.engine.measures import Values
from nightjar.rules.engine.plan import CompiledRule, GroupPlan, Program
from nightjar.rules.engine.predicate_bitmaps import Marks, Masks
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.predicates import truths


@dataclass(frozen=True)
class Overflow:
    """A measure whose exact value at an evaluated row is out of the range of its type."""

    measure: str
    at: int


@dataclass(frozen=True)
class Allowed:
    """Which allow rules silence the alerts of one version at the evaluated rows (S24).

    rule_ids: some; by: of each row the place of one among these, -1 where no alert is silenced.
    """

    rule_ids: tuple[str, ...]
    by: Int64Array

    def at(self, places: Int64Array) -> list[str | None]:
        """The id of the allow rule at some of the rows."""
        return [self.rule_ids[by] if by >= 0 else None for by in self.by[places].tolist()]


@dataclass(frozen=True)
class RuleResult:
    """One version of a rule at the rows that it applies to."""

    compiled: CompiledRule
    rows: Int64Array
    """All evaluated store rows of the group-by."""
    sees: Mask
    """uint8 per row, whether this version applies and its `where` holds there."""
    violated: Int64Array
    """The positions in rows where the condition holds too."""
    values: dict[str, Values]
    """Each measure at all rows."""
    overflows: list[Overflow]
    allowed: Allowed | None = None
    """None where no alert is silenced."""

    @property
    def seen(self) -> Int64Array:
        """The positions of the rows that the version applies to."""
        return np.flatnonzero(self.sees.view(np.bool_))


class ProgramResults(Sequence[RuleResult]):
    """Every version that applies to some of the rows, evaluated there; most are never used, so each is created on
    request.

    where: for each version that does not apply to all rows, to which it does. conditions: for each version whose
    condition may hold anywhere, where it does. Versions are numbered as in the program.
    """

    def __init__(
        self,
        program: Program,
        rows: Int64Array,
        where: dict[int, Mask],
        values: Measured,
        conditions: dict[int, Mask],
        marks: Marks,
    ) -> None:
        self.rows = rows  # the store rows that were evaluated
        self._program, self._where = program, where
        self._values, self._conditions, self._marks = values, conditions, marks
        self._holding: Mapping[tuple[str, int], Mask] = {}
        self._silencers: Mapping[tuple[str, int], tuple[tuple[str, int], ...]] = {}
        self._failing: list[RuleResult] = []

    def allow(
        self,
        holding: Mapping[tuple[str, int], Mask],
        silencers: Mapping[tuple[str, int], tuple[tuple[str, int], ...]],
        failing: list[RuleResult],
    ) -> None:
        """Let allow rules silence alerts.

        holding: at which of the rows they hold; silencers: those of each version; failing: those with a measure out of
        range somewhere.
        """
        self._holding, self._silencers, self._failing = holding, silencers, failing

    def _allowed(self, key: tuple[str, int], violated: Int64Array) -> Allowed | None:
        """Which allow rules silence the alerts of a version at the rows where it is violated."""
        holding = [other for other in self._silencers.get(key, ()) if other in self._holding]
        if not holding or not len(violated):
            return None
        by = np.full(len(self.rows), -1)
        for place, other in reversed([*enumerate(holding)]):
            by[violated[self._holding[other][violated] != 0]] = place
        return Allowed(tuple(rule_id for rule_id, _ in holding), by) if (by >= 0).any() else None

    def wait(self, timeline: Timeline, masks: Masks, runs: Runs, clock: int, settled: int) -> None:
        """Leave out the rows where it is not yet known what follows, or has been settled, and the violations where
        something does (S19).

        runs: the rows, in the same order; clock, settled: µs.
        """
        times = timeline.times[runs.at]
        for at, compiled in enumerate(self._program.rules):
            unless, awaited = compiled.rule.unless, compiled.awaited
            assert unless is not None
            assert awaited is not None
            due = ((times < clock - unless.within) & (times >= settled - unless.within)).view(np.uint8)
            self._where[at] = due & self._where[at] if at in self._where else due
            if at in self._conditions and np.count_nonzero(self._conditions[at]):
                followed = timeline.followed(runs, *masks[awaited], unless.within)
                self._conditions[at] = self._conditions[at] & (followed ^ np.uint8(1))

    def __len__(self) -> int:
        return len(self._program.rules)

    @overload
    def __getitem__(self, at: int) -> RuleResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[RuleResult]: ...
    def __getitem__(self, at: int | slice) -> RuleResult | list[RuleResult]:
        """The versions in the order of the program."""
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        compiled = self._program.rules[at]
        seen = self._marks[compiled.seen]
        if at in self._where:
            seen = seen & self._where[at]
        numbers = self._program.places
        values = {name: self._values[numbers[measure]] for name, measure in compiled.measures.items()}
        overflows = []
        if self._values.overflown:
            overflows = [Overflow(name, int(row)) for name, v in values.items() for row in v.overflow if seen[row]]
        violated = self._conditions[at] & seen if at in self._conditions else np.zeros(len(seen), np.uint8)
        violated[[overflow.at for overflow in overflows]] = 0
        places = violated.view(np.bool_).nonzero()[0]  # of bool it takes a third of the time
        allowed = self._allowed(compiled.version.key, places) if self._holding else None
        return RuleResult(compiled, self.rows, seen, places, values, overflows, allowed)

    @property
    def violated(self) -> list[RuleResult]:
        """The versions that are violated somewhere."""
        some = (self[at] for at, condition in self._conditions.items() if np.count_nonzero(condition))
        return [result for result in some if len(result.violated)]

    @property
    def overflown(self) -> list[RuleResult]:
        """The versions with a measure out of range somewhere, and such allow rules."""
        own = [result for result in self if result.overflows] if self._values.overflown else []
        return own + self._failing


def evaluate(
    timeline: Timeline, masks: Masks, plan: GroupPlan, runs: Runs, waiting: tuple[int, int] | None = None
) -> list[ProgramResults]:
    """Every version that applies to some row of the runs, evaluated where it applies; at least one ProgramResults.

    waiting: where the plan's rules wait for what follows an event, the clock, before which everything is known, and
    what is settled, both in µs.
    """
    earliest = timeline.times[runs.at[runs.first[:-1]]].min()  # the rows of a run are in the order of time
    if earliest >= plan.newest_since:
        applicable: dict[tuple[str, int], Mask | None] = {}
        programs = plan.newest
    else:
        found_at = _applicable(plan, timeline.times[runs.at])
        applicable = {key: seen for key, seen in found_at.items() if key in plan.compiled}
        programs = plan.programs(tuple(applicable))
    found = [at_rows(timeline, masks, programs[0], runs, applicable)]
    if waiting is not None:
        found[0].wait(timeline, masks, runs, *waiting)
    for program in programs[1:]:
        violated = partial(_violated, timeline, masks, plan, program)
        after = resets.after_violations(timeline, masks, program.rules[0], runs, violated)
        found.append(at_rows(timeline, masks, program, runs, applicable, after))
    if plan.allowing is not None and plan.silencers:
        _allow(found, plan.silencers, evaluate(timeline, masks, plan.allowing, runs))
    return found


def _allow(
    found: list[ProgramResults],
    silencers: Mapping[tuple[str, int], tuple[tuple[str, int], ...]],
    allowing: list[ProgramResults],
) -> None:
    """Let allow rules silence alerts (S24). found: all that is evaluated; allowing: these rules at the same rows."""
    holding: dict[tuple[str, int], Mask] = {}
    for result in (result for program in allowing for result in program.violated):
        held = holding[result.compiled.version.key] = np.zeros(len(result.rows), np.uint8)
        held[result.violated] = 1
    failing = [result for program in allowing for result in program.overflown]
    for program in found:
        program.allow(holding, silencers, failing)
        failing = []  # each is reported once


def at_rows(
    timeline: Timeline,
    masks: Masks,
    program: Program,
    runs: Runs,
    applicable: Mapping[tuple[str, int], Mask | None],
    after: Int64Array | None = None,
) -> ProgramResults:
    """A program at the rows of the runs. applicable: where some of its versions apply; the others apply everywhere.

    after: of each row the place from which others count.
    """
    rows = timeline.rows[runs.at].astype(np.int64)
    where: dict[int, Mask] = {}
    if applicable:
        versions = (rule.version for rule in program.rules)
        masks_of = [applicable.get(version.key) for version in versions]
        where = {at: seen for at, seen in enumerate(masks_of) if seen is not None}
    answers = measures.answer(timeline, masks, runs, program.aggregates, after)
    measured = Measured(timeline.store, program, answers, rows)
    return ProgramResults(program, rows, where, measured, _conditions(program, measured, len(rows)), masks.of(rows))


def _violated(
    timeline: Timeline, masks: Masks, plan: GroupPlan, program: Program, runs: Runs, after: Int64Array
) -> Mask:
    """Where the one version of a program is violated: uint8 a row of the runs."""
    version = program.rules[0].version
    key = version.key
    violated = np.zeros(runs.rows, np.uint8)
    applies = _applicable(plan, timeline.times[runs.at])
    if key in applies:
        violated[at_rows(timeline, masks, program, runs, applies, after)[0].violated] = 1
    return violated


def _applicable(plan: GroupPlan, times: Int64Array) -> dict[tuple[str, int], Mask | None]:
    """For each version that applies to some row: uint8 per row, or None if it applies to all (S5.1)."""
    found: dict[tuple[str, int], Mask | None] = {}
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


def _conditions(program: Program, measured: Measured, rows: int) -> dict[int, Mask]:
    """`when` at every row, for the rules whose condition may hold at some row."""
    possible = program.screen.possible(measured.columns).nonzero()[0].tolist()
    whens = [program.whens[at] for at in possible]
    return dict(zip(possible, truths(whens, measured.columns, rows), strict=True))
