"""Bringing values to one type: exact numbers to one scale, and to doubles where one of them is a double."""

from __future__ import annotations

from collections.abc import Sequence

from nightjar.rules.predicates.nodes import (
    DOUBLE,
    EXACT_LIMIT,
    INT64_LIMIT,
    NULL,
    Family,
    Node,
    Op,
    Type,
    exact,
    literal,
)


class Unfit(Exception):  # noqa: N818  not an error people see: analysis adds the place and raises PredicateError
    """Types do not match: the problem, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(what)


def bounded(limit: int, scale: int) -> Type:
    """The type of an exact result with that largest magnitude; Unfit beyond 38 digits."""
    if limit > EXACT_LIMIT:
        raise Unfit("the exact result may need more than 38 digits", "Write CAST(… AS DOUBLE) around one of the values")
    return exact(limit, scale)


def to_double(node: Node) -> Node:
    """A number as a double; a constant is rounded once, from its exact value."""
    if node.type == DOUBLE:
        return node
    if node.is_literal:
        return literal(DOUBLE, node.value / 10**node.type.scale)
    return Node(Op.TO_DOUBLE, DOUBLE, (node,))


def same_scale(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Exact numbers, all with as many digits after the point as the one with the most."""
    scale = max(node.type.scale for node in nodes)
    return tuple(_rescaled(node, scale) for node in nodes)


def aligned(nodes: Sequence[Node], purpose: str) -> tuple[Node, ...]:
    """The nodes in one type; NULL stays NULL. purpose: for errors, what they cannot be together ("compared")."""
    typed = [node for node in nodes if node.type != NULL]
    if not typed:
        raise Unfit("only NULL is left here, which has no type", "Give at least one value")
    for node in typed[1:]:
        require_alike(typed[0].type, node.type, purpose)
    if not typed[0].type.is_number:
        return tuple(nodes)
    if any(node.type == DOUBLE for node in typed):
        return tuple(node if node.type == NULL else to_double(node) for node in nodes)
    scale = max(node.type.scale for node in typed)
    return tuple(node if node.type == NULL else _rescaled(node, scale) for node in nodes)


def require_alike(one: Type, other: Type, purpose: str) -> None:
    """Unfit unless both are numbers, or of the same family."""
    if one.family is other.family or (one.is_number and other.is_number):
        return
    remedy = "Compare values of one type"
    if {one.family, other.family} == {Family.STRING, Family.TIMESTAMP}:
        remedy = "Write TIMESTAMP before the quoted time"
    elif Family.STRING in (one.family, other.family) and (one.is_number or other.is_number):
        remedy = "Write numbers without quotes, and strings in single quotes"
    elif Family.TIMESTAMP in (one.family, other.family) and (one.is_number or other.is_number):
        remedy = "Write EXTRACT(EPOCH FROM …) for a time's seconds since 1970, or TIMESTAMP before a quoted time"
    raise Unfit(f"{one.family.value} and {other.family.value} cannot be {purpose}", remedy)


def widest(nodes: Sequence[Node]) -> Type:
    """The type that holds any one of aligned nodes."""
    typed = [node.type for node in nodes if node.type != NULL]
    if typed[0].family is Family.EXACT:
        return Type(Family.EXACT, max(kind.limit for kind in typed), typed[0].scale)
    return typed[0]


def as_held(element: Node, kind: Type) -> object:
    """A constant in the physical form of `kind`; None if no value of `kind` can equal it."""
    value = element.value
    if kind == DOUBLE:
        return to_double(element).value
    if kind.family is not Family.EXACT:
        return value
    if element.type == DOUBLE or element.type.scale > kind.scale:
        return None
    scaled: int = value * 10 ** (kind.scale - element.type.scale)
    bound = EXACT_LIMIT if kind.wide else INT64_LIMIT - 1
    return scaled if -bound <= scaled <= bound else None


def _rescaled(node: Node, scale: int) -> Node:
    factor = 10 ** (scale - node.type.scale)
    if factor == 1:
        return node
    kind = bounded(node.type.limit * factor, scale)
    if node.is_literal:
        return literal(kind, node.value * factor)
    # a value that can only be zero stays zero; the factor may not fit in 64 bits
    return Node(Op.RESCALE, kind, (node,), factor if kind.limit else 1)
