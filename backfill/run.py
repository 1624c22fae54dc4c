"""A run: the stages of one day's backfill, in order, each of which can be a separate process.

archive: Kafka to the lake. evaluate: the day's truth, staged. gate: expectations on events and violations. reconcile:
the stream compared with the truth, staged, and expectations on that. publish: corrections to Kafka, results to their
tables, the manifest. Until publish only the staged folder is written, so a failed run can be repeated at once.

An alert whose difference has no known cause does not stop the others: its correction is held back, everything else is
published, and then the last stage raises a verdict that lists the alerts held back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import structlog

from nightjar.backfill.backtest.shadow import compared_shadows
from nightjar.backfill.config import BackfillConfig, BackfillError, RunRequest
from nightjar.backfill.evaluate.evaluation import evaluate
from nightjar.backfill.gate.gating import gate_evaluation, gate_reconciliation
from nightjar.backfill.inputs.published_rules import PublishedRules
from nightjar.backfill.inputs.scope import settled
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.publish import results
from nightjar.backfill.publish.publication import publish
from nightjar.backfill.publish.verdicts import held_back, refuse_outdated, refuse_unarchived
from nightjar.backfill.reconcile.comparison import compare
from nightjar.backfill.reconcile.reconciliation import with_overflow
from nightjar.backfill.stages import STAGES
from nightjar.backfill.staging import CORRECTED, Notes, Progress, read_notes, take_notes, write_notes
from nightjar.backfill.upkeep.cleaning import remove_old_staging
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.expectations.findings import VerdictError
from nightjar.lake import stream_state
from nightjar.lake.archive import archive, make_tables
from nightjar.lake.scanning import parquet, scan
from nightjar.lake.tables import ALERTS
from nightjar.rules.rulebook import effective_text
from nightjar.rules.versions import actions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger(__name__)

_LONGEST_FAILURE = 20_000  # characters of a manifest


@dataclass(frozen=True)
class Run:
    """One day's run in a session."""

    session: SparkSession
    config: BackfillConfig
    request: RunRequest

    def do(self, stage: str) -> dict[str, Any]:
        """One of STAGES; returns what it counted. A failure ends in a manifest of it, and is raised.

        Raises:
            VerdictError: it would fail again; see publish/verdicts.py. HeldBackError comes after everything else is
            published.
        """
        folder = self.request.staged(self.config.lake)
        began = time.monotonic()
        self.config.lake.refuse_overtaken()
        try:
            counts: dict[str, Any] = getattr(self, stage)()
        # A library that ends the program, as PySpark does where it lacks another, has not done the stage.
        except (Exception, SystemExit) as failure:
            try:
                self._conclude(RunState.FAILED, f"{stage}: {failure}"[:_LONGEST_FAILURE])
            except Exception:  # noqa: BLE001  a full disk or a lost JVM fails here too; what failed first is raised
                _log.warning("the manifest of the failed run could not be written", run=self.request.run_id)
            raise
        took = round(time.monotonic() - began, 2)
        Progress.of(folder).after(stage, counts, took).write(folder)
        _log.info("a stage is done", stage=stage, run=self.request.run_id, seconds=took, **counts)
        if stage == "publish":
            verdict = held_back(self.config, self.request)
            failure_text = None if verdict is None else str(verdict)[:_LONGEST_FAILURE]
            self._conclude(RunState.DRY_RUN if self.request.dry_run else RunState.FINISHED, failure_text)
            if not self.request.dry_run:
                remove_old_staging(self.config, self.request.run_id, _now())
            if verdict is not None:
                raise verdict
        return counts

    def archive(self) -> dict[str, Any]:
        """Bring every topic to the lake."""
        return {"archived": dict(archive(self.session, self.config.lake).rows)}

    def evaluate(self) -> dict[str, Any]:
        """Stage the truth about the day."""
        config, request = self.config, self.request
        make_tables(config.lake)
        reported = stream_state.rule_book(config.lake.root, config.streams).reported
        allowed = {
            name: Lateness.of(stream, reported).around(request.begin, request.end)
            for name, stream in config.streams.items()
        }
        cut = max(settled(request, allowed.values()), results.latest_cut(config))
        if config.arrival == "broker" and not request.dry_run:
            refuse_unarchived(config, request, cut)
        notes = take_notes(config, cut, _now(), allowed)
        write_notes(request.staged(config.lake), notes)
        pending = results.pending_alerts(config, request.day)
        return evaluate(self.session, config, request, notes, pending)

    def gate(self) -> dict[str, Any]:
        """Refuse what must not be published."""
        return gate_evaluation(self.session, self.config, self.request, self._notes)

    def reconcile(self) -> dict[str, Any]:
        """Stage outcomes, causes and corrections."""
        compared = compare(self.session, self.config, self.request, self._notes)
        gated = gate_reconciliation(self.session, self.config, self.request, compared.stream_alerts)
        ruleset = PublishedRules.of(self.config, self.request, self._notes).asked_for
        shadows = compared_shadows(self.config, self.request, ruleset)
        return compared.as_counts() | gated | ({"shadows": shadows} if shadows else {})

    def publish(self) -> dict[str, Any]:
        """Publish the corrections except those held back, and write the results to their tables.

        The violation of an alert that is held back goes into its table: it holds, whatever the stream announced.
        """
        config, request = self.config, self.request
        if request.dry_run:
            return {"published": 0}
        notes = self._notes
        refuse_outdated(config, request, notes)
        published = overflow = 0
        ruleset = PublishedRules.of(config, request, notes).asked_for
        if request.publish:
            staged = parquet(request.staged(config.lake) / CORRECTED / "*.parquet").collect()
            staged = with_overflow(staged.sort("event_time", "alert_id"), config.alerts_per_rule_and_hour)
            overflow = int(staged.get_column("overflow").sum())
            config.lake.refuse_overtaken()
            note = partial(results.note_corrections, config, request, staged)
            published = publish(config, staged, self._archived_alerts(notes), note, actions_of(ruleset.versions))
        config.lake.refuse_overtaken()
        changed = results.publish_violations(self.session, config, request, ruleset)
        results.publish_reconciliation(self.session, config, request, ruleset)
        return {"published": published, "overflow_corrections": overflow, "violations_changed": changed}

    def _archived_alerts(self, notes: Notes) -> dict[int, int]:
        alerts = scan(self.config.lake.root, ALERTS, notes.versions[ALERTS.name])
        return dict(alerts.group_by("partition").agg(pl.col("offset").max()).collect().iter_rows())

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of the finished stages."""
        return Progress.of(self.request.staged(self.config.lake)).counts

    @property
    def _notes(self) -> Notes:
        return read_notes(self.request.staged(self.config.lake))

    def _conclude(self, state: RunState, failure: str | None = None) -> None:
        """Add the manifest. failure: the cause, if any."""
        request, now = self.request, _now()
        progress = Progress.of(request.staged(self.config.lake))
        manifest = RunManifest(
            request.run_id, request.day, state, now, now, only_rules=request.rules, only_groups=request.groups,
            counts=progress.counts, seconds=progress.seconds, failure=failure,
        )  # fmt: skip
        with suppress(BackfillError):  # it has not come so far as to read anything
            notes = self._notes
            versions = PublishedRules.of(self.config, request, notes).asked_for.versions
            rules = {(version.rule.id, version.version): effective_text(version) for version in versions}
            manifest = replace(
                manifest, started_at=notes.started_at, cut=notes.cut, versions=notes.versions, rules=rules
            )
        results.add_manifest(self.config, manifest)


@dataclass(frozen=True)
class Ended:
    """A finished run. counts: of its stages; verdict: what needs attention, if anything."""

    request: RunRequest
    counts: dict[str, Any] = field(default_factory=dict)
    verdict: VerdictError | None = None


def run_all(
    session: SparkSession,
    config: BackfillConfig,
    requests: Iterable[RunRequest],
    *,
    archived: bool = False,
    announced: Callable[[RunRequest, str], AbstractContextManager[object]] = lambda _request, _stage: nullcontext(),
) -> Iterator[Ended]:
    """Run several days one after the other; a verdict about one does not stop the others.

    archived: whether the lake is up to date already. announced: what surrounds a stage.

    Raises:
        NightjarError: a run failed otherwise; the days after it are not run.
    """
    behind = not archived  # whether Kafka may hold what the lake does not
    for request in requests:
        run, counts, verdict = Run(session, config, request), dict[str, int](), None
        try:
            for stage in STAGES:
                if stage == "archive" and not behind:
                    continue
                with announced(request, stage):
                    counts |= run.do(stage)
        except VerdictError as refused:
            counts, verdict = run.counts, refused
        behind = counts.get("published", 0) > 0  # a later day's late events may change what this one has corrected
        yield Ended(request, counts, verdict)


def _now() -> int:
    return time.time_ns() // 1000
