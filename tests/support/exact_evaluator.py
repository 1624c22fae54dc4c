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
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nightjar.rules.predicates.nodes import DOUBLE, Node, Op
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, from_microseconds, microseconds

# More digits than any double has.
_MANY = Context(prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN)
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
        case Op.SUBSTRING:
            start = values[1]
            end = math.inf if len(values) == 2 else start + values[2]
            return "".join(c for at, c in enumerate(first, 1) if start <= at < end)
        case Op.CONCAT:
            return "".join(values)
        case Op.TRIM:
            return re.sub("^ +| +\\Z", "", first)
        case Op.STARTS_WITH:
            return first[: len(values[1])] == values[1]
        case Op.ENDS_WITH:
            return first[len(first) - len(values[1]) :] == values[1] if len(values[1]) <= len(first) else False
        case Op.REGEXP_LIKE:
            return re.search(_as_python_reads(node.value), first, re.ASCII) is not None
        case Op.IP_IN:
            address = _address(first)
            return None if address is None else any(address in _network(block) for block in node.value)
        case Op.DISTANCE_KM:
            beyond = any(not abs(value) <= limit for value, limit in zip(values, (90, 360, 90, 360), strict=True))
            return None if beyond else _metres(*values)
        case Op.SQRT | Op.LN | Op.EXP | Op.POWER:
            found = _elementary(node.op, *values) if all(map(math.isfinite, values)) else None
            return found if found is not None and math.isfinite(found) else None
        case Op.ROUND | Op.FLOOR | Op.CEIL:
            return _to_digits(node, first)
        case Op.GREATEST:
            return max(values, key=_ordered)
        case Op.LEAST:
            return min(values, key=_ordered)
        case Op.LOCAL:
            # from 2100 on clocks stay as they are
            known = from_microseconds(max(min(first, _LAST_CHANGE), _FIRST_CHANGE))
            try:
                zone = ZoneInfo(node.value or values[1])
            except (ZoneInfoNotFoundError, ValueError, OSError):
                return None
            offset = known.astimezone(zone).utcoffset()
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


def _address(text: str) -> IPv6Address | None:
    """An address as one of IPv6, that of IPv4 in its mapped form; None: the text is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return IPv6Address(f"::ffff:{address}")
    return None if address.scope_id else address


def _network(block: str) -> IPv6Network:
    network = ip_network(block)
    if isinstance(network, IPv4Network):
        return IPv6Network(f"::ffff:{network.network_address}/{96 + network.prefixlen}")
    return network


@lru_cache(maxsize=10_000)
def _metres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> int:
    """By haversines: those of the half circle that is nearer, as the arc sine has few digits near 1."""
    with localcontext(Context(prec=90)):
        one, other, apart = (
            Decimal(degrees) * _pi() / 180
            for degrees in (latitude, other_latitude, Decimal(other_longitude) - Decimal(longitude))
        )
        haversine = (1 - _cosine(one - other)) / 2 + _cosine(one) * _cosine(other) * (1 - _cosine(apart)) / 2
        far = haversine > Decimal("0.5")
        half = _arc_sine((max(1 - haversine, Decimal(0)) if far else haversine).sqrt())
        angle = _pi() - 2 * half if far else 2 * half
        return int((angle * Decimal("6371008.8")).to_integral_value(ROUND_HALF_UP))


def _arc_sine(sine: Decimal) -> Decimal:
    """By Newton's method, for a sine of at most a half's square root."""
    angle = Decimal(math.asin(float(sine)))
    for _ in range(4):
        angle += (sine - _cosine(angle - _pi() / 2)) / _cosine(angle)
    return angle


def _cosine(angle: Decimal) -> Decimal:
    """By halving the angle, and its power series."""
    small = angle / 64
    total = sum((-1) ** n * small ** (2 * n) / math.factorial(2 * n) for n in range(1, 40)) + Decimal(1)
    for _ in range(6):
        total = 2 * total * total - 1
    return total


@cache
def _pi() -> Decimal:
    """By Machin's formula, in 90 digits."""

    def arc_tangent_of_inverse(n: int) -> Fraction:
        return sum((Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(70)), Fraction(0))

    found = 16 * arc_tangent_of_inverse(5) - 4 * arc_tangent_of_inverse(239)
    return Context(prec=90).divide(Decimal(found.numerator), Decimal(found.denominator))


def _as_python_reads(pattern: str) -> str:
    """Python's $ matches before a newline at the end, too."""
    apart = r"\\.|\[\^?(?:\\.|[^\]\\])*\]|\$"
    return re.sub(apart, lambda found: r"\Z" if found[0] == "$" else found[0], pattern)


def _elementary(op: Op, value: float, exponent: float = 0.0) -> float | None:
    """The double nearest to the value, from many decimal digits; None where it has none."""
    match op:
        case Op.SQRT:
            return math.sqrt(value) if value >= 0 else None
        case Op.LN:
            return float(_MANY.ln(Decimal(value))) if value > 0 else None
        case Op.EXP:
            return float(_MANY.exp(Decimal(value))) if abs(value) < 1000 else (0.0 if value < 0 else None)
    return _power(Fraction(value), Fraction(exponent))


def _power(base: Fraction, exponent: Fraction) -> float | None:
    if exponent == 0 or base == 1:
        return 1.0
    if base <= 0 and exponent.denominator != 1:
        return None if base else (0.0 if exponent > 0 else None)
    if base == 0:
        return 0.0 if exponent > 0 else None
    sign = -1 if base < 0 and exponent % 2 else 1
    logarithm = _MANY.multiply(_MANY.ln(_decimal(abs(base))), _decimal(exponent))
    if abs(logarithm) > 1000:
        return 0.0 if logarithm < 0 else None
    root, rest = abs(base), exponent
    while rest.denominator > 1 and (half := _square_root(root)) is not None:
        root, rest = half, rest * 2
    # a result that could be half way between two doubles is a fraction: other powers are no fractions at all
    if rest.denominator == 1 and abs(rest) < 3000:
        exact = root ** int(rest)
        try:
            return sign * (exact.numerator / exact.denominator)
        except OverflowError:
            return None
    return sign * float(_MANY.exp(logarithm))


def _square_root(value: Fraction) -> Fraction | None:
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return root if root * root == value else None


def _decimal(value: Fraction) -> Decimal:
    return _MANY.divide(Decimal(value.numerator), Decimal(value.denominator))


def _to_digits(node: Node, value: Any) -> Any:
    """To the digits of ROUND, or to an integer: of a double's exact value, and of a scaled integer."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    digits = node.value if node.op is Op.ROUND else 0
    scale = node.args[0].type.scale
    units = Fraction(value) / 10**scale * Fraction(10) ** digits
    if node.op is Op.FLOOR:
        whole = math.floor(units)
    elif node.op is Op.CEIL:
        whole = math.ceil(units)
    else:
        whole = math.floor(abs(units) + Fraction(1, 2)) * (1 if units > 0 else -1)
    found = whole / Fraction(10) ** digits
    return found.numerator / found.denominator if node.type == DOUBLE else int(found * 10**node.type.scale)


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
