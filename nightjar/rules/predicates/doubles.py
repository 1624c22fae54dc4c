"""Conversion to doubles and their division, each correctly rounded: a value follows from its row alone.

How it works: NumPy divides. Where Polars divides a column of two rows or more by a single value, it multiplies by the
value's reciprocal, which is another double for one quotient in ten; so a result would depend on how many rows are
evaluated together. A decimal is converted by one division if both parts are doubles exactly, else by Python's division
of integers, which rounds once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Up to these a whole number, and a power of ten, is a double exactly.
_EXACT = float(2**53)
_EXACT_POWER = 22


def as_doubles(values: npt.NDArray[np.int64] | pl.Series, scale: int) -> Doubles:
    """The double nearest to each value / 10**scale (ties to even).

    values: int64, or a Series of Int64 or Int128; NULL gives an arbitrary one.
    """
    if isinstance(values, pl.Series):
        doubles: Doubles = values.cast(pl.Float64).fill_null(0.0).to_numpy()
    else:
        doubles = values.astype(np.float64)
    if not scale:
        return doubles
    found: Doubles = doubles / float(10**scale)
    if scale > _EXACT_POWER:
        inexact = doubles != 0.0
    elif len(doubles) and (doubles.max() >= _EXACT or doubles.min() <= -_EXACT):  # faster than asking every row
        inexact = np.abs(doubles) >= _EXACT
    else:
        return found
    for row in np.flatnonzero(inexact).tolist():
        found[row] = int(values[row]) / 10**scale
    return found


def quotients(dividend: Doubles, divisor: Doubles) -> tuple[Doubles, Mask | None]:
    """The quotients, and where they are not NULL: where the divisor is not zero (S3.5); None if that is everywhere."""
    with np.errstate(all="ignore"):
        found: Doubles = dividend / divisor
    there: Mask = divisor != 0.0
    return found, None if there.all() else there


def to_double(values: pl.Series, scale: int) -> pl.Series:
    """`as_doubles` of a column of Int64 or Int128, with its NULLs, as Float64."""
    return as_series(as_doubles(values, scale), values.is_not_null() if values.null_count() else None)


def divide(dividend: pl.Series, divisor: pl.Series) -> pl.Series:
    """The quotients of two columns of Float64, as one: NULL where one of them is, or the divisor is zero.

    A column may have a single row instead, which stands for all.
    """
    found, nonzero = quotients(dividend.to_numpy(), divisor.to_numpy())  # a NULL becomes a NaN
    there = None if nonzero is None else pl.Series(nonzero)
    for column in (dividend, divisor):
        if column.null_count():
            there = column.is_not_null() if there is None else there & column.is_not_null()
    return as_series(found, there)


def as_series(values: Doubles, there: pl.Series | Mask | None) -> pl.Series:
    """A column of Float64, NULL except where `there` is true (None: it is everywhere)."""
    column = pl.Series(values)
    return column if there is None else column.zip_with(pl.Series(there), pl.Series([None], dtype=pl.Float64))
