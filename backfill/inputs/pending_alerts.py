"""Alerts that earlier runs left to the stream: a run judges them again, whether or not their groups had events."""

from __future__ import annotations

import polars as pl

from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.scope import group_by_name
from nightjar.backfill.staging import PENDING, stage
from nightjar.lake.scanning import columns, parquet
from nightjar.lake.tables import RECONCILIATION
from nightjar.storage.paths import AnyPath

_SCHEMA = pl.Schema([*columns(RECONCILIATION).items(), ("group_by", pl.String())])
_VERSION = ["rule_id", "rule_version", "group_by"]


def stage_pending(run: RunInputs, pending: pl.DataFrame | None) -> pl.DataFrame:
    """Stage and return those of the pending alerts that the run judges: of its rules and before its end, with group_by.

    pending: rows of the table `reconciliation`; None: there are none.
    """
    rows = pl.DataFrame(schema=_SCHEMA)
    if pending is not None and not run.request.groups:
        named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in run.rules.asked_for.versions]
        versions = pl.DataFrame(named, {name: _SCHEMA[name] for name in _VERSION}, orient="row")
        before = pl.col("event_time").dt.epoch("us") < run.request.end
        rows = pending.filter(before).join(versions, on=_VERSION[:2]).select(rows.columns).cast(_SCHEMA)
    stage(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), run.folder / PENDING / "part.parquet")
    return rows


def staged_pending(folder: AnyPath) -> pl.DataFrame:
    """The alerts that `stage_pending` has staged."""
    return parquet(folder / PENDING / "*.parquet").collect()
