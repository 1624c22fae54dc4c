"""The tables of results: what a finished run leaves for everybody. A write is one commit, and repeating it is none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from backfill.causes import Cause
from backfill.config import BackfillConfig, Request
from backfill.scope import group_by_name
from backfill.staging import CORRECTED, EVALUATED, OUTCOMES, REPLACEMENT, TOUCHED_GROUPS, Notes, judged_spans
from lake import delta
from lake.events import date_of
from lake.reading import scan
from lake.tables import CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS, Table
from rules.timestamps import MAX_TIMESTAMP, from_microseconds, iso_text
from rules.versions import RuleSet, RuleVersion


def in_scope(rows: pl.LazyFrame, request: Request, config: BackfillConfig, ruleset: RuleSet) -> pl.LazyFrame:
    """Of alerts or violations those that the run has judged: of its rules, in the touched groups and their spans."""
    named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in ruleset.versions]
    kinds = {"rule_id": pl.String, "rule_version": pl.Int64, "group_by": pl.String}
    touched = pl.scan_parquet(request.staged(config.lake) / TOUCHED_GROUPS / "*.parquet").drop("bucket")
    event = pl.col("event_time").dt.epoch("us")
    judged = rows.join(pl.LazyFrame(named, kinds, orient="row"), on=["rule_id", "rule_version"])
    judged = judged.join(touched, on=["stream", "group_by", "group"])
    return judged.filter((event >= pl.col("lo")) & (event <= pl.col("hi"))).drop("group_by", "lo", "hi")


def publish_violations(config: BackfillConfig, request: Request, ruleset: RuleSet) -> int:
    """Put the staged violations in the place of those that the table has in the run's scope; how many rows changed."""
    root, folder = config.lake.root, request.staged(config.lake)
    spans = judged_spans(folder)
    if not spans:
        return 0
    dates = [(date_of(lo), date_of(hi)) for lo, hi in spans]
    condition = " OR ".join(f"(event_date >= '{first}' AND event_date <= '{last}')" for first, last in dates)
    near = pl.any_horizontal(pl.col("event_date").is_between(first, last) for first, last in dates)
    staged = pl.scan_parquet(folder / EVALUATED / "*.parquet").filter(pl.col("failed").is_null())
    staged = staged.with_columns(pl.col("event_time").dt.date().alias("event_date")).select(*VIOLATIONS.columns)
    known = scan(root, VIOLATIONS).filter(near)
    judged = in_scope(known, request, config, ruleset).select(*VIOLATIONS.columns)
    changed = _lacking(staged, judged) + _lacking(judged, staged)
    if changed:
        kept = known.join(judged.select("alert_id"), on="alert_id", how="anti").select(*VIOLATIONS.columns)
        delta.replace(root, VIOLATIONS, _replacement(folder, VIOLATIONS, kept, staged), condition)
    return changed


def publish_reconciliation(config: BackfillConfig, request: Request) -> None:
    """Put the run's outcomes in the place of the day's; a run of some rules or groups replaces the alerts it judged."""
    root, folder = config.lake.root, request.staged(config.lake)
    staged = pl.scan_parquet(folder / OUTCOMES / "*.parquet").with_columns(day=pl.lit(request.day))
    staged = staged.select(*RECONCILIATION.columns)
    known = scan(root, RECONCILIATION).filter(pl.col("day") == request.day).select(*RECONCILIATION.columns)
    kept = known.clear()
    if not request.whole:
        kept = known.join(staged.select("alert_id"), on="alert_id", how="anti")
    new = pl.concat([kept, staged], how="vertical_relaxed")
    if _lacking(new, known) or _lacking(known, new):
        rows = _replacement(folder, RECONCILIATION, kept, staged)
        delta.replace(root, RECONCILIATION, rows, f"day = '{request.day.isoformat()}'")


def _lacking(rows: pl.LazyFrame, others: pl.LazyFrame) -> int:
    """How many of the rows are not among the others."""
    names = rows.collect_schema().names()
    found = rows.join(others, on=names, how="anti", nulls_equal=True).select(pl.len())
    return int(found.collect(engine="streaming").item())


def _replacement(folder: Path, table: Table, *parts: pl.LazyFrame) -> Path:
    """A file of these rows, written first: what replaces a part of a table must not be read from it meanwhile."""
    file = folder / REPLACEMENT / f"{table.name}.parquet"
    file.parent.mkdir(exist_ok=True)
    pl.concat(parts, how="vertical_relaxed").sink_parquet(file)
    return file


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
