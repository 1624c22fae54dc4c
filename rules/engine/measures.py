"""The values of aggregates at the rows to evaluate: windows once, then one kernel an aggregate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rules.engine.columns import Mask
from rules.engine.kernels import floats, order, totals, windows
from rules.engine.plan import Aggregate, MaskKey, Window
from rules.engine.predicate_bitmaps import Masks
from rules.engine.strings import Int32Array, Int64Array
from rules.engine.timeline import Runs, Timeline
from rules.model import Function
from rules.types import Kind

# Of a timeline's arena: marks, narrow values, wide values.
Facts = tuple[Mask, Int32Array, Int64Array]
_NONE: Int64Array = np.empty(0, np.int64)
_TOTALS = {
    Function.COUNT: totals.COUNT,
    Function.SUM: totals.SUM,
    Function.AVG: totals.SUM,
    Function.STDDEV: totals.SPREAD,
}


class Values(NamedTuple):
    """One aggregate at the rows to evaluate: physical values, and where they are not NULL (uint8; None: everywhere).

    `overflow` holds indices into the rows where the exact value has no place in the type (usually none).
    """

    values: npt.NDArray[np.generic]
    valid: Mask | None
    overflow: Int64Array

    @property
    def codes(self) -> Int64Array:
        """The values of a measure of strings, -1 for NULL."""
        return np.where(self.valid != 0, self.values, -1)


class _Question(NamedTuple):
    """What kernels.totals is asked of one window: for each field and mask a place in specification and scales.

    First those with a spread, then other sums, then what is only counted, so that no memory is taken for more.
    places: of each aggregate that it answers.
    """

    spreads: int
    sums: int
    places: dict[Aggregate, int]
    specification: Int64Array
    scales: npt.NDArray[np.float64]


class Asked(NamedTuple):
    """Aggregates, and how they are found: many by one question to each window, others by a kernel each."""

    aggregates: tuple[Aggregate, ...]
    questions: dict[Window, _Question]
    others: tuple[Aggregate, ...]


class _Walk:
    """Rows in which windows are stretches (see kernels.windows), and their facts: an arena, or some of it anew.

    order: which row of the evaluation each row to evaluate is, None where they are in the same order.
    """

    def __init__(
        self, first: Int64Array, rows: Int32Array, facts: Facts, at: Int64Array, order: Int64Array | None
    ) -> None:
        self.first, self.rows, self.facts, self.at, self.order = first, rows, facts, at, order

    def placed(self, result: npt.NDArray[Any], rows: int, nothing: int = 0) -> npt.NDArray[Any]:
        """Results in the order of the evaluation; rows that are not in the walk have a window of nothing."""
        if self.order is None:
            return result
        placed = np.full(rows, nothing, result.dtype)
        placed[self.order] = result
        return placed


class _Evaluation:
    """The aggregates at the rows of some runs, with everything shared that can be."""

    def __init__(self, timeline: Timeline, masks: Masks, runs: Runs) -> None:
        self._timeline, self._store, self._masks = timeline, timeline.store, masks
        self._rows, self._start, self._horizon = runs.rows, runs.start, runs.horizon
        facts = timeline.marks.all, timeline.narrow.all, timeline.wide.all
        self._walk = _Walk(runs.first, timeline.rows, facts, runs.at, None)
        self._lows: dict[tuple[int, MaskKey | None], Int64Array] = {}
        self._splits: dict[tuple[int, MaskKey | None, tuple[str, ...]], tuple[_Walk, Int64Array]] = {}
        self._changes: dict[Window, tuple[_Walk, tuple[npt.NDArray[Any], ...]]] = {}

    def _low(self, over: int, since: MaskKey | None) -> Int64Array:
        if (over, since) not in self._lows:
            walk, store = self._walk, self._store
            times = self._timeline.times
            low = windows.lower_bounds(walk.first, self._start, times, walk.at, over, self._horizon)
            if since is not None:
                windows.after_reset(
                    walk.first, walk.rows, walk.at, *self._marks(walk, since), store.late, store.order, low
                )
            self._lows[over, since] = low
        return self._lows[over, since]

    def _split(self, over: int, since: MaskKey | None, per: tuple[str, ...]) -> tuple[_Walk, Int64Array]:
        walk, low = self._walk, self._low(over, since)
        if not per:
            return walk, low
        key = (over, since, per)
        if key not in self._splits:
            first, origin, at, low, order = windows.split_by_value(
                walk.first, walk.rows, walk.at, low, self._store.codes(per), self._store.scratch(per)
            )
            marks, narrow, wide = (facts[origin] for facts in walk.facts)
            self._splits[key] = _Walk(first, walk.rows[origin], (marks, narrow, wide), at, order), low
        return self._splits[key]

    def changes(self, window: Window) -> tuple[_Walk, tuple[npt.NDArray[Any], ...]]:
        """The walk of a window, and the arguments that every kernel takes first."""
        if window not in self._changes:
            store = self._store
            walk, low = self._split(window.over, window.since, window.per)
            made = windows.changes(
                walk.first, walk.rows, walk.at, low, window.excluding_current, store.late, store.last_late, store.order
            )
            self._changes[window] = walk, (walk.first, *made)
        return self._changes[window]

    def _marks(self, walk: _Walk, key: MaskKey) -> tuple[Mask, int, int]:
        word, bit = self._masks[key]
        return walk.facts[0], self._timeline.marks[word], bit

    def values(self, aggregate: Aggregate) -> Values:
        """One aggregate at every row, by a kernel of its own."""
        function, field, rows = aggregate.function, aggregate.field, self._rows
        assert field is not None
        walk, changes = self.changes(aggregate.window)
        counted = (*changes, *self._marks(walk, aggregate.mask))
        n = len(walk.at)
        kind = self._store.stream.fields[field]
        is_wide = field in self._timeline.wide
        values: npt.NDArray[Any] = walk.facts[2 if is_wide else 1]
        column = (self._timeline.wide if is_wide else self._timeline.narrow)[field]
        if function is Function.COUNT_DISTINCT:
            counts = np.empty(n, np.int64)
            order.distincts(*counted, values, column, counts)
            return Values(walk.placed(counts, rows), None, _NONE)
        if kind.kind is Kind.DOUBLE:
            values = values.view(np.float64)
        if function in (Function.FIRST, Function.LAST):
            ends = np.empty(n, np.int64)
            order.ends(*counted, function is Function.LAST, ends)
            found = (ends >= 0).view(np.uint8)
            at_ends = values[ends, column] if len(values) else np.zeros(n, values.dtype)
            return Values(walk.placed(_physical(at_ends), rows), walk.placed(found, rows), _NONE)
        if function in (Function.MIN, Function.MAX):
            found, out = np.empty(n, np.uint8), np.zeros(n, np.float64 if kind.kind is Kind.DOUBLE else np.int64)
            order.extremes(*counted, values, column, function is Function.MAX, found, out)
            return Values(walk.placed(out, rows), walk.placed(found, rows), _NONE)
        counts, results = np.empty(n, np.int64), np.zeros(n)
        if function is Function.STDDEV:
            floats.stddevs(*counted, values, column, counts, results)
        else:
            floats.sums(*counted, values, column, function is Function.AVG, counts, results)
        return _of_doubles(function, walk.placed(counts, rows), walk.placed(results, rows))

    def totals(self, window: Window, question: _Question) -> dict[Aggregate, Values]:
        """The aggregates of a question at every row."""
        walk, changes = self.changes(window)
        n, rows = len(walk.at), self._rows
        sums = question.sums, n
        counts, exact, means = np.empty((len(question.scales), n), np.int64), np.empty(sums, np.int64), np.empty(sums)
        beyond, deviations = np.empty(sums, np.uint8), np.empty((question.spreads, n))
        totals.totals(
            *changes, *walk.facts, question.specification, question.scales, counts, exact, means, beyond, deviations
        )
        overflown = np.count_nonzero(beyond)
        values = {}
        for aggregate, place in question.places.items():
            match aggregate.function:
                case Function.COUNT:
                    values[aggregate] = Values(walk.placed(counts[place], rows), None, _NONE)
                    continue
                case Function.SUM:
                    overflow = walk.placed(beyond[place], rows).nonzero()[0] if overflown else _NONE
                    values[aggregate] = Values(walk.placed(exact[place], rows), None, overflow)
                    continue
                case Function.AVG:
                    found, least = means[place], 1
                case _:
                    found, least = deviations[place], 2
            valid = (counts[place] >= least).view(np.uint8)
            values[aggregate] = Values(walk.placed(found, rows), walk.placed(valid, rows), _NONE)
        return values


def _asked(timeline: Timeline, masks: Masks, aggregates: tuple[Aggregate, ...]) -> Asked:
    fields = timeline.store.stream.fields
    asked: dict[Window, dict[tuple[str | None, MaskKey], int]] = {}
    answered: dict[Window, list[Aggregate]] = {}
    for aggregate in aggregates:
        summed, what = _summed(aggregate), _TOTALS.get(aggregate.function)
        if what is not None and (summed[0] is None or fields[summed[0]].kind is not Kind.DOUBLE):
            of_window = asked.setdefault(aggregate.window, {})
            of_window[summed] = max(of_window.get(summed, what), what)
            answered.setdefault(aggregate.window, []).append(aggregate)
    questions = {}
    for window, of_window in asked.items():
        kinds = sorted(of_window.values(), reverse=True)
        keys = sorted(of_window, key=of_window.__getitem__, reverse=True)
        specification, scales = [], []
        for field, mask in keys:
            what = of_window[field, mask]
            word, bit = masks[mask]
            is_wide = field is not None and field in timeline.wide
            column = -1 if field is None else (timeline.wide if is_wide else timeline.narrow)[field]
            specification.append((what, timeline.marks[word], bit, is_wide, column))
            scales.append(1.0 if field is None else 10.0 ** fields[field].scale)
        spreads, counts = kinds.count(totals.SPREAD), kinds.count(totals.COUNT)
        places = {aggregate: keys.index(_summed(aggregate)) for aggregate in answered[window]}
        questions[window] = _Question(spreads, len(kinds) - counts, places, np.array(specification), np.array(scales))
    known = {aggregate for question in questions.values() for aggregate in question.places}
    return Asked(aggregates, questions, tuple(aggregate for aggregate in aggregates if aggregate not in known))


def _summed(aggregate: Aggregate) -> tuple[str | None, MaskKey]:
    """What is added up for a total: the field (None: nothing, only counted) of the rows so marked."""
    return None if aggregate.function is Function.COUNT else aggregate.field, aggregate.mask


def evaluate(
    timeline: Timeline, masks: Masks, runs: Runs, aggregates: tuple[Aggregate, ...]
) -> dict[Aggregate, Values]:
    """Every one of the aggregates at every row of the runs."""
    if not aggregates:
        return {}
    asked: Asked | None = timeline.asked
    if asked is None or asked.aggregates is not aggregates:
        asked = timeline.asked = _asked(timeline, masks, aggregates)
    evaluation = _Evaluation(timeline, masks, runs)
    values: dict[Aggregate, Values] = {}
    for window, question in asked.questions.items():
        values |= evaluation.totals(window, question)
    for aggregate in asked.others:
        values[aggregate] = evaluation.values(aggregate)
    return values


def _physical(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.int64) if values.dtype == np.int32 else values


def _of_doubles(function: Function, counts: Int64Array, result: npt.NDArray[Any]) -> Values:
    needed = {Function.SUM: 0, Function.AVG: 1, Function.STDDEV: 2}[function]
    valid = counts >= needed
    return Values(result, valid.view(np.uint8), np.flatnonzero(~np.isfinite(result) & valid))
