"""Creates, reads and writes Delta tables; appends and replacements are idempotent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake

from nightjar.lake.config import LakeError
from nightjar.lake.tables import Part, Table
from nightjar.storage.access import Access
from nightjar.storage.paths import AnyPath, access_of, local_copy, names_in, options_of, remove_tree, spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Files of a Delta log: commits (also compacted), checkpoints, and the pointer to the last checkpoint.
_COMMITTED = re.compile(r"_last_checkpoint|[0-9]{20}\..*(json|parquet)", re.ASCII)
# A partial commit of a killed process.
_UNCOMMITTED = re.compile(r"_commit_[0-9a-f-]+\.json\.tmp.*", re.ASCII)


def folder(root: AnyPath, table: Table) -> str:
    """The folder of a table."""
    return str(root / table.name)


# Of a union's events: that of each part.
Version = int | tuple[int, ...]


def parts_of(table: Table, at: Version | None) -> Iterator[tuple[Part, Any]]:
    """The parts of a union's events, with the version of each (None: the newest)."""
    versions = at if isinstance(at, tuple) else [None] * len(table.parts)
    return zip(table.parts, versions, strict=True)


# Of a lake's table its newest version; None if there is no such table.
Opener = Callable[[AnyPath, Table], DeltaTable | None]
_OPENER: ContextVar[Opener | None] = ContextVar("opener", default=None)


@contextmanager
def opened_by(opener: Opener) -> Iterator[None]:
    """What this thread reads inside the block are the tables that `opener` has open."""
    before = _OPENER.set(opener)
    try:
        yield
    finally:
        _OPENER.reset(before)


def exists(root: AnyPath, table: Table) -> bool:
    """Whether the table's log has a commit or a checkpoint; a crash during the table's creation leaves neither."""
    if table.parts:
        return all(exists(root, part.table) for part in table.parts)
    opener = _OPENER.get()
    return has_log(root, table) if opener is None else opener(root, table) is not None


def has_log(root: AnyPath, table: Table) -> bool:
    """The same of a table that is no union, whether or not somebody has it open."""
    return any(_COMMITTED.fullmatch(name) for name in names_in(root / table.name / "_delta_log"))


def opened(root: AnyPath, table: Table, at: int | None = None) -> DeltaTable:
    """The table in the version `at` (None: the newest)."""
    opener = _OPENER.get()
    held = None if opener is None else opener(root, table)
    if held is not None and at in (None, held.version()):
        return held
    return open_anew(root, table, at)


def open_anew(root: AnyPath, table: Table, at: int | None = None) -> DeltaTable:
    """The same, also where somebody has it open: theirs must not change."""
    return DeltaTable(folder(root, table), version=at, storage_options=options_of(root))


def make(root: AnyPath, table: Table) -> None:
    """Create the table if it does not exist, else add missing columns. Never removes data.

    Not with Spark, which takes half a second per table.

    Raises:
        LakeError: there is no table, but its folder has files.
    """
    if exists(root, table):
        _add_columns(opened(root, table), table)
        return
    _remove_unfinished(root / table.name)
    DeltaTable.create(
        folder(root, table),
        table.arrow,
        mode="ignore",
        partition_by=list(table.partitioned_by),
        storage_options=options_of(root),
    )


def _add_columns(made: DeltaTable, table: Table) -> None:
    """Add missing columns, of a field declared later or of a newer release. Old rows have NULL in them."""
    held = {field.name for field in made.schema().fields}
    if lacking := [Field.from_arrow(field) for field in table.arrow if field.name not in held]:
        made.alter.add_columns(lacking)


def _remove_unfinished(place: AnyPath) -> None:
    """Remove what a crash before the first commit leaves: empty folders and hidden temporary files.

    This is necessary because Delta rejects a log without a commit.
    """
    files = (file for file in place.rglob("*") if not file.is_dir() and not file.name.startswith("."))
    kept = sorted(file for file in files if not _UNCOMMITTED.fullmatch(file.name))
    if kept:
        example = str(kept[0]).removeprefix(f"{place}/")
        raise LakeError(
            f"the folder has files, such as {example}, but its _delta_log has no commit and no checkpoint",
            where=str(place),
            remedy="Restore _delta_log from a backup; if the data is not needed, move the folder away",
        )
    remove_tree(place)


def delete_unused(held: DeltaTable, unused: timedelta) -> list[str]:
    """Delete files that no version has needed for so long, and those of killed writes that are so old; their names.

    A full vacuum: a file that the log names as removed counts from then, one that it does not name from when it was
    written. Checksums that Spark writes next to its files are among the latter; merged files have none anyway.
    """
    hours = math.ceil(unused / timedelta(hours=1))
    return held.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)


def version(root: AnyPath, table: Table) -> Any:
    """The table's newest version (Version). Not with Spark, which would run a job to find it."""
    if table.parts:
        return tuple(version(root, part.table) for part in table.parts)
    return opened(root, table).version()


def schema(root: AnyPath, table: Table, at: int | None = None) -> pa.Schema:
    """The table's columns in the version `at` (None: the newest); a newer declaration or release may have more."""
    return pa.schema(opened(root, table, at).schema().to_arrow())


@dataclass(frozen=True)
class File:
    """A file of a table and its number of rows. access: to the object store that it is in, if it is in one; part: of a
    union's events the number of the part that has it."""

    path: str
    rows: int
    access: Access | None = None
    part: int = 0


def _of_parts(table: Table, at: Version | None, find: Callable[[Part, Any], list[File]]) -> list[File]:
    """The files of a union's parts. find: those of one in a version."""
    found = enumerate(parts_of(table, at))
    return [changed(file, part=number) for number, (part, version) in found for file in find(part, version)]


# The log's times are truncated to milliseconds (µs).
_STATISTICS_STEP = 1000


def files_within(
    root: AnyPath,
    table: Table,
    at: Version,
    *,
    instant: str,
    spans: Sequence[tuple[int, int]],
    arrived: date | None = None,
) -> list[File]:
    """The files of the version `at` that may have rows whose `instant` (a timestamp column) is in one of the spans.

    spans: µs, both ends included. Files are selected by their minimum and maximum in the table's log; a file without
    these is always selected. arrived: files of earlier arrival dates are omitted.
    """
    if table.parts:
        return _of_parts(
            table,
            at,
            lambda part, of: files_within(
                root, part.table, of, instant=part.column(instant), spans=spans, arrived=arrived
            ),
        )
    assert not isinstance(at, tuple)  # noqa: S101  of one table
    place = folder(root, table)
    found = _log(root, table, at)
    if not found.height:
        return []
    least, greatest = (_microseconds(found, f"{bound}.{instant}") for bound in ("min", "max"))
    near = ((least <= hi) & (greatest + _STATISTICS_STEP > lo) for lo, hi in spans)
    wanted = pl.any_horizontal(pl.lit(value=False), *near).fill_null(value=True)
    if arrived is not None:
        wanted &= pl.col("partition.arrival_date") >= arrived
    rows = found.filter(wanted).sort("path").select("path", pl.col("num_records").fill_null(0)).iter_rows()
    return [File(f"{place}/{unquote(path)}", count, access_of(root)) for path, count in rows]


def files_of(
    root: AnyPath, table: Table, at: Version, column: str, dates: Sequence[tuple[date, date]] | None
) -> list[File]:
    """The files of the version `at` in the partitions of `column` within some ranges of dates (both ends included);
    dates: None: all files."""
    if table.parts:
        return _of_parts(table, at, lambda part, of: files_of(root, part.table, of, column, dates))
    assert not isinstance(at, tuple)  # noqa: S101  of one table
    place = folder(root, table)
    found = _log(root, table, at)
    if not found.height:
        return []
    if dates is not None:
        found = found.filter(
            pl.any_horizontal(pl.col(f"partition.{column}").is_between(first, last) for first, last in dates)
        )
    rows = found.sort("path").select("path", pl.col("num_records").fill_null(0)).iter_rows()
    return [File(f"{place}/{unquote(path)}", count, access_of(root)) for path, count in rows]


def sizes(held: DeltaTable) -> list[int]:
    """The size (bytes) of each file of this version, by the table's log."""
    return [int(size) for size in held.get_add_actions(flatten=True).column("size_bytes").to_pylist()]


def spans_of_files(root: AnyPath, table: Table, instant: str) -> list[tuple[File, int, int]]:
    """The files of the newest version with the minimum and maximum (µs) of a timestamp column, as the log has them."""
    place = folder(root, table)
    found = _log(root, table)
    if not found.height:
        return []
    bounds = [_microseconds(found, f"{bound}.{instant}").alias(bound) for bound in ("min", "max")]
    rows = found.select("path", pl.col("num_records").fill_null(0), *bounds).drop_nulls().iter_rows()
    return [(File(f"{place}/{unquote(path)}", count, access_of(root)), low, high) for path, count, low, high in rows]


def _log(root: AnyPath, table: Table, at: int | None = None) -> pl.DataFrame:
    """A row for each file of the version `at` (None: the newest), with what the log says of it."""
    return pl.DataFrame(pa.table(opened(root, table, at).get_add_actions(flatten=True)))


def _microseconds(log: pl.DataFrame, name: str) -> pl.Expr:
    return pl.col(name).dt.epoch("us") if name in log.columns else pl.lit(None, pl.Int64)


def spans_by_day(root: AnyPath, table: Table, column: str) -> dict[date, tuple[int, int] | None]:
    """The arrival dates of the newest version's rows, with the minimum and maximum (µs) of a timestamp column on each.

    Taken from the table's log: None if it has no values of the column for the date.
    """
    if table.parts:
        spans: dict[date, tuple[int, int] | None] = {}
        for part in table.parts:
            for day, span in spans_by_day(root, part.table, part.column(column)).items():
                other = spans.get(day)
                spans[day] = span if other is None or span is None else (min(other[0], span[0]), max(other[1], span[1]))
        return spans
    found = _log(root, table)
    if not found.height:
        return {}
    least, greatest = (_microseconds(found, f"{bound}.{column}") for bound in ("min", "max"))
    days = found.group_by(pl.col("partition.arrival_date")).agg(low=least.min(), high=greatest.max())
    return {day: None if low is None or high is None else (low, high) for day, low, high in days.iter_rows()}


def counts_by_day(root: AnyPath, table: Table, at: int, columns: Sequence[str], days: Sequence[date]) -> pl.DataFrame:
    """What the log says of the rows of some arrival dates in the version `at`: `arrival_date`, `rows`, and for each
    column how many of them are NULL (NULL if the log does not say)."""
    found = _log(root, table, at)
    if not found.height:
        return pl.DataFrame(schema={"arrival_date": pl.Date, **dict.fromkeys(("rows", *columns), pl.Int64)})
    nulls = {
        name: pl.col(f"null_count.{name}") if f"null_count.{name}" in found.columns else pl.lit(None, pl.Int64)
        for name in columns
    }
    counted = {name: pl.when(of.is_null().any()).then(None).otherwise(of.sum()) for name, of in nulls.items()}
    return (
        found.filter(pl.col("partition.arrival_date").is_in(days))
        .group_by(arrival_date=pl.col("partition.arrival_date"))
        .agg(rows=pl.col("num_records").sum(), **counted)
        .sort("arrival_date")
    )


def read(session: SparkSession, root: AnyPath, table: Table, at: int | None = None) -> DataFrame:
    """The table's rows in the version `at` (None: the newest). Columns that it does not have yet are NULL.

    Raises:
        LakeError: the table does not exist.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    if not exists(root, table):
        raise LakeError(
            "the table does not exist yet", where=folder(root, table), remedy="Run `nightjar archive` to create it"
        )
    reader = session.read.format("delta")
    found = (reader if at is None else reader.option("versionAsOf", at)).load(spark_name(root / table.name))
    lacking = {name: kind for name, kind in table.columns.items() if name not in found.columns}
    return found.withColumns({name: F.lit(None).cast(kind) for name, kind in lacking.items()})


def append(rows: DataFrame, root: AnyPath, table: Table, writer: str, number: int) -> None:
    """Append rows, unless this writer has already appended some under this or a higher number."""
    options = {"txnAppId": writer, "txnVersion": str(number)}
    rows.select(*table.columns).write.format("delta").mode("append").options(**options).save(
        spark_name(root / table.name)
    )


def add(root: AnyPath, table: Table, rows: pa.Table, writer: str, number: int) -> None:
    """Like `append`, for rows in this process. Not with Spark, which takes seconds to plan and commit."""
    made = opened(root, table)
    added = made.transaction_version(writer)
    if added is not None and added >= number:
        return
    properties = CommitProperties(app_transactions=[Transaction(writer, number)])
    write_deltalake(made, rows.select(list(table.columns)), mode="append", commit_properties=properties)


def replace(root: AnyPath, table: Table, rows: Sequence[AnyPath], condition: str | None) -> None:
    """Replace the rows that meet a condition on partition columns (None: all) with the rows of Parquet files, in one
    commit.

    All new rows must meet the condition. They are never all in memory at once.
    """
    names = list(table.columns)

    def batches() -> Iterator[pa.RecordBatch]:
        for path in rows:
            with local_copy(path) as local, pq.ParquetFile(local) as file:
                yield from (batch.select(names).cast(table.arrow) for batch in file.iter_batches())

    reader = pa.RecordBatchReader.from_batches(table.arrow, batches())
    write_deltalake(opened(root, table), reader, mode="overwrite", predicate=condition)


def merge(root: AnyPath, table: Table, rows: pa.Table, key: Sequence[str]) -> None:
    """Upsert rows by key, in one commit."""
    made = opened(root, table)
    same = " AND ".join(f"known.{name} = new.{name}" for name in key)
    merger = made.merge(rows, same, source_alias="new", target_alias="known")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def newest_files(root: AnyPath, table: Table, rows: int) -> list[File]:
    """The files of the newest version that have arrived last, as many as have that number of rows, and no more.

    The table is one by arrival date; files of a date are in the order of their latest arrival where the log has that.
    """
    if table.parts:
        return _of_parts(table, None, lambda part, _: newest_files(root, part.table, rows))
    place = folder(root, table)
    found = _log(root, table)
    if not found.height:
        return []
    counted = found.select(
        "path",
        "partition.arrival_date",
        pl.col("num_records").fill_null(0),
        latest=_microseconds(found, "max.arrival_time"),
    ).sort("partition.arrival_date", "latest", "path", descending=True, nulls_last=True)
    before = pl.col("num_records").cum_sum() - pl.col("num_records")
    chosen = counted.filter(before < rows).select("path", "num_records").iter_rows()
    return [File(f"{place}/{unquote(path)}", count, access_of(root)) for path, count in chosen]
