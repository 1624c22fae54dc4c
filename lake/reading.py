"""Reading a few rows of the lake without Spark, which takes seconds to say anything."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from lake import delta
from lake.config import LakeError
from lake.tables import Table


def scan(root: Path, table: Table, at: int | None = None) -> pl.LazyFrame:
    """The table's rows, of the version `at` (None: the newest).

    Raises:
        LakeError: there is no such table.
    """
    if not delta.exists(root, table):
        raise LakeError(
            "the lake has no such table yet", where=delta.folder(root, table), remedy="Run `nightjar archive`"
        )
    return pl.scan_delta(delta.folder(root, table), version=at)
