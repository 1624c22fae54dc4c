"""What the pages show of the lake: alerts, how one stands, what the nights found, and the rules.

How it works: Polars reads the Delta tables, never Spark; what is computed of whole tables is kept until a table has
another version. Values of sensitive fields are masked here, so that no page can show them.

What it does not do: compute what an alert is or why. That is `backfill.explain`, as for `nightjar explain`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import polars as pl

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.explain.explanation import Explanation, Unarchived, explain, masked_rows
from nightjar.backfill.publish.precision import (
    PRECISION_DAYS,
    Precision,
    known_labels,
    label_counts,
    labelled,
    precisions,
)
from nightjar.backfill.publish.snoozed import Snoozed, read_snoozed
from nightjar.backfill.reconcile.reconciliation import latest_revisions, well_formed
from nightjar.contracts.reconciliation import Outcome
from nightjar.contracts.run_manifest import RunManifest, read_manifest
from nightjar.contracts.snoozes import Snooze, Snoozes
from nightjar.lake import delta, scanning, stream_state
from nightjar.lake.open_tables import OpenTables
from nightjar.lake.rates import events_per_day
from nightjar.lake.snoozes import archived_snoozes
from nightjar.lake.tables import (
    ALERTS,
    CORRECTIONS,
    LABELS,
    RECONCILIATION,
    RESTRICTIONS,
    RULE_STATUS,
    RUNS,
    Table,
    events_table,
)
from nightjar.operations.labelling import Labelled, alert_named
from nightjar.pages.by_day import ByDay
from nightjar.rules.asking import tables_asked
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK, sensitive_names
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import RuleVersion
from nightjar.storage.paths import AnyPath

# Alerts of so many days are shown where nobody asked for others, and rows on one page.
DAYS_SHOWN, ROWS_SHOWN = 2, 50
# Days of which the alerts of a rule are counted.
RULE_DAYS = 28
# Days whose alerts are read at once: more would take seconds.
MOST_DAYS = 92
# Rows that a download holds at the most.
MOST_DOWNLOADED = 100_000
# After every label.
_NEVER = datetime.max.replace(tzinfo=UTC)
# Of days: alerts that are kept, about 200 bytes each, and days of which a few numbers are.
_MOST_ALERTS, _MOST_DAYS = 1_000_000, 4_000
# Days whose alerts are read at once, which takes several times the memory that they have afterwards, or are counted.
_READ_AT_ONCE, _COUNTED_AT_ONCE = 2, 7
# Columns that no page shows.
_LEFT_OUT = ("original", "partition", "offset", "arrival_date")

# A column with the groups as they are, by which snoozes are found. No page gets it.
_GROUP = "unmasked_group"
_DAY = "day_of_event"

# The filter's name for alerts that nobody has labelled.
NO_LABEL = "none"

Kept = TypeVar("Kept")


class Recent(Unarchived, Protocol):
    """What Kafka has and the lake has not."""

    def labels(self) -> pl.DataFrame:
        """Labels: rows of LABELS."""


@dataclass(frozen=True)
class Filter:
    """Which alerts are shown. first, last: dates of their events (UTC); the others are None for all.

    state: "holds" or "retracted"; muted, overflow, snoozed: "only" or "without"; cause: of a correction; label:
    NO_LABEL for alerts without one; group, text: a part of it, in any case.
    """

    first: date
    last: date
    rule: str | None = None
    severity: str | None = None
    state: str | None = None
    muted: str | None = None
    overflow: str | None = None
    snoozed: str | None = None
    cause: str | None = None
    label: str | None = None
    group: str | None = None
    text: str | None = None

    def of(self, alerts: pl.DataFrame) -> pl.DataFrame:
        """The alerts that it wants."""
        wanted: list[pl.Expr] = [
            pl.col(name) == value
            for name, value in (("rule_id", self.rule), ("severity", self.severity), ("cause", self.cause))
            if value is not None
        ]
        if self.label is not None:
            said = pl.col("label")
            wanted.append(said.is_null() if self.label == NO_LABEL else said == self.label)
        if self.state is not None:
            wanted.append((pl.col("kind") == "retraction") == (self.state == "retracted"))
        for name, value in (("muted", self.muted), ("overflow", self.overflow)):
            if value is not None:
                wanted.append(pl.col(name).fill_null(value=False) == (value == "only"))
        if self.snoozed is not None:
            wanted.append(pl.col("snoozed_until").is_not_null() == (self.snoozed == "only"))
        for name, part in (("group", self.group), ("text", self.text)):
            if part is not None:
                wanted.append(pl.col(name).str.to_lowercase().str.contains(part.lower(), literal=True))
        return alerts.filter(*wanted) if wanted else alerts


@dataclass(frozen=True)
class Alerts:
    """Alerts by a filter: of each the latest revision, the latest event first."""

    found: pl.DataFrame
    """The columns of ALERTS, values of sensitive fields masked, `label` and `snoozed_until`."""
    rules: list[str]
    causes: list[str]
    """`rules`, `causes`: what can be chosen among in these days."""


@dataclass(frozen=True)
class Night:
    """What the finished runs of a day came to. outcomes: of alerts, by outcome and cause (NULL as "")."""

    day: date
    runs: list[RunManifest]
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def corrected(self) -> int:
        """Alerts that were not as the truth has them."""
        return sum(count for (outcome, _), count in self.outcomes.items() if outcome != Outcome.MATCHED)

    @property
    def matched(self) -> int:
        """Alerts that were."""
        return sum(count for (outcome, _), count in self.outcomes.items() if outcome == Outcome.MATCHED)

    def by_cause(self, cause: str) -> int:
        """Corrections with this cause."""
        return sum(
            count for (outcome, of), count in self.outcomes.items() if of == cause and outcome != Outcome.MATCHED
        )


class LakeReader:
    """Reads the lake of a configuration. unarchived: what Kafka has and the lake has not, asked for each explanation;
    snoozes: those that are known.

    Its methods may be called by several threads.
    """

    def __init__(
        self,
        config: BackfillConfig,
        unarchived: Callable[[], Recent | None] = lambda: None,
        snoozes: Callable[[], Snoozes] = Snoozes,
    ) -> None:
        self._config, self._unarchived, self.snoozes = config, unarchived, snoozes
        self._root = config.lake.root
        self._open = OpenTables(self._root)
        self._newer: pl.DataFrame | None = None  # labels that the lake had not when a page last asked Kafka
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, Any]] = {}  # of whole tables, each of some megabytes at the most
        self._making: dict[str, threading.Lock] = {}
        self._alerts = ByDay(
            self._each_day, at_once=_READ_AT_ONCE, most=_MOST_ALERTS, size=lambda alerts: alerts.height
        )
        self._counts = ByDay(self._counted, at_once=_COUNTED_AT_ONCE, most=_MOST_DAYS)
        self._labels_of_days = ByDay(self._label_counts, at_once=_COUNTED_AT_ONCE, most=_MOST_DAYS)
        self._outcomes = ByDay(self._judged, at_once=_COUNTED_AT_ONCE, most=_MOST_DAYS)

    @property
    def root(self) -> AnyPath:
        """The lake's folder."""
        return self._root

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The declared streams by name."""
        return self._config.streams

    @property
    def place(self) -> str:
        """Where the lake is."""
        return str(self._root)

    def rows(self, table: Table) -> pl.LazyFrame:
        """The rows of a table in its newest version."""
        return self._open.rows(table)

    def rows_near(self, table: Table, instant: str, begin: datetime, end: datetime) -> pl.LazyFrame:
        """The rows of those files that may have some whose `instant`, a timestamp column, is from `begin` to before
        `end`, without the columns that the table is partitioned by."""
        version = self._open.version(table)
        if version is None:
            return scanning.scan_files(table, ())
        span = microseconds(begin), microseconds(end) - 1
        with self._open.in_use():
            return scanning.scan_files(
                table, delta.files_within(self._root, table, version, instant=instant, spans=[span])
            )

    def steps(self, days: int) -> Sequence[Callable[[], object]]:
        """What reads what pages show of the whole lake, opens its tables, and reads the alerts of so many days, as far
        as it is not known yet or has changed: each a part of a second on a lake with a million alerts."""
        alerts = (partial(self._read_ahead, back) for back in range(days))
        return (self._open_tables, self.labels, self.nights, self.precision, self.rates, self.hidden_tables, *alerts)

    def _open_tables(self) -> None:
        for table in (*map(events_table, recorded_streams(self._config.streams.values())), RESTRICTIONS, CORRECTIONS):
            self.rows(table)

    def _read_ahead(self, back: int) -> None:
        """The alerts of the day so many days before the newest, where all since then can be kept."""
        newest = self.newest_day()
        if newest is None:
            return
        counts = self.alerts_a_day(newest - timedelta(days=RULE_DAYS - 1), newest)
        day = newest - timedelta(days=back)
        if sum(count for of_rule in counts.values() for at, count in of_rule if at >= day) <= _MOST_ALERTS:
            self._alerts.of(self._states(day, day))

    def latest(self, table: Table, instant: str) -> datetime | None:
        """See OpenTables.latest."""
        return self._open.latest(table, instant)

    def newest_day(self) -> date | None:
        """The date of the latest event that an alert is about; None where there is no alert."""

        def newest() -> date | None:
            latest = self._open.latest(ALERTS, "event_time")
            return None if latest is None else latest.date()

        return self._keep((ALERTS,), "newest", newest)

    def alerts(self, wanted: Filter) -> Alerts:
        """The alerts of the filter's days that it wants.

        Raises:
            SettingsError: the days are none, or too many.
        """
        _check_days(wanted.first, wanted.last)
        found = self._alerts.of(self._states(wanted.first, wanted.last))
        every = self._shown([found[day] for day in sorted(found, reverse=True)])
        return Alerts(
            wanted.of(every),
            sorted(every.get_column("rule_id").unique()),
            sorted(every.get_column("cause").drop_nulls().unique()),
        )

    def alerts_where(self, first: date, last: date, part: str, condition: pl.Expr) -> pl.DataFrame:
        """The alerts of these days whose groups meet a condition, as `Alerts.found` has them.

        part: what the text of each such group has in it, which is found far faster; may be empty.

        Raises:
            SettingsError: the days are none, or too many.
        """
        _check_days(first, last)
        states = self._states(first, last)
        kept = self._alerts.known(states)
        found = [_in_groups(alerts, part, condition) for alerts in kept.values()]
        if left := sorted(states.keys() - kept.keys()):
            found.append(self._read(left, part, condition))
        return self._shown(found).sort("event_time", "alert_id", descending=[True, False])

    def _states(self, first: date, last: date) -> dict[date, Hashable]:
        """What makes the alerts of each day that has any others than before: its files, and what is sensitive."""
        files = self._open.files_on(ALERTS, "event_time", first, last)
        rules = self._open.version(RULE_STATUS) if self._is_sensitive else None
        return {day: (paths, rules) for day, paths in files.items()}

    @property
    def _is_sensitive(self) -> bool:
        return any(stream.sensitive for stream in self._config.streams.values())

    def _shown(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Parts, which have _GROUP, as one table as `Alerts.found` has it."""
        none = _keeping_groups(pl.DataFrame(schema=scanning.columns(ALERTS)).drop(_LEFT_OUT))
        named = pl.concat([part.select("alert_id", "stream", "event_id") for part in (none, *parts)])
        said = labelled(named.lazy(), self.labels().lazy()).select("alert_id", "label").collect()
        known = self.snoozes()
        # each by itself: a column that is divided otherwise than the others would have Polars copy all of them
        return pl.concat([_snoozed(_labelled(part, said), known) for part in (none, *parts)])

    def _each_day(self, days: Sequence[date]) -> dict[date, pl.DataFrame]:
        return _by_day(self._read(days), days)

    def _read(self, days: Sequence[date], part: str = "", condition: pl.Expr | None = None) -> pl.DataFrame:
        wanted = _on(days)
        if part:
            wanted &= pl.col("group").str.contains(part, literal=True)
        records = self._open.rows(ALERTS).filter(wanted).drop(_LEFT_OUT)
        if condition is not None:
            records = records.collect().lazy().filter(condition)
        found = latest_revisions(well_formed(records).collect())
        return self._masked(_keeping_groups(found.sort("event_time", "alert_id", descending=[True, False])))

    def _masked(self, alerts: pl.DataFrame) -> pl.DataFrame:
        """Without values of sensitive fields, as explanations show them."""
        if not self._is_sensitive or not alerts.height:
            return alerts
        book = self.book()
        versions = alerts.select("stream", "rule_id", "rule_version").unique()
        parts = [self._hidden(alerts, _version(book, row), row) for row in versions.iter_rows(named=True)]
        return pl.concat(parts).sort("event_time", "alert_id", descending=[True, False])

    def _hidden(self, alerts: pl.DataFrame, version: RuleVersion | None, of: Mapping[str, Any]) -> pl.DataFrame:
        rows = alerts.filter(**of)
        stream = self._config.streams.get(of["stream"])
        if version is None or stream is None:  # nobody knows what is sensitive there
            return rows.with_columns(group=pl.lit("{}"), measures=pl.lit("{}"), text=pl.lit(MASK))
        if not stream.sensitive:
            return rows
        return masked_rows(rows, sensitive_names(version.rule, stream), version.rule, stream)

    def labelled(self, alert_id: str) -> Labelled:
        """An alert that is to have a label, or whose group is to be snoozed.

        Raises:
            SettingsError: nobody knows it.
        """
        return alert_named(self._root, alert_id, self._unarchived())

    def labels_of(self, alert_id: str, stream: str, event_id: str) -> list[dict[str, Any]]:
        """What was said of the alert and of its event, the label that counts first; also what the lake has yet to
        get."""
        recent = self._unarchived()
        if recent is not None:
            self._newer = recent.labels()
        about = pl.col("alert_id") == alert_id
        about |= pl.col("alert_id").is_null() & (pl.col("stream") == stream) & (pl.col("event_id") == event_id)
        known = self.labels().filter(about.fill_null(value=False))
        return known.sort("known_at", "arrival_time", "partition", "offset", descending=True).to_dicts()

    def labels(self) -> pl.DataFrame:
        """The labels that are known by now, as `precision.known_labels` has them."""
        now, newer = datetime.now(UTC), self._newer
        known = self._keep((LABELS,), "labels", lambda: known_labels(self._root, _NEVER).collect())
        if newer is not None:  # of which the archive may have brought some since
            known = pl.concat([known, newer.select(known.columns)]).unique(["partition", "offset"])
        return known.filter(pl.col("known_at") <= now)

    def precision(self) -> list[Precision]:
        """What labelled alerts of PRECISION_DAYS were, by rule and version, as far as the lake knows."""
        newest = self.newest_day()
        if newest is None:
            return []
        files = self._open.files_on(ALERTS, "event_time", newest - timedelta(days=PRECISION_DAYS - 1), newest)
        labels = self._open.version(LABELS)
        found = self._labels_of_days.of({day: (paths, labels) for day, paths in files.items()})
        return precisions([*found.values()])

    def _label_counts(self, days: Sequence[date]) -> dict[date, pl.DataFrame]:
        labels = known_labels(self._root, datetime.now(UTC)).collect()
        counts = label_counts(self._open.rows(ALERTS).filter(_on(days)), labels)
        return {day: counts.filter(pl.col("day") == day) for day in days}

    def outcomes(self, alerts: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str | None]]:
        """Outcome and cause of those of the alerts (with alert_id and event_time) that a night has judged, as the last
        one found."""
        times = [alert["event_time"] for alert in alerts] or [datetime.min.replace(tzinfo=UTC)]
        near = pl.col("event_time").is_between(min(times), max(times))  # by which most files are left out
        rows = self._open.rows(RECONCILIATION).filter(near, pl.col("alert_id").is_in([a["alert_id"] for a in alerts]))
        judged = rows.select("day", "alert_id", "outcome", "cause").collect().sort("day")
        return {row["alert_id"]: (row["outcome"], row["cause"]) for row in judged.iter_rows(named=True)}

    def explanation(self, alert_id: str, at: datetime | None = None) -> tuple[Explanation, list[Snooze], int | None]:
        """How an alert stands and why, without values of sensitive fields; what snoozes its group, at any time; and
        until when (µs) it is snoozed. at: see `explain`.

        Raises:
            BackfillError: there is no such alert.
        """
        at = self._time_of(alert_id) if at is None else at
        with self._open.in_use():
            found = explain(self._config, alert_id, self._unarchived(), at=at)
        rule_id, times, known = found.version.rule.id, found.revisions.get_column("event_time"), self.snoozes()
        asked = [{"rule_id": rule_id, "group": found.group, "event_time": at} for at in times.drop_nulls().unique()]
        until = max((each for each in map(known.until, asked) if each is not None), default=None)
        return found.masked(), known.of_group(rule_id, found.group), until

    def _time_of(self, alert_id: str) -> datetime | None:
        """When the event of an alert happened, if alerts of that day are kept."""
        for alerts in self._alerts.every():
            found = alerts.filter(pl.col("alert_id") == alert_id)
            if found.height:
                at: datetime = found.get_column("event_time")[0]
                return at
        return None

    def nights(self) -> list[Night]:
        """Every day with a run, the latest first."""
        runs: dict[date, list[RunManifest]] = {}
        for manifest in self._keep((RUNS,), "runs", self._runs):
            runs.setdefault(manifest.day, []).append(manifest)
        outcomes = self._outcomes.of(self._open.files_of(RECONCILIATION))
        days = sorted(runs.keys() | outcomes.keys(), reverse=True)
        return [Night(day, runs.get(day, []), outcomes.get(day, {})) for day in days]

    def _judged(self, days: Sequence[date]) -> dict[date, dict[tuple[str, str], int]]:
        """How many alerts have each outcome and cause."""
        rows = self._open.rows(RECONCILIATION).filter(pl.col("day").is_in(days))
        found: dict[date, dict[tuple[str, str], int]] = {day: {} for day in days}
        for day, outcome, cause, count in rows.group_by("day", "outcome", "cause").len().collect().iter_rows():
            found[day][outcome, cause or ""] = count
        return found

    def _runs(self) -> list[RunManifest]:
        """The manifests of all runs, the latest first."""
        rows = self._open.rows(RUNS).sort("finished_at", descending=True).collect()
        manifests = (read_manifest(row) for row in rows.iter_rows(named=True))
        return [manifest for manifest in manifests if manifest is not None]

    def snoozed(self, run: RunManifest) -> list[tuple[Snoozed, Snooze | None]]:
        """The snoozes that a run has counted alerts of, as they are now; None where one was erased."""
        written = run.counts.get("snoozed", ())
        known = archived_snoozes(self._root) if written else Snoozes()
        return [read_snoozed(each, known) for each in written]

    def corrections(self, day: date) -> pl.DataFrame:
        """What the nights of a day corrected, the latest event first; values of sensitive fields masked."""
        found = self._open.rows(CORRECTIONS).filter(pl.col("day") == day).collect()
        found = _keeping_groups(found.sort("event_time", "alert_id", descending=[True, False]))
        return _snoozed(self._masked(found), self.snoozes())

    def book(self) -> RuleBook:
        """The rules by the answers that the archive has brought."""

        def made() -> RuleBook:
            streams = self._config.streams
            return (
                stream_state.rule_book(self._root, streams)
                if delta.exists(self._root, RULE_STATUS)
                else RuleBook(streams)
            )

        return self._keep((RULE_STATUS,), "book", made)

    def hidden_tables(self) -> frozenset[str]:
        """The tables that a rule asks about a sensitive field: their keys are values of it."""
        streams = self._config.streams
        if not any(stream.sensitive for stream in streams.values()):
            return frozenset()

        def asked() -> frozenset[str]:
            rules = (version.rule for version in self.book().every)
            pairs = ((streams[rule.stream], rule) for rule in rules if rule.stream in streams)
            return frozenset(
                table
                for stream, rule in pairs
                for field, table in tables_asked(rule, stream)
                if field in stream.sensitive
            )

        return self._keep((RULE_STATUS,), "hidden tables", asked)

    def rates(self) -> dict[str, float]:
        """The events per day of the streams of which the lake has any."""
        streams = self._config.streams.values()

        def measured() -> dict[str, float]:
            found = {stream.name: events_per_day(self._root, stream) for stream in streams}
            return {name: float(rate) for name, rate in found.items() if rate is not None}

        return self._keep(tuple(map(events_table, recorded_streams(self._config.streams.values()))), "rates", measured)

    def alerts_a_day(self, first: date, last: date) -> dict[str, list[tuple[date, int]]]:
        """By rule those of these days (UTC) that have events with alerts, and how many of these hold."""
        found = self._counts.of(dict(self._open.files_on(ALERTS, "event_time", first, last)))
        counts: dict[str, list[tuple[date, int]]] = {}
        for day in sorted(found):
            for rule_id, count in found[day].items():
                counts.setdefault(rule_id, []).append((day, count))
        return counts

    def _counted(self, days: Sequence[date]) -> dict[date, dict[str, int]]:
        """By rule how many alerts hold."""
        rows = self._open.rows(ALERTS).filter(_on(days))
        of_day = rows.select("alert_id", "revision", "source", "kind", "rule_id", day=pl.col("event_time").dt.date())
        holding = latest_revisions(of_day.collect()).filter(pl.col("kind") == "alert")
        found: dict[date, dict[str, int]] = {day: {} for day in days}
        for day, rule_id, count in holding.group_by("day", "rule_id").len().iter_rows():
            found[day][rule_id] = count
        return found

    def _keep(self, tables: tuple[Table, ...], name: str, make: Callable[[], Kept]) -> Kept:
        """What `make` returns, made again once one of the tables has another version."""
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:  # who comes meanwhile waits for it, and does not make it, too
            versions = tuple(map(self._open.version, tables))
            with self._lock:
                if (known := self._kept.get(name)) is not None and known[0] == versions:
                    found: Kept = known[1]
                    return found
            made = make()
            with self._lock:
                self._kept[name] = versions, made
            return made


def _on(days: Sequence[date]) -> pl.Expr:
    """Whether an alert's event was on one of the days (UTC)."""
    at, wanted = pl.col("event_time"), sorted(days)
    begins = [day for day in wanted if day - timedelta(days=1) not in days]
    ends = [day + timedelta(days=1) for day in wanted if day + timedelta(days=1) not in days]
    spans = ((datetime.combine(day, time(), UTC) for day in span) for span in zip(begins, ends, strict=True))
    return pl.any_horizontal(((at >= begin) & (at < end)) for begin, end in spans)


def _by_day(alerts: pl.DataFrame, days: Sequence[date]) -> dict[date, pl.DataFrame]:
    """Each day's."""
    parts = alerts.with_columns(pl.col("event_time").dt.date().alias(_DAY)).partition_by(
        _DAY, as_dict=True, include_key=False
    )
    return {day: parts.get((day,), alerts.clear()) for day in days}


def _in_groups(alerts: pl.DataFrame, part: str, condition: pl.Expr) -> pl.DataFrame:
    """The alerts whose groups, as they are, have the part in them and meet the condition."""
    some = alerts.filter(pl.col(_GROUP).str.contains(part, literal=True)) if part else alerts
    return some.filter(some.select(pl.col(_GROUP).alias("group"), "stream").select(condition).to_series())


def _labelled(alerts: pl.DataFrame, said: pl.DataFrame) -> pl.DataFrame:
    """The alerts with what somebody said of each. said: labels of some by their ids."""
    # a join of all columns would copy them
    labels = alerts.select("alert_id").join(said, on="alert_id", how="left", maintain_order="left")
    return alerts.with_columns(labels.get_column("label").rechunk())


def _snoozed(alerts: pl.DataFrame, known: Snoozes) -> pl.DataFrame:
    """The alerts with until when each is snoozed, and without what they were asked by."""
    asked = alerts.select("rule_id", pl.col(_GROUP).alias("group"), "event_time").with_row_index("at")
    until = [
        (row["at"], known.until(row))
        for row in asked.filter(pl.col("rule_id").is_in(known.rules)).iter_rows(named=True)
    ]
    column = pl.Series("snoozed_until", [None], pl.Int64).new_from_index(0, alerts.height)
    if until:
        column = column.scatter([at for at, _ in until], [found for _, found in until])
    return alerts.drop(_GROUP).with_columns(column.cast(pl.Datetime("us", "UTC")))


def _keeping_groups(alerts: pl.DataFrame) -> pl.DataFrame:
    return alerts.with_columns(pl.col("group").alias(_GROUP))


def _check_days(first: date, last: date) -> None:
    if not 0 < (last - first).days + 1 <= MOST_DAYS:
        remedy = f"Give a last day from the first on, and at most {MOST_DAYS} days"
        raise SettingsError("cannot be shown", where=f"{first} to {last}", remedy=remedy)


def day_of(text: str) -> date | None:
    """The date that a form or an address has; None for an empty one.

    Raises:
        SettingsError: it is not a valid date.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise SettingsError("is not a valid date", where=repr(text[:40]), remedy="Write it like 2026-11-20") from None


def _version(book: RuleBook, row: Mapping[str, Any]) -> RuleVersion | None:
    versions = book.of_rule(row["rule_id"])
    return next((version for version in versions if version.version == row["rule_version"]), None)
