"""Which rules others name, and whose violations measures over alerts can count (S23)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from nightjar.rules.allowing import unallowed
from nightjar.rules.errors import Problem
from nightjar.rules.named_rules import is_named, mismatch
from nightjar.rules.names import TAG, did_you_mean
from nightjar.rules.states import State

if TYPE_CHECKING:
    from nightjar.rules.measures import Measure
    from nightjar.rules.model import Rule


def uncounted(naming: Rule, other: Rule) -> tuple[str, str] | None:
    """Why a rule cannot count the violations of another one, and the remedy; None if it can.

    A tag does not stand for such a rule.
    """
    if (unlike := mismatch(naming, other)) is not None:
        return unlike
    if other.over_alerts:
        return "looks at alerts itself; one level is possible", "Name the rules that it looks at"
    if other.unless is not None:
        return "waits for what follows an event (unless), so that its violations are known too late", "Name other rules"
    if any(measure.resolution for measure in other.aggregates.values()):
        return "has a measure with a resolution: folded events are not evaluated again", "Leave resolution out there"
    return None


def counted(naming: Rule, other: Rule) -> bool:
    """Whether a measure of a rule is over violations of another one."""
    named = {each for measure in naming.over_alerts.values() for each in measure.over_alerts}
    return is_named(named, other) and uncounted(naming, other) is None


def counts_violations(naming: Rule, other: Rule) -> bool:
    """The same, where both are in the states that they have: what is on trial has no part in alerts that are not."""
    is_running = other.state is State.ACTIVE or other.state is naming.state is State.SHADOW
    return is_running and counted(naming, other)


def problems(naming: Rule, rules: Iterable[Rule], *, among: str = "") -> Iterator[Problem]:
    """What is wrong with the rules that a rule names, as far as they are known. Tags name what has them.

    among: what the rules are, as in "published", if these are all: one that is not among them is a problem then.
    """
    known = {rule.id: rule for rule in rules}
    named = [
        (f"measures.{name}.over_alerts", rule_id, partial(_unusable, naming, measure))
        for name, measure in naming.over_alerts.items()
        for rule_id in measure.over_alerts
        if not rule_id.startswith(TAG)
    ]
    named += [("allows", rule_id, partial(unallowed, naming)) for rule_id in naming.allowed_ids]
    for place, rule_id, wrong_with in named:
        other = known.get(rule_id)
        if other is None:
            if among:
                others = [each for each in known if each != naming.id]
                what = f"names {rule_id!r}, which is not one of the {among} rules"
                remedy = did_you_mean(rule_id, others, "They are") if others else "There is no other one"
                yield Problem(place, rule_id, what, remedy)
        elif (wrong := wrong_with(other)) is not None:
            yield Problem(place, rule_id, f"names {rule_id!r}, which {wrong[0]}", wrong[1])


def _unusable(naming: Rule, measure: Measure, other: Rule) -> tuple[str, str] | None:
    """Why a measure of a rule cannot count another one, and the remedy; None if it can."""
    wrong = uncounted(naming, other)
    if wrong is None and measure.is_of_scores and other.score is None:
        return "has no score", f"Give rule {other.id} a score, or count its alerts"
    return wrong
