"""Functions that are called by a name: what arguments each takes, and the node it makes of them.

One table, `SIGNATURES`, holds all that analysis asks about such a function. NULL in an argument makes the value NULL
(S3.8), so only what a function does with values is left to `compilation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from sqlglot import exp

from nightjar.rules.errors import PredicateError
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.predicates.coercion import Unfit, aligned, bounded, to_double, widest
from nightjar.rules.predicates.distances import MAX_DISTANCE
from nightjar.rules.predicates.networks import Networks
from nightjar.rules.predicates.nodes import (
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    TIMESTAMP,
    Family,
    Node,
    Op,
    Type,
    exact,
    literal,
)
from nightjar.rules.predicates.patterns import translated
from nightjar.rules.timestamps import MAX_TIMESTAMP

# Characters that CONCAT may make at most, by the sizes of its parts: eight whole fields.
MAX_JOINED = 8 * MAX_STRING
# Digits after the point, or before it, that ROUND takes; an int64 has as many.
MAX_DIGITS = 18
# Upper case has up to three letters for one.
_LARGEST_CASE = 3
# Arguments of SUBSTRING where its length is given.
_WITH_LENGTH = 3


class Typing(Protocol):
    """What functions need of the analysis: the nodes of their arguments, and errors at a place."""

    def operand(self, tree: exp.Expr, depth: int) -> Node:
        """The node of an argument."""
        ...

    def number(self, tree: exp.Expr, depth: int) -> Node:
        """The node of an argument that is a number."""
        ...

    def compare(self, op: Op, left: Node, right: Node, tree: exp.Expr) -> Node:
        """The comparison of two nodes."""
        ...

    def string(self, tree: exp.Expr, depth: int) -> Node:
        """The node of an argument that is a string."""
        ...

    def all_of(self, parts: Sequence[Callable[[], Node]]) -> list[Node]:
        """The nodes of several arguments, with the problems of all."""
        ...

    def error(self, tree: exp.Expr, what: str, remedy: str) -> PredicateError:
        """A problem at a part of the text."""
        ...


class _Call(NamedTuple):
    typing: Typing
    tree: exp.Anonymous
    args: list[exp.Expr]
    depth: int

    def strings(self, *args: exp.Expr) -> list[Node]:
        return self.typing.all_of([partial(self.typing.string, arg, self.depth) for arg in args])

    def doubles(self, *args: exp.Expr) -> list[Node]:
        return [to_double(node) for node in self.numbers(*args)]

    def numbers(self, *args: exp.Expr) -> list[Node]:
        return self.typing.all_of([partial(self.typing.number, arg, self.depth) for arg in args])

    def whole(self, arg: exp.Expr) -> Node:
        """The node of an argument that is an integer."""
        node = self.typing.operand(arg, self.depth)
        if node.type.family is not Family.EXACT or node.type.scale:
            digits = " with digits after the point" if node.type.family is Family.EXACT else ""
            what = f"an integer is needed and this is {node.type.family.value}{digits}"
            raise self.typing.error(arg, what, "Count characters, from 1")
        return node


class _Signature(NamedTuple):
    least: int
    most: int | None
    """None: any number."""
    written: str
    """An example, for errors."""
    node: Callable[[_Call], Node]

    def takes(self) -> str:
        """The number of arguments, in words."""
        if self.most is None:
            return f"{self.least} or more arguments"
        if self.least == self.most:
            return f"{self.least} argument{'s' * (self.least > 1)}"
        return f"{self.least} or {self.most} arguments"


def call(typing: Typing, tree: exp.Anonymous, depth: int) -> Node:
    """The node of a function's call. Raises PredicateError."""
    name, args = str(tree.this).upper(), list(tree.expressions)
    signature = SIGNATURES[name]
    if len(args) < signature.least or (signature.most is not None and len(args) > signature.most):
        raise typing.error(
            tree, f"{name} takes {signature.takes()} and this has {len(args)}", f"Write it as in {signature.written}"
        )
    return signature.node(_Call(typing, tree, args, depth))


def _of_strings(op: Op, result: Type) -> Callable[[_Call], Node]:
    return lambda given: Node(op, result, tuple(given.strings(*given.args)))


def _of_doubles(op: Op) -> Callable[[_Call], Node]:
    return lambda given: Node(op, DOUBLE, tuple(given.doubles(*given.args)))


def _round(given: _Call) -> Node:
    (value,) = given.numbers(given.args[0])
    digits = 0
    for arg in given.args[1:]:
        written = given.typing.operand(arg, given.depth)
        whole = written.is_literal and written.type.family is Family.EXACT and not written.type.scale
        if not whole or abs(written.value) > MAX_DIGITS:
            what = "the second argument of ROUND is how many digits after the point are kept"
            raise given.typing.error(arg, what, f"Write an integer from -{MAX_DIGITS} to {MAX_DIGITS}")
        digits = written.value
    if value.type == DOUBLE:
        return Node(Op.ROUND, DOUBLE, (value,), digits)
    if digits >= value.type.scale:
        return value
    unit = bounded(10 ** (value.type.scale - digits), 0).limit
    limit = (value.type.limit // unit + 1) * 10 ** max(-digits, 0)
    return Node(Op.ROUND, bounded(limit, max(digits, 0)), (value,), digits)


def _to_integer(op: Op) -> Callable[[_Call], Node]:
    def node(given: _Call) -> Node:
        (value,) = given.numbers(*given.args)
        if value.type == DOUBLE:
            return Node(op, DOUBLE, (value,))
        return Node(op, exact(value.type.limit // 10**value.type.scale + 1), (value,)) if value.type.scale else value

    return node


def _extreme(op: Op) -> Callable[[_Call], Node]:
    def node(given: _Call) -> Node:
        parts = given.typing.all_of([partial(given.typing.operand, arg, given.depth) for arg in given.args])
        for part, arg in zip(parts, given.args, strict=True):
            if part.type in (NULL, BOOLEAN):
                what = f"{op.value} needs values that have an order and this is {part.type.family.value}"
                raise given.typing.error(arg, what, "Give it numbers, strings or timestamps")
        values = aligned(parts, "compared")
        return Node(op, widest(values), values)

    return node


def _nullif(given: _Call) -> Node:
    value, other = given.typing.all_of([partial(given.typing.operand, arg, given.depth) for arg in given.args])
    equal = given.typing.compare(Op.EQ, value, other, given.tree)
    return Node(Op.CASE, value.type, (equal, literal(NULL, None), value))


def _concat(given: _Call) -> Node:
    joined = Node(Op.CONCAT, STRING, tuple(given.strings(*given.args)))
    longest = _longest(joined)
    if longest > MAX_JOINED:
        what = f"the result may have {longest} characters, more than {MAX_JOINED}"
        raise given.typing.error(given.tree, what, "Join fewer strings, or parts of them by SUBSTRING(field, 1, 100)")
    return joined


def _regexp_like(given: _Call) -> Node:
    (text,) = given.strings(given.args[0])
    pattern = given.args[1]
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        what = "REGEXP_LIKE takes a pattern in quotes"
        raise given.typing.error(pattern, what, "Write REGEXP_LIKE(email, '[0-9]{4}@')")
    try:
        translated(pattern.this)
    except Unfit as refusal:
        raise given.typing.error(pattern, refusal.what, refusal.remedy) from None
    return Node(Op.REGEXP_LIKE, BOOLEAN, (text,), pattern.this)


def _ip_in(given: _Call) -> Node:
    text, *blocks = given.args
    (address,) = given.strings(text)
    for block in blocks:
        if not isinstance(block, exp.Literal) or not block.is_string:
            what = "IP_IN takes networks in quotes after the address"
            raise given.typing.error(block, what, "Write IP_IN(ip, '10.0.0.0/8')")
        try:
            Networks([block.this])
        except Unfit as refusal:
            raise given.typing.error(block, refusal.what, refusal.remedy) from None
    return Node(Op.IP_IN, BOOLEAN, (address,), tuple(block.this for block in blocks))


def _distance(given: _Call) -> Node:
    return Node(Op.DISTANCE_KM, exact(MAX_DISTANCE, 3), tuple(given.doubles(*given.args)))


def _seconds_between(given: _Call) -> Node:
    """The difference of the seconds since 1970, which have six digits after the point."""
    times = given.typing.all_of([partial(given.typing.operand, arg, given.depth) for arg in given.args])
    for node, arg in zip(times, given.args, strict=True):
        if node.type != TIMESTAMP:
            what = f"a timestamp is needed and this is {node.type.family.value}"
            raise given.typing.error(arg, what, "Give it two timestamps, the earlier one first")
    earlier, later = (Node(Op.PART, exact(MAX_TIMESTAMP, 6), (node,), "EPOCH") for node in times)
    return Node(Op.SUB, bounded(2 * MAX_TIMESTAMP, 6), (later, earlier))


def _substring(given: _Call) -> Node:
    text, *whole = given.typing.all_of(
        [
            partial(given.typing.string, given.args[0], given.depth),
            *(partial(given.whole, arg) for arg in given.args[1:]),
        ]
    )
    return Node(Op.SUBSTRING, STRING, (text, *whole))


def _longest(node: Node) -> int:
    """The most characters that a string can have."""
    match node.op:
        case Op.LITERAL:
            return len(node.value or "")
        case Op.CONCAT:
            return sum(map(_longest, node.args))
        case Op.CASE:
            return max(map(_longest, (*node.args[1:-1:2], node.args[-1])))
        case Op.COALESCE:
            return max(map(_longest, node.args))
        case Op.LOWER | Op.UPPER:
            return _LARGEST_CASE * _longest(node.args[0])
        case Op.TRIM:
            return _longest(node.args[0])
        case Op.SUBSTRING:
            of = _longest(node.args[0])
            length = node.args[2] if len(node.args) == _WITH_LENGTH else None
            return min(of, max(length.value, 0)) if length is not None and length.is_literal else of
        case _:
            return MAX_STRING


SIGNATURES = {
    "CEIL": _Signature(1, 1, "CEIL(amount)", _to_integer(Op.CEIL)),
    "CONCAT": _Signature(1, None, "CONCAT(customer_id, '-', terminal_id)", _concat),
    "DISTANCE_KM": _Signature(4, 4, "DISTANCE_KM(lat, lon, shop_lat, shop_lon)", _distance),
    "ENDS_WITH": _Signature(2, 2, "ENDS_WITH(email, '.example')", _of_strings(Op.ENDS_WITH, BOOLEAN)),
    "EXP": _Signature(1, 1, "EXP(risk)", _of_doubles(Op.EXP)),
    "FLOOR": _Signature(1, 1, "FLOOR(amount)", _to_integer(Op.FLOOR)),
    "GREATEST": _Signature(2, None, "GREATEST(amount, fee)", _extreme(Op.GREATEST)),
    "IP_IN": _Signature(2, None, "IP_IN(ip, '10.0.0.0/8', '2001:db8::/32')", _ip_in),
    "LEAST": _Signature(2, None, "LEAST(amount, fee)", _extreme(Op.LEAST)),
    "LN": _Signature(1, 1, "LN(amount)", _of_doubles(Op.LN)),
    "NULLIF": _Signature(2, 2, "NULLIF(fee, 0)", _nullif),
    "POWER": _Signature(2, 2, "POWER(amount, 2)", _of_doubles(Op.POWER)),
    "REGEXP_LIKE": _Signature(2, 2, r"REGEXP_LIKE(email, '^\w+[0-9]{4,}@')", _regexp_like),
    "ROUND": _Signature(1, 2, "ROUND(amount, 1)", _round),
    "SECONDS_BETWEEN": _Signature(2, 2, "SECONDS_BETWEEN(opened_at, event_time)", _seconds_between),
    "SQRT": _Signature(1, 1, "SQRT(amount)", _of_doubles(Op.SQRT)),
    "STARTS_WITH": _Signature(2, 2, "STARTS_WITH(phone, '+49')", _of_strings(Op.STARTS_WITH, BOOLEAN)),
    "SUBSTRING": _Signature(2, 3, "SUBSTRING(card, 1, 6)", _substring),
    "TRIM": _Signature(1, 1, "TRIM(device)", _of_strings(Op.TRIM, STRING)),
}
