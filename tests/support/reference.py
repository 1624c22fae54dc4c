"""The slow, obvious evaluator: docs/semantics.md in plain Python, which the engine is compared with.

Events are dictionaries of plain values (Decimal, str, int, float, bool, None; times in µs) with `arrival` and stand in
the order of arrival. Predicates are Python functions of such a dictionary; see `histories.py` for where they come from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONG_AGO = -(2**62)
ALLOWED_BY = "allowed_by"  # beside the measures of a violation, the allow rule that silences it
NOT_YET = 2**62  # of a version that waits
IN_THE_END = 2**62  # a clock by which everything is due
OVERFLOW = object()  # a sum that its type cannot hold
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
    shown: Callable[[Any], str] = str  # of a list of values
    episode: bool = False  # of the length `over`
    until: Test = lambda event: False
    resolution: int = 0  # µs
    counts: str | None = None  # `where` as written
    delay: int = 0  # µs
    excluding_start: bool = False
    p: str = "95"  # of a percentile, in percent
    calendar: tuple[str, str] | None = None  # unit and zone; `over` is its longest length
    session: int = 0  # µs
    began: Callable[[Event], int] | None = None  # when the session of an event began, µs
    reads: tuple[str, ...] = ()  # the measures at the event itself that `where` looks at, too
    steps: tuple[Test, ...] = ()  # of a sequence
    over_alerts: tuple[str, ...] = ()  # the rules and tags of which it counts the violations, instead of events
    # of an event the rules that it is a violation of, with their scores
    alerts: Callable[[Event], list[tuple[str, int]]] = lambda event: []

    @property
    def reach(self) -> int:
        """How long before an event those may lie that the measure depends on."""
        return 4 * self.over if self.episode else self.over + self.delay + self.resolution


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
    retired: bool = False
    by_verdict: bool = False  # whether a change of values alone is not announced
    mute: int = 0  # µs
    resets: bool = False  # starts again after each violation
    since: int = LONG_AGO  # the stream's horizon when the version was published: earlier events it never sees
    sees: str | None = None  # `where` as written
    unless: Test | None = None  # what must not follow an event
    within: int = 0  # how long after it, µs
    # of measures with a resolution, by name: event times from which on events, and whole steps, count for them (S14.3)
    folded: dict[str, tuple[int, int]] = field(default_factory=dict)
    # measures that are computed from an event and its other measures, each of which may read those before it
    computed: dict[str, Callable[[Event], Any]] = field(default_factory=dict)
    score: int | None = None
    tags: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()  # of an allow rule the rules and tags whose alerts it silences
    shadow: bool = False
    named: tuple[Version, ...] = ()  # where it is known, what reaches back further because of it

    @property
    def over_alerts(self) -> bool:
        return any(measure.over_alerts for measure in self.measures.values())

    @property
    def has_resolution(self) -> bool:
        return any(measure.resolution for measure in self.measures.values())


@dataclass
class Setting:
    event_id: str
    event_time: str
    allowed_lateness: int | None  # None: the truth, where nothing is late
    max_future_skew: int = 0
    tiebreaker: str | None = None


def place_in_order(setting: Setting, event: Event) -> tuple[Any, ...]:
    """Where the event is in the order of S1.1."""
    name, tie = event[setting.event_id], event[setting.tiebreaker] if setting.tiebreaker else None
    return event[setting.event_time], tie is None, 0 if tie is None else tie, fnv64(name), name.encode()


def fnv64(text: str) -> int:
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ (h >> 33)) * factor % 2**64
    return h ^ (h >> 33)


def violations(
    setting: Setting, versions: list[Version], events: list[Event], clock: int | None = None
) -> dict[tuple[str, int, str], Event]:
    """(rule id, version, event id) -> the measures, for every violation (S1 to S8)."""
    found = evaluations(setting, versions, events, clock)
    return {key: measures for key, (violated, measures) in found.items() if violated}


def evaluations(
    setting: Setting, versions: list[Version], events: list[Event], clock: int | None = None
) -> dict[tuple[str, int, str], tuple[bool, Event]]:
    """(rule id, version, event id) -> whether it is a violation, and the measures, for every event that is judged.

    clock: µs; without one a stream has none yet, and of the truth it is the latest event time.
    """
    known = in_order(setting, events)
    if clock is None:
        is_truth = setting.allowed_lateness is None and known
        clock = known[-1][setting.event_time] if is_truth else LONG_AGO
    rule_ids = sorted({v.rule_id for v in versions})

    found = {}
    places = {id(event): place for place, event in enumerate(known)}
    then: dict[Any, bool] = {}
    verdicts: dict[Any, tuple[bool, Event]] = {}
    if setting.allowed_lateness is None:
        versions = [replace(version, since=LONG_AGO, folded={}) for version in versions]

    def visible(version: Version, event: Event) -> list[Event]:
        seen = [
            other
            for other in known[: places[id(event)] + 1]
            if all(other[f] == event[f] for f in version.group_by)
            and version.where(other)
            and (not is_late(setting, other) or other["arrived"] <= event["arrived"])
        ]
        if not version.has_resolution:
            seen = [other for other in seen if other[setting.event_time] >= version.since]
        return seen

    def verdict(version: Version, event: Event) -> tuple[bool, Event]:
        key = version.rule_id, version.version, version.since, id(event)
        if key not in verdicts:
            seen = visible(version, event)
            on_time = [e for e in seen if not is_late(setting, e)]
            before = {e[setting.event_id] for e in on_time[:-1] if version.resets and is_violation(version, e)}
            seeing = as_then(setting, version, visible, then)

            def as_seen(other: Version, e: Event) -> bool:
                return is_violation(replace(other, since=max(version.since, other.since)), e)

            seeing = over_alerts(setting, seeing, versions, as_seen)
            after = last_violation(setting, version, on_time, before)
            verdicts[key] = judged(setting, seeing, event, seen, after)
        return verdicts[key]

    def is_violation(version: Version, event: Event) -> bool:
        at = applicable(versions, version.rule_id, event[setting.event_time])
        return at is not None and at.version == version.version and verdict(version, event)[0]

    for event in known:
        if is_late(setting, event):
            continue
        for rule_id in rule_ids:
            version = applicable(versions, rule_id, event[setting.event_time])
            if version is None or not judges(version, event) or not is_due(setting, version, event, clock):
                continue
            if version.allows:
                continue
            holds, measures = verdict(version, event)
            holds = holds and not is_followed(setting, version, event, known)
            others = [applicable(versions, each, event[setting.event_time]) for each in rule_ids]
            silent = [other for other in others if other is not None and judges(other, event)]
            by = allowed_by(version, silent, lambda other, e=event: verdict(other, e)[0]) if holds else None
            found[rule_id, version.version, event[setting.event_id]] = holds, {**measures, ALLOWED_BY: by}
    return found


def allowed_by(version: Version, others: Iterable[Version], holds: Callable[[Version], bool]) -> str | None:
    """The allow rule that silences a violation of a version (S24.2). others: what applies at its event, and is
    evaluated there; holds: whether one of these does."""
    silent = (other for other in others if can_allow(other, version) and (version.shadow or not other.shadow))
    return min((other.rule_id for other in silent if holds(other)), default=None)


def can_allow(version: Version, other: Version, names: Iterable[str] | None = None) -> bool:
    """Whether a version silences alerts of another one where it holds (S24.1). names: by these of what it names."""
    named = version.allows if names is None else names
    is_named = any(name in ("*", other.rule_id, *(f"tag:{tag}" for tag in other.tags)) for name in named)
    return is_named and other.group_by == version.group_by and other.rule_id != version.rule_id and not other.allows


def as_then(
    setting: Setting, version: Version, visible: Callable[[Version, Event], list[Event]], then: dict[Any, bool]
) -> Version:
    """The version with measures that know when the session of an event began, as it saw its group (S21), and with
    conditions that know what other measures are at an event, as it saw them (S18.3).

    visible: what windows at an event may count, in order; it is the last of them. then: what has been found before.
    """
    group = partial(visible, replace(version, where=lambda event: True))
    measures = {
        name: replace(measure, began=partial(session_begin, setting, measure, group)) if measure.session else measure
        for name, measure in version.measures.items()
    }
    version = replace(version, measures=measures)

    def counts(name: str, event: Event) -> bool:
        key = version.rule_id, version.version, version.since, name, id(event)
        if key not in then:
            seen, measure = visible(version, event), version.measures[name]
            found = {
                each: value(
                    version.measures[each],
                    event,
                    window(setting, version.measures[each], event, kept(setting, version, each, seen)),
                )
                for each in measure.reads
            }
            then[key] = OVERFLOW not in found.values() and measure.where({**event, **found})
        return then[key]

    measures = {
        name: replace(measure, where=partial(counts, name)) if measure.reads else measure
        for name, measure in version.measures.items()
    }
    return replace(version, measures=measures)


def counts(version: Version, names: Iterable[str], other: Version) -> bool:
    """Whether a version may count violations of another one under these names (S23.1)."""
    is_named = any(name in (other.rule_id, *(f"tag:{tag}" for tag in other.tags)) for name in names)
    fits = other.group_by == version.group_by and other.rule_id != version.rule_id
    fits = fits and not other.allows
    return is_named and fits and not other.over_alerts and not other.has_resolution and other.unless is None


def is_refused(version: Version, newest: Mapping[str, Version], *, all_known: bool = True) -> bool:
    """Whether it cannot be published for what it names, or for what names it (S23.1). newest: of each rule; all_known:
    whether it may name no others than these."""
    others = [other for other in newest.values() if other.rule_id != version.rule_id]

    def misnames(naming: Version, name: str, function: str, other: Version | None) -> bool:
        if other is None:
            return all_known
        if function == ALLOWED_BY:
            return not can_allow(naming, other, [name])
        return not counts(naming, [name], other) or (function == "sum" and other.score is None)

    def named(naming: Version) -> list[tuple[str, str]]:
        every = ((name, measure.function) for measure in naming.measures.values() for name in measure.over_alerts)
        every = [*every, *((name, ALLOWED_BY) for name in naming.allows if name != "*")]
        return [(name, function) for name, function in every if not name.startswith("tag:")]

    known = {other.rule_id: other for other in others}
    return any(misnames(version, *each, known.get(each[0])) for each in named(version)) or any(
        misnames(naming, *each, version)
        for naming in others
        for each in (named(naming) if version.active and naming.active else ())
        if each[0] == version.rule_id
    )


def over_alerts(
    setting: Setting, version: Version, versions: list[Version], is_violation: Callable[[Version, Event], bool]
) -> Version:
    """The version with measures that know which events are violations of others (S23.2)."""

    def alerts(measure: Measure, event: Event) -> list[tuple[str, int]]:
        found = []
        for rule_id in {v.rule_id for v in versions} if not is_late(setting, event) else ():
            other = applicable(versions, rule_id, event[setting.event_time])
            if other is None or not counts(version, measure.over_alerts, other) or not judges(other, event):
                continue
            if (version.shadow or not other.shadow) and is_violation(other, event):
                found.append((rule_id, other.score or 0))
        return found

    measures = {
        name: replace(measure, alerts=partial(alerts, measure)) if measure.over_alerts else measure
        for name, measure in version.measures.items()
    }
    return replace(version, measures=measures)


def is_due(setting: Setting, version: Version, event: Event, clock: int) -> bool:
    """Whether it is known by this clock what has followed the event (S19)."""
    return version.unless is None or event[setting.event_time] + version.within < clock


def is_followed(setting: Setting, version: Version, event: Event, known: list[Event]) -> bool:
    """Whether what a version waits for has come after the event, or at its time (S19)."""
    return version.unless is not None and any(
        version.unless(other)
        and 0 <= other[setting.event_time] - event[setting.event_time] <= version.within
        and all(other[f] == event[f] for f in version.group_by)
        for other in known
        if other is not event and not is_late(setting, other)
    )


def last_violation(setting: Setting, version: Version, on_time: list[Event], violated: set[str]) -> Event | None:
    """The last violation before the last of a group's events after which the version starts again, if it does (S13).

    on_time: those that it evaluates, in the order of S1.1; violated: the ids of violations among them.
    """
    width = max((measure.reach for measure in version.measures.values()), default=0)
    if not version.resets or not width:
        return None
    times = [event[setting.event_time] for event in on_time]
    cell = 2 * width
    begins = times[-1] // cell * cell
    fresh = max(place for place, time in enumerate(times) if place == 0 or times[place - 1] < time - width)
    if times[fresh] >= begins - cell:
        begins = times[fresh]
    found = [
        e for e, time in zip(on_time[:-1], times, strict=False) if time >= begins and e[setting.event_id] in violated
    ]
    return found[-1] if found else None


def judged(
    setting: Setting, version: Version, event: Event, seen: list[Event], after: Event | None = None
) -> tuple[bool, Event]:
    """Whether a version's condition holds at an event, and the measures.

    seen: what its windows may count, in the order of S1.1; the event is the last of them. after: those up to this one
    do not count.
    """
    begin = 0 if after is None else next(place for place, e in enumerate(seen) if e is after) + 1
    counted = {id(e) for e in seen[begin:]}
    measures: Event = {
        name: value(
            measure,
            event,
            [e for e in window(setting, measure, event, kept(setting, version, name, seen)) if id(e) in counted],
        )
        for name, measure in version.measures.items()
    }
    for name, expression in version.computed.items():
        wrong = OVERFLOW in measures.values()  # then nothing is announced, whatever this one is
        measures[name] = OVERFLOW if wrong else expression({**event, **measures})
    return OVERFLOW not in measures.values() and version.when({**event, **measures}), measures


def kept(setting: Setting, version: Version, name: str, seen: list[Event]) -> list[Event]:
    """The events that the stream still has, or what they were folded into, for a measure."""
    measure = version.measures[name]
    born, since = version.folded.get(name, (LONG_AGO, LONG_AGO))

    def is_kept(event: Event) -> bool:
        time = event[setting.event_time]
        if not measure.resolution:
            return time >= version.since and not event.get("past", False)
        counts = fold_of(version, measure) in event["only"] if "only" in event else time >= born
        return counts and time - time % measure.resolution >= since and event.get("in_time", True)

    return [event for event in seen if is_kept(event)]


def window(setting: Setting, measure: Measure, event: Event, seen: list[Event]) -> list[Event]:
    """What the measure looks at, of the events that it may count."""
    if measure.episode:
        return episode(measure, [e[setting.event_time] for e in seen], seen)
    ends = event[setting.event_time] - measure.delay
    begins = ends - measure.over
    if measure.calendar:
        begins = max(begins, midnight(ends, *measure.calendar))
    if measure.resolution:
        begins -= begins % measure.resolution
    held = [e for e in seen if begins <= e[setting.event_time] <= ends]
    if measure.began is not None:
        held = [e for e in held if e[setting.event_time] >= measure.began(event)]
    return [e for e in held if e[setting.event_time] > begins] if measure.excluding_start else held


def session_begin(setting: Setting, measure: Measure, group: Callable[[Event], list[Event]], event: Event) -> int:
    """When the session of an event began (S21). group: what it sees of its group, in order; it is the last of them."""
    times = [other[setting.event_time] for other in group(event) if not other.get("past", False)]
    while len(times) > 1 and times[-1] - times[-2] <= measure.session:
        times.pop()
    return times[-1]


def midnight(time: int, unit: str, zone: str) -> int:
    """When the day, week or month of a time (µs) began in the zone."""
    now = (EPOCH + timedelta(microseconds=time)).astimezone(ZoneInfo(zone))
    day = now.date()
    if unit == "week":
        day -= timedelta(days=day.weekday())
    if unit == "month":
        day = day.replace(day=1)
    begin = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    return (begin.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def episode(measure: Measure, times: list[int], seen: list[Event]) -> list[Event]:
    """The episode of the last of the events, up to it (S12)."""
    now, length = times[-1], measure.over

    def is_fresh(place: int) -> bool:
        for before in reversed(range(place)):
            if measure.until(seen[before]) or times[before] < times[place] - length:
                return True
            if measure.where(seen[before]):
                return False
        return True

    counted = [place for place, event in enumerate(seen) if measure.where(event)]
    fresh = [place for place in counted if is_fresh(place) and times[place] >= now - 3 * length]
    if not fresh:
        closed = [place for place in range(len(seen) - 1) if measure.until(seen[place])]
        return [e for place, e in enumerate(seen) if times[place] >= now - length and place > max(closed, default=-1)]
    opened = None
    for place in range(fresh[-1], len(seen)):
        if opened is not None and times[place] > times[opened] + length:
            opened = None
        if opened is None and place in counted:
            opened = place
        if opened is not None and place < len(seen) - 1 and measure.until(seen[place]):
            opened = None
    return [] if opened is None else seen[opened:]


def in_order(setting: Setting, events: list[Event]) -> list[Event]:
    """The first arrival of every id, in the order of S1.1, with `arrived`: its place among all arrivals."""
    first_arrivals: dict[str, Event] = {}
    for place, event in enumerate(events):
        most = None if setting.allowed_lateness is None else 2 * setting.allowed_lateness
        in_time = most is None or lateness(setting, event) <= most
        first_arrivals.setdefault(event[setting.event_id], {**event, "arrived": place, "in_time": in_time})

    return sorted(first_arrivals.values(), key=lambda event: place_in_order(setting, event))


def lateness(setting: Setting, event: Event) -> int:
    """How long after it happened an event arrived, in µs."""
    return event["arrival"] - event[setting.event_time]  # type: ignore[no-any-return]


def is_late(setting: Setting, event: Event) -> bool:
    """Whether the stream does not evaluate it."""
    return setting.allowed_lateness is not None and lateness(setting, event) > setting.allowed_lateness


def judges(version: Version, event: Event) -> bool:
    """Whether a version looks at an event at all."""
    return version.active and version.where(event) and all(event[f] is not None for f in version.group_by)


def applicable(versions: list[Version], rule_id: str, time: int) -> Version | None:
    """The version of a rule that events of that time see (S5.1)."""
    effective = [v for v in versions if v.rule_id == rule_id and v.effective <= time]
    return effective[-1] if effective else None


# A change of a table: keys, whether they are set, the event time from which on that is valid (µs), and the value that
# the row of each key has then.
Change = tuple[list[Any], bool, int, list[Any]]


def in_table(changes: Iterable[Change], key: Any, time: int) -> bool | None:
    """Whether a table with these changes has a key at an event time (S22.2, S22.3)."""
    valid = [(begins, place, is_set) for place, (keys, is_set, begins, _) in enumerate(changes) if key in keys]
    valid = [each for each in valid if each[0] <= time]
    return None if key is None else bool(valid) and max(valid)[2]


def looked_up(changes: Iterable[Change], key: Any, time: int) -> Any:
    """The value of the row that a table with these changes has for a key at an event time (S22.9)."""
    latest, found = LONG_AGO, None
    for keys, is_set, begins, values in changes:
        for other, value in zip(keys, values, strict=True):
            if other == key and latest <= begins <= time:
                latest, found = begins, value if is_set else None
    return found


# The versions that events from an event time on (µs) can see.
Alive = Callable[[int], list[Version]]


@dataclass
class Passed:
    """How far a stream is: no event before `settled` is judged any more, and none before `horizon` counts but in steps.

    held: of each fold (see folds_of) from when on events, and whole steps, count for it. folded: events before it are
    in steps, also where the horizon has moved back for others.
    """

    settled: int = LONG_AGO
    horizon: int = LONG_AGO
    held: dict[Any, tuple[int, int]] = field(default_factory=dict)
    folded: int = LONG_AGO

    def published(self, alive: Alive) -> Passed:
        """With other versions, of which new ones may need what has not been folded."""
        wanted = folds_of(alive(self.settled))
        held = {fold: self.held.get(fold, (self.folded, self.folded // fold[1] * fold[1])) for fold in wanted}
        return replace(self, held=held)

    def until(self, setting: Setting, alive: Alive, clock: int, late: Iterable[tuple[int, int]]) -> Passed:
        """After a batch with this clock. late: event time and arrival of the late events that are kept."""
        assert setting.allowed_lateness is not None
        settled = max(self.settled, clock - setting.allowed_lateness)
        horizon = max(self.horizon, horizon_of(setting, alive(settled), settled, late))
        held = {}
        for fold, reach in folds_of(alive(settled)).items():
            born, since = self.held.get(fold, (LONG_AGO, LONG_AGO))
            held[fold] = born, max(since, min(horizon, settled - reach) // fold[1] * fold[1])
        return Passed(settled, horizon, held, max(self.folded, horizon))

    def since_of(self, version: Version) -> Version:
        """The version with what it can see of the past."""
        names = {name: fold_of(version, measure) for name, measure in version.measures.items() if measure.resolution}
        folded = {name: self.held[fold] for name, fold in names.items() if fold in self.held}
        return replace(version, since=self.horizon, folded=folded)


_FAMILIES = {"count": "count", "sum": "totals", "avg": "totals", "stddev": "spread", "min": "least", "max": "greatest"}


def fold_of(version: Version, measure: Measure) -> tuple[Any, ...]:
    """What distinguishes what is kept of steps for a measure from what is kept for others."""
    predicates = frozenset(text for text in (version.sees, measure.counts) if text is not None)
    family = _FAMILIES[measure.function]
    return version.group_by, measure.resolution, family, predicates, measure.field


def folds_of(versions: list[Version]) -> dict[Any, int]:
    """What versions need of steps, and their widest window over each."""
    found: dict[Any, int] = {}
    for version in versions:
        for measure in version.measures.values():
            if measure.resolution:
                fold = fold_of(version, measure)
                found[fold] = max(measure.reach, found.get(fold, 0))
    return found


def horizon_of(setting: Setting, alive: list[Version], settled: int, late: Iterable[tuple[int, int]]) -> int:
    """The event time before which events need not be kept as such (S8.2, S14.3)."""
    assert setting.allowed_lateness is not None
    coarsest = max((m.resolution for v in alive for m in v.measures.values()), default=0)
    if not coarsest:
        return settled - max((reach_of(version) for version in alive), default=0)
    rows = [replace(v, measures={n: m for n, m in v.measures.items() if not m.resolution}) for v in alive]
    widest = max(setting.allowed_lateness, *(reach_of(version) for version in rows))
    part = coarsest // 4
    target = (settled - widest) // part * part
    return min([target, *(time for time, arrival in late if arrival >= settled - setting.max_future_skew)])


def living(versions: list[Version], settled: int) -> list[Version]:
    """The versions that an event which is still to be judged can see: they change only where one takes effect. One that
    waits for its effective time may get any until a later one applies."""
    known = [v for v in versions if v.effective != NOT_YET]
    seen = [v for v in known if any(applicable(known, v.rule_id, t) is v for t in _judged_times(v, known, settled))]
    waiting = [v for v in versions if v.effective == NOT_YET and not is_replaced(v, versions, settled)]
    found = [version for version in [*seen, *waiting] if not version.retired]
    return [replace(version, named=named_by(version, versions)) for version in found]


def _judged_times(version: Version, known: list[Version], settled: int) -> list[int]:
    """Event times among which versions change that a version may still have to judge."""
    since = settled - version.within
    return [since, *(v.effective for v in known if v.effective > since)]


def named_by(version: Version, versions: list[Version]) -> tuple[Version, ...]:
    """The versions that a version counts, or that can silence it, of those that events of its windows can see (S23.4,
    S24.4)."""
    names = [name for measure in version.measures.values() for name in measure.over_alerts]
    begin = LONG_AGO if version.effective == NOT_YET else version.effective - own_reach(version)

    def is_seen(other: Version) -> bool:
        at = begin if other.effective == NOT_YET else max(begin, other.effective)
        return not is_replaced(other, versions, at)

    def matters(other: Version) -> bool:
        return counts(version, names, other) or can_allow(other, version)

    return tuple(other for other in versions if matters(other) and is_seen(other))


def is_replaced(version: Version, versions: list[Version], settled: int) -> bool:
    """Whether a later version applies to all events from `settled` on."""
    return any(
        v.rule_id == version.rule_id and v.version > version.version and v.effective <= settled for v in versions
    )


def reach_of(version: Version) -> int:
    """How long before an event those may lie that the version depends on."""
    counted = max((own_reach(other) for other in version.named if not other.allows), default=0)
    allowing = max((own_reach(other) for other in version.named if other.allows), default=0)
    return max(own_reach(version) + counted, allowing) + version.within


def own_reach(version: Version) -> int:
    """The same without what violations of others depend on."""
    widest = max(
        (m.reach + max((version.measures[r].reach for r in m.reads), default=0) for m in version.measures.values()),
        default=0,
    )
    return 5 * widest if version.resets else widest


def retained(setting: Setting, versions: list[Version], events: list[Event], at: Passed) -> dict[tuple[str, ...], int]:
    """For every group-by of a rule that lives, how many events can still be needed (S11.1)."""
    found = {}
    alive = living(versions, at.settled)
    for group_by in {version.group_by for version in alive}:
        since = max(at.horizon, at.settled - max(reach_of(v) for v in alive if v.group_by == group_by))
        found[group_by] = sum(
            event[setting.event_time] >= since and all(event[f] is not None for f in group_by)
            for event in in_order(setting, events)
        )
    return found


def value(measure: Measure, event: Event, window: list[Event]) -> Any:
    if measure.since is not None:
        resets = [i for i, other in enumerate(window) if other is not event and measure.since(other)]
        window = window[resets[-1] + 1 :] if resets else window
    counted = [
        other
        for other in window
        if measure.where(other)
        and all(other[f] is not None and other[f] == event[f] for f in measure.per)
        and not ((measure.excluding_current or measure.function == "previous") and other is event)
    ]
    if measure.over_alerts:
        alerts = [each for other in counted for each in measure.alerts(other)]
        total = {"count": len(alerts), "sum": sum(score for _, score in alerts)}
        return total.get(measure.function, len({rule_id for rule_id, _ in alerts}))
    if measure.function == "sequence":
        return sum(ends_chain(measure.steps, counted[place:], event) for place in range(len(counted)))
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
                return rounded_sum(values)
            exact = sum(values, Decimal(0) if any(isinstance(v, Decimal) for v in values) else 0)
            scale = max((-v.as_tuple().exponent for v in values if isinstance(v, Decimal)), default=0)
            return exact if -(2**63) <= exact * 10**scale < 2**63 else OVERFLOW
        case "avg":
            return float(sum(map(Fraction, values)) / len(values)) if values else None
        case "stddev":
            if len(values) < 2:
                return None
            exact = [Fraction(v) for v in values]
            mean = sum(exact) / len(exact)
            return root(sum((v - mean) ** 2 for v in exact) / (len(exact) - 1))
        case "min":
            return min(values, default=None)
        case "max":
            return max(values, default=None)
        case "first":
            return values[0] if values else None
        case "last" | "previous":
            return values[-1] if values else None
        case "median":
            return quantile(values, Fraction(1, 2))
        case "percentile":
            return quantile(values, Fraction(measure.p) / 100)
        case "mode":
            often = Counter(values)
            most = max(often.values(), default=0)
            return next((value for value in reversed(values) if often[value] == most), None)
        case "values":
            return listed(values, measure.shown)
    raise AssertionError(measure.function)


def quantile(values: list[Any], part: Fraction) -> float | None:
    """The value so far up among the values in their order, on a straight line between two of them, as a double."""
    if not values:
        return None
    position = part * (len(values) - 1)
    ordered = sorted(values)
    low, high = Fraction(ordered[math.floor(position)]), Fraction(ordered[math.ceil(position)])
    return float(low + (high - low) * (position - math.floor(position)))


def ends_chain(steps: tuple[Test, ...], events: list[Event], last: Event) -> bool:
    """Whether the first of the events meets the first step, some of the others the next ones in order, and the very
    last, which is this one, the last step (S20)."""
    if not events or not steps[0](events[0]):
        return False
    if len(steps) == 1:
        return len(events) == 1 and events[0] is last
    return any(ends_chain(steps[1:], events[place:], last) for place in range(1, len(events)))


def listed(values: list[Any], shown: Callable[[Any], str]) -> str | None:
    """The first ten different values as text, with at most a hundred characters each, and how many more there are."""
    different = [shown(value) for value in dict.fromkeys(values)]
    text = ", ".join(value if len(value) <= 100 else value[:99] + "…" for value in different[:10])
    more = f" and {len(different) - 10} more" if len(different) > 10 else ""
    return text + more if values else None


def root(square: Fraction) -> Any:
    """The double nearest to the square root: of many more digits than a double has."""
    with localcontext(prec=50, Emax=10_000, Emin=-10_000):
        found = float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())
    return OVERFLOW if math.isinf(found) else found


def rounded_sum(values: list[float]) -> Any:
    """The double nearest to the exact sum."""
    return rounded(sum(map(Fraction, values), Fraction(0)))


def rounded(exact: Fraction) -> Any:
    """The nearest double."""
    try:
        return float(exact)
    except OverflowError:
        return OVERFLOW


def muted(mutes: dict[tuple[str, int], int], alerts: list[tuple[tuple[str, int], str, int, str]]) -> set[int]:
    """Which alerts are muted (S10.4), as their places in the list.

    mutes: of rule versions, in µs. alerts: rule version, group, event time and event id of all that stand.
    """
    found = set[int]()
    last: dict[Any, int] = {}  # the time of the last unmuted alert of a chain
    order = sorted(range(len(alerts)), key=lambda at: (alerts[at][2], fnv64(alerts[at][3]), alerts[at][3].encode()))
    for at in order:
        version, group, time, _ = alerts[at]
        chain = version, group, time // (24 * 3600 * 1_000_000)
        if version in mutes and chain in last and time - last[chain] <= mutes[version]:
            found.add(at)
        else:
            last[chain] = time
    return found
