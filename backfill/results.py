"""The tables of results: what a finished run leaves for everybody. A write is one commit, and repeating it is none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from backfill.causes import Cause
from backfill.config import BackfillConfig, Request
from backfill.event_selection import shares
from backfill.replacing import CHANGED, Part, Replacing, emptied
from backfill.staging import (
    CORRECTED,
    EVALUATED,
    EXCHANGED,
    OUTCOMES,
    REPLACEMENT,
    Notes,
    heaps_of,
    judged_spans,
    staged_files,
)
from lake import delta
from lake.arrow_shuffle import exchange
from lake.events import date_of
from lake.scanning import scan
from lake.tables import CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS, Table
from rules.timestamps import MAX_TIMESTAMP, from_microseconds, iso_text
from rules.versions import RuleSet, RuleVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish_violations(session: SparkSession, config: BackfillConfig, request: Request, ruleset: RuleSet) -> int:
    """Put the staged violations in the place of those that the table has in the run's scope; how many rows changed."""
    dates = [(date_of(lo), date_of(hi)) for lo, hi in judged_spans(request.staged(config.lake))]
    return _replace(session, config, request, ruleset, VIOLATIONS, EVALUATED, dates, all_judged=False)


def publish_reconciliation(session: SparkSession, config: BackfillConfig, request: Request, ruleset: RuleSet) -> int:
    """Put the run's outcomes in the place of the day's; a run of some rules or groups replaces the alerts it judged.
    How many rows changed."""
    dates = [(request.day, request.day)]
    return _replace(session, config, request, ruleset, RECONCILIATION, OUTCOMES, dates, all_judged=request.whole)


def _replace(
    session: SparkSession,
    config: BackfillConfig,
    request: Request,
    ruleset: RuleSet,
    table: Table,
    name: str,
    dates: list[tuple[date, date]],
    *,
    all_judged: bool,
) -> int:
    """Put what is staged under the name into the table's folders of these dates; how many rows changed."""
    if not dates:
        return 0
    root, staged = config.lake.root, request.staged(config.lake)
    parallelism = session.sparkContext.defaultParallelism
    (column,) = table.partitioned_by
    known = delta.files_of(root, table, delta.version(root, table), column, dates)
    parts = [
        Part(tuple(share), new)
        for files, new in ((known, False), (staged_files(staged / name), True))
        if files
        for share in shares(files, parallelism)
    ]
    if not parts:
        return 0
    folder = emptied(staged / REPLACEMENT / table.name)
    heaps = heaps_of(parts, parallelism)
    work = Replacing(table, parts, request, staged, ruleset.versions, all_judged, folder, heaps)
    changed = (
        pc.sum(
            exchange(session, work, CHANGED, staged / EXCHANGED, config.lake.max_driver_rows).column("changed")
        ).as_py()
        or 0
    )
    if changed:
        condition = " OR ".join(f"({column} >= '{first}' AND {column} <= '{last}')" for first, last in dates)
        delta.replace(root, table, sorted(folder.glob("*.parquet")), condition)
    return int(changed)


def note_corrections(config: BackfillConfig, request: Request) -> None:
    """Put the corrections into their table, before they are published: each alert id and revision stands there once."""
    staged = pl.read_parquet(request.staged(config.lake) / CORRECTED / "*.parquet")
    staged = staged.with_columns(day=pl.lit(request.day), run_id=pl.lit(request.run_id)).select(*CORRECTIONS.columns)
    rows = staged.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(CORRECTIONS.arrow)
    delta.merge(config.lake.root, CORRECTIONS, rows, ("alert_id", "revision"))


@dataclass
class Manifest:
    """What a run did. counts and seconds: by name."""

    state: str
    counts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


def add_manifest(config: BackfillConfig, request: Request, notes: Notes | None, manifest: Manifest, now: int) -> None:
    """Add the run's manifest. now: µs."""
    ruleset = () if notes is None else notes.ruleset(config, request).versions
    row = {
        "run_id": request.run_id,
        "day": request.day,
        "state": manifest.state,
        "started_at": from_microseconds(now if notes is None else notes.started_at),
        "finished_at": from_microseconds(now),
        "cut": None if notes is None else from_microseconds(notes.cut),
        "only_rules": json.dumps(request.rules) if request.rules else None,
        "only_groups": json.dumps(dict(request.groups)) if request.groups else None,
        "versions": json.dumps({} if notes is None else notes.versions),
        "rules": json.dumps({f"{v.rule.id} {v.version}": effective_text(v) for v in ruleset}),
        "counts": json.dumps(manifest.counts),
        "seconds": json.dumps(manifest.seconds),
        "failure": manifest.failure,
    }
    delta.add(config.lake.root, RUNS, pa.Table.from_pylist([row], RUNS.arrow), f"run-{request.run_id}", now)


def effective_text(version: RuleVersion) -> str | None:
    """From when on a version applies, as a manifest has it; None for a version that waits for its route."""
    return iso_text(version.effective) if version.effective <= MAX_TIMESTAMP else None


def finished_runs(config: BackfillConfig, at: int | None = None) -> pl.LazyFrame:
    """The manifests of the runs that published, as RUNS, of the table's version `at` (None: the newest)."""
    return scan(config.lake.root, RUNS, at).filter(pl.col("state") == "finished")


def of_whole_days(runs: pl.LazyFrame) -> pl.LazyFrame:
    """Of manifests those of runs of all rules and groups."""
    return runs.filter(pl.col("only_rules").is_null(), pl.col("only_groups").is_null())


def latest_cut(config: BackfillConfig) -> int:
    """Up to where arrivals count in the results of the runs that finished, µs; 0 where there is none."""
    cuts = of_whole_days(finished_runs(config)).select(pl.col("cut").dt.epoch("us").max())
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
