"""Reads the lake with Polars, because Spark takes seconds for any query.

A column that a table, or an old file of it, does not have yet is read as NULL.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from deltalake import DeltaTable

from nightjar.lake import delta
from nightjar.lake.config import LakeError
from nightjar.lake.tables import Part, Table
from nightjar.rules.unions import EVENT_ID, STREAM, STREAM_NUMBER, members_event_id, source_of
from nightjar.storage.paths import AnyPath, options_of


def scan(root: AnyPath, table: Table, at: delta.Version | None = None) -> pl.LazyFrame:
    """The table's rows in the version `at` (None: the newest).

    Raises:
        LakeError: the table does not exist.
    """
    if not delta.exists(root, table):
        raise LakeError(
            "the table does not exist yet", where=delta.folder(root, table), remedy="Run `nightjar archive`"
        )
    if table.parts:
        parts = delta.parts_of(table, at)
        return pl.concat(_as_union(scan(root, part.table, version), table, part) for part, version in parts)
    assert not isinstance(at, tuple)  # noqa: S101  of one table
    return of(delta.opened(root, table, at), root, table)


def of(held: DeltaTable, root: AnyPath, table: Table) -> pl.LazyFrame:
    """The rows of a table that is open."""
    found = pl.scan_delta(held, storage_options=options_of(root))
    known = found.collect_schema()
    lacking = {name: kind for name, kind in columns(table).items() if name not in known}
    return found.with_columns(pl.lit(None, kind).alias(name) for name, kind in lacking.items())


def rows(root: AnyPath, table: Table) -> pl.LazyFrame:
    """The table's rows in its newest version; none where there is no table yet."""
    return scan(root, table) if delta.exists(root, table) else pl.LazyFrame(schema=columns(table))


def scan_files(table: Table, files: Collection[delta.File]) -> pl.LazyFrame:
    """The rows of some of the table's files, without the columns that it is partitioned by."""
    inside = {name: kind for name, kind in columns(table).items() if name not in table.partitioned_by}
    if table.parts and files:
        of_parts: dict[int, list[delta.File]] = {}
        for file in files:
            of_parts.setdefault(file.part, []).append(file)
        parts = ((table.parts[number], own) for number, own in sorted(of_parts.items()))
        return pl.concat(_as_union(scan_files(part.table, own), table, part, inside) for part, own in parts)
    paths = [file.path for file in files]
    if not paths:
        return pl.LazyFrame(schema=inside)
    (access,) = {file.access for file in files}
    options = None if access is None else access.client_options()
    return pl.scan_parquet(
        paths, schema=inside, missing_columns="insert", extra_columns="ignore", storage_options=options
    )


def _as_union(records: pl.LazyFrame, union: Table, part: Part, wanted: Collection[str] | None = None) -> pl.LazyFrame:
    """A part's rows as those of the union (rules/unions.py), with all columns or those that are wanted."""
    member, every = part.member, columns(union)
    fields = member.stream.fields
    made: dict[str, pl.Expr] = {
        STREAM: pl.lit(member.alias),
        STREAM_NUMBER: pl.lit(member.number, pl.Int64),
        EVENT_ID: pl.concat_str(pl.lit(members_event_id(member, "")), member.stream.event_id),
        "partition": pl.col("partition") + pl.lit(member.first_partition, pl.Int32),
    }
    for name, kind in every.items():
        if name not in made:
            source = source_of(member, name)
            beside = name not in fields and name in part.table.columns
            made[name] = pl.col(source) if source else pl.col(name) if beside else pl.lit(None, kind)
    return records.select(made[name].alias(name) for name in every if wanted is None or name in wanted)


def file_rows(file: delta.File) -> pl.LazyFrame:
    """The rows of a Parquet file as they are."""
    options = None if file.access is None else file.access.client_options()
    return pl.scan_parquet(file.path, storage_options=options)


def parquet(place: AnyPath) -> pl.LazyFrame:
    """The rows of a Parquet file, or of all that a pattern as the last part of the place matches."""
    return pl.scan_parquet(str(place), storage_options=options_of(place))


def columns(table: Table) -> pl.Schema:
    """The table's columns in Polars' types."""
    return pl.DataFrame(table.arrow.empty_table()).schema
