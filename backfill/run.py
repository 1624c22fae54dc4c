"""A run: the stages of one day's backfill, in order, each of which can be a separate process.

archive: Kafka to the lake. evaluate: the day's truth, staged. gate: expectations on events and violations. reconcile:
the stream compared with the truth, staged, and expectations on that. publish: corrections to Kafka, results to their
tables, the manifest. Until publish only the staged folder is written, so a failed run can be repeated at once.

An alert whose difference has no known cause does not stop the others: its correction is held back, everything else is
published, and then the last stage raises a verdict that lists the alerts held back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import structlog

from nightjar.backfill.backtest.shadow import compared_shadows
from nightjar.backfill.config import BackfillConfig, BackfillError, RunRequest
from nightjar.backfill.evaluate.evaluation import evaluate
from nightjar.backfill.gate.gating import gate_evaluation, gate_reconciliation
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.inputs.scope import longest_wait, settled
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.publish import results
from nightjar.backfill.publish.precision import PRECISION_DAYS, Precision, precision
from nightjar.backfill.publish.publication import publish
from nightjar.backfill.publish.snoozed import Snoozed, snoozed
from nightjar.backfill.publish.verdicts import held_back, refuse_outdated, refuse_unarchived
from nightjar.backfill.reconcile.comparison import compare
from nightjar.backfill.reconcile.reconciliation import with_overflow
from nightjar.backfill.stages import STAGES
from nightjar.backfill.staging import CORRECTED, Progress, read_notes, take_notes, write_notes
from nightjar.backfill.upkeep.cleaning import remove_old_staging
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.expectations.findings import VerdictError
from nightjar.lake import stream_state
from nightjar.lake.archive import archive, make_tables
from nightjar.lake.scanning import parquet, scan
from nightjar.lake.tables import ALERTS
from nightjar.rules.rulebook import effective_text
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.versions import actions_of
from nightjar.storage.paths import AnyPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger(__name__)

_LONGEST_FAILURE = 20_000  # characters of a manifest


@dataclass
class Run:
    """One day's run in a session."""

    session: SparkSession
    config: BackfillConfig
    request: RunRequest
    _context: RunContext | None = field(default=None, init=False, repr=False)

    def do(self, stage: str) -> dict[str, Any]:
        """One of STAGES; returns what it counted. A failure ends in a manifest of it, and is raised.

        Raises:
            DeclarationError: an expectation of the team's own cannot be used. Nothing has been done then.
            VerdictError: it would fail again; see publish/verdicts.py. HeldBackError comes after everything else is
            published.
        """
        began = time.monotonic()
        _ = self.config.own
        self.config.lake.refuse_overtaken()
        try:
            counts = _STAGES[stage](self)
        # A library that ends the program, as PySpark does where it lacks another, has not done the stage.
        except (Exception, SystemExit) as failure:
            try:
                self._add_manifest(RunState.FAILED, f"{stage}: {failure}"[:_LONGEST_FAILURE])
            except Exception:  # noqa: BLE001  a full disk or a lost JVM fails here too; what failed first is raised
                _log.warning("the manifest of the failed run could not be written", run=self.request.run_id)
            raise
        took = round(time.monotonic() - began, 2)
        Progress.of(self._folder).after(stage, counts, took).write(self._folder)
        _log.info("a stage is done", stage=stage, run=self.request.run_id, seconds=took, **counts)
        if stage == "publish":
            self._conclude()
        return counts

    def archive(self) -> dict[str, Any]:
        """Bring every topic to the lake."""
        return {"archived": dict(archive(self.session, self.config.lake).rows)}

    def evaluate(self) -> dict[str, Any]:
        """Stage the truth about the day."""
        config, request = self.config, self.request
        make_tables(config.lake)
        book = stream_state.rule_book(config.lake.root, config.streams)
        allowed = {
            name: Lateness.of(stream, book.reported).around(request.begin, request.end)
            for name, stream in config.streams.items()
        }
        waiting = longest_wait(book.ruleset.versions, request.begin, request.end)
        cut = max(settled(request, allowed.values(), waiting), results.latest_cut(config))
        if config.arrival == "broker" and not request.dry_run:
            refuse_unarchived(config, request, cut)
        notes = take_notes(config, cut, _now(), allowed)
        write_notes(self._folder, notes)
        self._context = RunContext(config, request, notes, self.session)
        return evaluate(self._context, results.pending_alerts(config, request.day))

    def gate(self) -> dict[str, Any]:
        """Refuse what must not be published."""
        return gate_evaluation(self.context)

    def reconcile(self) -> dict[str, Any]:
        """Stage outcomes, causes and corrections."""
        compared = compare(self.context)
        gated = gate_reconciliation(self.context, compared.stream_alerts)
        shadows = compared_shadows(self.context)
        return compared.as_counts() | gated | ({"shadows": shadows} if shadows else {})

    def publish(self) -> dict[str, Any]:
        """Publish the corrections except those held back, and write the results to their tables.

        The violation of an alert that is held back goes into its table: it holds, whatever the stream announced.
        """
        if self.request.dry_run:
            return {"published": 0}
        refuse_outdated(self.context)
        corrected = self._publish_corrections() if self.request.publish else {"published": 0, "overflow_corrections": 0}
        self.config.lake.refuse_overtaken()
        changed = results.publish_violations(self.context)
        results.publish_reconciliation(self.context)
        return {**corrected, "violations_changed": changed} | self._of_people()

    def _of_people(self) -> dict[str, Any]:
        """What the labels said of the rules' alerts at the run's cut, and which groups were snoozed on the day: nothing
        for a run of some rules or groups."""
        root, day, cut = self.context.root, self.request.day, from_microseconds(self.context.notes.cut)
        if not self.request.whole:
            return {}
        found: dict[str, Sequence[Precision | Snoozed]] = {
            "precision": precision(root, day - timedelta(days=PRECISION_DAYS - 1), day, cut),
            "snoozed": snoozed(root, day, cut),
        }
        return {name: [each.as_dict() for each in of_name] for name, of_name in found.items() if of_name}

    def _publish_corrections(self) -> dict[str, int]:
        run, config = self.context, self.config
        staged = parquet(run.folder / CORRECTED / "*.parquet").collect().sort("event_time", "alert_id")
        staged = with_overflow(staged, config.alerts_per_rule_and_hour)
        config.lake.refuse_overtaken()
        alerts = scan(run.root, ALERTS, run.version(ALERTS)).group_by("partition").agg(pl.col("offset").max())
        note = partial(results.note_corrections, run, staged)
        actions = actions_of(run.rules.asked_for.versions)
        published = publish(config, staged, dict(alerts.collect().iter_rows()), note, actions)
        return {"published": published, "overflow_corrections": int(staged.get_column("overflow").sum())}

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of the finished stages."""
        return Progress.of(self._folder).counts

    @property
    def context(self) -> RunContext:
        """What the stages share, with the inputs that `evaluate` has pinned, here or in another process.

        Raises:
            BackfillError: the run has not been evaluated.
        """
        if self._context is None:
            self._context = RunContext(self.config, self.request, read_notes(self._folder), self.session)
        return self._context

    @property
    def _folder(self) -> AnyPath:
        return self.request.staged(self.config.lake)

    def _conclude(self) -> None:
        """Add the manifest of a run that has published, and raise the verdict about what it has held back."""
        verdict = held_back(self.context)
        failure = None if verdict is None else str(verdict)[:_LONGEST_FAILURE]
        self._add_manifest(RunState.DRY_RUN if self.request.dry_run else RunState.FINISHED, failure)
        if not self.request.dry_run:
            remove_old_staging(self.config, self.request.run_id, _now())
        if verdict is not None:
            raise verdict

    def _add_manifest(self, state: RunState, failure: str | None) -> None:
        """failure: the cause, if any."""
        request, now, progress = self.request, _now(), Progress.of(self._folder)
        manifest = RunManifest(
            request.run_id,
            request.day,
            state,
            now,
            now,
            only_rules=request.rules,
            only_groups=request.groups,
            counts=progress.counts,
            seconds=progress.seconds,
            failure=failure,
        )
        with suppress(BackfillError):  # it has not come so far as to read anything
            notes, versions = self.context.notes, self.context.rules.asked_for.versions
            rules = {(version.rule.id, version.version): effective_text(version) for version in versions}
            manifest = replace(
                manifest, started_at=notes.started_at, cut=notes.cut, versions=notes.versions, rules=rules
            )
        results.add_manifest(self.config, manifest)


_STAGES: Mapping[str, Callable[[Run], dict[str, Any]]] = {
    "archive": Run.archive,
    "evaluate": Run.evaluate,
    "gate": Run.gate,
    "reconcile": Run.reconcile,
    "publish": Run.publish,
}


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
