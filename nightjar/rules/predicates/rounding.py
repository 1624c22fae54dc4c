"""ROUND, FLOOR and CEIL of doubles: of the exact value that a double has (S3.11).

A double is rounded to decimal digits by one multiplication, unless the rounding error of that might decide: then by
fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import polars as pl

from nightjar.rules.predicates.doubles import Doubles, as_series

# A double of at least this size is an integer; up to twice of it each integer is a double.
_INTEGERS = 2.0**52
# More than the relative error of a product.
_ERROR = 2.0**-52


def of_doubles(calculate: Callable[[Doubles], Doubles]) -> Callable[[pl.Series], pl.Series]:
    """A function of doubles on a column of Float64; NULL where that is, or is not finite."""

    def calculated(given: pl.Series) -> pl.Series:
        values = given.to_numpy()  # a NULL becomes a NaN
        with np.errstate(all="ignore"):
            found = calculate(values) + 0.0  # no negative zero
        return as_series(found, np.isfinite(values))

    return calculated


def rounded(values: Doubles, digits: int) -> Doubles:
    """Doubles rounded half away from zero to so many decimal digits after the point, or before it where negative."""
    power = 10.0 ** abs(digits)
    scaled = values * power if digits > 0 else values / power
    whole = np.trunc(scaled)
    part = np.abs(scaled - whole)
    near = whole + np.copysign(part >= 0.5, scaled)
    found: Doubles = near / power if digits > 0 else near * power
    if not digits:
        return found
    certain = (np.abs(part - 0.5) > np.abs(scaled) * _ERROR) & (np.abs(near) < 2 * _INTEGERS)
    if digits > 0:
        integers = np.abs(values) >= _INTEGERS
        found, certain = np.where(integers, values, found), certain | integers
    for row in np.flatnonzero(~certain & np.isfinite(values)).tolist():
        found[row] = _exactly(values[row].item(), digits)
    return found


def _exactly(value: float, digits: int) -> float:
    unit = Fraction(10) ** -digits
    nearest = floor(abs(Fraction(value)) / unit + Fraction(1, 2)) * unit
    found = nearest.numerator / nearest.denominator
    return found if value >= 0 else -found
