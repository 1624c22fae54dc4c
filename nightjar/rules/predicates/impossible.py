"""Conditions that no event can meet, such as `HOUR(event_time) BETWEEN 22 AND 5`, found before a rule runs.

How it works: of what is joined by AND, every comparison of one value with constants narrows the range of that value.
Where nothing is left, the condition never holds. Alternatives of OR are looked at one by one.

What it does not do: prove that a condition can hold. It knows ranges, digits and listed values, no algebra; NOT, CASE
and comparisons of two fields are taken for possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from nightjar.rules.predicates.analysis import PARTS
from nightjar.rules.predicates.nodes import Family, Node, Op
from nightjar.rules.predicates.parsing import CALLS
from nightjar.rules.timestamps import iso_text

_COMPARED = {Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ}
_FROM_ONE = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "ISODOW", "DAYOFYEAR")
_NAMED = {Op.LENGTH: "LENGTH", Op.ABS: "ABS", Op.LOWER: "LOWER", Op.UPPER: "UPPER"}
_NOT_NEGATIVE = (Op.ABS, Op.SQRT, Op.EXP)
_CASED = {Op.LOWER: str.lower, Op.UPPER: str.upper}
# Share of a number by which a double may be off, once it was calculated.
_ROUNDED = Fraction(1, 10**9)


@dataclass(frozen=True)
class _Constraint:
    """A value is compared with constants."""

    of: Node
    text: str
    values: tuple[Any, ...] | None = None
    """Of IN and =. Else `bound`, which the value is above or below."""
    above: Fraction | None = None
    below: Fraction | None = None
    strict: bool = False


@dataclass
class _Range:
    """What a number may be."""

    low: Fraction | None
    high: Fraction | None
    step: Fraction | None
    """The number is a multiple of it (None: any number)."""
    low_strict: bool = False
    high_strict: bool = False

    def narrow(self, constraint: _Constraint) -> None:
        above, below = constraint.above, constraint.below
        if above is not None and (self.low is None or (above, constraint.strict) > (self.low, self.low_strict)):
            self.low, self.low_strict = above, constraint.strict
        if below is not None and (
            self.high is None or (below, not constraint.strict) < (self.high, not self.high_strict)
        ):
            self.high, self.high_strict = below, constraint.strict

    def holds(self, value: Fraction) -> bool:
        return not (
            (self.step is not None and value % self.step)
            or (self.low is not None and (value < self.low or (value == self.low and self.low_strict)))
            or (self.high is not None and (value > self.high or (value == self.high and self.high_strict)))
        )

    @property
    def is_empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        if self.step is None:
            return self.low > self.high or (self.low == self.high and (self.low_strict or self.high_strict))
        least = math.ceil(self.low / self.step) * self.step
        if least == self.low and self.low_strict:
            least += self.step
        return least > self.high or (least == self.high and self.high_strict)


def impossibilities(root: Node, least: Mapping[str, int]) -> list[str]:
    """A sentence for each part of a condition, joined by AND or OR, that never holds.

    least: the least value that columns can have, by name; those of counts are known.
    """
    if root.op is Op.OR:
        return [reason for part in root.args for reason in impossibilities(part, least)]
    parts = [*_conjunction(root)]
    found = [reason for part in parts if part.op is Op.OR for reason in impossibilities(part, least)]
    found += ["FALSE never holds" for part in parts if part.op is Op.LITERAL and part.value is False]
    grouped: dict[Node, list[_Constraint]] = {}
    for part in parts:
        if (constraint := _constraint(part)) is not None:
            grouped.setdefault(constraint.of, []).append(constraint)
    for constraints in grouped.values():
        alone = [reason for each in constraints if (reason := _contradiction([each], least))]
        found += alone or filter(None, [_contradiction(constraints, least)])
    return found


def _conjunction(root: Node) -> Iterable[Node]:
    """The parts that are joined by AND, those of an AND within an AND among them."""
    if root.op is not Op.AND:
        yield root
        return
    for part in root.args:
        yield from _conjunction(part)


def _constraint(part: Node) -> _Constraint | None:
    if part.op is Op.IN:
        value = part.args[0]
        values = tuple(_constant(value, each) for each in part.value)
        return _Constraint(_base(value), f"{_shown(value)} IN ({', '.join(map(_text, values)) or '…'})", values)
    if part.op not in _COMPARED:
        return None
    (left, right), op = part.args, Op(part.op)
    if left.is_literal:
        left, right, op = right, left, _MIRRORED[op]
    if left.is_literal or not right.is_literal:
        return None
    constant = _constant(right, right.value)
    text = f"{_shown(left)} {op.value} {_text(constant, right)}"
    if op is Op.EQ:
        return _Constraint(_base(left), text, (constant,))
    if not isinstance(constant, Fraction):
        return None
    strict = op in (Op.LT, Op.GT)
    if op in (Op.GT, Op.GE):
        return _Constraint(_base(left), text, above=constant, strict=strict)
    return _Constraint(_base(left), text, below=constant, strict=strict)


def _contradiction(constraints: list[_Constraint], least: Mapping[str, int]) -> str:
    """Why constraints of one value never hold at once; empty where they may."""
    of = constraints[0].of
    allowed = _range_of(of, least)
    for constraint in constraints:
        allowed.narrow(constraint)
    values = None
    for listed in (each.values for each in constraints if each.values is not None):
        values = listed if values is None else tuple(value for value in values if value in listed)
    if not allowed.is_empty if values is None else any(_fits(value, of, allowed) for value in values):
        return ""
    texts = " and ".join(each.text for each in constraints)
    if len(constraints) > 1:
        return f"{texts} never hold at once"
    return f"{texts} never holds: {_why(of, constraints[0], _range_of(of, least))}"


def _fits(value: Any, of: Node, allowed: _Range) -> bool:
    if isinstance(value, Fraction):
        return allowed.holds(value)
    if of.op in _CASED and isinstance(value, str):
        return bool(_CASED[of.op](value) == value)
    return True


def _why(of: Node, constraint: _Constraint, allowed: _Range) -> str:
    name = _shown(of)
    if of.op in _CASED:
        return f"{name} has no letters of the other case"
    if constraint.values == ():
        return f"{name} is none of the listed values"
    ends = [constraint.above, constraint.below, *(constraint.values or ())]
    whole = [end for end in ends if isinstance(end, Fraction)]
    if allowed.step is not None and any(end % allowed.step for end in whole):
        digits = round(-math.log10(allowed.step))
        return f"{name} has {digits} digits after the point" if digits else f"{name} is a whole number"
    if of.op is Op.PART and of.value in PARTS:
        return f"{name} is between {_text(allowed.low)} and {_text(allowed.high)}"
    too_low = constraint.above is None and all(allowed.low is not None and end <= allowed.low for end in whole)
    if too_low:
        return f"{name} is at least {_text(allowed.low)}"
    return f"{name} is at most {_text(allowed.high)}"


def _range_of(node: Node, least: Mapping[str, int]) -> _Range:
    """What the value of a node can be at all."""
    if node.type.family is not Family.EXACT:
        low = Fraction(0) if node.op in _NOT_NEGATIVE and node.type.family is Family.DOUBLE else None
        if node.op is Op.TO_DOUBLE:
            inner = _range_of(_base(node.args[0]), least)
            low, high = (None if end is None else end for end in (inner.low, inner.high))
            widened = (
                None if low is None else low - abs(low) * _ROUNDED,
                None if high is None else high + abs(high) * _ROUNDED,
            )
            return _Range(*widened, None)
        return _Range(low, None, None)
    unit = Fraction(1, 10**node.type.scale)
    high = node.type.limit * unit
    low = -high
    if node.op is Op.PART:
        low, high = Fraction(node.value in _FROM_ONE), Fraction(PARTS[node.value])
        if node.value == "EPOCH":
            low, high = -node.type.limit * unit, node.type.limit * unit
    elif node.op in (Op.LENGTH, Op.ABS, Op.DISTANCE_KM):
        low = Fraction(0)
    elif node.op is Op.COLUMN and str(node.value) in least:
        low = Fraction(least[str(node.value)])
    return _Range(low, high, unit)


def _written(value: Any) -> list[str]:
    """What a function keeps of literals among its arguments."""
    if isinstance(value, tuple):
        return [_text(each) for each in value]
    return [] if value is None else [_text(value)]


def _base(node: Node) -> Node:
    """The node without changes of its scale alone, which keep its value."""
    return _base(node.args[0]) if node.op is Op.RESCALE else node


def _constant(node: Node, value: Any) -> Any:
    """A constant of the node's type: numbers and times (µs) as fractions."""
    family = node.type.family
    if family is Family.EXACT:
        return Fraction(value, 10**node.type.scale)
    if family is Family.DOUBLE:
        return Fraction(value) if math.isfinite(value) else None
    return Fraction(value) if family is Family.TIMESTAMP else value


def _text(value: Any, node: Node | None = None) -> str:
    if isinstance(value, Fraction):
        if node is not None and node.type.family is Family.TIMESTAMP:
            return iso_text(int(value))
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.15g}"
    return repr(value) if isinstance(value, str) else str(value).upper()


def _shown(node: Node) -> str:
    """A value as a person wrote it, or nearly so."""
    if node.op is Op.COLUMN:
        return str(node.value)
    if node.op is Op.PART:
        return f"{node.value}({_shown(node.args[0])})"
    if node.op is Op.LOCAL:
        zone = f"'{node.value}'" if node.value is not None else _shown(node.args[1])
        return f"{_shown(node.args[0])} AT TIME ZONE {zone}"
    if node.op in (Op.RESCALE, Op.TO_DOUBLE):
        return _shown(node.args[0])
    if node.op in _NAMED:
        return f"{_NAMED[node.op]}({_shown(node.args[0])})"
    if node.op.value in CALLS:
        return f"{node.op.value}({', '.join([*map(_shown, node.args), *_written(node.value)])})"
    if len(node.args) == 2:
        return f"{_shown(node.args[0])} {node.op.value} {_shown(node.args[1])}"
    return _text(_constant(node, node.value), node) if node.is_literal else "the expression"
