"""Conditions evaluated directly on columns: a batch of some hundred rows is done before Polars has planned it.

The same operators as in the expressions of `compilation`, on Polars' columns (Series), and so with the same meaning
(tests/rules/test_predicates_duckdb.py compares them). Operations that Polars plans even for a column are left to
expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

import numpy as np
import polars as pl

from nightjar.rules.predicates.comparisons import (
    Columns,
    Truth,
    comparison,
    fits,
    is_comparison,
    is_exact_comparison,
    text_comparison,
)
from nightjar.rules.predicates.compilation import BINARY, exact_dtype
from nightjar.rules.predicates.doubles import divide, to_double
from nightjar.rules.predicates.nodes import Family, Node, Op

Term = Callable[[Columns], Truth]
Eager = Callable[[Columns], pl.Series]

_PLAIN = {Op.COLUMN, Op.LITERAL, Op.AND, Op.OR, Op.NOT, Op.TO_DOUBLE, Op.DIV, Op.RESCALE, *BINARY}
_DTYPES = {Family.TIMESTAMP: pl.Int64, Family.DOUBLE: pl.Float64, Family.STRING: pl.String, Family.BOOLEAN: pl.Boolean}


def term(node: Node) -> Term | None:
    """From columns to where the condition is true, one element per row or a single one; None if Polars must plan it."""
    if is_comparison(node):
        return comparison(node)
    if (of_texts := text_comparison(node)) is not None:
        return of_texts
    if not _is_plain(node):
        return None
    value = _eager(node)
    if is_exact_comparison(node):
        small, fit = comparison(node), fits(node)
        return lambda columns: small(columns) if fit(columns) else truth(value(columns))
    return lambda columns: truth(value(columns))


def eager(node: Node) -> Eager | None:
    """From columns to the node's values, one per row or a single one; None if Polars must plan it."""
    return _eager(node) if _is_plain(node) else None


def truth(found: pl.Series) -> Truth:
    """Where a column of booleans is true."""
    if not found.any():
        return np.zeros(len(found), np.bool_)
    return (found.fill_null(value=False) if found.null_count() else found).to_numpy()


def _is_plain(node: Node) -> bool:
    return node.op in _PLAIN and node.type.family is not Family.NULL and all(map(_is_plain, node.args))


def _eager(node: Node) -> Eager:
    """From columns to the node's values, one per row; a single value if the node reads no column."""
    args = [_eager(arg) for arg in node.args]
    match node.op:
        case Op.COLUMN:
            return operator.itemgetter(str(node.value))
        case Op.LITERAL:
            return _constant(node, wide=node.type.wide)
        case Op.AND | Op.OR:
            join = operator.and_ if node.op is Op.AND else operator.or_
            return lambda columns: reduce(join, [arg(columns) for arg in args])
        case Op.NOT:
            (inner,) = args
            return lambda columns: ~inner(columns)
        case Op.TO_DOUBLE:
            (inner,), scale = args, node.args[0].type.scale
            return lambda columns: to_double(inner(columns), scale)
        case Op.DIV:
            dividend, divisor = args
            return lambda columns: divide(dividend(columns), divisor(columns))
        case Op.RESCALE:
            value = _at_width(node.args[0], args[0], wide=node.type.wide)
            factor = pl.Series([node.value], dtype=exact_dtype(wide=node.type.wide))
            return lambda columns: value(columns) * factor
        case _:
            wide = node.type.wide or any(arg.type.wide for arg in node.args)
            left, right = (_at_width(arg, built, wide=wide) for arg, built in zip(node.args, args, strict=True))
            apply = BINARY[node.op]
            return lambda columns: apply(left(columns), right(columns))


def _constant(node: Node, *, wide: bool) -> Eager:
    value = pl.Series([node.value], dtype=_DTYPES.get(node.type.family, exact_dtype(wide=wide)))
    return lambda _: value


def _at_width(node: Node, built: Eager, *, wide: bool) -> Eager:
    """`built`, the node's values, in the width that another node needs."""
    if node.is_literal:
        return _constant(node, wide=wide)
    if wide and node.type.family is Family.EXACT and not node.type.wide:
        return lambda columns: built(columns).cast(pl.Int128)
    return built
