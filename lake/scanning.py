"""Reads the lake with Polars, because Spark takes seconds for any query.

A column that a table, or an old file of it, does not have yet is read as NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from lake import delta
from lake.config import LakeError
from lake.tables import Table


def scan(root: Path, table: Table, at: int | None = None) -> pl.LazyFrame:
    """The table's rows in the version `at` (None: the newest).

    Raises:
        LakeError: the table does not exist.
    """
    if not delta.exists(root, table):
        raise LakeError(
            "the table does not exist yet", where=delta.folder(root, table), remedy="Run `nightjar archive`"
        )
    found = pl.scan_delta(delta.folder(root, table), version=at)
    held = found.collect_schema()
    lacking = {name: kind for name, kind in columns(table).items() if name not in held}
    return found.with_columns(pl.lit(None, kind).alias(name) for name, kind in lacking.items())


def scan_files(table: Table, files: Iterable[delta.File]) -> pl.LazyFrame:
    """The rows of some of the table's files, without the columns that it is partitioned by."""
    inside = {name: kind for name, kind in columns(table).items() if name not in table.partitioned_by}
    paths = [file.path for file in files]
    if not paths:
        return pl.LazyFrame(schema=inside)
    return pl.scan_parquet(paths, schema=inside, missing_columns="insert", extra_columns="ignore")


def columns(table: Table) -> pl.Schema:
    """The table's columns in Polars' types."""
    return pl.DataFrame(table.arrow.empty_table()).schema
