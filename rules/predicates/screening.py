"""Which of many conditions may hold anywhere in a batch, asked of all at once.

Conditions mostly ask that a number is beyond a constant, and rarely is one. So where many compare the same column, they
are compared with its least and greatest value first, all by one operation, and nothing is done for the others.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rules.predicates.comparisons import Columns, Truth, is_comparison
from rules.predicates.nodes import Family, Node, Op

# So many comparisons of a column are worth looking for its least and greatest value.
_WORTH_IT = 4
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ}
# What the greatest (above) or the least value has to be to the constant.
_ABOVE = {Op.GT: operator.gt, Op.GE: operator.ge, Op.EQ: operator.ge}
_BELOW = {Op.LT: operator.lt, Op.LE: operator.le, Op.EQ: operator.le}


class Bound(NamedTuple):
    """A comparison of a column with a constant, which its condition implies. op: column op constant."""

    column: str
    op: Op
    constant: npt.NDArray[Any]


def bounds(parts: Iterable[Node]) -> tuple[Bound, ...]:
    """Those of a conjunction's parts that are comparisons of a column with a constant."""
    found = []
    for part in parts:
        if part.op not in _MIRRORED or not is_comparison(part):
            continue
        left, right = part.args
        op = part.op
        if left.is_literal:
            left, right, op = right, left, _MIRRORED[op]
        if left.op is Op.COLUMN and right.is_literal:
            kind = np.float64 if right.type.family is Family.DOUBLE else np.int64
            found.append(Bound(str(left.value), op, np.array(right.value, kind)))
    return tuple(found)


class Screen:
    """Tells which of some conditions may hold. given: the bounds of each."""

    def __init__(self, given: Sequence[tuple[Bound, ...]]) -> None:
        self._conditions = len(given)
        of_column: dict[str, dict[Op, list[tuple[int, npt.NDArray[Any]]]]] = {}
        for at, of_condition in enumerate(given):
            for bound in of_condition:
                of_column.setdefault(bound.column, {}).setdefault(bound.op, []).append((at, bound.constant))
        self._columns = {
            column: [
                (op, np.array([at for at, _ in compared]), np.array([constant for _, constant in compared]))
                for op, compared in ops.items()
            ]
            for column, ops in of_column.items()
            if sum(map(len, ops.values())) >= _WORTH_IT
        }

    def possible(self, columns: Columns) -> Truth:
        """Of each condition, whether it may hold at a row: False where it holds at none."""
        possible = np.ones(self._conditions, np.bool_)
        for column, ops in self._columns.items():
            values, valid = columns.numbers(column)
            if valid is not None:
                values = values[valid]
            if not len(values):
                for _, at, _ in ops:
                    possible[at] = False
                continue
            least, greatest = values.min(), values.max()
            for op, at, constants in ops:
                if op in _ABOVE:
                    possible[at] &= _ABOVE[op](greatest, constants)
                if op in _BELOW:
                    possible[at] &= _BELOW[op](least, constants)
        return possible
