"""The functions of measures: one table with all that rules, engine and kernels ask about a function.

Nothing else dispatches on a function; docs/how-to/add-a-measure.md is about another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nightjar.rules.types import DOUBLE, INT64, STRING, FieldType, Kind

# What kernels compute over a window. TOTALS: sum and mean of integers; SPREAD: also their standard deviation; the
# others have one result each, and SUM, MEAN and DEVIATION are of doubles. Kernels compare them by their order.
COUNT, TOTALS, SPREAD, LEAST, GREATEST, FIRST, LAST, DISTINCT, MODE, QUANTILE, SUM, MEAN, DEVIATION = range(13)
# Limbs of 32 bits of an exact sum of doubles (2046 + 53 bits and room for carries), and of one of their squares.
LIMBS = 68
SQUARES = 136
# Shares of a window's values are in parts of this: three digits after the point of a percentage.
WHOLE = 100_000

_ALL = frozenset(Kind)
_NUMBERS = frozenset({Kind.INT64, Kind.DOUBLE, Kind.DECIMAL})
_ORDERED = _NUMBERS | {Kind.TIMESTAMP}


class Function(StrEnum):
    """The aggregates, by their keys in a rule."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"
    COUNT_DISTINCT = "count_distinct"
    FIRST = "first"
    LAST = "last"
    PREVIOUS = "previous"
    MEDIAN = "median"
    PERCENTILE = "percentile"
    MODE = "mode"
    VALUES = "values"
    SEQUENCE = "sequence"

    @property
    def spec(self) -> FunctionSpec:
        """Its row of the table."""
        return SPECS[self]

    def of(self, field: str) -> str | dict[str, Any]:
        """What a rule may write under it for a field."""
        return {"of": field, "p": 95} if self.spec.takes_p else field


class FoldFamily(StrEnum):
    """What is kept of each step for measures with a resolution (S14.2). The values are in names of durable state."""

    COUNT = "count"
    TOTALS = "totals"
    SPREAD = "spread"
    LEAST = "least"
    GREATEST = "greatest"


@dataclass(frozen=True)
class Computation:
    """How kernels compute a function.

    carried: int64 words of what is carried of a long window (see kernels.carried), and in addition so many per place
    that it has room for. place: which result of a code that has several, and so is computed once for all of them.
    """

    code: int
    carried: int
    carried_per_place: int = 0
    place: int | None = None


@dataclass(frozen=True)
class FunctionSpec:
    """A function: in rules, and in the engine."""

    takes: frozenset[Kind]
    """The kinds of fields that it takes."""
    result: Callable[[FieldType], FieldType]
    """The type of its value, from the type of the field."""
    computation: Computation | None
    """How it is computed from the int64 that a value is stored as; None: as a list, made only for alerts, or from
    conditions."""
    of_doubles: Computation | None = None
    """How it is computed from doubles; None: as from other values, by their bits."""
    family: FoldFamily | None = None
    """What it takes of each step; None: it cannot have a resolution, as it needs every event."""
    folds_doubles: bool = False
    """Whether it may have a resolution over doubles: exact sums of these would take hundreds of bytes a step (S3.3)."""
    empty: int | None = None
    """Its value over no values; None is NULL."""
    counts: bool = False
    """Whether it is a number of events or values: never NULL, below 0 or too large, and it reveals no value."""
    takes_rows: bool = False
    """Whether it is also of `*`. Of a field it looks only at whether that is NULL."""
    share: int | None = None
    """How many of a window's values, in parts of WHOLE, its value is above."""
    takes_p: bool = False
    """Whether a rule writes that, in percent: `{of: field, p: 95}`."""
    is_before: bool = False
    """Whether it is of the events before the current one, as with `excluding_current`, which is not written then."""
    takes_conditions: bool = False
    """Whether it is of a list of conditions instead of a field."""

    @property
    def is_ranked(self) -> bool:
        """Whether it is a value that is chosen from all of them in some order (see kernels.ranked)."""
        return self.computation is not None and self.computation.code in (MODE, QUANTILE)

    @property
    def is_list(self) -> bool:
        """Whether its value is a list as text, for people: no condition can compare it."""
        return self.computation is None and not self.takes_conditions


def _to(result: FieldType) -> Callable[[FieldType], FieldType]:
    return lambda _: result


def _same(field_type: FieldType) -> FieldType:
    return field_type


def _total(field_type: FieldType) -> FieldType:
    # 64 bits hold one digit more than the 18 that a field may declare
    return FieldType(Kind.DECIMAL, 19, field_type.scale) if field_type.kind is Kind.DECIMAL else field_type


_QUANTILE = Computation(QUANTILE, carried=8, carried_per_place=2)
_LAST = Computation(LAST, carried=1)
_LEAST, _GREATEST = (Computation(code, carried=2, carried_per_place=1) for code in (LEAST, GREATEST))

SPECS = {
    Function.COUNT: FunctionSpec(
        _ALL,
        _to(INT64),
        Computation(COUNT, carried=7),
        family=FoldFamily.COUNT,
        folds_doubles=True,
        empty=0,
        counts=True,
        takes_rows=True,
    ),
    Function.SUM: FunctionSpec(
        _NUMBERS,
        _total,
        Computation(TOTALS, carried=7, place=0),
        Computation(SUM, carried=1 + LIMBS),
        FoldFamily.TOTALS,
        empty=0,
    ),
    Function.AVG: FunctionSpec(
        _NUMBERS,
        _to(DOUBLE),
        Computation(TOTALS, carried=7, place=1),
        Computation(MEAN, carried=1 + LIMBS),
        FoldFamily.TOTALS,
    ),
    Function.MIN: FunctionSpec(_ORDERED, _same, _LEAST, _LEAST, FoldFamily.LEAST, folds_doubles=True),
    Function.MAX: FunctionSpec(_ORDERED, _same, _GREATEST, _GREATEST, FoldFamily.GREATEST, folds_doubles=True),
    Function.STDDEV: FunctionSpec(
        _NUMBERS,
        _to(DOUBLE),
        Computation(SPREAD, carried=7, place=2),
        Computation(DEVIATION, carried=1 + LIMBS + SQUARES),
        FoldFamily.SPREAD,
    ),
    Function.COUNT_DISTINCT: FunctionSpec(
        _ALL, _to(INT64), Computation(DISTINCT, carried=2, carried_per_place=4), empty=0, counts=True
    ),
    Function.FIRST: FunctionSpec(_ALL, _same, Computation(FIRST, carried=1)),
    Function.LAST: FunctionSpec(_ALL, _same, _LAST),
    Function.PREVIOUS: FunctionSpec(_ALL, _same, _LAST, is_before=True),
    Function.MEDIAN: FunctionSpec(_NUMBERS, _to(DOUBLE), _QUANTILE, _QUANTILE, share=WHOLE // 2),
    Function.PERCENTILE: FunctionSpec(_NUMBERS, _to(DOUBLE), _QUANTILE, _QUANTILE, takes_p=True),
    Function.MODE: FunctionSpec(_ALL, _same, Computation(MODE, carried=1, carried_per_place=6)),
    # a double has several spellings, and two that look alike may differ
    Function.VALUES: FunctionSpec(_ALL - {Kind.DOUBLE}, _to(STRING), computation=None),
    Function.SEQUENCE: FunctionSpec(
        frozenset(), _to(INT64), computation=None, empty=0, counts=True, takes_conditions=True
    ),
}


def result_type(function: Function, field_type: FieldType | None) -> FieldType:
    """The type of a measure over a field of a type it takes; `field_type` is None for `count: "*"` and conditions."""
    return INT64 if field_type is None else function.spec.result(field_type)
