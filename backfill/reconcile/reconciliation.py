"""The outcome of each alert: the stream's latest revision compared with the truth, and the necessary correction.

Pure functions of tables; see causes.py for the causes of differences.

Of rules with `revisions: verdict` measures and text are not compared, but for what silences an alert: the stream keeps
those that it announced first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

import polars as pl

from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.rules.allowing import MEMBER
from nightjar.rules.canonical import rewritten
from nightjar.rules.hourly_cap import HourlyCap
from nightjar.rules.states import Revisions
from nightjar.rules.versions import RuleVersion

CONTENT = ["rule_state", "group", "measures", "severity", "text", "muted"]
_VALUES = ("measures", "text")
# Rule ids and versions.
Versions = Collection[tuple[str, int]]
_MOST_REVISIONS = 1 << 32  # far from where the next one no longer fits its column
_IDENTITY = ["alert_id", "rule_id", "rule_version", "stream", "event_id", "event_time"]
# Objects of texts and short numbers, which almost all are: parsing each would take most of the time.
_TEXT = r'"[^"\\\x00-\x1f]*"'
_VALUE = rf"(?:{_TEXT}|-?(?:0|[1-9][0-9]{{0,99}})(?:\.[0-9]{{1,99}})?(?:[eE][+-]?[0-9]{{1,3}})?|true|false|null)"
_FLAT = rf"^\{{(?:{_TEXT}:{_VALUE}(?:,{_TEXT}:{_VALUE})*)?\}}$"


def latest_revisions(alerts: pl.DataFrame) -> pl.DataFrame:
    """Of each alert id the record with the highest revision; of equal ones the backfill's. In no order.

    alerts: those of the stream alone may lack the column `source`.
    """
    tie = [pl.col("source") == "backfill"] if "source" in alerts.columns else []
    # few have several, with those whose hashes are equal by chance: sorting all would take far longer than the rest
    hashes = alerts.get_column("alert_id").hash()
    in_order = hashes.sort()
    again = in_order.filter(in_order == in_order.shift(1))
    if not again.len():
        return alerts
    several = hashes.is_in(again.unique().implode())
    latest = alerts.filter(several).sort("alert_id", "revision", *tie).unique("alert_id", keep="last")
    return pl.concat([alerts.filter(~several), latest])


def well_formed(alerts: pl.LazyFrame) -> pl.LazyFrame:
    """The records with all required members of an alert: anybody may write to a topic."""
    known = pl.all_horizontal(pl.col(name).is_not_null() for name in [*_IDENTITY, *CONTENT])
    known &= pl.col("kind").is_in(["alert", "retraction"]) & pl.col("source").is_in(["stream", "backfill"])
    known &= pl.col("revision").is_between(1, _MOST_REVISIONS)
    objects = (pl.col(name).map_batches(_are_objects, pl.Boolean) for name in ("group", "measures"))
    return alerts.filter(known).filter(pl.all_horizontal(objects))


def _are_objects(texts: pl.Series) -> pl.Series:
    known = texts.str.contains(_FLAT).fill_null(value=False)
    if known.all():
        return known
    return known | texts.set(known, None).map_elements(_is_object, pl.Boolean).fill_null(value=False)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def by_verdict(versions: Iterable[RuleVersion]) -> frozenset[tuple[str, int]]:
    """The versions of which only the verdict is announced again, not a change of values."""
    return frozenset((v.rule.id, v.version) for v in versions if v.rule.revisions is Revisions.VERDICT)


def content_differs(suffix: str, verdict_only: Versions, masked: Collection[str]) -> pl.Expr:
    """Whether the content that the truth has of an alert is not that of the columns with this suffix.

    Of streams with masked values texts do not count: they follow from the rest, and from what was masked at the time.
    """
    named = [f"{rule_id} {version}" for rule_id, version in verdict_only]
    counts = ~pl.format("{} {}", "rule_id", "rule_version").is_in(named)
    parts = ((name, pl.col(name).ne_missing(pl.col(f"{name}{suffix}"))) for name in CONTENT)
    shown = ~pl.col("stream").is_in(sorted(masked))
    texted = ((name, differs & shown if name == "text" else differs) for name, differs in parts)
    silenced = allowed_by_of("measures").ne_missing(allowed_by_of(f"measures{suffix}"))
    return pl.any_horizontal(silenced, *(differs & counts if name in _VALUES else differs for name, differs in texted))


def allowed_by_of(measures: str) -> pl.Expr:
    """The allow rule that silences an alert (S24), NULL where none does. measures: a column of canonical JSON."""
    return pl.col(measures).cast(pl.String).str.extract(f'{MEMBER}"([^"]*)"')


def reconcile(
    truth: pl.DataFrame, alerts: pl.DataFrame, verdict_only: Versions = (), masked: Collection[str] = ()
) -> pl.DataFrame:
    """One row an alert: its identity and group, `outcome`, `stream_revision`, `stream_measures`, `measures`,
    `stream_muted`, `muted`, `stream_overflow`.

    truth: violations (VIOLATION_SCHEMA); alerts: the records of the same scope (kind, revision, source and the like);
    verdict_only: see by_verdict; masked: names of streams with sensitive fields.
    """
    latest = canonical(latest_revisions(alerts.filter(pl.col("source") == "stream")))
    announced = pl.col("kind_latest") == "alert"
    both = canonical(truth).join(latest, on="alert_id", how="full", suffix="_latest", coalesce=True)
    true, differs = pl.col("rule_id").is_not_null(), content_differs("_latest", verdict_only, masked)
    outcome = (
        pl.when(true & announced & ~differs)
        .then(pl.lit(Outcome.MATCHED.value))
        .when(true & announced)
        .then(pl.lit(Outcome.REVISED.value))
        .when(true)
        .then(pl.lit(Outcome.MISSED.value))
        .when(announced)
        .then(pl.lit(Outcome.RETRACTED.value))
    )
    both = both.rename({"kind": "kind_latest", "revision": "stream_revision"})
    whole = [pl.coalesce(name, f"{name}_latest").alias(name) for name in [*_IDENTITY[1:], "group"]]
    return (
        both.with_columns(outcome.alias("outcome"))
        .filter(pl.col("outcome").is_not_null())
        .select(
            "alert_id",
            *whole,
            "outcome",
            "stream_revision",
            pl.col("measures_latest").alias("stream_measures"),
            "measures",
            pl.col("muted_latest").alias("stream_muted"),
            "muted",
            pl.col("overflow").alias("stream_overflow"),
        )
        .sort("event_time", "alert_id")
    )


def with_withdrawn(outcomes: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """The outcomes (with their causes), and WITHDRAWN for each pending alert that has none.

    pending: the rows of earlier outcomes that are left to the stream (see results.pending_alerts), of what was judged.
    """
    gone = pending.join(outcomes, on="alert_id", how="anti").with_columns(
        pl.lit(Outcome.WITHDRAWN.value).alias("outcome"),
        pl.lit(None).alias("cause"),
        pl.lit(None).alias("measures"),
        pl.lit(None).alias("muted"),
    )
    columns = outcomes.schema
    rows = gone.select(pl.col(name).cast(kind) for name, kind in columns.items())
    return pl.concat([outcomes, rows]).sort("event_time", "alert_id")


def corrections(
    truth: pl.DataFrame,
    alerts: pl.DataFrame,
    causes: pl.DataFrame,
    verdict_only: Versions = (),
    masked: Collection[str] = (),
) -> pl.DataFrame:
    """What has to be published so that the highest revision of each alert is the truth: alert records without a source.

    verdict_only, masked: as `reconcile` has them. causes: alert_id and cause of the stream's differences. Where the
    stream was right and an earlier correction no longer is, the cause is that correction's.
    """
    last = canonical(latest_revisions(alerts))
    both = canonical(truth).join(last, on="alert_id", how="full", suffix="_last", coalesce=True)
    both = both.rename({"kind": "kind_last", "revision": "revision_last", "cause": "cause_last"})
    true, announced = pl.col("rule_id").is_not_null(), (pl.col("kind_last") == "alert").fill_null(value=False)
    differs = content_differs("_last", verdict_only, masked)
    wrong = both.filter((true & (~announced | differs)) | (~true & announced)).join(causes, on="alert_id", how="left")
    chosen = [pl.coalesce(name, f"{name}_last").alias(name) for name in [*_IDENTITY[1:], *CONTENT]]
    return wrong.select(
        "alert_id",
        (pl.col("revision_last").fill_null(0) + 1).alias("revision"),
        pl.when(true).then(pl.lit("alert")).otherwise(pl.lit("retraction")).alias("kind"),
        pl.coalesce("cause", "cause_last", pl.lit(Cause.UNEXPLAINED.value)).alias("cause"),
        *chosen,
        "overflow",
    ).sort("event_time", "alert_id")


def with_overflow(corrections: pl.DataFrame, most: int | None) -> pl.DataFrame:
    """The corrections with the mark of those that announce an alert for the first time, beyond the cap (S10.6).

    Others have the mark that the alert had. most: new alerts of a rule in an hour before further ones are marked.
    """
    if most is None:
        return corrections
    marks = HourlyCap(most).mark(corrections.to_arrow(compat_level=pl.CompatLevel.oldest()))
    new = pl.Series(marks) & (pl.col("revision") == 1)
    return corrections.with_columns(overflow=pl.when(new).then(pl.lit(value=True)).otherwise("overflow"))


def canonical(rows: pl.DataFrame) -> pl.DataFrame:
    """The same with group and measures in one text for equal values: who wrote them does not matter."""
    return rows.with_columns(pl.col(name).map_elements(rewritten, pl.String) for name in ("group", "measures"))
