"""Delta tables by folder: made when first needed, appended to and replaced so that doing it twice does it once."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field

from lake.config import LakeError
from lake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a Delta log may consist of: commits (also compacted), checkpoints, and the pointer to the last checkpoint.
_COMMITTED = re.compile(r"_last_checkpoint|[0-9]{20}\..*(json|parquet)", re.ASCII)


def folder(root: Path, table: Table) -> str:
    """Where a table is."""
    return str(root / table.name)


def exists(root: Path, table: Table) -> bool:
    """Whether the table's log holds a commit or a checkpoint; a crash while the table was created leaves neither."""
    log = root / table.name / "_delta_log"
    return log.is_dir() and any(_COMMITTED.fullmatch(file.name) for file in log.iterdir())


def make(session: SparkSession, root: Path, table: Table) -> None:
    """Create the table where there is none; add the columns that it lacks where there is. Never removes data.

    Raises:
        LakeError: there is no table, but its folder holds files.
    """
    from delta.tables import DeltaTable as SparkDeltaTable

    if exists(root, table):
        _add_columns(DeltaTable(folder(root, table)), table)
        return
    _remove_unfinished(root / table.name)
    builder = SparkDeltaTable.createIfNotExists(session).location(folder(root, table)).addColumns(table.schema)
    builder.partitionedBy(*table.partitioned_by).execute()


def _add_columns(made: DeltaTable, table: Table) -> None:
    """Add the columns that the table lacks: of a field declared later, or of a newer release. Old rows have NULL."""
    held = {field.name for field in made.schema().fields}
    if lacking := [Field.from_arrow(field) for field in table.arrow if field.name not in held]:
        made.alter.add_columns(lacking)


def _remove_unfinished(place: Path) -> None:
    """Remove what a crash before the first commit leaves: empty folders and hidden temporary files.

    Delta refuses a log without a commit, so it cannot stay.
    """
    kept = sorted(file for file in place.rglob("*") if not file.is_dir() and not file.name.startswith("."))
    if kept:
        raise LakeError(
            f"the folder holds files, such as {kept[0].relative_to(place)}, but its _delta_log has no commit and no "
            "checkpoint",
            where=str(place),
            remedy="Restore _delta_log from a backup; if the data is not needed, move the folder away",
        )
    if place.is_dir():
        shutil.rmtree(place)


def version(root: Path, table: Table) -> int:
    """The table's newest version. Not by Spark: it takes a job for what is in a file's name."""
    return DeltaTable(folder(root, table)).version()


def schema(root: Path, table: Table) -> pa.Schema:
    """The columns that the table has, which a newer declaration or release may have more of."""
    return pa.schema(DeltaTable(folder(root, table)).schema().to_arrow())


@dataclass(frozen=True)
class File:
    """A file of a table, and how many rows it has."""

    path: str
    rows: int


def files_since(root: Path, table: Table, day: date, at: int) -> list[File]:
    """The files of the version `at` with rows of this arrival date or later, as the table's log has them."""
    place = folder(root, table)
    found = pa.table(DeltaTable(place, version=at).get_add_actions(flatten=True))
    if not found.num_rows:
        return []
    wanted = found.filter(pc.greater_equal(found.column("partition.arrival_date"), pa.scalar(day)))
    columns = (wanted.column(name).to_pylist() for name in ("path", "num_records"))
    return [File(f"{place}/{unquote(path)}", rows or 0) for path, rows in sorted(zip(*columns, strict=True))]


def read(session: SparkSession, root: Path, table: Table, at: int | None = None) -> DataFrame:
    """The table's rows, of the version `at` (None: the newest). A column it does not have yet is NULL.

    Raises:
        LakeError: there is no such table.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    if not exists(root, table):
        raise LakeError(
            "the lake has no such table yet", where=folder(root, table), remedy="Run `nightjar archive` to fill it"
        )
    reader = session.read.format("delta")
    found = (reader if at is None else reader.option("versionAsOf", at)).load(folder(root, table))
    lacking = {name: kind for name, kind in table.columns.items() if name not in found.columns}
    return found.withColumns({name: F.lit(None).cast(kind) for name, kind in lacking.items()})


def append(rows: DataFrame, root: Path, table: Table, writer: str, number: int) -> None:
    """Add rows. What a writer has added under a number, it adds only once."""
    options = {"txnAppId": writer, "txnVersion": str(number)}
    rows.select(*table.columns).write.format("delta").mode("append").options(**options).save(folder(root, table))


def replace(rows: DataFrame, root: Path, table: Table, condition: str) -> None:
    """Put `rows`, which all meet the condition over partition columns, in the place of those that do, in one commit."""
    writer = rows.select(*table.columns).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", condition).save(folder(root, table))
