"""Drafts beside live rules: which rules name which, so that a draft finds what it would find once it is published.

How it works: live rules are evaluated too, so a draft is evaluated under an id of its own, without tags. What drafts
name (S23, S24) is written out as ids: those of the other drafts, and of live rules that no draft replaces. Live rules
count and silence live ones, and live allow rules that no draft replaces silence drafts as well. An allow rule has no
alerts: its copy without `allows` is violated where it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nightjar.rules.allowing import EVERY_RULE, MEMBER
from nightjar.rules.measures import Measure
from nightjar.rules.model import Rule, State
from nightjar.rules.named_rules import is_named

# Ids under which drafts, and copies of allow rules, are evaluated. No rule's own id has a space.
DRAFT, HOLDS, ALLOWS = "{} (draft)", "{} (holds)", "{} (allows)"
# In an alert's measures, the draft of an allow rule that silences it.
ALLOWED_BY_DRAFT = f'({MEMBER}"[^"]*) \\(allows\\)"'
# What names no rule; an empty list would make a measure one over events.
_NOBODY = "(nobody)"


def on_trial(draft: Rule, drafts: Sequence[Rule], live: Iterable[Rule]) -> Rule:
    """The draft as it is evaluated under its id as a draft; an allow rule is violated where it holds.

    drafts: all that are tried together. live: the live rules.
    """
    replaced = {each.id for each in drafts}
    known = [(each, DRAFT.format(each.id)) for each in drafts if each.id != draft.id]
    known += [(each, each.id) for each in live if each.id not in replaced]
    return _copied(draft, {name: _over(measure, known) for name, measure in draft.measures.items()})


def allowing(drafts: Sequence[Rule]) -> list[Rule]:
    """The allow rules among the drafts as such: each silences alerts of the other drafts."""
    known = [(each, DRAFT.format(each.id)) for each in drafts]
    return [
        rule.model_copy(
            update={"id": ALLOWS.format(rule.id), "allows": _ids(rule.allows, known), "state": State.ACTIVE}
        )
        for rule in drafts
        if rule.allows
    ]


def beside_drafts(live: Rule, drafts: Sequence[Rule], every: Iterable[Rule]) -> Rule:
    """A live rule as it is evaluated beside drafts. every: all live rules."""
    if not live.allows:
        return live
    known = [(each, each.id) for each in every if each.id != live.id]
    if live.id not in {each.id for each in drafts}:
        known += [(each, DRAFT.format(each.id)) for each in drafts]
    return live.model_copy(update={"allows": _ids(live.allows, known)})


def holding(live: Iterable[Rule]) -> list[Rule]:
    """A copy of each allow rule among them that is violated where it holds."""
    return [
        _copied(rule, rule.measures).model_copy(update={"id": HOLDS.format(rule.id)}) for rule in live if rule.allows
    ]


def _copied(rule: Rule, measures: dict[str, Measure | str]) -> Rule:
    return rule.model_copy(update={"measures": measures, "allows": (), "tags": (), "state": State.ACTIVE})


def _over(measure: Measure | str, known: Iterable[tuple[Rule, str]]) -> Measure | str:
    """The measure with what it is over as ids."""
    if isinstance(measure, str) or not measure.over_alerts:
        return measure
    return measure.model_copy(update={"over_alerts": _ids(measure.over_alerts, known)})


def _ids(names: Sequence[str], known: Iterable[tuple[Rule, str]]) -> tuple[str, ...]:
    """The ids under which those of the known rules are evaluated that are named."""
    return tuple(id_ for rule, id_ in known if EVERY_RULE in names or is_named(names, rule)) or (_NOBODY,)
