"""The tables of results: the published output of a finished run. A write is one commit, and idempotent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import polars as pl
import pyarrow as pa

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.division import file_splits, partition_count
from nightjar.backfill.evaluate.survey import judged_spans
from nightjar.backfill.inputs.context import RunContext, RunInputs
from nightjar.backfill.publish.replacing import CHANGED, ReplacementTasks, RowSplit, emptied
from nightjar.backfill.staging import EVALUATED, OUTCOMES, REPLACEMENT, UNCHANGED, staged_files
from nightjar.contracts.reconciliation import Cause
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.lake import delta
from nightjar.lake.events import date_of
from nightjar.lake.scanning import parquet, scan
from nightjar.lake.tables import CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS, Table


def publish_violations(run: RunContext) -> int:
    """Replace the table's violations in the run's scope by the staged ones, but for those of alerts that stand (S15.4);
    returns how many rows changed."""
    dates = [(date_of(lo), date_of(hi)) for lo, hi in judged_spans(run.folder)]
    unchanged = frozenset(parquet(run.folder / UNCHANGED / "*.parquet").collect().get_column("alert_id"))
    return _replace(run, VIOLATIONS, EVALUATED, dates, all_judged=False, unchanged=unchanged)


def publish_reconciliation(run: RunContext) -> int:
    """Put the run's outcomes in the place of the day's; a run of some rules or groups replaces the alerts it judged.
    How many rows changed."""
    day = run.request.day
    return _replace(run, RECONCILIATION, OUTCOMES, [(day, day)], all_judged=run.request.whole)


def _replace(
    run: RunContext,
    table: Table,
    name: str,
    dates: Sequence[tuple[date, date]],
    *,
    all_judged: bool,
    unchanged: frozenset[str] = frozenset(),
) -> int:
    """Put what is staged under the name into the table's folders of these dates; how many rows changed."""
    if not dates:
        return 0
    (column,) = table.partitioned_by
    known = delta.files_of(run.root, table, delta.version(run.root, table), column, dates)
    splits = [
        RowSplit(tuple(some), new)
        for files, new in ((known, False), (staged_files(run.folder / name), True))
        if files
        for some in file_splits(files, run.parallelism)
    ]
    if not splits:
        return 0
    folder, versions = emptied(run.folder / REPLACEMENT / table.name), run.rules.asked_for.versions
    partitions = partition_count(splits, run.parallelism)
    tasks = ReplacementTasks(
        table, splits, run.request, run.folder, versions, all_judged, folder, partitions, unchanged
    )
    changed = run.counted(tasks, CHANGED)["changed"]
    if changed:
        condition = " OR ".join(f"({column} >= '{first}' AND {column} <= '{last}')" for first, last in dates)
        delta.replace(run.root, table, sorted(folder.glob("*.parquet")), condition)
    return changed


def note_corrections(run: RunInputs, corrections: pl.DataFrame) -> None:
    """Put the corrections (see reconciliation.corrections) into their table, before they are published: each alert id
    and revision stands there once."""
    of_run = corrections.with_columns(day=pl.lit(run.request.day), run_id=pl.lit(run.request.run_id))
    rows = of_run.select(*CORRECTIONS.columns).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(CORRECTIONS.arrow)
    delta.merge(run.root, CORRECTIONS, rows, ("alert_id", "revision"))


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
