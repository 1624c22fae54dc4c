"""Windows that slide are answered as any other: from their rows, one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine.kernels import sliding, totals, windows
from nightjar.rules.engine.kernels.answers import _GREATEST, _LEAST

_WORD, _BIT, _COLUMN = 1, 3, 1


class Drawn(NamedTuple):
    """Runs over a walk: what the kernels are handed of them, and each row's window as the rows that count in it."""

    described: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]
    marks: np.ndarray
    values: np.ndarray
    windows: list[np.ndarray]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Up to four runs of up to 400 rows, whose windows overlap, are empty, or hold everything."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    own = draw(st.sampled_from([0, 1]))
    least, most = draw(st.sampled_from([(0, 3), (-5, 400), (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)]))
    sizes = draw(st.lists(st.integers(1, 400), min_size=1, max_size=4))
    longest = draw(st.sampled_from([0, 1, 20, 400]))
    run_first, low, end, start = [0], [], [], 0
    for size in sizes:
        evaluated = np.sort(random.choice(size, random.integers(1, size + 1), replace=False))
        begins = np.maximum(evaluated - random.integers(0, longest + 1, len(evaluated)), 0)
        low += [*(start + np.minimum(np.maximum.accumulate(begins), evaluated))]
        end += [*(start + evaluated)]
        run_first.append(len(low))
        start += size
    marks = random.integers(0, 2**16, (start, 2), np.int64)
    if draw(st.booleans()):
        marks |= 1 << _BIT
    values = random.integers(least, most, (start, 2), np.int64, endpoint=True)
    counted = (marks[:, _WORD] >> _BIT) & 1 == 1
    held = [np.flatnonzero(counted[a : b + own]) + a for a, b in zip(low, end, strict=True)]
    slid = np.arange(len(sizes))
    described = np.array(run_first), slid, np.array(low), np.array(end), own
    return Drawn(described, marks, values, [values[rows, _COLUMN] for rows in held])


def _held(case: Drawn, dtype: type = np.int64) -> np.ndarray:
    return np.full((3, sliding.widest(*case.described) + 1), 77, dtype)


@given(drawn())
def test_counts(case: Drawn) -> None:
    """However many rows count."""
    out = np.full(len(case.windows), -1)
    sliding.counts(*case.described, case.marks, _WORD, _BIT, _held(case), out)
    assert out.tolist() == [len(window) for window in case.windows]


@given(drawn())
def test_sums(case: Drawn) -> None:
    """Sums beyond 64 bits are told, and means are rounded once."""
    rows = len(case.windows)
    exact, means = np.zeros(rows, np.int64), np.zeros(rows)
    beyond, some = np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
    nothing = np.empty((0, 8), np.int64)
    overflown = sliding.sums(
        *case.described,
        case.marks,
        _WORD,
        _BIT,
        case.values,
        _COLUMN,
        100.0,
        nothing,
        _held(case),
        exact,
        means,
        beyond,
        some,
    )
    sums = [sum(window.tolist()) for window in case.windows]
    outside = [not -(2**63) <= total < 2**63 for total in sums]
    assert beyond.tolist() == outside
    assert overflown == sum(outside)
    assert some.tolist() == [len(window) > 0 for window in case.windows]
    assert exact.tolist() == [(total + 2**63) % 2**64 - 2**63 for total in sums]
    wanted = [
        total / (100 * len(window)) if len(window) else 0 for total, window in zip(sums, case.windows, strict=True)
    ]
    assert means.tolist() == wanted


@given(drawn(), st.booleans(), st.sampled_from([np.int32, np.int64, np.float64]))
def test_extremes(case: Drawn, largest: bool, kind: type) -> None:
    """Of integers and doubles, the ends of their ranges as well."""
    values = case.values.astype(kind)
    of_type = np.float64 if kind is np.float64 else np.int64
    nothing = (
        {np.float64: -np.inf, np.int64: _LEAST}[of_type] if largest else {np.float64: np.inf}.get(of_type, _GREATEST)
    )
    out, found = np.empty(len(case.windows), of_type), np.empty(len(case.windows), np.uint8)
    sliding.extremes(
        *case.described,
        case.marks,
        _WORD,
        _BIT,
        values,
        _COLUMN,
        largest,
        nothing,
        _held(case, of_type)[0],
        out,
        found,
    )
    held = [window.astype(kind).tolist() for window in case.windows]
    assert found.tolist() == [len(window) > 0 for window in held]
    assert out.tolist() == [(max if largest else min)(window) if window else 0 for window in held]


@given(drawn())
def test_distinct_values(case: Drawn) -> None:
    """More than the table has room for at first, too."""
    out = np.full(len(case.windows), -1)
    sliding.distincts(*case.described, case.marks, _WORD, _BIT, case.values, _COLUMN, _held(case), out)
    assert out.tolist() == [len(set(window.tolist())) for window in case.windows]


@given(drawn(), st.data())
def test_changes_are_left_to_the_other_runs(case: Drawn, data: st.DataObject) -> None:
    """A run of one row, or one whose windows fall back, has changes; a run that slides has none."""
    run_first, _, low, end, own = case.described
    rows = np.arange(len(case.marks))
    late, order = np.zeros(len(rows), np.bool_), rows
    fallen: set[int] = set()
    low = low.copy()
    for r in data.draw(st.sets(st.integers(0, len(run_first) - 2))):
        first, last = run_first[r], run_first[r + 1]
        if last - first > 1 and low[last - 2] > low[first]:
            low[last - 1] = low[first]
            fallen.add(r)
    fill, begin, ops, slid = windows.changes(run_first, rows, end, low, end, not own, late, -1, order, slides=True)
    single = {r for r in range(len(run_first) - 1) if run_first[r] + 1 == run_first[r + 1]}
    assert set(slid.tolist()) == set(range(len(run_first) - 1)) - fallen - single
    if len(slid) == len(run_first) - 1:
        return  # there are no changes to read
    counted = np.full(len(low), -1)
    totals.counts(run_first, fill, begin, ops, np.full((len(rows), 1), 1), 0, 0, counted)
    assert [counted[k] for r in fallen | single for k in range(run_first[r], run_first[r + 1])] == [
        end[k] + own - low[k] for r in fallen | single for k in range(run_first[r], run_first[r + 1])
    ]
    assert all(counted[k] == 0 for r in slid for k in range(run_first[r], run_first[r + 1]))
