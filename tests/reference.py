"""The slow, obvious evaluator: design section 5 said in Python, to hold the engine against.

Events are dictionaries of plain values (Decimal, str, int, float, bool, None; times in µs) with `arrival` and stand in
the order of arrival. Predicates are Python functions of such a dictionary; see `histories.py` for where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

OVERFLOW = object()  # a sum that 64 bits cannot hold
Event = dict[str, Any]
Test = Callable[[dict[str, Any]], bool]


@dataclass
class Measure:
    function: str
    field: str | None
    over: int
    where: Test = lambda event: True
    per: tuple[str, ...] = ()
    excluding_current: bool = False
    since: Test | None = None


@dataclass
class Version:
    rule_id: str
    version: int
    effective: int
    group_by: tuple[str, ...]
    measures: dict[str, Measure]
    when: Test
    where: Test = lambda event: True
    active: bool = True


@dataclass
class Setting:
    event_id: str
    event_time: str
    allowed_lateness: int | None  # None: the truth, where nothing is late
    fields: dict[str, Any] = field(default_factory=dict)


def fnv64(text: str) -> int:
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ (h >> 33)) * factor % 2**64
    return h ^ (h >> 33)


def violations(setting: Setting, versions: list[Version], events: list[Event]) -> dict[tuple[str, int, str], Event]:
    """(rule id, version, event id) -> the measures, for every violation (law 1 to 8)."""
    return {key: measures for key, (violated, measures) in evaluations(setting, versions, events).items() if violated}


def evaluations(
    setting: Setting, versions: list[Version], events: list[Event]
) -> dict[tuple[str, int, str], tuple[bool, Event]]:
    first_arrivals: dict[str, Event] = {}
    for place, event in enumerate(events):
        first_arrivals.setdefault(event[setting.event_id], {**event, "arrived": place})
    known = list(first_arrivals.values())

    def time(event: Event) -> int:
        return event[setting.event_time]

    def order(event: Event) -> tuple[int, int, bytes]:
        name = event[setting.event_id]
        return time(event), fnv64(name), name.encode()

    def late(event: Event) -> bool:
        return setting.allowed_lateness is not None and event["arrival"] - time(event) > setting.allowed_lateness

    found = {}
    for event in known:
        if late(event):
            continue
        for rule_id in {v.rule_id for v in versions}:
            effective = [v for v in versions if v.rule_id == rule_id and v.effective <= time(event)]
            if not effective or not effective[-1].active or not effective[-1].where(event):
                continue
            version = effective[-1]
            if any(event[f] is None for f in version.group_by):
                continue
            seen = [
                other
                for other in known
                if all(other[f] == event[f] for f in version.group_by)
                and version.where(other)
                and order(other) <= order(event)
                and (not late(other) or other["arrived"] <= event["arrived"])
            ]
            seen.sort(key=order)
            measures = {
                name: value(measure, event, [e for e in seen if time(e) >= time(event) - measure.over])
                for name, measure in version.measures.items()
            }
            holds = OVERFLOW not in measures.values() and version.when({**event, **measures})
            found[rule_id, version.version, event[setting.event_id]] = (holds, measures)
    return found


def value(measure: Measure, event: Event, window: list[Event]) -> Any:
    if measure.since is not None:
        resets = [i for i, other in enumerate(window[:-1]) if measure.since(other)]
        window = window[resets[-1] + 1 :] if resets else window
    counted = [
        other
        for other in window
        if measure.where(other)
        and all(other[f] is not None and other[f] == event[f] for f in measure.per)
        and not (measure.excluding_current and other is event)
    ]
    if measure.function == "count" and measure.field is None:
        return len(counted)
    values = [other[measure.field] for other in counted if other[measure.field] is not None]
    match measure.function:
        case "count":
            return len(values)
        case "count_distinct":
            return len(set(values))
        case "sum":
            if values and isinstance(values[0], float):
                return math.fsum(values)
            exact = sum(values, Decimal(0) if any(isinstance(v, Decimal) for v in values) else 0)
            scale = max((-v.as_tuple().exponent for v in values if isinstance(v, Decimal)), default=0)
            return exact if -(2**63) <= exact * 10**scale < 2**63 else OVERFLOW
        case "avg":
            if values and isinstance(values[0], float):
                return math.fsum(values) / len(values)
            return float(sum(map(Fraction, values)) / len(values)) if values else None
        case "stddev":
            if len(values) < 2:
                return None
            exact = [Fraction(v) for v in values]
            mean = sum(exact) / len(exact)
            return math.sqrt(sum((v - mean) ** 2 for v in exact) / (len(exact) - 1))
        case "min":
            return min(values, default=None)
        case "max":
            return max(values, default=None)
        case "first":
            return values[0] if values else None
        case "last":
            return values[-1] if values else None
    raise AssertionError(measure.function)
