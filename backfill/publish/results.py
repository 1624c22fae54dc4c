"""The tables of results: the published output of a finished run. A write is one commit, and idempotent."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.division import file_splits, partition_count
from nightjar.backfill.evaluate.survey import judged_spans
from nightjar.backfill.publish.replacing import CHANGED, ReplacementTasks, RowSplit, emptied
from nightjar.backfill.staging import EVALUATED, EXCHANGED, OUTCOMES, REPLACEMENT, UNCHANGED, staged_files
from nightjar.contracts.reconciliation import Cause
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.lake import delta
from nightjar.lake.arrow_shuffle import exchange
from nightjar.lake.events import date_of
from nightjar.lake.scanning import parquet, scan
from nightjar.lake.tables import CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS, Table
from nightjar.rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish_violations(session: SparkSession, config: BackfillConfig, request: RunRequest, ruleset: RuleSet) -> int:
    """Replace the table's violations in the run's scope by the staged ones, but for those of alerts that stand; returns
    how many rows changed."""
    staged = request.staged(config.lake)
    dates = [(date_of(lo), date_of(hi)) for lo, hi in judged_spans(staged)]
    unchanged = frozenset(parquet(staged / UNCHANGED / "*.parquet").collect().get_column("alert_id"))
    return _replace(
        session, config, request, ruleset, VIOLATIONS, EVALUATED, dates, all_judged=False, unchanged=unchanged
    )


def publish_reconciliation(session: SparkSession, config: BackfillConfig, request: RunRequest, ruleset: RuleSet) -> int:
    """Put the run's outcomes in the place of the day's; a run of some rules or groups replaces the alerts it judged.
    How many rows changed."""
    dates = [(request.day, request.day)]
    return _replace(session, config, request, ruleset, RECONCILIATION, OUTCOMES, dates, all_judged=request.whole)


def _replace(
    session: SparkSession,
    config: BackfillConfig,
    request: RunRequest,
    ruleset: RuleSet,
    table: Table,
    name: str,
    dates: list[tuple[date, date]],
    *,
    all_judged: bool,
    unchanged: frozenset[str] = frozenset(),
) -> int:
    """Put what is staged under the name into the table's folders of these dates; how many rows changed."""
    if not dates:
        return 0
    root, staged = config.lake.root, request.staged(config.lake)
    parallelism = session.sparkContext.defaultParallelism
    (column,) = table.partitioned_by
    known = delta.files_of(root, table, delta.version(root, table), column, dates)
    splits = [
        RowSplit(tuple(some), new)
        for files, new in ((known, False), (staged_files(staged / name), True))
        if files
        for some in file_splits(files, parallelism)
    ]
    if not splits:
        return 0
    folder = emptied(staged / REPLACEMENT / table.name)
    partitions = partition_count(splits, parallelism)
    tasks = ReplacementTasks(
        table, splits, request, staged, ruleset.versions, all_judged, folder, partitions, unchanged
    )
    changed = (
        pc.sum(
            exchange(session, tasks, CHANGED, staged / EXCHANGED, config.lake.max_driver_rows).column("changed")
        ).as_py()
        or 0
    )
    if changed:
        condition = " OR ".join(f"({column} >= '{first}' AND {column} <= '{last}')" for first, last in dates)
        delta.replace(root, table, sorted(folder.glob("*.parquet")), condition)
    return int(changed)


def note_corrections(config: BackfillConfig, request: RunRequest, corrections: pl.DataFrame) -> None:
    """Put the corrections (see reconciliation.corrections) into their table, before they are published: each alert id
    and revision stands there once."""
    of_run = corrections.with_columns(day=pl.lit(request.day), run_id=pl.lit(request.run_id))
    rows = of_run.select(*CORRECTIONS.columns).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(CORRECTIONS.arrow)
    delta.merge(config.lake.root, CORRECTIONS, rows, ("alert_id", "revision"))


def add_manifest(config: BackfillConfig, manifest: RunManifest) -> None:
    """Add a run's manifest."""
    rows = pa.Table.from_pylist([manifest.row()], RUNS.arrow)
    delta.add(config.lake.root, RUNS, rows, f"run-{manifest.run_id}", manifest.finished_at)


def finished_runs(config: BackfillConfig, at: int | None = None) -> pl.LazyFrame:
    """The manifests of the runs that published, as RUNS, of the table's version `at` (None: the newest)."""
    return scan(config.lake.root, RUNS, at).filter(pl.col("state") == RunState.FINISHED.value)


def of_whole_days(runs: pl.LazyFrame) -> pl.LazyFrame:
    """Of manifests those of runs of all rules and groups."""
    return runs.filter(pl.col("only_rules").is_null(), pl.col("only_groups").is_null())


def latest_cut(config: BackfillConfig) -> int:
    """Up to where arrivals count in the results of the runs that finished, µs; 0 where there is none.

    Also of runs of some rules or groups: a run that counted less than they did would revert what they have corrected.
    """
    cuts = finished_runs(config).select(pl.col("cut").dt.epoch("us").max())
    return cuts.collect().item() or 0


def finished_since(config: BackfillConfig, run_id: str, at: int) -> list[str]:
    """The ids of other runs that have finished since the version `at` of the table RUNS."""
    known = finished_runs(config, at).select("run_id", "finished_at").collect()
    now = finished_runs(config).filter(pl.col("run_id") != run_id).select("run_id", "finished_at").collect()
    return (
        now.join(known, on=["run_id", "finished_at"], how="anti")
        .sort("finished_at")["run_id"]
        .unique(maintain_order=True)
        .to_list()
    )


def pending_alerts(config: BackfillConfig, day: date) -> pl.DataFrame:
    """The rows of RECONCILIATION, one an alert, that runs of earlier days left to the stream, and none since judged."""
    earlier = scan(config.lake.root, RECONCILIATION).filter(pl.col("day") < day)
    left = earlier.filter(pl.col("cause") == Cause.STREAM_DOWN.value).select("alert_id").unique().collect()
    if not left.height:
        return pl.DataFrame(schema=earlier.collect_schema())
    judged = earlier.join(left.lazy(), on="alert_id", how="semi").collect()
    latest = judged.sort("day").unique("alert_id", keep="last")
    return latest.filter(pl.col("cause") == Cause.STREAM_DOWN.value)
