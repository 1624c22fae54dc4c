"""What rules that name others have in common, whether they count violations (S23) or silence alerts (S24)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nightjar.rules.names import TAG

if TYPE_CHECKING:
    from nightjar.rules.model import Rule


def is_named(named: Iterable[str], other: Rule) -> bool:
    """Whether one of these ids and tags stands for the other rule."""
    own = {other.id, *(TAG + tag for tag in other.tags)}
    return any(each in own for each in named)


def mismatch(naming: Rule, other: Rule) -> tuple[str, str] | None:
    """Why a rule can have nothing to do with the alerts of another one, and the remedy; None if it can."""
    if other.stream != naming.stream:
        return f"is on stream {other.stream}, unlike rule {naming.id}", f"Name rules of stream {naming.stream}"
    if other.group_by != naming.group_by:
        found, wanted = (", ".join(rule.group_by) for rule in (other, naming))
        return f"groups by [{found}], unlike rule {naming.id}", f"Name rules that group by [{wanted}]"
    if other.id == naming.id:
        return "is the rule itself", "Name other rules"
    if other.allows:
        return "is an allow rule, and has no alerts", "Name rules that have"
    return None
