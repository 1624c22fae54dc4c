"""The snoozes that the lake has."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from nightjar.contracts.snoozes import Snoozes
from nightjar.lake import delta, scanning
from nightjar.lake.tables import SNOOZES
from nightjar.storage.paths import AnyPath


def archived_snoozes(root: AnyPath, until: datetime | None = None) -> Snoozes:
    """The snoozes as the records say that were written by then, by their authors' clocks (None: all records)."""
    if not delta.exists(root, SNOOZES):
        return Snoozes()
    rows = scanning.rows(root, SNOOZES).filter(pl.col("snooze_id").is_not_null())
    if until is not None:
        rows = rows.filter(pl.col("set_at") <= until)
    return Snoozes(rows.sort("arrival_time", "partition", "offset").collect().iter_rows(named=True))
