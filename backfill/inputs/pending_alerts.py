"""Alerts that earlier runs left to the stream: a run judges them again, whether or not their groups had events."""

from __future__ import annotations

import polars as pl

from nightjar.backfill.config import RunRequest
from nightjar.backfill.inputs.scope import group_by_name
from nightjar.backfill.staging import PENDING, stage
from nightjar.lake.scanning import parquet
from nightjar.lake.tables import RECONCILIATION
from nightjar.rules.versions import RuleSet
from nightjar.storage.paths import AnyPath

_KINDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "bigint": pl.Int64,
    "boolean": pl.Boolean,
    "date": pl.Date,
    "timestamp": pl.Datetime("us", "UTC"),
    "string": pl.String,
}
_SCHEMA = {name: _KINDS[kind] for name, kind in RECONCILIATION.columns.items()} | {"group_by": pl.String}
_VERSION = ["rule_id", "rule_version", "group_by"]


def stage_pending(folder: AnyPath, pending: pl.DataFrame | None, ruleset: RuleSet, request: RunRequest) -> pl.DataFrame:
    """Stage and return those of the pending alerts that the run judges: of its rules and before its end, with group_by.

    pending: rows of the table `reconciliation`; None: there are none.
    """
    rows = pl.DataFrame(schema=_SCHEMA)
    if pending is not None and not request.groups:
        named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in ruleset.versions]
        versions = pl.DataFrame(named, {name: _SCHEMA[name] for name in _VERSION}, orient="row")
        before = pl.col("event_time").dt.epoch("us") < request.end
        rows = pending.filter(before).join(versions, on=_VERSION[:2]).select(rows.columns).cast(pl.Schema(_SCHEMA))
    stage(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), folder / PENDING / "part.parquet")
    return rows


def staged_pending(folder: AnyPath) -> pl.DataFrame:
    """The alerts that `stage_pending` has staged."""
    return parquet(folder / PENDING / "*.parquet").collect()
