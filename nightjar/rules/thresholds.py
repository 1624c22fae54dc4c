"""The constant that a condition compares a measure or a field with, and the condition without it.

With these a rule is evaluated once and its violations are counted for any other constant: see `Threshold.without`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from nightjar.rules.errors import Problem, RuleError
from nightjar.rules.model import Rule
from nightjar.rules.predicates.parsing import parse
from nightjar.rules.predicates.source import Source
from nightjar.rules.streams import Stream
from nightjar.rules.types import FieldType

_OPERATORS: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
}


@dataclass(frozen=True)
class Threshold:
    """A comparison that must hold wherever the condition does.

    name: of the measure or field; operator: `>`, `>=`, `<` or `<=`, with the name on its left; value: the constant;
    without: the condition with `name IS NOT NULL` instead of the comparison. The condition with another constant holds
    where both `without` and the comparison with that constant hold.
    """

    name: str
    operator: str
    value: Decimal
    without: str

    @property
    def is_lower_bound(self) -> bool:
        """Whether larger values lead to alerts."""
        return self.operator.startswith(">")

    @property
    def is_strict(self) -> bool:
        """Whether a value equal to the constant leads to no alert."""
        return self.operator in ("<", ">")


def threshold_of(rule: Rule, stream: Stream, name: str) -> Threshold:
    """The rule's comparison of this measure or field with a constant.

    Raises:
        RuleError: the condition has none that it always depends on, or more than one; or the rule starts again after
            its alerts, so that what a measure is depends on the constant.
    """
    if rule.reset_after_alert:
        problem = "makes the measures depend on the threshold, so that its curve cannot be computed"
        remedy = "Compare drafts with other constants instead"
        raise RuleError([Problem("reset_after_alert", "true", problem, remedy)], where=f"rule {rule.id}")
    found = [each for each in thresholds_of(rule, stream) if each.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(sorted({each.name for each in thresholds_of(rule, stream)})) or "none"
    problem = "is compared with several constants" if found else "is not compared with a constant"
    remedy = f"A threshold is one comparison like `{name} > 100`, alone or joined by AND. This condition has: {names}"
    raise RuleError([Problem("when", name, f"{name} {problem}", remedy)], where=f"rule {rule.id}")


def thresholds_of(rule: Rule, stream: Stream) -> list[Threshold]:
    """Every comparison of a measure or field with a number that the whole condition depends on, in order."""
    columns: Mapping[str, FieldType | None] = {**stream.looking_up(rule.lookup).columns, **dict.fromkeys(rule.measures)}
    source = Source(rule.when, "when")
    return [found for part in _conjuncts(parse(source, columns)) if (found := _threshold(source, part)) is not None]


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(tree, exp.And):
        yield from _conjuncts(tree.left)
        yield from _conjuncts(tree.right)
    elif isinstance(tree, exp.Paren):
        yield from _conjuncts(tree.this)
    else:
        yield tree


def _threshold(source: Source, part: exp.Expr) -> Threshold | None:
    operators = _OPERATORS.get(type(part))
    if operators is None or not isinstance(part, exp.Binary):
        return None
    start, length = source.span(part)
    end = start + length
    leading = part.left
    while isinstance(leading, exp.Neg):  # sqlglot keeps no position of a sign
        start, leading = source.text.rindex("-", 0, start), leading.this
    left, right, operator = part.left, part.right, operators[0]
    if not isinstance(left, exp.Column):
        left, right, operator = right, left, operators[1]
    value = _number(right)
    if not isinstance(left, exp.Column) or value is None or "." in left.name:  # of a table, not of an event
        return None
    without = f"{source.text[:start]}{left.name} IS NOT NULL{source.text[end:]}"
    return Threshold(left.name, operator, value, without)


def _number(tree: exp.Expr) -> Decimal | None:
    if isinstance(tree, exp.Neg):
        value = _number(tree.this)
        return None if value is None else -value
    return Decimal(tree.name) if isinstance(tree, exp.Literal) and not tree.is_string else None
