"""Why the stream's latest revision and the truth differ.

How it works: the groups with differences are replayed through the engine as the stream ran it: late are the events that
the stream reported as late. If the replay gives what the stream announced, these events are proven to be the cause.
The same by the changes of tables that had arrived when an event did proves that later ones are the cause.
A late event of another partition may have been read only when the alert was settled, although it had arrived before;
so where the replay differs, the window alone is replayed with the first of these, the first two, and so on.
Else the other exceptions to S9 are tried: the stream had not read the events, the rule came after them, its history was
missing, one id belongs to two events. The rest is `unexplained`: a defect.

An alert that differs only in `muted` takes the cause of the alert of its chain (rule version, group and date) before it
that the stream or the truth lacks: otherwise both would mute alike.

Everything is computed from arrays in order of group and time, so that a difference costs no more than finding its
window.

Known limitation: a window with several late events of several other partitions is replayed a limited number of times,
so that a night with many of them ends; beyond that its difference is unexplained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.backfill.evaluate.survey import CONFLICTS
from nightjar.backfill.inputs.histories import VersionHistory
from nightjar.backfill.inputs.scope import GroupBy, group_texts, microseconds_of
from nightjar.backfill.reconcile.reconciliation import allowed_by_of, by_verdict, canonical, latest_revisions
from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.lake.events import as_declared
from nightjar.rules.allowing import allowed_by
from nightjar.rules.asking import tables_asked
from nightjar.rules.engine import Engine
from nightjar.rules.engine.store import ARRIVAL, LATE
from nightjar.rules.engine.table_rows import EVERY, TableRows
from nightjar.rules.retention import folds, named_by, waits_for
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet, RuleVersion

# How often one window, and all windows of one CauseFinder, are replayed at most: some seconds, and some minutes.
_REPLAYS_A_WINDOW, _MOST_REPLAYS = 256, 10_000
# The clock of a replay (µs): by then it is known what has followed each event.
_EVERYTHING = 1 << 62


class CauseFinder:
    """The known facts about some groups of one group-by.

    events: the stream's fields, arrival_time, partition and offset of all records of these groups, duplicates too, from
    the widest window before the differences on; `late`: whether the stream reported the event as late; CONFLICTS.
    published: by rule id and version. consumed, began: partition to the offset after the last record that the stream
    had read, and to that of the first one that its state can hold. clock: how far (µs) the stream's clock had come,
    None if that is unknown. lateness: what `allowed_lateness` (µs) has been. tables: the rows of tables, if some are
    declared.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        group_by: GroupBy,
        events: pa.Table,
        *,
        published: Mapping[tuple[str, int], VersionHistory],
        consumed: Mapping[int, int],
        began: Mapping[int, int],
        clock: int | None = None,
        lateness: Collection[int] = (),
        tables: TableRows | None = None,
    ) -> None:
        self._stream, self._group_by, self._published = stream, group_by, published
        self._ruleset, self._events = ruleset, events
        self._lateness = sorted(set(lateness) - {stream.allowed_lateness})
        self._versions: dict[str, list[RuleVersion]] = defaultdict(list)
        for version in ruleset.of_stream(stream.name).versions:
            self._versions[version.rule.id].append(version)
        self._tables = tables
        self._verdict_only = by_verdict(ruleset.versions)
        self._clock = MIN_TIMESTAMP if clock is None else clock
        self._waits = {version.key: waits_for(version.rule) for of in self._versions.values() for version in of}
        self._replayed = self._replay(ruleset, events)
        self._windows = _Windows(stream, group_by, events, consumed, began)
        self._replays_left = _MOST_REPLAYS

    def causes(self, differing: pl.DataFrame) -> pl.DataFrame:
        """alert_id and `cause` of each row of `reconciliation.reconcile` that differs."""
        about = differing.with_columns(pl.col("event_time").dt.epoch("us").alias("at"))
        missed = pl.col("outcome") == Outcome.MISSED.value
        announced = pl.when(missed).then(pl.lit(None, pl.String)).otherwise("stream_measures").alias("announced")
        replayed = canonical(self._replayed.join(about, on="alert_id", how="semi"))
        again = replayed.select("alert_id", pl.col("measures").alias("replayed"))
        about = about.join(again, on="alert_id", how="left", maintain_order="left")
        versions = about.select("rule_id", "rule_version").iter_rows()
        about = about.with_columns(pl.Series("waits", [self._waits.get(of, 0) for of in versions], pl.Int64))
        columns = ("alert_id", "rule_id", "rule_version", "event_id", "at", "waits", announced, "replayed")
        rows = about.select(columns).iter_rows(named=True)
        found = [self._cause(row, window).value for row, window in zip(rows, self._windows.of(about), strict=True)]
        causes = about.select("alert_id", pl.Series("cause", found, pl.String))
        flipped = differing.filter(self._is_muting_alone())
        return self._inherited(differing, flipped, causes) if flipped.height else causes

    def _is_muting_alone(self) -> pl.Expr:
        """Whether nothing but `muted` differs."""
        by_verdict = [f"{rule_id} {version}" for rule_id, version in self._verdict_only]
        same = pl.format("{} {}", "rule_id", "rule_version").is_in(by_verdict)
        same |= pl.col("measures") == pl.col("stream_measures")
        same &= ~_is_allowed_otherwise()
        return (pl.col("outcome") == Outcome.REVISED.value) & same & pl.col("muted").ne_missing(pl.col("stream_muted"))

    def _inherited(self, differing: pl.DataFrame, flipped: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
        """The causes, those of the flipped alerts taken from the last alert before each that one side lacks, or that an
        allow rule silences on one side."""
        by = ["rule_id", "rule_version", "group", "date"]
        chain = (*(pl.col(name) for name in by[:-1]), pl.col("event_time").dt.date().alias("date"))
        one_sided = pl.col("outcome").is_in([Outcome.MISSED.value, Outcome.RETRACTED.value]) | _is_allowed_otherwise()
        before = differing.filter(one_sided).join(causes, on="alert_id").select(*chain, "event_time", "cause")
        flips = flipped.select("alert_id", "event_time", *chain).sort("event_time")
        taken = flips.join_asof(before.sort("event_time"), on="event_time", by=by, check_sortedness=False)
        inherited = taken.select("alert_id", pl.col("cause").fill_null(Cause.UNEXPLAINED.value))
        return causes.update(inherited, on="alert_id")

    def _cause(self, row: Mapping[str, Any], window: _Window) -> Cause:
        rule_id = row["rule_id"]
        if window.unread:
            return Cause.STREAM_DOWN
        if window.late and (self._same(row, row["replayed"]) or self._is_of_uneven_reading(row, window)):
            return Cause.LATE_EVENT if window.late_as_declared else Cause.SETTINGS_CHANGED
        if row["waits"] and row["announced"] is None and row["at"] + row["waits"] >= self._clock:
            return Cause.STREAM_DOWN  # its clock has not come so far
        asked = self._asked.get(rule_id)
        if asked and self._same(row, self._replayed_as_seen.get(row["alert_id"])):
            return Cause.REFERENCE_CHANGED
        # where a version has displaced another in the past, the alerts of both are announced
        in_force = next((v for v in reversed(self._versions[rule_id]) if v.effective <= row["at"]), None)
        came = [] if in_force is None else self._known_of(in_force, row["at"])
        came_at = max((known.arrival for known in came), default=None)
        behind = came_at is not None and window.arrival is not None and window.arrival <= came_at
        if behind and window.arrival != came_at:
            return Cause.RULE_PROPAGATION
        announced = self._version(row)
        published = [] if announced is None else self._known_of(announced, row["at"])
        if window.before_state or any(window.starts < known.history_since for known in published):
            return Cause.COLD_START
        if behind:  # they arrived together, and their order is unknown
            return Cause.RULE_PROPAGATION
        if window.conflicting:
            return Cause.DUPLICATE_CONFLICT
        # of a measure with a resolution the setting decides which events count, also of those read before it (S14.4);
        # a tie-breaker decides their order, also of those read before it was declared (S1.3)
        then = [replayed.get(row["alert_id"]) for replayed in self._replayed_by_then]
        then += [row["replayed"]] if self._lateness else []
        changed = any(self._same(row, replayed) for replayed in then)
        if changed:
            return Cause.SETTINGS_CHANGED
        return Cause.REFERENCE_CHANGED if asked and self._was_changed(asked, window, row["at"]) else Cause.UNEXPLAINED

    def _version(self, row: Mapping[str, Any]) -> RuleVersion | None:
        versions = self._versions[row["rule_id"]]
        return next((version for version in versions if version.version == row["rule_version"]), None)

    @cached_property
    def _asked(self) -> dict[str, frozenset[tuple[str, str]]]:
        """The fields and tables that a rule's versions ask, and those that they count, by its id."""
        if self._tables is None:
            return {}
        every = {rule_id: [each.rule for v in of for each in (v, *v.named)] for rule_id, of in self._versions.items()}
        return {
            rule_id: frozenset[tuple[str, str]]().union(*(tables_asked(rule, self._stream) for rule in rules))
            for rule_id, rules in every.items()
        }

    def _was_changed(self, asked: Collection[tuple[str, str]], window: _Window, at: int) -> bool:
        """Whether a change of what is asked arrived with or after an event of the window that it is valid for: when the
        stream read it is not known, so it may have counted for some of them."""
        events, tables = self._windows.rows(window), self._tables
        assert tables is not None  # noqa: S101  otherwise nothing is asked
        first = events.get_column("arrival").min()
        return isinstance(first, int) and any(
            tables.was_changed(table, events.get_column(field).to_arrow(), valid_by=at, arrived_since=first)
            for field, table in asked
        )

    @cached_property
    def _replayed_as_seen(self) -> dict[str, str]:
        """By the changes of tables that had arrived when an event did: alert id to measures."""
        alerts = canonical(self._replay(self._ruleset, self._events, None))
        return dict(alerts.select("alert_id", "measures").iter_rows())

    def _known_of(self, version: RuleVersion, at: int) -> list[VersionHistory]:
        """What is known of a version, and of those whose violations it counts that events up to `at` (µs) saw."""
        named = (other for versions in named_by(version).values() for other in versions if other.effective <= at)
        return [self._published[v.key] for v in (version, *named) if v.key in self._published]

    @cached_property
    def _replayed_by_then(self) -> list[dict[str, str]]:
        """By what `allowed_lateness` was at other times, and without a tie-breaker: alert id to measures."""
        others = [replace(self._stream, allowed_lateness=lateness) for lateness in self._lateness]
        others += [replace(self._stream, tiebreaker=None)] if self._stream.tiebreaker else []
        found = []
        for stream in others:
            engine = Engine(stream, self._ruleset, group_bys=frozenset({self._group_by.fields}), tables=self._tables)
            advance = engine.advance(self._events, _EVERYTHING, known=EVERY)
            alerts = latest_revisions(pl.DataFrame(advance.alerts)).filter(kind="alert")
            found.append(dict(canonical(alerts).select("alert_id", "measures").iter_rows()))
        return found

    def _is_of_uneven_reading(self, row: Mapping[str, Any], window: _Window) -> bool:
        """Whether the difference follows from when the stream read late events of other partitions, or duplicates.

        Of an event it knew the copy that it had read first: a late one if it reported that, else any. Where its clock
        was ahead, it had folded others of a late event's time, and so did not count it with a resolution (S14.4).
        """
        events = self._windows.rows(window)
        is_own = (pl.col(self._stream.event_id) == row["event_id"]) & (pl.col("at") == row["at"])
        reported = pl.col(LATE).any().over(self._stream.event_id, "at")
        first = events.filter(pl.col(LATE) | ~reported)
        reads = [events, first] if first.height < events.height else [events]
        version = self._version(row)
        if version is not None and folds(version.rule):
            late = events.filter(pl.col(LATE)).get_column("at").unique().sort()
            reads += [events.filter(~(pl.col(LATE) & (pl.col("at") <= time))) for time in late]
        for read in reads:
            for arrival, partition in (
                read.filter(is_own).select("arrival", "partition").unique(maintain_order=True).iter_rows()
            ):
                this = (pl.col("arrival") == arrival) & (pl.col("partition") == partition)
                as_read = read.filter(~is_own | this)
                if self._is_announced(row, as_read, arrival, partition, replay=as_read.height < events.height):
                    return True
        return False

    def _is_announced(
        self, row: Mapping[str, Any], events: pl.DataFrame, own: int, partition: int, *, replay: bool
    ) -> bool:
        """Whether the stream announces this after these events; own, partition: of the alert's own event.

        Of each other partition it had read some late events, in order, when the alert was settled: all combinations are
        tried. replay: even if there are none.
        """
        arrival = events.get_column("arrival")
        elsewhere = events.get_column(LATE) & (arrival <= own) & (events.get_column("partition") != partition)
        unsure = events.with_row_index("row").filter(elsewhere).sort("partition", "offset")
        rows = [of.get_column("row").to_numpy() for of in unsure.partition_by("partition")]
        ruleset = RuleSet(tuple(self._versions[row["rule_id"]]))
        columns = events.to_arrow(compat_level=pl.CompatLevel.oldest())
        table = as_declared(columns, self._stream).append_column(LATE, columns.column(LATE))
        place = table.schema.get_field_index(ARRIVAL)
        combinations = product(*(range(len(of) + 1) for of in rows))
        for counted in islice(combinations, min(self._replays_left, _REPLAYS_A_WINDOW) if rows or replay else 0):
            self._replays_left -= 1
            arrivals = arrival.to_numpy().copy()
            for of, some in zip(rows, counted, strict=True):
                arrivals[of[:some]], arrivals[of[some:]] = own - 1, own + 1
            replayed = self._replay(ruleset, table.set_column(place, ARRIVAL, pa.array(arrivals).cast(INSTANT)))
            announced = canonical(replayed.filter(alert_id=row["alert_id"])).get_column("measures").to_list()
            if self._same(row, announced[0] if announced else None):
                return True
        return False

    def _same(self, row: Mapping[str, Any], replayed: str | None) -> bool:
        """Whether a replay gives what the stream announced: measures, or None for no alert."""
        if (row["rule_id"], row["rule_version"]) in self._verdict_only:
            both = (row["announced"] is None) == (replayed is None)
            return both and allowed_by(row["announced"]) == allowed_by(replayed)
        return bool(row["announced"] == replayed)

    def _replay(self, ruleset: RuleSet, events: pa.Table, known: int | None = EVERY) -> pl.DataFrame:
        """The stream's alerts after it has processed these events. known: as Engine.advance has it."""
        engine = Engine(self._stream, ruleset, group_bys=frozenset({self._group_by.fields}), tables=self._tables)
        alerts = engine.advance(events, _EVERYTHING, known=known).alerts
        return latest_revisions(pl.DataFrame(alerts)).filter(kind="alert")


def _is_allowed_otherwise() -> pl.Expr:
    """Whether stream and truth name different allow rules that silence an alert (S24), or only one does."""
    return allowed_by_of("stream_measures").ne_missing(allowed_by_of("measures"))


@dataclass(frozen=True, slots=True)
class _Window:
    """What a difference's window holds; the flags count its events."""

    first: int
    """The place of its first event."""
    end: int
    """The place after its last one."""
    starts: int
    """The first event's time, µs."""
    arrival: int | None
    """Of the difference's own event, µs; None: it is not there."""
    partition: int | None
    """Likewise."""
    unread: int
    """That the stream had not read."""
    before_state: int
    """That it had read before its state began."""
    late: int
    """That it reported as late."""
    late_as_declared: int
    """These, as far as they are late by today's declaration."""
    conflicting: int
    """That have the id of another."""


class _Windows:
    """The windows of some groups: their events in the order of group and time, and of each flag how many before."""

    def __init__(
        self,
        stream: Stream,
        group_by: GroupBy,
        events: pa.Table,
        consumed: Mapping[int, int],
        began: Mapping[int, int],
    ) -> None:
        self._reach = group_by.reach
        rows = pl.DataFrame(events).with_columns(
            microseconds_of(stream).alias("at"), pl.col(ARRIVAL).dt.epoch("us").alias("arrival")
        )
        keys = list(group_by.fields)
        groups = rows.select(keys).unique() if keys else pl.DataFrame({"": [None]})
        texts = group_texts(groups.to_arrow(compat_level=pl.CompatLevel.oldest()), stream, group_by)
        numbered = groups.with_columns(pl.Series("group", range(len(texts)), pl.Int64))
        rows = rows.join(numbered, on=keys) if keys else rows.with_columns(pl.lit(0, pl.Int64).alias("group"))
        rows = rows.sort("group", "at")
        self._of_group = {text: number for number, text in enumerate(texts)}
        self._times = rows.get_column("at").to_numpy()
        self._ends = np.searchsorted(rows.get_column("group").to_numpy(), np.arange(len(texts) + 1))
        partitions, offsets = (rows.get_column(name).to_numpy() for name in ("partition", "offset"))
        lateness = pl.col("arrival") - pl.col("at")
        late = rows.get_column(LATE).to_numpy()
        flags = {
            "unread": offsets >= _of_partition(consumed, partitions),
            "before_state": offsets < _of_partition(began, partitions),
            "late": late,
            "late_as_declared": late & rows.select(lateness > stream.allowed_lateness).to_series().to_numpy(),
            "conflicting": rows.get_column(CONFLICTS).to_numpy(),
        }
        self._before = {name: np.append(0, np.cumsum(flag)) for name, flag in flags.items()}
        self._rows = rows
        first = rows.sort("arrival", "partition", "offset").unique([stream.event_id, "at"], keep="first")
        self._own = first.select(pl.col(stream.event_id).alias("event_id"), "at", "arrival", "partition")

    def rows(self, window: _Window) -> pl.DataFrame:
        """The events of a window, with `arrival` in µs."""
        return self._rows.slice(window.first, window.end - window.first)

    def of(self, about: pl.DataFrame) -> Iterator[_Window]:
        """The window of each row: `group`, `event_id`, `at` and `waits` (µs)."""
        own = about.join(self._own, on=["event_id", "at"], how="left", maintain_order="left")
        named = own.select("group", "at", "waits", "arrival", "partition").iter_rows()
        for group, at, waits, arrival, partition in named:
            first, end = self._places(group, at, waits)
            counts = {name: int(before[end] - before[first]) for name, before in self._before.items()}
            starts = int(self._times[first]) if first < end else at
            yield _Window(first, end, starts, arrival, partition, **counts)

    def _places(self, group: str, at: int, waits: int) -> tuple[int, int]:
        number = self._of_group.get(group)
        if number is None:
            return 0, 0
        begin, end = self._ends[number], self._ends[number + 1]
        first, after = np.searchsorted(self._times[begin:end], [at - self._reach, at + waits + 1])
        return int(begin + first), int(begin + after)


def _of_partition(offsets: Mapping[int, int], partitions: np.ndarray) -> np.ndarray:
    """The offset that each row's partition has, 0 where it has none."""
    found, place = np.unique(partitions, return_inverse=True)
    values: np.ndarray = np.array([offsets.get(int(number), 0) for number in found], np.int64)[place]
    return values
