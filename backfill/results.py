"""The tables of results: what a finished run leaves for everybody. A write is one commit, and repeating it is none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.causes import Cause
from backfill.config import BackfillConfig, Request
from backfill.scope import group_by_name
from backfill.staging import CORRECTED, OUTCOMES, REPLACEMENT, TOUCHED_GROUPS, Notes, judged_spans, staged_violations
from lake import delta
from lake.events import date_of
from lake.reading import scan
from lake.tables import CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS
from rules.timestamps import MAX_TIMESTAMP, iso_text
from rules.versions import RuleSet, RuleVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_scope(
    session: SparkSession, rows: DataFrame, request: Request, config: BackfillConfig, ruleset: RuleSet
) -> DataFrame:
    """Of alerts or violations those that the run has judged: of its rules, in the touched groups and their spans."""
    named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in ruleset.versions]
    versions = session.createDataFrame(named, "rule_id string, rule_version bigint, group_by string")
    touched = session.read.parquet(str(request.staged(config.lake) / TOUCHED_GROUPS))
    event = F.expr("unix_micros(event_time)")
    judged = rows.join(F.broadcast(versions), ["rule_id", "rule_version"])
    judged = judged.join(touched, ["stream", "group_by", "group"])
    return judged.where((event >= F.col("lo")) & (event <= F.col("hi"))).drop("group_by", "lo", "hi")


def publish_violations(session: SparkSession, config: BackfillConfig, request: Request, ruleset: RuleSet) -> int:
    """Put the staged violations in the place of those that the table has in the run's scope; how many rows changed."""
    root, folder = config.lake.root, request.staged(config.lake)
    spans = judged_spans(folder)
    if not spans:
        return 0
    dates = ((date_of(lo), date_of(hi)) for lo, hi in spans)
    # Delta cannot resolve BETWEEN here
    condition = " OR ".join(f"(event_date >= '{first}' AND event_date <= '{last}')" for first, last in dates)
    staged = staged_violations(session, folder).withColumn("event_date", F.to_date("event_time"))
    staged = staged.select(*VIOLATIONS.columns)
    known = delta.read(session, root, VIOLATIONS).where(condition)
    judged = in_scope(session, known, request, config, ruleset).select(*VIOLATIONS.columns)
    changed = staged.exceptAll(judged).count() + judged.exceptAll(staged).count()
    if changed:
        kept = known.join(judged.select("alert_id"), "alert_id", "left_anti").select(*VIOLATIONS.columns)
        # written first: what replaces part of a table must not be read from it in the same breath
        replacement = str(folder / REPLACEMENT)
        kept.unionByName(staged).write.mode("overwrite").parquet(replacement)
        rows = session.read.schema(VIOLATIONS.schema).parquet(replacement).repartition("event_date")
        delta.replace(rows, root, VIOLATIONS, condition)
    return changed


def publish_reconciliation(session: SparkSession, config: BackfillConfig, request: Request) -> None:
    """Put the run's outcomes in the place of the day's; a run of some rules or groups replaces the alerts it judged."""
    root, folder = config.lake.root, request.staged(config.lake)
    day = F.lit(request.day).cast("date")
    staged = session.read.parquet(str(folder / OUTCOMES)).withColumn("day", day).select(*RECONCILIATION.columns)
    known = delta.read(session, root, RECONCILIATION).where(F.col("day") == day).select(*RECONCILIATION.columns)
    new = staged
    if not request.whole:
        others = known.join(staged.select("alert_id"), "alert_id", "left_anti")
        new = others.select(*RECONCILIATION.columns).unionByName(staged)  # a join puts its key first
    if new.exceptAll(known).union(known.exceptAll(new)).limit(1).count():
        delta.replace(new, root, RECONCILIATION, f"day = '{request.day.isoformat()}'")


def note_corrections(session: SparkSession, config: BackfillConfig, request: Request) -> None:
    """Put the corrections into their table, before they are published: each alert id and revision stands there once."""
    from delta.tables import DeltaTable

    folder = request.staged(config.lake)
    staged = session.read.parquet(str(folder / CORRECTED))
    staged = staged.withColumn("day", F.lit(request.day).cast("date")).withColumn("run_id", F.lit(request.run_id))
    table = DeltaTable.forPath(session, delta.folder(config.lake.root, CORRECTIONS)).alias("known")
    same = "known.alert_id = new.alert_id AND known.revision = new.revision"
    new = staged.select(*CORRECTIONS.columns).alias("new")
    table.merge(new, same).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@dataclass
class Manifest:
    """What a run did. counts and seconds: by name."""

    state: str
    counts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


def add_manifest(
    session: SparkSession, config: BackfillConfig, request: Request, notes: Notes | None, manifest: Manifest, now: int
) -> None:
    """Add the run's manifest. now: µs."""
    ruleset = () if notes is None else notes.ruleset(config, request).versions
    row = {
        "run_id": request.run_id,
        "day": request.day.isoformat(),
        "state": manifest.state,
        "started_at": iso_text(now if notes is None else notes.started_at),
        "finished_at": iso_text(now),
        "cut": None if notes is None else iso_text(notes.cut),
        "only_rules": json.dumps(request.rules) if request.rules else None,
        "only_groups": json.dumps(dict(request.groups)) if request.groups else None,
        "versions": json.dumps({} if notes is None else notes.versions),
        "rules": json.dumps({f"{v.rule.id} {v.version}": effective_text(v) for v in ruleset}),
        "counts": json.dumps(manifest.counts),
        "seconds": json.dumps(manifest.seconds),
        "failure": manifest.failure,
    }
    texts = session.createDataFrame([tuple(row.values())], ", ".join(f"`{name}` string" for name in row))
    typed = texts.select(*(F.col(name).cast(kind).alias(name) for name, kind in RUNS.columns.items()))
    delta.append(typed, config.lake.root, RUNS, f"run-{request.run_id}", now)


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
