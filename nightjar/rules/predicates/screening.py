"""Which of many conditions may hold anywhere in a batch, determined for all at once.

Most conditions require a number to be beyond a constant, which it rarely is. So if many compare the same column, their
constants are compared with its minimum and maximum first, in one operation, and the other conditions are skipped.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nightjar.rules.predicates.comparisons import Columns, Truth, is_comparison
from nightjar.rules.predicates.nodes import Family, Node, Op

# From this many comparisons of a column it is worth computing its minimum and maximum.
_WORTH_IT = 4
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ}
# How the maximum (above) or the minimum must compare with the constant.
_ABOVE = {Op.GT: operator.gt, Op.GE: operator.ge, Op.EQ: operator.ge}
_BELOW = {Op.LT: operator.lt, Op.LE: operator.le, Op.EQ: operator.le}


class Bound(NamedTuple):
    """A comparison of a column with a constant that its condition implies. op: column op constant."""

    column: str
    op: Op
    constant: npt.NDArray[Any]


def bounds(parts: Iterable[Node]) -> tuple[Bound, ...]:
    """The parts of a conjunction that are comparisons of a column with a constant."""
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
    """Determines which of some conditions may hold. given: the bounds of each."""

    def __init__(self, given: Sequence[tuple[Bound, ...]]) -> None:
        self._all: Truth = np.ones(len(given), np.bool_)
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
        """Whether each condition may hold at any row: False if it holds at none."""
        possible = self._all.copy()
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
