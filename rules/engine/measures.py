"""The values of aggregates at the rows to evaluate: windows once, then one kernel an aggregate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rules.engine.kernels import floats, order, totals, windows
from rules.engine.masks import Masks
from rules.engine.plan import Aggregate, Window
from rules.engine.store import EventStore, Mask
from rules.engine.strings import Int64Array
from rules.engine.timeline import Runs, Timeline
from rules.model import Function
from rules.types import Kind


@dataclass(frozen=True)
class Values:
    """One aggregate at the rows to evaluate: physical values, uint8 validity, and where the exact value has no place.

    `overflow` holds indices into the rows (usually none).
    """

    values: npt.NDArray[np.generic]
    valid: Mask
    overflow: Int64Array


@dataclass(frozen=True)
class _Changes:
    """The arguments all kernels share (see kernels.windows), and which row of the evaluation each result is for."""

    first: Int64Array
    fill: Int64Array
    begin: Int64Array
    ops: npt.NDArray[np.int32]
    rows: Int64Array
    order: Int64Array | None

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.first, self.fill, self.begin, self.ops, self.rows


_NONE: Int64Array = np.empty(0, np.int64)


def evaluate(timeline: Timeline, masks: Masks, runs: Runs, aggregates: Iterable[Aggregate]) -> dict[Aggregate, Values]:
    """Every aggregate at every row of the runs."""
    made: dict[Window, _Changes] = {}
    found: dict[Aggregate, Values] = {}
    totals_of: dict[tuple[object, ...], tuple[np.ndarray, ...]] = {}
    for aggregate in aggregates:
        if aggregate in found:
            continue
        if aggregate.window not in made:
            made[aggregate.window] = _changes(timeline, masks, runs, aggregate.window)
        found[aggregate] = _aggregate(timeline.store, masks, aggregate, made[aggregate.window], runs.rows, totals_of)
    return found


def _changes(timeline: Timeline, masks: Masks, runs: Runs, window: Window) -> _Changes:
    store = timeline.store
    low = np.empty(runs.rows, np.int64)
    windows.lower_bounds(runs.first, runs.start, timeline.times, runs.at, window.over, low)
    first, rows, at, placed = runs.first, timeline.rows, runs.at, None
    if window.since is not None:
        windows.after_reset(first, rows, at, masks[window.since], store.late, store.seq, low)
    if window.per:
        marks = np.full(max(1, store.code_count(window.per)), -1, np.int64)
        first, rows, at, low, placed = windows.split_by_value(first, rows, at, low, store.codes(window.per), marks)
    fill = np.empty((len(first) - 1, 2), np.int64)
    begin = np.zeros(len(at) + 1, np.int64)
    arguments = (first, rows, at, low, window.excluding_current, store.late, store.last_late, store.seq, fill, begin)
    ops = np.empty(windows.changes(*arguments, np.empty(0, np.int32), False), np.int32)
    windows.changes(*arguments, ops, True)
    return _Changes(first, fill, begin, ops, rows, placed)


def _aggregate(
    store: EventStore,
    masks: Masks,
    aggregate: Aggregate,
    changes: _Changes,
    rows: int,
    totals_of: dict[tuple[object, ...], tuple[np.ndarray, ...]],
) -> Values:
    function, field, mask = aggregate.function, aggregate.field, masks[aggregate.mask]
    n = len(changes.begin) - 1
    everywhere = np.ones(rows, np.uint8)
    if function is Function.COUNT:
        counts = np.zeros(n, np.int64)
        totals.count(*changes.arguments, mask, counts)
        return Values(_placed(counts, changes, rows), everywhere, _NONE)
    assert field is not None
    kind, values = store.stream.fields[field], store.columns[field].values
    if function is Function.COUNT_DISTINCT:
        counts = np.zeros(n, np.int64)
        order.distincts(*changes.arguments, mask, values.view(np.int64), counts)
        return Values(_placed(counts, changes, rows), everywhere, _NONE)
    if function in (Function.FIRST, Function.LAST):
        ends = np.full(n, -1, np.int64)
        order.ends(*changes.arguments, mask, function is Function.LAST, ends)
        ends = _placed(ends, changes, rows, -1)
        return Values(values[ends], (ends >= 0).view(np.uint8), _NONE)
    if function in (Function.MIN, Function.MAX):
        found = np.zeros(n, np.uint8)
        out = np.zeros(n, values.dtype)
        order.extremes(*changes.arguments, mask, values, function is Function.MAX, found, out)
        return Values(_placed(out, changes, rows), _placed(found, changes, rows), _NONE)
    key = (field, aggregate.mask, aggregate.window, function is Function.STDDEV)
    if key not in totals_of:
        totals_of[key] = _totals(changes, mask, values, 10.0**kind.scale, function)
    counts, *results = totals_of[key]
    if kind.kind is Kind.DOUBLE:
        return _of_doubles(function, _placed(counts, changes, rows), _placed(results[0], changes, rows))
    return _of_integers(
        function, 10.0**kind.scale, _placed(counts, changes, rows), [_placed(r, changes, rows) for r in results]
    )


def _placed(result: np.ndarray, changes: _Changes, rows: int, nothing: int = 0) -> np.ndarray:
    """Results of a re-cut walk back in the order of the evaluation; rows in no walk have a window of nothing."""
    if changes.order is None:
        return result
    placed = np.full(rows, nothing, result.dtype)
    placed[changes.order] = result
    return placed


def _totals(
    changes: _Changes, mask: Mask, values: np.ndarray, scale: float, function: Function
) -> tuple[np.ndarray, ...]:
    n = len(changes.begin) - 1
    counts = np.zeros(n, np.int64)
    if values.dtype == np.float64:
        out = np.zeros(n)
        kernel = floats.stddevs if function is Function.STDDEV else floats.sums
        kernel(*changes.arguments, mask, values, counts, out)
        return counts, out
    if function is Function.STDDEV:
        out = np.zeros(n)
        totals.stddevs(*changes.arguments, mask, values, scale, counts, out)
        return counts, out
    highs, lows = np.zeros(n, np.int64), np.zeros(n, np.int64)
    totals.sums(*changes.arguments, mask, values, counts, highs, lows)
    return counts, highs, lows


def _of_doubles(function: Function, counts: Int64Array, result: np.ndarray) -> Values:
    needed = {Function.SUM: 0, Function.AVG: 1, Function.STDDEV: 2}[function]
    valid = counts >= needed
    overflow = np.flatnonzero(~np.isfinite(result) & valid)
    if function is Function.AVG:
        result = result / np.maximum(counts, 1)
    return Values(result, valid.view(np.uint8), overflow)


def _of_integers(function: Function, scale: float, counts: Int64Array, results: list[np.ndarray]) -> Values:
    if function is Function.STDDEV:
        return Values(results[0], (counts >= 2).view(np.uint8), _NONE)
    highs, lows = results
    exact = (highs << 32) + lows
    beyond = np.flatnonzero((highs + (1 << 31)) >> 32)
    if function is Function.SUM:
        return Values(exact, np.ones(len(exact), np.uint8), beyond)
    whole = exact.astype(np.float64)
    if len(beyond):
        whole[beyond] = highs[beyond] * 4294967296.0 + lows[beyond]
    return Values(whole / (np.maximum(counts, 1) * scale), (counts > 0).view(np.uint8), _NONE)
