"""The typed tree of a predicate: what each part is, with the bounds that make its arithmetic exact.

A number is exact (an integer or a decimal, stored as an integer scaled by a power of ten) or a double. An exact part
has the largest magnitude that it can reach, so it is known before any event whether it fits in 64 bits, 128, or
neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from typing import Any

from nightjar.rules.types import FieldType, Kind

# An int64 field reaches this magnitude (at its negative end only); beyond it 128 bits are needed.
INT64_LIMIT = 2**63
# 128 bits always hold 38 decimal digits.
EXACT_LIMIT = 10**38 - 1
MAX_SCALE = 38


class Family(Enum):
    """The kind of value of a part of a predicate; the members' values are used in messages."""

    EXACT = "an exact number"
    DOUBLE = "a double"
    STRING = "a string"
    BOOLEAN = "a boolean"
    TIMESTAMP = "a timestamp"
    NULL = "NULL"


@dataclass(frozen=True)
class Type:
    """A part's type; only EXACT has `limit` (largest magnitude of the scaled integer) and `scale`."""

    family: Family
    limit: int = 0
    scale: int = 0

    @property
    def is_number(self) -> bool:
        return self.family in (Family.EXACT, Family.DOUBLE)

    @property
    def wide(self) -> bool:
        """Whether the value is held in 128 bits."""
        return self.family is Family.EXACT and self.limit > INT64_LIMIT


BOOLEAN = Type(Family.BOOLEAN)
DOUBLE = Type(Family.DOUBLE)
STRING = Type(Family.STRING)
TIMESTAMP = Type(Family.TIMESTAMP)
NULL = Type(Family.NULL)


def exact(limit: int, scale: int = 0) -> Type:
    """The type of an exact result. Unlike a field it may reach +2**63, which does not fit in 64 bits."""
    return Type(Family.EXACT, limit + 1 if limit == INT64_LIMIT else limit, scale)


def type_of_field(declared: FieldType) -> Type:
    """The type in a predicate of a field or measure of a declared type."""
    match declared.kind:
        case Kind.INT64:
            return Type(Family.EXACT, INT64_LIMIT)
        case Kind.DECIMAL:
            # a sum of decimals may have 19 digits, within 64 bits
            return Type(Family.EXACT, min(10**declared.precision - 1, INT64_LIMIT), declared.scale)
        case Kind.DOUBLE:
            return DOUBLE
        case Kind.STRING:
            return STRING
        case Kind.BOOLEAN:
            return BOOLEAN
        case Kind.TIMESTAMP:
            return TIMESTAMP


class Op(Enum):
    """The operation of a node; the comment is about its `value`, if it has one."""

    COLUMN = "column"  # the name
    LITERAL = "literal"  # scaled int, float, str, bool, µs since 1970, or None
    AND = "and"
    OR = "or"
    NOT = "not"
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"  # tuple of literals' values
    IS_NULL = "is null"
    LIKE = "like"  # the pattern
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    NEG = "negative"
    ABS = "abs"
    TO_DOUBLE = "to double"
    RESCALE = "rescale"  # the power of ten to multiply with
    LOWER = "lower"
    UPPER = "upper"
    LENGTH = "length"
    PART = "part"  # the part of a timestamp
    LOCAL = "local"  # the zone of whose clocks a timestamp is read, as if they showed UTC; None: an argument names it
    CASE = "case"  # condition, value, condition, value, …, default
    COALESCE = "coalesce"
    SUBSTRING = "SUBSTRING"
    CONCAT = "CONCAT"
    TRIM = "TRIM"
    STARTS_WITH = "STARTS_WITH"
    ENDS_WITH = "ENDS_WITH"
    REGEXP_LIKE = "REGEXP_LIKE"  # the pattern
    IP_IN = "IP_IN"  # tuple of networks, as written
    DISTANCE_KM = "DISTANCE_KM"
    SQRT = "SQRT"
    LN = "LN"
    EXP = "EXP"
    POWER = "POWER"
    ROUND = "ROUND"  # the digits after the point
    FLOOR = "FLOOR"
    CEIL = "CEIL"
    GREATEST = "GREATEST"
    LEAST = "LEAST"


# Operations that need arguments more than once, as Polars has no single operation for them, and which ones.
_REPEATED = {Op.MOD: (0,), Op.SUBSTRING: (1, 1, 2), Op.ROUND: (0,), Op.CEIL: (0,)}


@dataclass(frozen=True)
class Node:
    """One operation. `weight` counts the Polars operations below it, each as often as it runs."""

    op: Op
    type: Type
    args: tuple[Node, ...] = ()
    value: Any = None
    weight: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        weight = 1 + sum(argument.weight for argument in self.args)
        for repeated in _REPEATED.get(self.op, ()):
            weight += self.args[repeated].weight if repeated < len(self.args) else 0
        object.__setattr__(self, "weight", weight)

    @property
    def is_literal(self) -> bool:
        return self.op is Op.LITERAL


def renamed(root: Node, names: Mapping[str, str]) -> Node:
    """The same tree with renamed columns; columns that are not in `names` keep their names."""
    value = names.get(str(root.value), root.value) if root.op is Op.COLUMN else root.value
    return Node(root.op, root.type, tuple(renamed(argument, names) for argument in root.args), value)


def literal(kind: Type, value: Any) -> Node:
    """A constant of a type."""
    return Node(Op.LITERAL, kind, value=value)


# Any number that fits in the text of a predicate, without rounding.
_WIDE = Context(prec=10_000, Emax=MAX_EMAX, Emin=MIN_EMIN)


def number_literal(value: Decimal) -> Node | None:
    """The constant of a number: exact if 38 digits suffice, else a double; None if it is out of a double's range."""
    if not value:
        return literal(exact(0), 0)
    sign, digits, exponent = value.normalize(_WIDE).as_tuple()
    exponent = int(exponent)
    scale = max(0, -exponent)
    # Checked before computing any power: the exponent may be anything.
    if scale <= MAX_SCALE and len(digits) + max(0, exponent) <= MAX_SCALE:
        scaled = int("".join(map(str, digits))) * 10 ** max(0, exponent)
        return literal(exact(scaled, scale), -scaled if sign else scaled)
    as_double = float(value)
    return None if as_double in (float("inf"), float("-inf")) else literal(DOUBLE, as_double)
