"""From the typed tree to one Polars expression over physical columns, with as few operations as possible.

Physical columns: an exact number is Int64 (a decimal scaled to an integer), a timestamp Int64 (microseconds since 1970
in UTC), a double Float64, a boolean Boolean, a string String.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import polars as pl

from nightjar.rules.predicates.distances import distances
from nightjar.rules.predicates.doubles import Doubles, divide, to_double
from nightjar.rules.predicates.elementary import elementary
from nightjar.rules.predicates.extremes import extreme
from nightjar.rules.predicates.networks import Networks
from nightjar.rules.predicates.nodes import BOOLEAN, DOUBLE, INT64_LIMIT, STRING, Family, Node, Op
from nightjar.rules.predicates.patterns import translated
from nightjar.rules.predicates.rounding import of_doubles, rounded
from nightjar.rules.predicates.zones import shown, shown_in

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# 1970-01-01 was a Thursday: its days since the first day of the week.
_THURSDAY_AFTER_SUNDAY = 4
_THURSDAY_AFTER_MONDAY = 3
# More characters than a string can have.
_BEYOND_STRINGS = 2**31

_TO_INTEGERS: dict[Op, Callable[[Doubles], Doubles]] = {Op.FLOOR: np.floor, Op.CEIL: np.ceil}

# For expressions and for columns alike.
BINARY: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
}


def compile_node(root: Node) -> pl.Expr:
    """A boolean expression that is never NULL and as long as its columns, for a boolean root."""
    if not columns_of(root):
        # A constant has length 1 until it is combined with a column, here the length of the batch.
        constant = pl.select(_build(root)).item()
        return pl.repeat(bool(constant), pl.len(), dtype=pl.Boolean)
    built = _build(root)
    if _may_collapse(root):
        built &= pl.repeat(value=True, n=pl.len(), dtype=pl.Boolean)
    return built.fill_null(value=False)


def compile_value(root: Node) -> pl.Expr:
    """The expression of a root of any type; as long as its columns, or a constant."""
    return _build(root)


def columns_of(root: Node) -> frozenset[str]:
    """The names of the columns that a tree reads."""
    if root.op is Op.COLUMN:
        return frozenset({str(root.value)})
    return frozenset().union(*map(columns_of, root.args))


def _may_collapse(node: Node) -> bool:
    """Whether Polars may return one row for many: if every row of a batch has the same constant of a choice."""
    return node.op in (Op.CASE, Op.COALESCE) or any(map(_may_collapse, node.args))


def _build(node: Node) -> pl.Expr:
    match node.op:
        case Op.COLUMN:
            return pl.col(str(node.value))
        case Op.LITERAL:
            return _literal(node, wide=node.type.wide)
        case Op.AND | Op.OR:
            return _balanced(operator.and_ if node.op is Op.AND else operator.or_, [_build(arg) for arg in node.args])
        case Op.NOT:
            return ~_build(node.args[0])
        case Op.IS_NULL:
            return _build(node.args[0]).is_null()
        case Op.IN:
            return _membership(node)
        case Op.LIKE:
            return _like(_build(node.args[0]), str(node.value))
        case Op.DIV:
            return pl.map_batches(
                [_build(arg) for arg in node.args], lambda given: divide(*given), return_dtype=pl.Float64
            )
        case Op.MOD:
            return _remainder(node)
        case Op.NEG:
            return _negative(node)
        case Op.ABS:
            return _at_width(node.args[0], wide=node.type.wide).abs()
        case Op.TO_DOUBLE:
            (value,) = node.args
            scale = value.type.scale
            return _build(value).map_batches(lambda values: to_double(values, scale), return_dtype=pl.Float64)
        case Op.RESCALE:
            factor = pl.lit(node.value, dtype=exact_dtype(wide=node.type.wide))
            return _at_width(node.args[0], wide=node.type.wide) * factor
        case Op.LOWER:
            return _build(node.args[0]).str.to_lowercase()
        case Op.UPPER:
            return _build(node.args[0]).str.to_uppercase()
        case Op.LENGTH:
            return _build(node.args[0]).str.len_chars().cast(pl.Int64)
        case Op.LOCAL:
            if node.value is None:
                return pl.map_batches([_build(arg) for arg in node.args], shown_in, return_dtype=pl.Int64)
            return shown(_build(node.args[0]), str(node.value))
        case Op.PART:
            return _part(_build(node.args[0]), str(node.value))
        case Op.CASE:
            return _case(node)
        case Op.COALESCE:
            return pl.coalesce(*(_at_width(arg, wide=node.type.wide) for arg in node.args))
        case Op.SUBSTRING:
            return _substring(*node.args)
        case Op.CONCAT:
            return pl.concat_str([_build(arg) for arg in node.args])
        case Op.TRIM:
            return _build(node.args[0]).str.strip_chars(" ")
        case Op.STARTS_WITH:
            text, affix = map(_build, node.args)
            return text.str.starts_with(affix)
        case Op.ENDS_WITH:
            text, affix = map(_build, node.args)
            return text.str.ends_with(affix)
        case Op.REGEXP_LIKE:
            return _build(node.args[0]).str.contains(translated(str(node.value)), strict=True)
        case Op.IP_IN:
            return _build(node.args[0]).map_batches(Networks(node.value).hold, return_dtype=pl.Boolean)
        case Op.DISTANCE_KM:
            return pl.map_batches([_build(arg) for arg in node.args], distances, return_dtype=pl.Int64)
        case Op.SQRT | Op.LN | Op.EXP | Op.POWER:
            return pl.map_batches([_build(arg) for arg in node.args], elementary(node.op), return_dtype=pl.Float64)
        case Op.ROUND | Op.FLOOR | Op.CEIL:
            return _rounded(node)
        case Op.GREATEST | Op.LEAST:
            args = [_at_width(arg, wide=node.type.wide) for arg in node.args]
            compare = operator.ge if node.op is Op.GREATEST else operator.le
            return pl.map_batches(args, extreme(compare), return_dtype=_dtype(node))
        case _:
            wide = node.type.wide or any(arg.type.wide for arg in node.args)
            joined: pl.Expr = BINARY[node.op](*(_at_width(arg, wide=wide) for arg in node.args))
            return joined


def exact_dtype(*, wide: bool) -> type[pl.DataType]:
    """The Polars type of an exact number."""
    return pl.Int128 if wide else pl.Int64


def _literal(node: Node, *, wide: bool) -> pl.Expr:
    match node.type.family:
        case Family.EXACT:
            return pl.lit(node.value, dtype=exact_dtype(wide=wide))
        case Family.TIMESTAMP:
            return pl.lit(node.value, dtype=pl.Int64)
        case _:
            return pl.lit(node.value)


def _at_width(node: Node, *, wide: bool) -> pl.Expr:
    """The node's value in the width that another node needs; only exact numbers have two widths."""
    if node.is_literal:
        return _literal(node, wide=wide)
    built = _build(node)
    widened = wide and node.type.family is Family.EXACT and not node.type.wide
    return built.cast(pl.Int128) if widened else built


def _balanced(join: Callable[[pl.Expr, pl.Expr], pl.Expr], parts: Sequence[pl.Expr]) -> pl.Expr:
    """Polars takes time quadratic in the depth of an expression, so a long chain becomes a flat tree."""
    while len(parts) > 2:
        parts = [reduce(join, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return reduce(join, parts)


def _membership(node: Node) -> pl.Expr:
    (value,) = node.args
    built = _build(value)
    if not node.value:
        # No value of the list can occur: false, and NULL for NULL.
        return built != built  # noqa: PLR0124
    dtype = {BOOLEAN: pl.Boolean, DOUBLE: pl.Float64, STRING: pl.String}.get(
        value.type, exact_dtype(wide=value.type.wide)
    )
    if len(node.value) == 1:
        return built == pl.lit(node.value[0], dtype=dtype)
    return built.is_in(pl.Series(node.value, dtype=dtype).implode())


def _negative(node: Node) -> pl.Expr:
    value = _at_width(node.args[0], wide=node.type.wide)
    # Polars cannot negate Int128.
    return pl.lit(0, dtype=pl.Int128) - value if node.type.wide else -value


def _remainder(node: Node) -> pl.Expr:
    """SQL's remainder has the sign of the dividend, that of Polars the sign of the divisor; NULL for a zero divisor."""
    dividend, divisor = node.args
    wide = dividend.type.wide or divisor.type.wide or node.type.wide
    above, below = _at_width(dividend, wide=wide), _at_width(divisor, wide=wide)
    if _reaches_int64_minimum(dividend) or _reaches_int64_minimum(divisor):
        above, below, wide = above.cast(pl.Int128), below.cast(pl.Int128), True
    remainder = (above.abs() % below.abs()) * above.sign()
    return remainder.cast(pl.Int64) if wide and not node.type.wide else remainder


def _reaches_int64_minimum(node: Node) -> bool:
    """Whether abs() of a value held in 64 bits may overflow."""
    return not node.type.wide and node.type.limit == 2**63


def _case(node: Node) -> pl.Expr:
    *pairs, default = node.args
    otherwise = _at_width(default, wide=node.type.wide)
    chain: pl.Expr = otherwise
    for condition, value in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        chain = pl.when(_build(condition)).then(_at_width(value, wide=node.type.wide)).otherwise(chain)
    return chain


def _like(value: pl.Expr, pattern: str) -> pl.Expr:
    """Plain comparisons if they suffice; else a regular expression in Rust's engine, which takes linear time."""
    if "_" not in pattern:
        body = pattern.strip("%")
        starts_open, ends_open = pattern.startswith("%"), pattern.endswith("%")
        if "%" not in body:
            if not body and pattern:
                return value == value  # noqa: PLR0124  true, and NULL where there is no string
            if starts_open and ends_open:
                return value.str.contains(body, literal=True)
            if starts_open:
                return value.str.ends_with(body)
            if ends_open:
                return value.str.starts_with(body)
            return value == pl.lit(body)
    translated = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in re.sub("%+", "%", pattern))
    return value.str.contains(f"(?s)^{translated}$", strict=True)


def _rounded(node: Node) -> pl.Expr:
    (value,) = node.args
    if value.type == DOUBLE:
        calculate = partial(rounded, digits=node.value) if node.op is Op.ROUND else _TO_INTEGERS[node.op]
        return _build(value).map_batches(of_doubles(calculate), return_dtype=pl.Float64)
    digits = node.value if node.op is Op.ROUND else 0
    units = 10 ** (value.type.scale - digits)
    wide = node.type.wide or value.type.limit + units >= INT64_LIMIT
    unit = pl.lit(units, dtype=exact_dtype(wide=wide))
    built = _at_width(value, wide=True) if wide else _build(value)
    if node.op is Op.ROUND:
        half = pl.lit(units // 2, dtype=exact_dtype(wide=wide))
        back = pl.lit(10 ** max(-digits, 0), dtype=exact_dtype(wide=wide))
        found = (built.abs() + half) // unit * built.sign() * back
    else:
        found = built // unit
        if node.op is Op.CEIL:
            found += (built % unit != 0).cast(exact_dtype(wide=wide))
    return found.cast(exact_dtype(wide=node.type.wide))


def _dtype(node: Node) -> type[pl.DataType]:
    return {DOUBLE: pl.Float64, STRING: pl.String}.get(node.type, exact_dtype(wide=node.type.wide))


def _substring(text: Node, start: Node, length: Node | None = None) -> pl.Expr:
    """The characters at the positions from `start` on that there are, `length` of them counted from `start`."""
    from_ = _clipped(start)
    skipped = from_.clip(1) - 1
    if length is None:
        return _build(text).str.slice(skipped)
    counted = _clipped(length)
    found = _build(text).str.slice(skipped, (from_ - 1 + counted - skipped).clip(0))
    # Polars takes a length that is NULL for 0
    return found if length.is_literal else pl.when(counted.is_not_null()).then(found)


def _clipped(node: Node) -> pl.Expr:
    """A position, or a number of characters, within bounds that no string reaches and that can be added."""
    return _build(node).clip(-_BEYOND_STRINGS, _BEYOND_STRINGS).cast(pl.Int64)


def _part(value: pl.Expr, part: str) -> pl.Expr:
    """Parts of the day and of the week are plain arithmetic, floored, so that it holds before 1970 too."""
    match part:
        case "EPOCH":
            return value
        case "HOUR":
            return (value // (3600 * _SECOND)) % 24
        case "MINUTE":
            return (value // (60 * _SECOND)) % 60
        case "SECOND":
            return (value // _SECOND) % 60
        case "DAYOFWEEK":
            return (value // _DAY + _THURSDAY_AFTER_SUNDAY) % 7 + 1
        case "ISODOW":
            return (value // _DAY + _THURSDAY_AFTER_MONDAY) % 7 + 1
    instant = value.cast(pl.Datetime("us")).dt
    found = {
        "YEAR": instant.year,
        "QUARTER": instant.quarter,
        "MONTH": instant.month,
        "WEEK": instant.week,
        "DAY": instant.day,
        "DAYOFYEAR": instant.ordinal_day,
    }[part]()
    # Polars returns these in 8 to 32 bits, in which arithmetic would wrap.
    return found.cast(pl.Int64)
