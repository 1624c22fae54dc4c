"""Predicates: SQL conditions over an event's fields and a rule's measures, from text to what Polars runs.

How it works: `source` bounds and parses the text, `analysis` admits known constructs and types them (`coercion` brings
values to one type), `eager` and `compilation` produce what runs. Three-valued logic is SQL's; a NULL result is false.

What it does not do: call anything by name, read anything but its columns, or take unbounded time.

Numbers: int64 and decimal arithmetic is exact, in 64 or 128 bits as the declared digits need; a result that could need
more than 38 digits is refused when the rule is read. `/` gives a double, and NULL for a zero divisor. An operation with
a double gives a double.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from nightjar.rules.predicates.analysis import MAX_WEIGHT, analyse
from nightjar.rules.predicates.comparisons import Columns, Numbers, Truth
from nightjar.rules.predicates.compilation import columns_of, compile_node
from nightjar.rules.predicates.compilation import compile_value as value_of
from nightjar.rules.predicates.eager import Eager, Term, eager, term, truth
from nightjar.rules.predicates.impossible import impossibilities
from nightjar.rules.predicates.nodes import BOOLEAN, Node, Op, Type, renamed
from nightjar.rules.predicates.parsing import FUNCTIONS, MAX_DEPTH, MAX_TEXT, parse
from nightjar.rules.predicates.screening import Bound, Screen, bounds
from nightjar.rules.predicates.source import Source
from nightjar.rules.tables import tables_among
from nightjar.rules.types import FieldType

__all__ = [
    "FUNCTIONS",
    "MAX_DEPTH",
    "MAX_TEXT",
    "MAX_WEIGHT",
    "Columns",
    "Numbers",
    "Predicate",
    "Screen",
    "Truth",
    "Value",
    "check_predicate",
    "check_value",
    "compile_predicate",
    "compile_value",
    "impossible_parts",
    "truths",
]

_TRUE: Truth = np.ones(1, np.bool_)


@dataclass(frozen=True)
class Predicate:
    """A compiled condition: it holds where every one of `plain` and `rest` does."""

    plain: tuple[Term, ...]
    rest: pl.Expr | None
    """The part that Polars must plan, as one expression that is never NULL."""
    rest_columns: frozenset[str]
    columns: frozenset[str]
    """All that it reads."""
    text: str
    """Canonical."""
    bounds: tuple[Bound, ...]
    """Comparisons that it implies."""


def compile_predicate(
    text: str, columns: Mapping[str, FieldType], *, where: str = "", names: Mapping[str, str] | None = None
) -> Predicate:
    """The condition in `text` over columns of declared types; `where` is its place in the rule, for errors.

    names: the names of columns when it runs, where they differ from the text.

    It runs on physical columns: INT64 and TIMESTAMP (µs since 1970 UTC) as Int64, DECIMAL as Int64 scaled by its
    power of ten, DOUBLE as Float64 without NaN, BOOLEAN as Boolean, STRING as String. Raises PredicateError.
    """
    return _compiled(text, tuple(columns.items()), where, tuple((names or {}).items()))


@dataclass(frozen=True)
class Value:
    """A compiled expression of any type, on physical columns as a predicate."""

    expression: pl.Expr
    type: Type
    columns: frozenset[str]
    at_once: Eager | None
    """The same without Polars' planning, where that is possible."""

    def of(self, columns: Columns, rows: int) -> pl.Series:
        """The values, one element per row."""
        if self.at_once is not None:
            with np.errstate(all="ignore"):  # NULLs are calculated too
                found = self.at_once(columns)
        else:
            read = [columns[name].alias(name) for name in sorted(self.columns)]
            frame = pl.DataFrame(read or [pl.Series([None] * rows)])
            found = frame.select_seq(self.expression.alias("")).to_series()
        # a constant, or one that Polars has made of equal rows
        return found if len(found) == rows else found.new_from_index(0, rows)


@lru_cache(maxsize=1024)
def _value(
    text: str, columns: tuple[tuple[str, FieldType], ...], where: str, names: tuple[tuple[str, str], ...], strict: bool
) -> Value:
    source = Source(text, where)
    analysed = analyse(parse(source, dict(columns), strict=strict), source, dict(columns), condition=False)
    assert analysed is not None  # noqa: S101  every column has a type
    root = renamed(analysed, dict(names))
    return Value(value_of(root), root.type, columns_of(root), eager(root))


def compile_value(
    text: str,
    columns: Mapping[str, FieldType],
    *,
    where: str = "",
    names: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Value:
    """The expression in `text` over columns of declared types; where, names: as of `compile_predicate`; strict: as of
    `check_predicate`. Raises PredicateError."""
    return _value(text, tuple(columns.items()), where, tuple((names or {}).items()), strict)


def check_value(
    text: str, columns: Mapping[str, FieldType], *, where: str = "", unknown: Container[str] = (), strict: bool = True
) -> Type | None:
    """The type of an expression, None if it depends on `unknown` columns; raises as `check_predicate`."""
    source = Source(text, where)
    tree = parse(source, _Names(columns, unknown), strict=strict, tables=tables_among(columns))
    root = analyse(tree, source, columns, unknown, condition=False)
    return None if root is None else root.type


def check_predicate(
    text: str, columns: Mapping[str, FieldType], *, where: str = "", unknown: Container[str] = (), strict: bool = True
) -> None:
    """Raise PredicateError with all problems of a condition; with `strict` a spelling that the reference lacks is one.

    unknown: additional column names of unknown type; comparisons with them are not checked.
    """
    source = Source(text, where)
    tree = parse(source, _Names(columns, unknown), strict=strict, tables=tables_among(columns))
    analyse(tree, source, columns, unknown)


def impossible_parts(texts: Sequence[str], columns: Mapping[str, FieldType], least: Mapping[str, int]) -> list[str]:
    """A sentence for each part of some conditions, joined by AND, that never holds (see `impossible`).

    least: the least values that columns can have.

    Raises:
        PredicateError: a condition is none.
    """
    return impossibilities(Node(Op.AND, BOOLEAN, tuple(_root(text, columns, "") for text in texts)), least)


def _root(text: str, columns: Mapping[str, FieldType], where: str) -> Node:
    source = Source(text, where)
    analysed = analyse(parse(source, columns), source, columns)
    assert analysed is not None  # noqa: S101  every column has a type
    return analysed


@dataclass(frozen=True)
class _Names:
    known: Container[str]
    unknown: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.known or name in self.unknown


# The same rules are compiled by every bucket of a job, and again whenever one rule changes.
@lru_cache(maxsize=4096)
def _compiled(
    text: str, columns: tuple[tuple[str, FieldType], ...], where: str, names: tuple[tuple[str, str], ...]
) -> Predicate:
    source = Source(text, where)
    tree = parse(source, dict(columns))
    analysed = analyse(tree, source, dict(columns))
    assert analysed is not None  # noqa: S101  every column has a type
    root = renamed(analysed, dict(names))
    parts = root.args if root.op is Op.AND else (root,)
    # the cheapest first: once one holds nowhere, the others are not evaluated
    terms = [(part, term(part)) for part in sorted(parts, key=lambda part: part.weight)]
    plain = tuple(at_once for _, at_once in terms if at_once is not None)
    others = tuple(part for part, at_once in terms if at_once is None)
    rest = Node(Op.AND, BOOLEAN, others)
    return Predicate(
        plain, compile_node(rest) if others else None, columns_of(rest), columns_of(root), tree.sql(), bounds(parts)
    )


def truths(predicates: Sequence[Predicate], given: Mapping[str, pl.Series], rows: int) -> list[npt.NDArray[np.uint8]]:
    """Where each predicate holds, as uint8, one element per row.

    A predicate holds rarely: once no row is left, its other conditions and their columns are not evaluated. Expressions
    are planned together and run sequentially (select_seq): a thread pool takes longer than so little work.
    """
    columns = given if isinstance(given, Columns) else Columns(given)
    with np.errstate(all="ignore"):  # NULLs are calculated too, and doubles may become infinite
        found = [_conjunction(predicate.plain, columns) for predicate in predicates]
    left = {at: p.rest.alias(str(at)) for at, p in enumerate(predicates) if p.rest is not None and found[at].any()}
    if left:
        names = sorted(frozenset[str]().union(*(predicates[at].rest_columns for at in left)))
        # constants take their length from the frame
        frame = pl.DataFrame([columns[name].alias(name) for name in names] or [pl.Series([None] * rows)])
        for at, rest in zip(left, frame.select_seq(left.values()).iter_columns(), strict=True):
            found[at] = found[at] & truth(rest)
    return [(each if len(each) == rows else np.repeat(each, rows)).view(np.uint8) for each in found]


def _conjunction(terms: Sequence[Term], columns: Columns) -> Truth:
    found = _TRUE
    for holds in terms:
        found = holds(columns) if found is _TRUE else found & holds(columns)
        if not np.count_nonzero(found):  # a fifth of the time that any() takes
            break
    return found
