"""Random cases: a stream of its own, rules that change while its events come, and what the reference makes of them.

A history is played as a case (see nightjar.cases) and can be written as a case file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

from hypothesis import strategies as st

from nightjar.cases import Case, ExpectedOutcome, Message, Step, read_case
from nightjar.cases.documents import Number, json_text
from nightjar.rules.durations import format_duration
from nightjar.rules.engine import table_rows as tables
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.publishing import CONTROLS
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text
from nightjar.rules.types import Kind
from tests.support.histories import (
    LOOKED_UP,
    SECOND,
    TABLE,
    VALUE,
    asked,
    asking,
    event,
    result_kind,
    rules,
    setting,
    streams,
)
from tests.support.reference import (
    ALLOWED_BY,
    Change,
    Event,
    Passed,
    Version,
    in_table,
    is_late,
    is_refused,
    living,
    looked_up,
    violations,
)
from tests.support.unions import event_of_member, member_of


@dataclass(frozen=True)
class Happening:
    """What happens at one time: a crash before all else, messages on the rules topic, events."""

    at: int
    crash: bool
    messages: list[dict[str, Any]]
    events: list[Event]
    changes: list[Change] = field(default_factory=list)
    """Of the stream's table, before the events."""


@dataclass(frozen=True)
class History:
    """Happenings in the order of time, and the versions that their messages make.

    Every version takes effect after its message, and after every event that came before that (S9). activation_delay:
    µs. cuts, crashes: another way to cut the same events into batches, as indices. passed: how far the stream is after
    the last happening.
    """

    stream: Stream
    activation_delay: int
    happenings: list[Happening]
    versions: list[Version]
    cuts: list[int]
    crashes: set[int]
    passed: Passed

    @functools.cached_property
    def events(self) -> list[Event]:
        """All of them, in the order of arrival."""
        return [made for happening in self.happenings for made in happening.events]

    @functools.cached_property
    def changes(self) -> list[Change]:
        """All changes of the stream's table, in order."""
        return [change for happening in self.happenings for change in happening.changes]

    @functools.cached_property
    def true_events(self) -> list[Event]:
        """The events with what the table had at each one's time, by all changes."""
        return [as_listed(self.stream, event, self.changes) for event in self.events]

    @property
    def rows(self) -> TableRows | None:
        """The rows of the stream's table; None if it has none."""
        return rows_of(
            self.stream, ((happening.at, each) for happening in self.happenings for each in happening.changes)
        )

    @functools.cached_property
    def case(self) -> Case:
        """What a host plays."""
        steps = tuple(
            Step(
                happening.at,
                happening.crash,
                tuple(json_text(message).encode() for message in happening.messages),
                tuple(Message(self.stream.name, event_json(self.stream, made).encode()) for made in happening.events),
                tuple(json_text(change_json(change)).encode() for change in happening.changes),
            )
            for happening in self.happenings
        )
        settings = _SETTINGS.model_copy(update={"activation_delay": self.activation_delay})
        return Case(
            "A random history", "", "random", {self.stream.name: self.stream}, settings, steps, ExpectedOutcome()
        )


# whatever this machine has set, as every case's
_SETTINGS = read_case("steps: [{at: 0m}]", "random").settings


@dataclass
class _Published:
    """What has been published: each rule's last version, as written."""

    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)

    def take(self, written: dict[str, Any], version: Version, *, is_checked: bool = True) -> None:
        """A rule that says just what its last version says is no new one. is_checked: what it names, and what names it;
        not of a control message, but where it has the rule evaluated again."""
        newest = {known.rule_id: known for known in self.versions}
        if self.last.get(version.rule_id) == written or (is_checked and is_refused(version, newest)):
            return
        number = 1 + sum(known.rule_id == version.rule_id for known in self.versions)
        self.last[version.rule_id] = written
        self.versions.append(replace(version, version=number))

    def last_version(self, rule_id: str) -> Version:
        return next(known for known in reversed(self.versions) if known.rule_id == rule_id)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Histories of up to about a hundred events and a dozen rule messages."""
    stream = draw(streams())
    stream = asking(stream) if draw(st.integers(0, 2)) == 2 else stream
    changes: list[Change] = []
    delay = stream.max_future_skew + draw(st.sampled_from((0, 5 * SECOND)))
    most = stream.allowed_lateness + draw(st.sampled_from((0, 60 * SECOND)))
    published, made, happenings = _Published(), [], []
    at, passed, earliest = 300 * SECOND, Passed(), dict[str, Event]()
    late: list[tuple[int, int]] = []  # event time and arrival
    for number in range(draw(st.sampled_from(range(1, 11)))):
        at += draw(st.sampled_from((0, 1, 1, 2, 5, 20))) * SECOND
        wanted = draw(st.integers(1, 3)) if number == 0 else max(0, draw(st.integers(-3, 2)))
        changing = bool(stream.tables) and draw(st.booleans())
        if (wanted or changing) and happenings and at == happenings[-1].at:
            at += SECOND
        changed = draw(st.lists(table_changes(stream, at), min_size=1, max_size=3)) if changing else []
        changes += changed
        messages: list[dict[str, Any]] = []
        known = len(published.versions)
        for _ in range(wanted):
            # in a step of a case rules come first
            controls_only = bool(messages) and "control" in messages[-1]
            first = not made
            messages.append(draw(_messages(stream, at, delay, published, first=first, controls_only=controls_only)))
        passed = passed.published(partial(living, published.versions))
        for version in published.versions[known:]:
            seen = passed.since_of(version)
            version.since, version.folded = seen.since, seen.folded
        # an id whose event is before the horizon may name another event
        repeatable = [event for event in earliest.values() if event[stream.event_time] >= passed.horizon]
        came: list[Event] = []
        for _ in range(draw(st.sampled_from((2, 0, 1, 3, 5, 8, 12)))):
            drawn = draw(event(stream, at, repeatable, most=most, conflicting=True, number=len(made)))
            came.append(as_listed(stream, drawn, changes))
            made.append(came[-1])
            identity = came[-1][stream.event_id]
            if identity not in earliest and came[-1][stream.event_time] >= passed.horizon:
                repeatable.append(came[-1])
            if identity not in earliest and is_late(setting(stream), came[-1]):
                late.append((came[-1][stream.event_time], at))
            earliest.setdefault(identity, came[-1])
        late = [(time, arrival) for time, arrival in late if time >= passed.horizon]
        passed = passed.until(setting(stream), partial(living, published.versions), at, late)
        happenings.append(Happening(at, number > 0 and draw(st.integers(0, 5)) == 5, messages, came, changed))
    cuts = draw(st.lists(st.integers(0, 100), max_size=6))
    return History(stream, delay, happenings, published.versions, cuts, draw(st.sets(st.integers(0, 7))), passed)


@st.composite
def table_changes(draw: st.DrawFn, stream: Stream, at: int) -> Change:
    """A change of the stream's table, valid from a time around the present."""
    kind = stream.tables[TABLE].kind
    keys = st.sampled_from((0, 1, 2, -1)) if kind is Kind.INT64 else st.sampled_from(("x", "y", "a", "b"))
    begins = at + draw(st.sampled_from((0, 0, -1, -5, -20, 5, 20, -1000))) * SECOND
    changed = draw(st.lists(keys, min_size=1, max_size=2))
    levels = [draw(st.sampled_from((None, 0, 1, 2, 3))) for _ in changed]
    return changed, draw(st.integers(0, 2)) > 0, begins, levels


def as_listed(stream: Stream, made: Event, changes: Iterable[Change]) -> Event:
    """The event with what the stream's table had at its time, by these changes."""
    found = asked(stream)
    if found is None:
        return made
    name, column = found
    row = made[name], made[stream.event_time]
    return {**made, column: in_table(changes, *row), LOOKED_UP: looked_up(changes, *row)}


def rows_of(stream: Stream, records: Iterable[tuple[int, Change]]) -> TableRows | None:
    """The rows of the stream's table after records with these arrivals (µs); None if it has none."""
    if not stream.tables:
        return None
    rows = TableRows(stream.tables)
    made = [
        tables.Change(place, at, TABLE, keys, is_set=is_set, valid_from=begins, values=values_json(is_set, levels))
        for place, (at, (keys, is_set, begins, levels)) in enumerate(records)
    ]
    rows.add(made, len(made))
    return rows


def change_json(change: Change) -> dict[str, Any]:
    """A change as a record of the topic."""
    keys, is_set, begins, levels = change
    written = [Number(key) if isinstance(key, int) else key for key in keys]
    values = [{name: Number(value) for name, value in of.items()} for of in values_json(is_set, levels)]
    record = {"table": TABLE, "set" if is_set else "remove": written, "valid_from": iso_text(begins)}
    return record | ({"values": values} if values else {})


def values_json(is_set: bool, levels: list[int | None]) -> list[dict[str, Any]]:
    """The values of a change's keys."""
    return [{} if level is None else {VALUE: level} for level in levels] if is_set else []


@st.composite
def _messages(
    draw: st.DrawFn, stream: Stream, at: int, delay: int, published: _Published, *, first: bool, controls_only: bool
) -> dict[str, Any]:
    """A rule, one that has been published already, or a control message. first: no event has come yet."""
    effective = None
    if draw(st.integers(0, 3)) or first:
        # with no event before it, a version may take effect at any time
        leads = (-1000, -1000, -1000, -1000, -20, 20) if first else (0, 1, 5, 20)
        effective = at + stream.max_future_skew + draw(st.sampled_from(leads)) * SECOND
    known = sorted(published.last)
    if not controls_only and (not known or draw(st.booleans())):
        alerting = [last for last in map(published.last_version, known) if not last.allows]
        of_events = [last for last in alerting if not last.over_alerts]
        looking = ["sum", "sum", "trust", "trust"] * bool(of_events)
        rule_id = draw(st.sampled_from(("one", "two", "three", *looking)))
        allowing = (*(each.rule_id for each in alerting), "tag:a", "*", "*") if rule_id == "trust" else ()
        naming = (*(each.rule_id for each in of_events), "tag:a", "tag:b") if rule_id == "sum" else ()
        groups = [published.last_version(each).group_by for each in known]
        of_group = draw(st.sampled_from(groups)) if groups and (naming or allowing or draw(st.booleans())) else None
        drawn = rules(rule_id, stream, effective=effective, naming=naming, of_group=of_group, allowing=allowing)
        written, version = draw(drawn)
        published.take(written, replace(version, effective=at + delay if effective is None else effective))
        return written
    rule_id = draw(st.sampled_from(known))
    last = published.last[rule_id]
    if not controls_only and draw(st.integers(0, 4)) == 4:
        return last
    control = draw(st.sampled_from((*CONTROLS, "resume", "resume")))
    state = CONTROLS[control]
    given = {} if effective is None else {"effective": iso_text(effective)}
    written = {key: value for key, value in last.items() if key != "effective"} | {"state": state.value} | given
    version = replace(
        published.last_version(rule_id),
        effective=at + delay if effective is None else effective,
        active=state.is_evaluated,
        retired=control == "retire",
        shadow=control == "shadow",
    )
    published.take(written, version, is_checked=version.active and not published.last_version(rule_id).active)
    return {"control": control, "rule": rule_id, **given}


# As a case file


def event_json(stream: Stream, made: Event) -> str:
    """The event as a producer sends it; of a union, to the topic of its member."""
    if stream.members:
        return event_json(member_of(stream, made).stream, event_of_member(stream, made))
    return json_text({name: _written(kind.kind, made[name]) for name, kind in stream.fields.items()})


def _written(kind: Kind, value: Any) -> Any:
    """A value of a field as JSON has it."""
    if value is None or kind in (Kind.STRING, Kind.BOOLEAN):
        return value
    if kind is Kind.TIMESTAMP:
        return iso_text(value)
    return Number(f"{value:f}" if isinstance(value, Decimal) else repr(value))


# Of computed measures, which have no other kinds here.
_KINDS = {float: Kind.DOUBLE, int: Kind.INT64, bool: Kind.BOOLEAN, str: Kind.STRING, type(None): Kind.STRING}


def case_file(history: History, differences: Iterable[str]) -> str:
    """The history as a case file that expects what the reference says the stream ends with."""
    stream = history.stream
    declared = {
        "event_id": stream.event_id,
        "event_time": stream.event_time,
        "entities": list(stream.entities),
        "allowed_lateness": format_duration(stream.allowed_lateness),
        "max_future_skew": format_duration(stream.max_future_skew),
        "fields": {name: str(kind) for name, kind in stream.fields.items()},
        **({"tiebreaker": stream.tiebreaker} if stream.tiebreaker else {}),
    }
    lines = [
        *(f"# {line}" for line in differences),
        f"title: {history.case.title}",
        f"settings: {{activation_delay: {format_duration(history.activation_delay)}}}",
        f"streams: {json_text({stream.name: declared})}",
        *(f"tables: {{{name}: {{key: {key}, values: {{{VALUE}: int64}}}}}}" for name, key in stream.tables.items()),
        "steps:",
    ]
    for happening in history.happenings:
        lines.append(f"  - at: {iso_text(happening.at)}")
        lines += ["    crash: true"] if happening.crash else []
        for key, messages in (
            ("rules", [message for message in happening.messages if "control" not in message]),
            ("control", [message for message in happening.messages if "control" in message]),
        ):
            lines += [f"    {key}:"] * bool(messages) + [f"      - {json_text(message)}" for message in messages]
        lines += ["    tables:"] * bool(happening.changes)
        lines += [f"      - {json_text(change_json(change))}" for change in happening.changes]
        lines += ["    events:", f"      {stream.name}:"] * bool(happening.events)
        lines += [f"        - {event_json(stream, made)}" for made in happening.events]
    expected = violations(setting(stream), history.versions, history.events, history.happenings[-1].at)
    lines += ["expect:", "  final:" if expected else "  final: []"]
    by_name = {(version.rule_id, version.version): version for version in history.versions}
    for (rule_id, version, event_id), values in expected.items():
        measures = by_name[rule_id, version].measures
        written = {
            name: _written(result_kind(measures[name], stream) if name in measures else _KINDS[type(value)], value)
            for name, value in values.items()
            if name != ALLOWED_BY or value is not None
        }
        row = {"rule_id": rule_id, "rule_version": Number(version), "event_id": event_id}
        if not by_name[rule_id, version].by_verdict:  # else the values are those of the announcement (S9.1)
            row["measures"] = written
        lines.append(f"    - {json_text(row)}")
    return "\n".join(lines) + "\n"
