"""Predicates: SQL conditions over an event's fields and a rule's measures, from text to one Polars expression.

How it works: `source` bounds and parses the text, `analysis` admits known constructs and types them (`coercion` brings
values to one type), `compilation` makes the expression. Three-valued logic is SQL's; what is NULL in the end is false.

What it does not do: call anything by name, read anything but its columns, or take time out of all proportion.

Numbers: int64 and decimal arithmetic is exact, in 64 or 128 bits as the declared digits need; what could leave 38 is
refused when the rule is read. `/` gives a double, and NULL for a zero divisor. A double makes an operation double.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from rules.predicates.analysis import MAX_WEIGHT, analyse
from rules.predicates.compilation import columns_of, compile_node
from rules.predicates.nodes import renamed
from rules.predicates.source import FUNCTIONS, MAX_DEPTH, MAX_TEXT, Source, parse
from rules.types import FieldType

__all__ = ["FUNCTIONS", "MAX_DEPTH", "MAX_TEXT", "MAX_WEIGHT", "Predicate", "compile_predicate"]


@dataclass(frozen=True)
class Predicate:
    """A compiled condition: `expr` (Boolean, never NULL, one value a row), the columns it reads, its canonical text."""

    expr: pl.Expr
    columns: frozenset[str]
    text: str


def compile_predicate(
    text: str, columns: Mapping[str, FieldType], *, where: str = "", names: Mapping[str, str] | None = None
) -> Predicate:
    """The condition written in `text` over columns of declared types; `where` names its place in the rule for errors.

    names: what columns are called in the frame that `expr` runs on, where that differs from the text.

    `expr` runs on physical columns: INT64 and TIMESTAMP (µs since 1970 UTC) as Int64, DECIMAL as Int64 scaled by its
    power of ten, DOUBLE as Float64 without NaN, BOOLEAN as Boolean, STRING as String. Raises PredicateError.
    """
    return _compiled(text, tuple(columns.items()), where, tuple((names or {}).items()))


# The same rules are compiled by every bucket of a job, and again whenever one rule changes.
@lru_cache(maxsize=4096)
def _compiled(
    text: str, columns: tuple[tuple[str, FieldType], ...], where: str, names: tuple[tuple[str, str], ...]
) -> Predicate:
    source = Source(text, where)
    tree = parse(source, dict(columns))
    root = renamed(analyse(tree, source, dict(columns)), dict(names))
    return Predicate(compile_node(root), columns_of(root), tree.sql())
