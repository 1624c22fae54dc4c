"""The value of a predicate's typed tree at one row, in plain Python: integers of any size, and floats as IEEE has them.

It shares no arithmetic with the product: a division of integers is Python's, which rounds once, and parts of a time
are those of `datetime`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from nightjar.rules.predicates.nodes import DOUBLE, Node, Op
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, from_microseconds, microseconds

_COMPARED: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
_CALCULATED: dict[Op, Callable[[Any, Any], Any]] = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul}
_FIRST_CHANGE, _LAST_CHANGE = (microseconds(datetime(year, 12, 31, tzinfo=UTC)) for year in (1, 2099))
_PARTS: dict[str, Callable[[datetime], int]] = {
    "YEAR": lambda at: at.year,
    "QUARTER": lambda at: (at.month + 2) // 3,
    "MONTH": lambda at: at.month,
    "WEEK": lambda at: at.isocalendar().week,
    "DAY": lambda at: at.day,
    "HOUR": lambda at: at.hour,
    "MINUTE": lambda at: at.minute,
    "SECOND": lambda at: at.second,
    "DAYOFWEEK": lambda at: at.isoweekday() % 7 + 1,
    "ISODOW": lambda at: at.isoweekday(),
    "DAYOFYEAR": lambda at: at.timetuple().tm_yday,
}


def evaluated(node: Node, row: Mapping[str, Any]) -> Any:
    """The node's value: a bool, float or str; an exact number and a timestamp as an int, scaled; None for NULL.

    row: physical values by column.
    """
    match node.op:
        case Op.COLUMN:
            return row[str(node.value)]
        case Op.LITERAL:
            return node.value
        case Op.AND | Op.OR:
            return _connected(node.op, [evaluated(arg, row) for arg in node.args])
        case Op.IS_NULL:
            return evaluated(node.args[0], row) is None
        case Op.CASE:
            *pairs, default = node.args
            for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
                if evaluated(condition, row) is True:
                    return evaluated(value, row)
            return evaluated(default, row)
        case Op.COALESCE:
            return next((value for arg in node.args if (value := evaluated(arg, row)) is not None), None)
    values = [evaluated(arg, row) for arg in node.args]
    return None if None in values else _applied(node, values)


def _connected(op: Op, values: list[bool | None]) -> bool | None:
    decisive = op is Op.OR
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _applied(node: Node, values: list[Any]) -> Any:
    """The result of an operation on values of which none is NULL."""
    first = values[0]
    if node.op in _COMPARED:
        return _COMPARED[node.op](*map(_ordered, values))
    if node.op in _CALCULATED:
        return _CALCULATED[node.op](*values)
    match node.op:
        case Op.NOT:
            return not first
        case Op.IN:
            return any(_ordered(first) == _ordered(each) for each in node.value)
        case Op.LIKE:
            parts = {"%": ".*", "_": "."}
            return bool(re.fullmatch("".join(parts.get(c) or re.escape(c) for c in node.value), first, re.DOTALL))
        case Op.DIV:
            return _divided(*values)
        case Op.MOD:
            divisor = abs(values[1])
            return (abs(first) % divisor) * (1 if first >= 0 else -1) if divisor else None
        case Op.NEG:
            return -first
        case Op.ABS:
            return abs(first)
        case Op.TO_DOUBLE:
            return first / 10 ** node.args[0].type.scale
        case Op.RESCALE:
            return first * node.value
        case Op.LOWER:
            return first.lower()
        case Op.UPPER:
            return first.upper()
        case Op.LENGTH:
            return len(first)
        case Op.LOCAL:
            # from 2100 on clocks stay as they are
            known = from_microseconds(max(min(first, _LAST_CHANGE), _FIRST_CHANGE))
            offset = known.astimezone(ZoneInfo(node.value)).utcoffset()
            assert offset is not None
            return max(min(first + offset // timedelta(microseconds=1), MAX_TIMESTAMP), MIN_TIMESTAMP)
        case Op.PART:
            return first if node.value == "EPOCH" else _PARTS[node.value](from_microseconds(first))
    raise AssertionError(node.op)


def _divided(dividend: float, divisor: float) -> float | None:
    """The double nearest to the quotient of two doubles, by fractions if both are finite; NULL for a divisor of 0."""
    if divisor == 0.0:
        return None
    if not (math.isfinite(dividend) and math.isfinite(divisor)) or dividend == 0.0:
        return dividend / divisor
    exact = Fraction(dividend) / Fraction(divisor)
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _ordered(value: Any) -> Any:
    """As compared: a NaN equals itself and is above all other doubles; strings are compared by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def bits(value: Any, node: Node) -> Any:
    """A value in a form that is equal only for equal bits, but that all NaNs are one, and 0.0 is -0.0."""
    if value is None or node.type != DOUBLE:
        return value
    return "nan" if math.isnan(value) else (value + 0.0).hex()
