"""What a rule concludes at one event by the lake as it is now.

How it works: the event's group is selected and evaluated as a run does it, by the same functions, for a run whose only
day is the event's date and whose only group is the event's: `event_selection` (which files and rows count), `survey`
(which record of an id is the first), `scope` (how far windows reach) and `evaluation` (the engine).

What it does not do: leave out arrivals after a run's cut-off. So it is what the next run would find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from nightjar.backfill.evaluate.evaluation import truth_of
from nightjar.backfill.evaluate.survey import REPEATS, content_of, repeated
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.event_selection import ARRIVED, PLACE, EventSelection, selections_of
from nightjar.backfill.inputs.scope import (
    HI,
    LO,
    TARGET,
    GroupBy,
    events_of,
    group_bys,
    group_texts,
    microseconds_of,
    touched_groups,
    within,
)
from nightjar.lake import delta
from nightjar.lake.scanning import scan_files
from nightjar.lake.table_rows import rows_of
from nightjar.lake.tables import events_table
from nightjar.rules.allowing import allowed_by
from nightjar.rules.canonical import rewritten
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.event_order import order_key
from nightjar.rules.over_alerts import counts_violations
from nightjar.rules.retention import own, widest
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP, after, from_microseconds, microseconds
from nightjar.rules.truth import Truth
from nightjar.rules.types import Kind
from nightjar.rules.versions import RuleSet, RuleVersion
from nightjar.rules.violation_checks import meets


@dataclass(frozen=True)
class AlertSubject:
    """What an alert is about."""

    version: RuleVersion
    """That announced it."""
    stream: Stream
    event_id: str
    event_time: datetime
    group: str
    """JSON."""

    @property
    def at(self) -> int:
        """The event time, µs."""
        return microseconds(self.event_time)


@dataclass(frozen=True)
class Counted:
    """A violation of another rule."""

    rule_id: str
    rule_version: int
    score: int | None
    event_id: str
    event_time: datetime


@dataclass(frozen=True)
class Reevaluation:
    """What holds at the event."""

    applies: RuleVersion | None
    """The version that the event sees (S5.1); None: none."""
    shown: RuleVersion
    """The version whose window and measures these are: the one that applies, or the alert's own where that one
    evaluates nothing."""
    window: pl.DataFrame
    """The group's events from the widest window up to the event (the stream's fields, and ARRIVED), in order."""
    arrival: int | None = None
    """Of the event (µs); None: it is not in the lake."""
    displaced: bool = False
    """Whether another event with its id arrived first."""
    simultaneous: tuple[int, int] = (0, 0)
    """How many other events of the group have the event's time, before and after it in order."""
    violation: dict[str, Any] | None = None
    """What the truth has of the version that applies (VIOLATION_SCHEMA)."""
    measures: dict[str, Any] | None = None
    """At the event; None where it is not evaluated."""
    failed: str | None = None
    """The measure without a value."""
    muted_by: str | None = None
    """The alert that mutes it."""
    allowed_by: str | None = None
    """The allow rule that silences it (S24)."""
    counted: tuple[Counted, ...] = ()
    """The violations of other rules in its windows that its measures may count (S23), in the order of event time."""
    followed_by: tuple[str, datetime] | None = None
    """Id and time of the first event that makes it no violation, of a rule that waits for such a one (S19)."""


def reevaluate(
    run: RunInputs, subject: AlertSubject, recent: Callable[[int], pl.DataFrame | None] = lambda _since: None
) -> Reevaluation:
    """Evaluate the rule at the event.

    run: of the event's date and the alert's rule, with the version of the stream's table. recent: given an event time
    (µs), the stream's events from then on that the lake does not have yet (its fields and ARRIVED).
    """
    stream, own = subject.stream, subject.version
    applies = run.rules.asked_for.applicable(own.rule.id, subject.at)
    shown = applies if applies is not None and applies.rule.state.is_evaluated else own
    selection = _selection(run, subject)
    near = _Near.of(selection, recent(selection.since))
    mine = near.where(_at_once(subject), pl.col(stream.event_id) == subject.event_id).sort(*ARRIVED).collect()
    mine = mine.filter(_is_of(mine, subject))
    nothing = Reevaluation(applies, shown, mine.clear())
    group_by = next((known for known in selection.group_bys if known.fields == shown.rule.group_by), None)
    if not mine.height or group_by is None:
        return nothing
    first = mine.head(1)
    is_in_none = first.select(
        pl.any_horizontal(pl.col(group_by.fields).is_null()) if group_by.fields else pl.lit(value=False)
    ).item()  # in no group of this version (S2.3)
    of_group = first if is_in_none else _of_group(near, first, group_by, subject)
    copies = near.copies(of_group.get_column(stream.event_id).append(first.get_column(stream.event_id)))
    earliest = copies.filter(pl.col(stream.event_id) == subject.event_id).sort(*ARRIVED).head(1)
    found = replace(
        nothing,
        arrival=microseconds(first.get_column("arrival_time")[0]),
        displaced=bool(earliest.height) and not earliest.select(PLACE).equals(first.select(PLACE)),
    )
    if is_in_none:
        return found
    repeats = repeated(copies, stream.event_id).filter(REPEATS)
    events = of_group.join(repeats, on=PLACE, how="anti", maintain_order="left")
    found = replace(found, **_placed(events, first, subject, shown))
    if applies is not shown or found.displaced:
        return found
    declared, clock = events.drop(ARRIVED).to_arrow(compat_level=pl.CompatLevel.oldest()), selection.clock
    tables = rows_of(run.tables)
    truth = truth_of(stream, selection.ruleset, group_by, declared, clock, tables)
    others = truth_of(stream, RuleSet(shown.named), group_by, declared, clock, tables) if shown.named else None
    counts = () if others is None else tuple(_counted(others, subject, shown))
    followed_by = _followed_by(events, subject, shown, tables)
    return replace(found, **_concluded(truth, events, subject, shown), counted=counts, followed_by=followed_by)


def _counted(others: Truth, subject: AlertSubject, shown: RuleVersion) -> Iterator[Counted]:
    """The violations of others that a version may count, in its own windows up to the event. others: those it names."""
    versions = {other.key: other.rule for other in shown.named}
    for row in pl.DataFrame(others.violations()).sort("event_time", "event_id", "rule_id").iter_rows(named=True):
        rule = versions[row["rule_id"], row["rule_version"]]
        is_within = subject.at - own(shown.rule) <= microseconds(row["event_time"]) <= subject.at
        if is_within and counts_violations(shown.rule, rule) and rewritten(row["group"]) == rewritten(subject.group):
            yield Counted(rule.id, row["rule_version"], rule.score, row["event_id"], row["event_time"])


def _selection(run: RunInputs, subject: AlertSubject) -> EventSelection:
    """The events that a run of the event's date reads for the rule."""
    stream, request, rules, notes = subject.stream, run.request, run.rules, run.notes
    judged = (request.begin, request.end - 1)
    if delta.exists(run.root, events_table(stream)):
        (selection,) = selections_of(run, {stream.name: [judged]})
        return selection
    ruleset = rules.asked_for.of_stream(stream.name)
    groups = group_bys(ruleset.versions, rules.published, *judged, {}, stream.max_future_skew)
    allowed = notes.allowed_of(stream)
    return EventSelection(stream, ruleset, request, tuple(groups), notes.cut, notes.clock, (judged,), allowed)


@dataclass(frozen=True)
class _Near:
    """The events that count. recent: those that the lake may not have yet; None: there are none."""

    selection: EventSelection
    recent: pl.LazyFrame | None

    @classmethod
    def of(cls, selection: EventSelection, recent: pl.DataFrame | None) -> _Near:
        """Those of a selection, and of what the lake does not have yet."""
        if recent is None:
            return cls(selection, None)
        return cls(selection, recent.lazy().filter(within(microseconds_of(selection.stream), selection.spans)))

    def where(self, *conditions: pl.Expr) -> pl.LazyFrame:
        """Those that meet conditions, which both readings apply themselves: so most of a file is not decoded."""
        found = self.selection.near(self.selection.files).filter(*conditions)
        if self.recent is None:
            return found
        schema = found.collect_schema()
        recent = self.recent.select(schema.names()).cast(schema).filter(*conditions)
        return pl.concat([found, recent]).unique(PLACE, maintain_order=True)

    def copies(self, ids: pl.Series) -> pl.DataFrame:
        """The records of those ids of which there are several: the id, ARRIVED and `content_of`."""
        stream = self.selection.stream
        files = scan_files(events_table(stream), self.selection.files)
        read = [files.select(stream.event_id)]
        if self.recent is not None:
            read.append(self.recent.select(pl.col(stream.event_id).cast(read[0].collect_schema()[stream.event_id])))
        named = pl.concat(each.filter(pl.col(stream.event_id).is_in(ids.implode())) for each in read).collect()
        # few have any, and to read ids alone takes a part of the time
        several = named.filter(pl.col(stream.event_id).is_duplicated()).get_column(stream.event_id).unique()
        again = self.where(pl.col(stream.event_id).is_in(several.implode()))
        read_again = again if several.len() else again.clear()
        return read_again.select(stream.event_id, *ARRIVED, content_of(stream)).collect()


def _at_once(subject: AlertSubject) -> pl.Expr:
    """Whether an event is at the alert's time."""
    return pl.col(subject.stream.event_time) == from_microseconds(subject.at)


def _is_of(copies: pl.DataFrame, subject: AlertSubject) -> pl.Series:
    """Which of these events are in the alert's group."""
    group_by = GroupBy(subject.version.rule.group_by, 0)
    rows = copies.select(group_by.fields) if group_by.fields else copies.select("partition")
    texts = group_texts(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), subject.stream, group_by)
    return pl.Series([rewritten(text) == rewritten(subject.group) for text in texts], dtype=pl.Boolean)


def _of_group(near: _Near, first: pl.DataFrame, group_by: GroupBy, subject: AlertSubject) -> pl.DataFrame:
    """The events of the event's group that decide about it, with TARGET; also of repeated ids."""
    selection, stream, by = near.selection, near.selection.stream, list(group_by.fields)
    at = pl.lit(subject.at, pl.Int64)
    touched = touched_groups(first.select(*by, at.alias(LO), at.alias(HI)), stream, group_by, selection.request)
    span = touched.lazy().select(*by, LO, at.alias(HI))
    # what follows selects the same events: these conditions are for the files, which are skipped by them
    begin, end = touched.get_column(LO)[0] - group_by.reach, after(subject.at, group_by.waiting)
    near_it = pl.col(stream.event_time).is_between(from_microseconds(max(begin, MIN_TIMESTAMP)), from_microseconds(end))
    same = [pl.col(name) == first.get_column(name)[0] for name in by if stream.fields[name].kind is not Kind.DOUBLE]
    events = near.where(near_it, *same)
    of_group = events.join(first.lazy().select(by), on=by, how="semi") if by else events
    return events_of(of_group.sort(stream.event_time), span, stream, group_by).collect()


def _placed(events: pl.DataFrame, own_row: pl.DataFrame, subject: AlertSubject, shown: RuleVersion) -> dict[str, Any]:
    """The window, and how many events happened at the same time. own_row: the event, which another one with its id may
    displace among the events."""
    stream = subject.stream
    since = subject.at - widest(shown)
    near = events.drop(TARGET).filter(microseconds_of(stream) >= since)
    columns = [microseconds_of(stream).alias("at"), pl.col(stream.event_id).alias("id")]
    columns += [pl.col(stream.tiebreaker).alias("tie")] if stream.tiebreaker else []
    keys = [order_key(*row) for row in near.select(columns).iter_rows()]
    own = order_key(*own_row.select(columns).row(0))
    rows = sorted((number for number, key in enumerate(keys) if key <= own), key=keys.__getitem__)
    before = sum(key[0] == subject.at and key < own for key in keys)
    after = sum(key > own for key in keys)
    return {"window": near[rows], "simultaneous": (before, after)}


def _concluded(truth: Truth, events: pl.DataFrame, subject: AlertSubject, shown: RuleVersion) -> dict[str, Any]:
    """What the version that applies concludes at the event."""
    stream, named = subject.stream, (pl.col("rule_version") == shown.version)
    rows = (events.get_column(stream.event_id) == subject.event_id).arg_true().to_numpy()
    evaluated = pl.DataFrame(truth.table(every=True, at=rows)).filter(named)
    targets = events.get_column(TARGET).arg_true().to_numpy()
    violations = pl.DataFrame(truth.violations(targets)).filter(named)
    own = violations.filter(event_id=subject.event_id).to_dicts()
    allowed = allowed_by(own[0]["measures"]) if own else None
    failures = (f.measure for f in truth.failures if f.event_id == subject.event_id and f.rule_version == shown.version)
    return {
        "violation": own[0] if own else None,
        "measures": json.loads(evaluated["measures"][0]) if evaluated.height else None,
        "failed": next(failures, None),
        "muted_by": _muting(violations, subject) if own and own[0]["muted"] and allowed is None else None,
        "allowed_by": allowed,
    }


def _followed_by(
    events: pl.DataFrame, subject: AlertSubject, shown: RuleVersion, tables: TableRows | None
) -> tuple[str, datetime] | None:
    """The first event that the version waits for, if it came in time. events: of the group, the first of each id."""
    stream, unless = subject.stream, shown.rule.unless
    if unless is None:
        return None
    others = events.filter(
        microseconds_of(stream).is_between(subject.at, subject.at + unless.within),
        pl.col(stream.event_id) != subject.event_id,
    ).sort(stream.event_time)
    table = others.select(*stream.fields).to_arrow(compat_level=pl.CompatLevel.oldest())
    found = meets(table, stream, unless.where, tables, where=f"rule {shown.rule.id}")
    held = others.filter(pl.Series(found, dtype=pl.Boolean))
    return held.select(stream.event_id, stream.event_time).row(0) if held.height else None


def _muting(violations: pl.DataFrame, subject: AlertSubject) -> str | None:
    """The last alert of the chain before the event that is not muted (S10.4)."""
    unmuted = [
        (order_key(microseconds(row["event_time"]), row["event_id"]), row["alert_id"])
        for row in violations.filter(~pl.col("muted")).iter_rows(named=True)
    ]
    own = order_key(subject.at, subject.event_id)
    return max((known for known in unmuted if known[0] < own), default=(None, None))[1]
