"""Warnings about valid rules: conditions that no event can meet."""

from __future__ import annotations

from nightjar.rules.errors import Problem
from nightjar.rules.model import Rule, measure_types
from nightjar.rules.predicates import impossible_parts
from nightjar.rules.streams import Stream

_REMEDY = "Change it, or no event will ever meet it"


def doubts(rule: Rule, stream: Stream) -> list[Problem]:
    """Conditions of a rule that never hold, each with its place; the rule fits its stream."""
    kinds = {**stream.looking_up(rule.lookup).columns, **measure_types(rule, stream)}
    conditions = [("where", rule.where), ("unless.where", None if rule.unless is None else rule.unless.where)]
    for name, measure in rule.aggregates.items():
        of_measure = {"where": measure.where, "since": measure.since, "until": measure.until}
        conditions += [(f"measures.{name}.{key}", text) for key, text in of_measure.items()]
        conditions += [(f"measures.{name}.{measure.function}", step) for step in measure.steps]
    found = [
        Problem(place, text, reason, _REMEDY)
        for place, text in conditions
        if text is not None
        for reason in impossible_parts([text], kinds, {})
    ]
    least = dict[str, int]()
    for name, measure in rule.aggregates.items():
        if measure.function.spec.counts:
            excluding = measure.excluding_current or measure.delay
            every = measure.function.spec.takes_rows and measure.field is None
            every = every and measure.where is None and not (excluding or measure.over_alerts)
            least[name] = int(every)  # the current event counts itself
    of_both = impossible_parts([rule.when, *([] if rule.where is None else [rule.where])], kinds, least)
    known = {problem.message for problem in found}
    return found + [Problem("when", rule.when, reason, _REMEDY) for reason in of_both if reason not in known]
