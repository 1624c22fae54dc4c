"""Computed measures: expressions over an event's fields and a rule's other measures, as `risk: "frauds / payments"`."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from nightjar.rules.errors import DeclarationError
from nightjar.rules.names import named_in
from nightjar.rules.predicates.nodes import Family, Type
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, MAX_PRECISION, STRING, TIMESTAMP, FieldType, Kind

# The types of values without digits.
PLAIN_TYPES = {
    Family.STRING: STRING,
    Family.BOOLEAN: BOOLEAN,
    Family.DOUBLE: DOUBLE,
    Family.TIMESTAMP: TIMESTAMP,
}


def in_order(computed: Mapping[str, str]) -> dict[str, str]:
    """The expressions by name, each after those that it reads.

    Raises:
        ValueError: one depends on itself; the message has the names on the way.
    """
    reads = {name: sorted(named_in(text, computed)) for name, text in computed.items()}
    try:
        return {name: computed[name] for name in TopologicalSorter(reads).static_order()}
    except CycleError as cycle:
        raise ValueError(" → ".join(reversed(cycle.args[1]))) from None


def type_of_value(kind: Type) -> FieldType:
    """The type of a measure with such a value; an exact one has at most 64 bits, whatever the expression may reach.

    Raises:
        DeclarationError: no measure can hold it.
    """
    match kind.family:
        case plain if plain in PLAIN_TYPES:
            return PLAIN_TYPES[plain]
        case Family.EXACT if kind.scale == 0:
            return INT64
        case Family.EXACT if kind.scale <= MAX_PRECISION:
            # 64 bits hold one digit more than the 18 that a field may declare
            return FieldType(Kind.DECIMAL, min(max(len(str(kind.limit)), kind.scale), MAX_PRECISION + 1), kind.scale)
        case Family.EXACT:
            raise DeclarationError(
                f"has {kind.scale} digits after the point, more than {MAX_PRECISION}",
                remedy="Round it, as in ROUND(…, 6), or write CAST(… AS DOUBLE) around one of the values",
            )
        case _:
            raise DeclarationError("is always NULL", remedy="Name a field or a measure in it")
