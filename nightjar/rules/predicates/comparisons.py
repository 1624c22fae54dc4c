"""Comparisons of plain numbers, and of texts with a constant, run by NumPy: for a batch of some hundred rows Polars
takes longer to create a column than NumPy to compare.

Exact numbers of 64 bits, doubles and timestamps, and what is calculated from them in 64 bits; the operators are those
of `compilation`. It is used at the top of a condition, where NULL is false, so no three-valued logic is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from nightjar.rules.predicates.compilation import BINARY
from nightjar.rules.predicates.doubles import as_doubles, quotients
from nightjar.rules.predicates.nodes import INT64_LIMIT, Family, Node, Op

Truth = npt.NDArray[np.bool_]
# Values, and where they are valid (None: everywhere); the values of NULLs are arbitrary.
Numbers = tuple[npt.NDArray[Any], Truth | None]

_COMPARED = {Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE}
_CALCULATED = {Op.ADD, Op.SUB, Op.MUL, Op.DIV}
_SIGNED = {Op.NEG: np.negative, Op.ABS: np.abs}
# What wraps around in 64 bits without harm where the result fits, and grows with what it is calculated from.
_WHOLE = {Op.COLUMN, Op.LITERAL, Op.RESCALE, Op.ADD, Op.SUB, Op.MUL, *_SIGNED}
_NUMERIC = {Op.COLUMN, Op.LITERAL, Op.TO_DOUBLE, Op.RESCALE, *_CALCULATED, *_SIGNED}
_FAMILIES = {Family.EXACT, Family.DOUBLE, Family.TIMESTAMP}


class Columns(dict[str, pl.Series]):
    """Columns by name, as Polars Series and, for numbers, as NumPy arrays."""

    def numbers(self, name: str) -> Numbers:
        """A column of Int64 or Float64."""
        column = self[name]
        return column.fill_null(0).to_numpy(), column.is_not_null().to_numpy()

    def equal(self, name: str, text: pa.Array) -> tuple[Truth, Truth]:
        """Where a column of texts is this one text, and where it is not NULL."""
        column = self[name]
        return (column == text[0].as_py()).fill_null(value=False).to_numpy(), column.is_not_null().to_numpy()


def text_comparison(node: Node) -> Callable[[Columns], Truth] | None:
    """From columns to where a column of texts is, or is not, one text; None if the tree is no such comparison."""
    if node.op not in (Op.EQ, Op.NE) or any(arg.type.family is not Family.STRING for arg in node.args):
        return None
    column, literal = sorted(node.args, key=lambda arg: arg.is_literal)
    if column.op is not Op.COLUMN or not literal.is_literal:
        return None
    name, text = str(column.value), pa.array([literal.value], pa.string())

    def holds(columns: Columns) -> Truth:
        found, valid = columns.equal(name, text)
        return found if node.op is Op.EQ else valid & ~found

    return holds


def is_comparison(node: Node) -> bool:
    """Whether `comparison` supports the tree."""
    return node.op in _COMPARED and all(map(_is_numeric, node.args))


def _is_numeric(node: Node) -> bool:
    return (
        node.op in _NUMERIC
        and node.type.family in _FAMILIES
        and not node.type.wide
        and all(map(_is_numeric, node.args))
    )


def is_exact_comparison(node: Node) -> bool:
    """Whether `comparison` supports the tree, though 64 bits may not hold what it calculates, while `fits` is true."""
    return node.op in _COMPARED and all(map(_is_whole, node.args))


def _is_whole(node: Node) -> bool:
    if node.op not in _WHOLE or node.type.family is not Family.EXACT:
        return False
    if node.op is Op.LITERAL:
        return abs(int(node.value)) < INT64_LIMIT
    return not (node.op is Op.COLUMN and node.type.wide) and all(map(_is_whole, node.args))


def fits(node: Node) -> Callable[[Columns], bool]:
    """From columns to whether 64 bits hold what a comparison calculates of them, as is_exact_comparison has it: by the
    largest values that occur and not, as a node's type, by those that are possible."""
    sides = [_largest(arg) for arg in node.args]
    return lambda columns: max(largest(columns) for largest in sides) < INT64_LIMIT


def _largest(node: Node) -> Callable[[Columns], int]:
    """From columns to a magnitude that a node's values do not exceed."""
    if node.op is Op.COLUMN:
        name = str(node.value)
        return lambda columns: _magnitude(columns.numbers(name)[0])
    if node.op is Op.LITERAL:
        constant = abs(int(node.value))
        return lambda _: constant
    args = [_largest(arg) for arg in node.args]
    if node.op is Op.RESCALE:
        factor = int(node.value)
        return lambda columns: factor * args[0](columns)
    if node.op is Op.MUL:
        return lambda columns: math.prod(arg(columns) for arg in args)
    return lambda columns: sum(arg(columns) for arg in args)


def _magnitude(values: npt.NDArray[Any]) -> int:
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


def comparison(node: Node) -> Callable[[Columns], Truth]:
    """From columns to where the comparison holds, one element per row, or a single one if it reads no column."""
    left, right = map(_numbers, node.args)
    compare = BINARY[node.op]
    may_be_nan = any(map(_may_be_nan, node.args))
    if node.args[0].op is Op.COLUMN and node.args[1].is_literal:
        return _with_constant(str(node.args[0].value), compare, right(Columns())[0])

    def holds(columns: Columns) -> Truth:
        a, a_valid = left(columns)
        b, b_valid = right(columns)
        # a sum with a NaN is NaN; in Polars, as in SQL, NaN equals itself and is greater than anything else
        if may_be_nan and (np.isnan(a.sum()) or np.isnan(b.sum())):
            found = compare(pl.Series(a), pl.Series(b)).to_numpy()
        else:
            found = compare(a, b)
        valid = _both(a_valid, b_valid)
        return found if valid is None else found & valid  # type: ignore[no-any-return]

    return holds


def _with_constant(name: str, compare: Callable[..., Truth], constant: npt.NDArray[Any]) -> Callable[[Columns], Truth]:
    """The most frequent comparison, of a column, with nothing around it: for a small batch that takes longer."""

    def holds(columns: Columns) -> Truth:
        values, valid = columns.numbers(name)
        found = compare(values, constant)
        return found if valid is None else found & valid

    return holds


def _may_be_nan(node: Node) -> bool:
    """Whether a value may be NaN: columns and literals never are, but results from infinite doubles may be."""
    return node.type.family is Family.DOUBLE and (node.op in _CALCULATED or any(map(_may_be_nan, node.args)))


def _both(a: Truth | None, b: Truth | None) -> Truth | None:
    if a is None:
        return b
    return a if b is None else a & b


def _numbers(node: Node) -> Callable[[Columns], Numbers]:
    match node.op:
        case Op.COLUMN:
            name = str(node.value)
            return lambda columns: columns.numbers(name)
        case Op.LITERAL:
            constant = np.array([node.value], np.float64 if node.type.family is Family.DOUBLE else np.int64)
            return lambda _: (constant, None)
        case Op.TO_DOUBLE:
            scale = node.args[0].type.scale
            return _converted(node.args[0], lambda values: as_doubles(values, scale))
        case Op.RESCALE:
            factor = np.int64(node.value)
            return _converted(node.args[0], lambda values: values * factor)
        case Op.NEG | Op.ABS:
            return _converted(node.args[0], _SIGNED[node.op])
    left, right = map(_numbers, node.args)
    calculate = quotients if node.op is Op.DIV else _everywhere(BINARY[node.op])

    def calculated(columns: Columns) -> Numbers:
        a, a_valid = left(columns)
        b, b_valid = right(columns)
        values, valid = calculate(a, b)
        return values, _both(valid, _both(a_valid, b_valid))

    return calculated


def _everywhere(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Numbers]:
    """An operation whose result is NULL only where a value that it is given is."""
    return lambda a, b: (operation(a, b), None)


def _converted(node: Node, convert: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Columns], Numbers]:
    inner = _numbers(node)

    def converted(columns: Columns) -> Numbers:
        values, valid = inner(columns)
        return convert(values), valid

    return converted
