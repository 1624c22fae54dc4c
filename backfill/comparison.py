"""The stage that holds the stream's last words against the truth, finds why they differ, and stages corrections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.causes import Cause, Witness
from backfill.config import BackfillConfig, Request
from backfill.reading import Reading, readings_of
from backfill.reconciliation import corrections, last_words, reconcile, with_withdrawn
from backfill.results import in_scope, pending_alerts
from backfill.scope import GROUP, events_of, group_by_name
from backfill.staging import (
    CORRECTED,
    EVALUATED,
    HELD_BACK,
    OUTCOMES,
    TOUCHED_GROUPS,
    Notes,
    groups_folder,
    touched_span,
)
from lake import delta, stream_state
from lake.events import as_declared
from lake.tables import ALERTS, PROGRESS
from rules.engine.records import ALERT_SCHEMA
from rules.truth import VIOLATION_SCHEMA
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Corrections of these wait: the stream will say it itself, under the same revision.
LEFT_TO_THE_STREAM = Cause.STREAM_DOWN


@dataclass(frozen=True)
class Compared:
    """outcomes and causes: how many alerts; standing: alerts of the stream in scope that are not retracted;
    corrections: how many are staged; waiting: differences that are left to the stream, which has yet to read them;
    held_back: corrections that are not published, as nobody knows why they are needed."""

    outcomes: Counter[str]
    causes: Counter[str]
    standing: int
    corrections: int
    waiting: int
    held_back: int

    def as_counts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "outcomes": dict(self.outcomes),
            "causes": dict(self.causes),
            "stream_alerts": self.standing,
            "corrections": self.corrections,
            "left_to_the_stream": self.waiting,
            "held_back": self.held_back,
        }


def compare(session: SparkSession, config: BackfillConfig, request: Request, notes: Notes) -> Compared:
    """Stage OUTCOMES, CORRECTED and HELD_BACK."""
    folder = request.staged(config.lake)
    ruleset = notes.ruleset(config, request)
    evaluated = pl.read_parquet(folder / EVALUATED / "*.parquet")
    truth = evaluated.filter(pl.col("failed").is_null()).select(VIOLATION_SCHEMA.names)
    alerts = _alerts(session, config, request, notes, ruleset)
    outcomes = reconcile(truth, alerts)
    differing = outcomes.filter(pl.col("outcome") != "matched")
    found = _causes(config, request, notes, ruleset, differing)
    causes = pl.DataFrame(
        {"alert_id": list(found), "cause": [cause.value for cause in found.values()]},
        schema={"alert_id": pl.String, "cause": pl.String},
    )
    outcomes = outcomes.join(causes, on="alert_id", how="left")
    outcomes = with_withdrawn(outcomes, _pending(config, request, ruleset))
    needed = corrections(truth, alerts, causes)
    kept_back = [LEFT_TO_THE_STREAM.value, Cause.UNEXPLAINED.value]
    wrong = needed.filter(~pl.col("cause").is_in(kept_back))
    held_back = needed.filter(pl.col("cause") == Cause.UNEXPLAINED.value)
    held_back = held_back.join(outcomes.select("alert_id", "outcome"), on="alert_id", how="left")
    for name, rows in ((OUTCOMES, outcomes), (CORRECTED, wrong), (HELD_BACK, held_back)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        rows.write_parquet(place / "part.parquet")
    stream_last = last_words(alerts.filter(pl.col("source") == "stream"))
    return Compared(
        Counter(outcomes.get_column("outcome").to_list()),
        Counter(outcomes.get_column("cause").drop_nulls().to_list()),
        stream_last.filter(pl.col("kind") == "alert").height,
        wrong.height,
        needed.height - wrong.height - held_back.height,
        held_back.height,
    )


def _pending(config: BackfillConfig, request: Request, ruleset: RuleSet) -> pl.DataFrame:
    """The rows of earlier runs that were left to the stream, of what this run judges."""
    pending = pending_alerts(config, request.day)
    names = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in ruleset.versions]
    versions = pl.DataFrame(names, ["rule_id", "rule_version", "group_by"], orient="row") if names else None
    if not pending.height or versions is None:
        return pending.clear()
    touched = pl.read_parquet(request.staged(config.lake) / TOUCHED_GROUPS / "*.parquet")
    judged = pending.join(versions, on=["rule_id", "rule_version"]).join(touched, on=["stream", "group_by", "group"])
    event = pl.col("event_time").dt.epoch("us")
    return judged.filter(event.is_between(pl.col("lo"), pl.col("hi"))).select(pending.columns)


def _alerts(
    session: SparkSession, config: BackfillConfig, request: Request, notes: Notes, ruleset: RuleSet
) -> pl.DataFrame:
    """All records about alerts that the run judges, at the noted version of the table."""
    first, last = touched_span(request.staged(config.lake)) or (0, -1)
    alerts = delta.read(session, config.lake.root, ALERTS, notes.versions[ALERTS.name])
    event = F.expr("unix_micros(event_time)")
    near = alerts.where(F.col("alert_id").isNotNull() & (event >= F.lit(first)) & (event <= F.lit(last)))
    judged = in_scope(session, near, request, config, ruleset)
    columns = [*ALERT_SCHEMA.names, "source", "cause"]
    return pl.DataFrame(judged.select(*columns).toArrow())


def _causes(
    config: BackfillConfig,
    request: Request,
    notes: Notes,
    ruleset: RuleSet,
    differing: pl.DataFrame,
) -> dict[str, Cause]:
    found: dict[str, Cause] = {}
    folder = request.staged(config.lake)
    if not differing.height:
        return found
    published = notes.published(config)
    consumed = stream_state.consumed(config.lake.root, notes.versions[PROGRESS.name])
    fields = {(v.rule.id, v.version): v.rule.group_by for v in ruleset.versions}
    for reading in readings_of(config, request, notes):
        stream = reading.stream
        rows = differing.filter(pl.col("stream") == stream.name).with_columns(pl.col("event_time").dt.epoch("us"))
        for number, group_by in enumerate(reading.group_bys):
            mine = [r for r in rows.to_dicts() if fields[r["rule_id"], r["rule_version"]] == group_by.fields]
            if not mine:
                continue
            groups = pl.scan_parquet(groups_folder(folder, stream, number) / "*.parquet")
            groups = groups.filter(pl.col(GROUP).is_in({row["group"] for row in mine})).drop(GROUP)
            found_events = events_of(reading.near(reading.files), groups, stream, group_by).collect(engine="streaming")
            events = as_declared(found_events.to_arrow(compat_level=pl.CompatLevel.oldest()), stream)
            witness = Witness(
                stream, reading.ruleset, group_by, events,
                published=published,
                consumed=consumed.get(stream.topic, {}),
                conflicting=_conflicting(reading, found_events),
            )  # fmt: skip
            found |= {row["alert_id"]: witness.cause(row) for row in mine}
    return found


def _conflicting(reading: Reading, events: pl.DataFrame) -> frozenset[str]:
    """Of the events' ids those that name two different events, be they in these groups or in others."""
    event_id = reading.stream.event_id
    records = reading.near(reading.files).join(events.lazy().select(event_id).unique(), on=event_id, how="semi")
    different = pl.struct(*reading.stream.fields).n_unique()
    found = records.group_by(event_id).agg(different.alias("run.different")).filter(pl.col("run.different") > 1)
    return frozenset(found.collect(engine="streaming").get_column(event_id).cast(pl.String))
