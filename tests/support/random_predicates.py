"""Random predicates, each in two forms: as SQL, and as a function with three truth values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Logic = Callable[[dict[str, Any]], bool | None]


@dataclass(frozen=True)
class Predicate:
    """One predicate, as SQL and as a function with three truth values."""

    sql: str
    truth: Logic

    def test(self, row: dict[str, Any]) -> bool:
        return self.truth(row) is True


ALWAYS = Predicate("TRUE", lambda row: True).test
NEVER = Predicate("FALSE", lambda row: False).test


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(name: str, symbol: str, sql: str, literal: Any) -> Predicate:
    def truth(row: dict[str, Any]) -> bool | None:
        return None if row[name] is None else OPERATORS[symbol](row[name], literal)

    return Predicate(f"{name} {symbol} {sql}", truth)


def _compare_columns(left: str, symbol: str, right: str) -> Predicate:
    def truth(row: dict[str, Any]) -> bool | None:
        a, b = row[left], row[right]
        if a is None or b is None:
            return None
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        return OPERATORS[symbol](a, b)

    return Predicate(f"{left} {symbol} {right}", truth)


_SYMBOLS = st.sampled_from(sorted(OPERATORS))


@functools.cache  # a strategy takes far longer to make than to draw from
def comparisons(name: str, kind: str) -> st.SearchStrategy[Predicate]:
    """Comparisons of one field or measure with a literal that data is likely to meet."""
    if kind == "decimal":
        cents = st.integers(-300, 300) | st.sampled_from([0, 90 * 10**15, -90 * 10**15])
        return st.builds(lambda s, c: _compare(name, s, f"{Decimal(c) / 100:.2f}", Decimal(c) / 100), _SYMBOLS, cents)
    if kind == "int64":
        return st.builds(lambda s, c: _compare(name, s, str(c), c), _SYMBOLS, st.integers(-3, 6))
    if kind == "double":
        return st.builds(lambda s, c: _compare(name, s, repr(c), c), _SYMBOLS, st.sampled_from([-1.5, 0.0, 0.1, 2.5]))
    if kind == "string":
        return st.builds(
            lambda s, c: _compare(name, s, f"'{c}'", c), st.sampled_from(["=", "<>"]), st.sampled_from(["a", "b"])
        )
    if kind == "boolean":
        return st.just(Predicate(name, lambda row: row[name]))
    return st.just(Predicate(f"{name} IS NOT NULL", lambda row: row[name] is not None))


_COMPARABLE = [{"decimal"}, {"int64"}, {"decimal", "int64"}, {"double"}, {"string"}]
# Amounts are small enough for an average of them to be the nearest double: equal ones are equal to their average.
_TO_DOUBLE = ("amount", "double")


@st.composite
def predicates(draw: st.DrawFn, kinds: tuple[tuple[str, str], ...]) -> Predicate:
    """Comparisons joined by AND, OR and NOT; kinds: (name, kind) of the columns."""
    predicate: Predicate | None = None
    for _ in range(draw(st.integers(1, 3))):
        name, kind = draw(st.sampled_from(kinds))
        others = [n for n, k in kinds if n != name and ({k, kind} in _COMPARABLE or (name, k) == _TO_DOUBLE)]
        if others and draw(st.integers(0, 3)) == 3:
            leaf = _compare_columns(name, draw(_SYMBOLS) if kind != "string" else "=", draw(st.sampled_from(others)))
        else:
            leaf = draw(comparisons(name, kind))
        if draw(st.integers(0, 3)) == 3:
            leaf = Predicate(f"NOT ({leaf.sql})", lambda row, a=leaf: _not(a.truth(row)))
        if predicate is None:
            predicate = leaf
        elif draw(st.booleans()):
            predicate = Predicate(
                f"({predicate.sql}) AND ({leaf.sql})",
                lambda row, a=predicate, b=leaf: _and(a.truth(row), b.truth(row)),
            )
        else:
            predicate = Predicate(
                f"({predicate.sql}) OR ({leaf.sql})",
                lambda row, a=predicate, b=leaf: _not(_and(_not(a.truth(row)), _not(b.truth(row)))),
            )
    assert predicate is not None
    return predicate
