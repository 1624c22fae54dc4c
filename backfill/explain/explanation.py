"""One alert explained: its status and why, the rule's version, the events in its window, what the measures are,
and what was published.

What was published and what the nights found is read from the lake; what holds is evaluated as a night does it
(reevaluation.py), from the lake as it is now. What the archive has yet to bring there is taken from Kafka, where the
caller gives it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Protocol

import polars as pl

from nightjar.backfill.config import BackfillConfig, BackfillError, RunRequest
from nightjar.backfill.explain.reevaluation import AlertSubject, Reevaluation, reevaluate
from nightjar.backfill.explain.status import AlertRecords, AlertStatus, LakeCoverage, status_of
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.publish.results import finished_runs
from nightjar.backfill.reconcile.reconciliation import latest_revisions, well_formed
from nightjar.backfill.staging import Notes
from nightjar.contracts.alerts import BACKFILL
from nightjar.lake import delta, scanning, stream_state
from nightjar.lake.archive import archived_until
from nightjar.lake.tables import ALERTS, CORRECTIONS, RECONCILIATION, RULE_STATUS, RUNS, VIOLATIONS, Table, events_table
from nightjar.rules.masking import MASK, alert_text, masked, masked_text, sensitive_names
from nightjar.rules.model import Rule
from nightjar.rules.names import did_you_mean
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, microseconds
from nightjar.rules.versions import RuleSet, RuleVersion
from nightjar.storage.paths import AnyPath


class Unarchived(Protocol):
    """What Kafka has and the lake has not, as far as it could be read; notes: sentences about that."""

    @property
    def notes(self) -> Sequence[str]:
        """What was read, and what was not."""

    def answers(self) -> Sequence[Record]:
        """The answers to rule messages, in order."""

    def alerts(self, alert_id: str) -> pl.DataFrame:
        """The records about an alert: rows of ALERTS."""

    def events(self, stream: Stream, since: int) -> pl.DataFrame | None:
        """The stream's events whose event time may be from `since` (µs) on: its fields, arrival_time, partition,
        offset. None: they were not read."""


class _Nothing:
    """Kafka is not asked."""

    notes: Sequence[str] = ()

    def answers(self) -> Sequence[Record]:
        return ()

    def alerts(self, alert_id: str) -> pl.DataFrame:  # noqa: ARG002  of the protocol
        return pl.DataFrame(schema=scanning.columns(ALERTS))

    def events(self, stream: Stream, since: int) -> pl.DataFrame | None:  # noqa: ARG002
        return None


@dataclass(frozen=True)
class Explanation:
    """One alert explained."""

    status: AlertStatus
    version: RuleVersion
    """That announced it."""
    stream: Stream
    event_id: str
    group: str
    found: Reevaluation
    """What holds at its event."""
    revisions: pl.DataFrame
    """Its records, oldest first."""
    outcomes: pl.DataFrame
    """Of the runs that judged it."""
    notes: tuple[str, ...] = ()
    """What was read from where."""

    @property
    def violated(self) -> bool:
        """Whether the alert holds by the lake as it is now."""
        applies = self.found.applies is not None and self.found.applies.version == self.version.version
        return applies and self.found.violation is not None

    def masked(self) -> Explanation:
        """The same without sensitive values."""
        names = sensitive_names(self.version.rule, self.stream) | sensitive_names(self.found.shown.rule, self.stream)
        if not names:
            return self
        hidden = [
            pl.when(pl.col(name).is_not_null()).then(pl.lit(MASK)).alias(name)
            for name in self.stream.fields
            if name in names
        ]
        measures = None if self.found.measures is None else masked(self.found.measures, names)
        return replace(
            self,
            group=str(masked_text(self.group, names)),
            found=replace(self.found, measures=measures, window=self.found.window.with_columns(hidden)),
            revisions=masked_rows(self.revisions, names, self.version.rule, self.stream),
            outcomes=masked_rows(self.outcomes, names, self.version.rule, self.stream),
        )


def masked_rows(rows: pl.DataFrame, names: frozenset[str], rule: Rule, stream: Stream) -> pl.DataFrame:
    """Rows about alerts of a rule without the values of these fields and measures, and without texts that show them."""
    objects = [name for name in ("group", "measures", "stream_measures") if name in rows.columns]
    masks = [pl.col(name).map_elements(lambda text: masked_text(text, names), pl.String) for name in objects]
    if "text" in rows.columns:
        masks.append(pl.col("text").map_elements(lambda text: alert_text(text, rule, stream), pl.String))
    return rows.with_columns(*masks)


def explain(
    config: BackfillConfig,
    alert_id: str,
    unarchived: Unarchived | None = None,
    *,
    at: datetime | None = None,
) -> Explanation:
    """Explain the alert. unarchived: what Kafka has and the lake has not.

    at: the time of the alert's event, by which it is found without reading all alerts; None, or another time than the
    alert's: it is looked for.

    Raises:
        BackfillError: nobody knows such an alert, or not what it is about.
    """
    root, recent = config.lake.root, unarchived or _Nothing()
    lake, newer = _AlertRows(alert_id, root), recent.alerts(alert_id)
    if newer.height:
        at = newer.get_column("event_time")[0]
    records, violations = (lake.of(table, at) for table in (ALERTS, VIOLATIONS))
    if at is not None and not (newer.height or records.height or violations.height):
        records, violations = (lake.of(table) for table in (ALERTS, VIOLATIONS))
    revisions = _revisions(records, newer)
    known = violations if violations.height else latest_revisions(revisions)
    if not known.height:
        raise BackfillError(
            "there is no such alert",
            where=f"alert {alert_id}",
            remedy="Look at the id; of alerts from before alert_retention and lake_retention nothing is known. "
            + " ".join(recent.notes),
        )
    alert = known.row(0, named=True)
    stream = config.streams.get(alert["stream"])
    if stream is None:
        raise BackfillError(
            f"its stream {alert['stream']} is not declared",
            where=f"alert {alert_id}",
            remedy=f"Declare the stream as it was; {did_you_mean(alert['stream'], config.streams, 'Streams are')}",
        )
    run = _inputs(config, _notes(root, stream, recent), alert)
    (version,) = (v for v in run.rules.asked_for.of_rule(alert["rule_id"]) if v.version == alert["rule_version"])
    subject = AlertSubject(version, stream, alert["event_id"], alert["event_time"], alert["group"])
    found = reevaluate(run, subject, lambda since: recent.events(stream, since))
    outcomes = lake.of(RECONCILIATION, alert["event_time"]).sort("day")
    status = status_of(
        subject, found, _records(run, subject, revisions, outcomes, lake), _coverage(run, subject, known)
    )
    return Explanation(
        status, version, stream, subject.event_id, subject.group, found, revisions, outcomes, tuple(recent.notes)
    )


@dataclass(frozen=True)
class _AlertRows:
    """The rows about an alert in a lake."""

    alert_id: str
    root: AnyPath

    def of(self, table: Table, at: datetime | None = None) -> pl.DataFrame:
        """Those of a table. at: the time of the alert's event, which its id is made of; None: it is looked for.

        Files are left out by that time. By an id none can be.
        """
        mine = scanning.rows(self.root, table).filter(pl.col("alert_id") == self.alert_id)
        if at is not None:
            return mine.filter(pl.col("event_time") == at).collect()
        times = mine.select("event_time").collect().to_series()  # of all rows two columns are read, and not all
        return mine.filter(pl.col("event_time").is_between(times.min(), times.max())).collect()


def _revisions(records: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """The records about the alert, each revision of a source once, oldest first. newer: those of Kafka."""
    if newer.height:
        records = pl.concat([records.select(newer.columns), newer])
    ordered = well_formed(records.lazy()).collect().sort("revision", "emitted_at")
    return ordered.unique(["revision", "source"], keep="first", maintain_order=True)


def _notes(root: AnyPath, stream: Stream, recent: Unarchived) -> Notes:
    """What a run that began now would pin, as far as an evaluation needs it; all arrivals count."""
    tables = [events_table(source) for source in stream.sources]
    versions = {table.name: delta.version(root, table) for table in tables if delta.exists(root, table)}
    archived = stream_state.answers(root) if delta.exists(root, RULE_STATUS) else []
    known = {answer.offset for answer in archived}
    answers = [*archived, *(answer for answer in recent.answers() if answer.offset not in known)]
    written = [(each.offset, each.arrival, each.value.decode()) for each in answers]
    return Notes(MAX_TIMESTAMP, 0, versions, written)


def _inputs(config: BackfillConfig, notes: Notes, alert: Mapping[str, Any]) -> RunInputs:
    """Of a run of the alert's date and rule."""
    rule_id, number = alert["rule_id"], alert["rule_version"]
    run = RunInputs(config, RunRequest("explain", alert["event_time"].date()), notes)
    versions = run.rules.every.of_rule(rule_id)
    if not any(version.version == number for version in versions):
        raise BackfillError(
            "is not among the answers to rule messages",
            where=f"rule {rule_id} version {number}",
            remedy="Run `nightjar archive`",
        )
    return replace(run, other_rules=replace(run.rules, asked_for=RuleSet(versions)))


def _records(
    run: RunInputs, subject: AlertSubject, revisions: pl.DataFrame, outcomes: pl.DataFrame, lake: _AlertRows
) -> AlertRecords:
    """What is known of the alert besides."""
    latest = next(iter(latest_revisions(revisions).to_dicts()), None)
    night = None
    if latest is not None and latest["source"] == BACKFILL:
        corrections = lake.of(CORRECTIONS, latest["event_time"]).filter(revision=latest["revision"])
        night = next(iter(corrections.get_column("day")), None)
    answered = {
        version: known.arrival
        for (rule_id, version), known in run.rules.published.items()
        if rule_id == subject.version.rule.id
    }
    outcome = next(iter(outcomes.tail(1).to_dicts()), None)
    allowed = Lateness.of(subject.stream, run.rules.reported).around(run.request.begin, run.request.end)
    return AlertRecords(latest, night, outcome, tuple(_runs(run.config, subject)), answered, allowed)


def _runs(config: BackfillConfig, subject: AlertSubject) -> list[tuple[date, int]]:
    """Day and cut-off of the finished runs that covered the alert's rule and group."""
    if not delta.exists(config.lake.root, RUNS):
        return []
    group = {name: str(value) for name, value in json.loads(subject.group).items()}
    found = []
    manifests = finished_runs(config).select("day", "cut", "only_rules", "only_groups").collect()
    for row in manifests.iter_rows(named=True):
        rules, groups = (json.loads(row[name]) if row[name] else None for name in ("only_rules", "only_groups"))
        covered = rules is None or subject.version.rule.id in rules
        covered &= all(group.get(name) in values for name, values in (groups or {}).items())
        if covered and row["cut"] is not None:
            found.append((row["day"], microseconds(row["cut"])))
    return found


def _coverage(run: RunInputs, subject: AlertSubject, alert: pl.DataFrame) -> LakeCoverage:
    root, table = run.root, events_table(subject.stream)
    days = delta.spans_by_day(root, table, subject.stream.event_time) if delta.exists(root, table) else {}
    forgotten = Forgotten.of(root, run.rules.asked_for.versions).depends(alert.head(1))
    return LakeCoverage(min(days, default=None), archived_until(root), bool(forgotten.item()))
