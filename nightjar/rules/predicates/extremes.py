"""GREATEST and LEAST on Polars' columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl


def extreme(compare: Callable[[Any, Any], Any]) -> Callable[[Sequence[pl.Series]], pl.Series]:
    """Of columns of one type, at each row the value that compares so with each other; NULL where one of them is.

    A column may have a single row instead, which stands for all. A NaN is above all other doubles, as in comparisons.
    """

    def found(given: Sequence[pl.Series]) -> pl.Series:
        rows = next((len(column) for column in given if len(column) != 1), 1)
        first, *others = (column if len(column) == rows else column.new_from_index(0, rows) for column in given)
        best, there = first, first.is_not_null()
        for column in others:
            best = best.zip_with(compare(best, column), column)
            there &= column.is_not_null()
        if best.dtype == pl.Float64:
            best = best + 0.0  # no negative zero, which equals the other
        return best if there.all() else best.zip_with(there, pl.Series([None], dtype=best.dtype))

    return found
