"""An estimate of the events that the job retains for a rule, before the rule runs."""

from __future__ import annotations

import math

from nightjar.rules.durations import MICROSECONDS, format_duration
from nightjar.rules.errors import Problem
from nightjar.rules.measures import RESET_REACH
from nightjar.rules.model import Rule


def widest(rule: Rule) -> int:
    """How long before an event those may lie that the rule's measures at it depend on, in µs: the longest window, a
    multiple of an episode (S12.4), or a multiple of these where the rule starts again after alerts (S13.4). 0 without
    measures."""
    return window(rule) * (RESET_REACH if rule.reset_after_alert else 1)


def unfolded(rule: Rule) -> int:
    """The same without measures that have a resolution, of which rows are folded (S14.3)."""
    reaches, aggregates = reaches_of(rule), rule.aggregates
    widest_of_rows = max((reach for name, reach in reaches.items() if not aggregates[name].resolution), default=0)
    return widest_of_rows * (RESET_REACH if rule.reset_after_alert else 1)


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


def retained(rule: Rule, events_per_day: float) -> int:
    """Events that the job retains for the rule at this rate of its stream: those of its widest window of events, and
    where measures have a resolution the steps of one group.

    Of events an upper bound: `where` does not count, since the job retains all events of a stream for any of its rules.
    Of steps a lower one: how many groups there are is not known.
    """
    steps = (math.ceil(m.reach / m.resolution) for m in rule.aggregates.values() if m.resolution)
    return math.ceil(events_per_day * unfolded(rule) / MICROSECONDS["d"]) + max(steps, default=0)


def too_much(rule: Rule, events_per_day: float, most: int) -> Problem | None:
    """The problem of a rule that would retain more than `most` events; None if it retains fewer."""
    found, length = retained(rule, events_per_day), format_duration(unfolded(rule))
    if found <= most:
        return None
    figures = f"{events_per_day:,.0f} events a day on {rule.stream} x {length}"
    return Problem(
        "measures",
        length,
        f"would retain about {found:,} events ({figures}), more than max_retained_events = {most:,}",
        "Shorten the widest window, give its measures a resolution, or raise the setting if the job has the memory",
    )
