"""Which tables a rule asks."""

from __future__ import annotations

from nightjar.rules.errors import PredicateError, RuleError
from nightjar.rules.model import Rule, measure_types
from nightjar.rules.predicates import compile_predicate, compile_value
from nightjar.rules.streams import Stream
from nightjar.rules.tables import asked_of


def tables_asked(rule: Rule, stream: Stream) -> frozenset[tuple[str, str]]:
    """The fields that the rule's conditions ask tables about, each with the table; none if it fits no more."""
    if not stream.tables:
        return frozenset()
    stream = stream.looking_up(rule.lookup)
    measures = rule.aggregates.values()
    texts = [rule.when, rule.where, None if rule.unless is None else rule.unless.where]
    texts += (text for m in measures for text in (m.where, m.since, m.until, *m.steps))
    try:
        columns = {**stream.columns, **measure_types(rule, stream)}
        asked = [compile_predicate(text, columns).columns for text in texts if text is not None]
        asked += [compile_value(text, columns, strict=False).columns for text in rule.computed.values()]
    except (PredicateError, RuleError):
        return frozenset()
    found = (asked_of(name) for name in frozenset[str]().union(*asked))
    return frozenset((each.field, each.table) for each in found if each is not None)
