"""Random predicates, each in two forms: as SQL, and as a function with three truth values."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from hypothesis import strategies as st

Logic = Callable[[dict[str, Any]], bool | None]
_Call = tuple[str, Callable[[Any], Any]]


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


def _half_away(value: Decimal | int) -> Decimal:
    return Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)  # the reference has whole sums of decimals as integers


# Functions as SQL and as Python, by the kind of what they take: these pass them through every host, and what functions
# are of which values is for tests/rules. DuckDB has the same after rules_in_sql.connect.
_ROUNDING: tuple[_Call, ...] = (("FLOOR({})", math.floor), ("CEIL({})", math.ceil))
_CALLS: dict[str, tuple[_Call, ...]] = {
    "decimal": (*_ROUNDING, ("ABS({})", abs), ("ROUND({})", _half_away)),
    "int64": (
        ("GREATEST({}, 1)", lambda value: max(value, 1)),
        ("LEAST({}, 1)", lambda value: min(value, 1)),
        ("NULLIF({}, 1)", lambda value: None if value == 1 else value),
    ),
    "double": (*_ROUNDING, ("ABS({})", abs), ("SQRT(ABS({}))", lambda value: math.sqrt(abs(value)))),
    "string": (
        ("UPPER({})", str.upper),
        ("SUBSTRING({}, 1, 1)", lambda value: value[:1]),
        ("TRIM(CONCAT({}, ' '))", lambda value: value.strip(" ")),
    ),
}
_HEXADECIMAL = re.compile("[0-9A-Fa-f]{0,4}")
_LENGTH: _Call = ("LENGTH({})", len)
_TESTS: tuple[_Call, ...] = (
    ("STARTS_WITH({}, 'a')", lambda value: value.startswith("a")),
    ("REGEXP_LIKE({}, '^[ab]$')", lambda value: value in ("a", "b")),
    (
        "IP_IN(CONCAT('::', {}), '::a')",
        lambda value: int(value or "0", 16) == 10 if _HEXADECIMAL.fullmatch(value) else None,
    ),
)


@functools.cache
def _calls(name: str, kind: str) -> st.SearchStrategy[Predicate]:
    """Comparisons of what a function makes of one field or measure; of strings also other conditions."""
    if kind not in _CALLS:
        filled = Predicate(f"COALESCE({name}, TRUE)", lambda row: row[name] is None or row[name])
        return st.just(filled) if kind == "boolean" else comparisons(name, kind)
    found = [_of_call(call, name, kind) for call in _CALLS[kind]]
    if kind == "string":
        tests = [_call(test, name) for test in _TESTS]
        found += [_of_call(_LENGTH, name, "int64"), *(st.just(Predicate(sql, logic)) for sql, logic in tests)]
    return st.one_of(found)


def _of_call(call: _Call, name: str, kind: str) -> st.SearchStrategy[Predicate]:
    sql, value = _call(call, name)

    def as_called(compared: Predicate) -> Predicate:
        # that of a column which has the function's value
        return Predicate(f"{sql}{compared.sql.removeprefix(name)}", lambda row: compared.truth({name: value(row)}))

    return comparisons(name, kind).map(as_called)


def _call(call: _Call, name: str) -> tuple[str, Callable[[dict[str, Any]], Any]]:
    template, function = call
    return template.format(name), lambda row: None if row[name] is None else function(row[name])


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
        elif draw(st.integers(0, 4)) == 4:
            leaf = draw(_calls(name, kind))
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
