"""An estimate of the events that the job retains for a rule, before the rule runs."""

from __future__ import annotations

import math

from nightjar.rules.allowing import can_allow
from nightjar.rules.durations import MICROSECONDS, format_duration
from nightjar.rules.errors import Problem
from nightjar.rules.measures import RESET_REACH
from nightjar.rules.model import Rule
from nightjar.rules.over_alerts import counted
from nightjar.rules.versions import NOT_YET, RuleVersion, by_rule, living


def widest(version: RuleVersion) -> int:
    """How long before an event those may lie that the rule's measures at it depend on, in µs: the longest window, a
    multiple of an episode (S12.4), or a multiple of these where the rule starts again after alerts (S13.4), and before
    that what the rules depend on whose alerts it looks at (S23.4); or what the allow rules depend on that silence its
    alerts (S24.4). 0 without measures."""
    return max(own(version.rule) + _of_named(version), _of_allowing(version))


def unfolded(version: RuleVersion) -> int:
    """The same without measures that have a resolution, of which rows are folded (S14.3)."""
    return max(own_unfolded(version.rule) + _of_named(version), _of_allowing(version))


def own(rule: Rule) -> int:
    """As `widest`, without what the rules depend on whose alerts it looks at."""
    return window(rule) * (RESET_REACH if rule.reset_after_alert else 1)


def own_unfolded(rule: Rule) -> int:
    """As `unfolded`, without what the rules depend on whose alerts it looks at."""
    reaches, aggregates = reaches_of(rule), rule.aggregates
    widest_of_rows = max((reach for name, reach in reaches.items() if not aggregates[name].resolution), default=0)
    return widest_of_rows * (RESET_REACH if rule.reset_after_alert else 1)


def named_by(version: RuleVersion, since: int | None = None) -> dict[str, tuple[RuleVersion, ...]]:
    """By rule, the versions of the rules that a version depends on that apply to some event in a window at an event
    from `since` (µs) on, or from when it takes effect; in the order of publication."""
    begin = max(version.effective, version.effective if since is None else since) - own(version.rule)
    begins = None if version.effective == NOT_YET else begin
    return {rule_id: living(versions, begins) for rule_id, versions in by_rule(version.named).items()}


def _of_named(version: RuleVersion) -> int:
    """How long before an event those may lie that the rules depend on whose alerts it looks at."""
    named = (each for versions in named_by(version).values() for each in versions)
    return max((own(each.rule) for each in named if counted(version.rule, each.rule)), default=0)


def _of_allowing(version: RuleVersion) -> int:
    """How long before an event those may lie that the allow rules depend on that silence its alerts."""
    named = (each for versions in named_by(version).values() for each in versions)
    return max((own(each.rule) for each in named if can_allow(each.rule, version.rule)), default=0)


def waits_for(rule: Rule) -> int:
    """How long after an event (µs) the rule waits for what follows it, before the event can be a violation (S19)."""
    return 0 if rule.unless is None else rule.unless.within


def kept_for(version: RuleVersion) -> int:
    """How long before what is settled the stream keeps events for the rule, in µs; without measures that have a
    resolution."""
    return unfolded(version) + waits_for(version.rule)


def folds(rule: Rule) -> bool:
    """Whether a measure of the rule has a resolution."""
    return any(measure.resolution for measure in rule.aggregates.values())


def window(rule: Rule) -> int:
    """The same without what violations before the event have to do with it."""
    return max(reaches_of(rule).values(), default=0)


def reaches_of(rule: Rule) -> dict[str, int]:
    """How long before an event those may lie that each measure at it depends on, in µs; without violations."""
    aggregates, inner = rule.aggregates, rule.inner
    return {
        name: measure.reach
        + max((aggregates[each].reach for each in inner.get(name, ()) if each in aggregates), default=0)
        for name, measure in aggregates.items()
    }


def retained(version: RuleVersion, events_per_day: float) -> int:
    """Events that the job retains for the rule at this rate of its stream: those of its widest window of events and of
    the time for which it waits for what follows, and where measures have a resolution the steps of one group.

    Of events an upper bound: `where` does not count, since the job retains all events of a stream for any of its rules.
    Of steps a lower one: how many groups there are is not known.
    """
    measures = version.rule.aggregates.values()
    steps = (math.ceil(m.reach / m.resolution) for m in measures if m.resolution)
    return math.ceil(events_per_day * kept_for(version) / MICROSECONDS["d"]) + max(steps, default=0)


def too_much(version: RuleVersion, events_per_day: float, most: int) -> Problem | None:
    """The problem of a rule that would retain more than `most` events; None if it retains fewer."""
    found, length = retained(version, events_per_day), format_duration(kept_for(version))
    if found <= most:
        return None
    figures = f"{events_per_day:,.0f} events a day on {version.rule.stream} x {length}"
    return Problem(
        "measures",
        length,
        f"would retain about {found:,} events ({figures}), more than max_retained_events = {most:,}",
        "Shorten the widest window (or what the rule waits for), give its measures a resolution, or raise the setting "
        "if the job has the memory",
    )
