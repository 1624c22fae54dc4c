"""Warnings about valid rules: conditions that no event can meet, and names of others that look misspelt."""

from __future__ import annotations

from collections.abc import Collection

from nightjar.rules.allowing import EVERY_RULE
from nightjar.rules.errors import Problem
from nightjar.rules.model import Rule, measure_types
from nightjar.rules.names import TAG, nearest
from nightjar.rules.predicates import impossible_parts
from nightjar.rules.streams import Stream

_REMEDY = "Change it, or no event will ever meet it"


def misspelt(rule: Rule, rules: Collection[Rule]) -> list[Problem]:
    """Ids and tags of others that a rule names, that none of these rules has, and that look like one that they have.

    Others may have been published, or will be, so that what looks like nothing here is no matter of doubt.
    """
    ids = {each.id for each in rules if each.id != rule.id}
    tags = {tag for each in rules if each.id != rule.id for tag in each.tags}
    named = [
        (f"measures.{name}.over_alerts", each)
        for name, measure in rule.over_alerts.items()
        for each in measure.over_alerts
    ]
    named += [("allows", each) for each in rule.allows if each != EVERY_RULE]
    found = list[Problem]()
    for place, each in named:
        prefix, known = (TAG, tags) if each.startswith(TAG) else ("", ids)
        name = each.removeprefix(prefix)
        if name not in known and (near := nearest(name, known)) is not None:
            remedy = f"If none is published, did you mean {prefix}{near}?"
            found.append(Problem(place, "", f"names {each!r}, which no rule here has", remedy))
    return found


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
