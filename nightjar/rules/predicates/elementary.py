"""SQRT, LN, EXP and POWER of doubles: the double nearest to the exact value, on each machine and whatever rows are
evaluated together (S3.10).

How it works: libraries' versions of these functions differ in the last bit, and so do the vectorised and the scalar
code of one library. So they are computed with more digits than a double has (C's long double), where an error of some
units in the last place rarely matters: if both ends of the error round to one double, that is the result. Else, at one
value in a hundred, it is computed with 80 decimal digits. Where long doubles have no more digits than doubles, all
values are computed so, which takes 100 µs each instead of 1. A square root is rounded correctly by every
processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nightjar.rules.predicates.doubles import Doubles, as_series
from nightjar.rules.predicates.nodes import Op

# C libraries state an error of at most 2 units in the last place for these functions.
_ERROR = 4 * np.finfo(np.longdouble).eps
_DIGITS = Context(prec=80, Emax=MAX_EMAX, Emin=MIN_EMIN)
# Powers have values half way between two doubles, as 3 ** 34 has; what is as near to one as this is one.
_HALF_WAY = Fraction(1, 10**70)

Long = npt.NDArray[np.longdouble]


def elementary(op: Op) -> Callable[[Sequence[pl.Series]], pl.Series]:
    """The function on columns of Float64; NULL where an argument is, or an argument or the value is not finite."""
    calculate = _CALCULATED[op]

    def calculated(given: Sequence[pl.Series]) -> pl.Series:
        args = [column.to_numpy() for column in given]  # a NULL becomes a NaN
        with np.errstate(all="ignore"):
            found = calculate(*args) + 0.0  # no negative zero
        there = np.isfinite(found)
        for arg in args:
            there &= np.isfinite(arg)
        return as_series(found, there)

    return calculated


def _nearest(calculate: Callable[..., Long], exactly: Callable[..., Decimal]) -> Callable[..., Doubles]:
    def nearest(*args: Doubles) -> Doubles:
        near = calculate(*(arg.astype(np.longdouble) for arg in args))
        error = np.abs(near) * _ERROR
        least, found = (near - error).astype(np.float64), (near + error).astype(np.float64)
        for row in np.flatnonzero((least != found) & np.isfinite(near)).tolist():
            found[row] = _rounded(exactly(*(Decimal(arg[row if len(arg) > 1 else 0].item()) for arg in args)))
        return found

    return nearest


def _rounded(value: Decimal) -> float:
    """The double nearest to a value with 80 digits; of one that is half way between two, the even one."""
    found = float(value)
    for other in (math.nextafter(found, -math.inf), math.nextafter(found, math.inf)):
        if math.isfinite(found) and math.isfinite(other):
            middle = (Fraction(found) + Fraction(other)) / 2
            if abs(Fraction(value) - middle) < abs(middle) * _HALF_WAY:
                return found if _is_even(found) else other
    return found


def _is_even(value: float) -> bool:
    return not np.float64(value).view(np.int64) & 1


_CALCULATED: dict[Op, Callable[..., Any]] = {
    Op.SQRT: np.sqrt,
    Op.LN: _nearest(np.log, _DIGITS.ln),
    Op.EXP: _nearest(np.exp, _DIGITS.exp),
    Op.POWER: _nearest(np.power, _DIGITS.power),
}
