"""Erases rows from Delta tables for good: from the newest version, from older ones, and from the tables' logs.

How it works: partitions with rows to change are read file by file, changed, and replaced in one commit each. Then every
file that the newest version does not need is deleted, and so are the log's entries before a new checkpoint, which hold
the minimum and maximum of each column of deleted files. It may be stopped and repeated at any time.

What it does not do: wait for readers. Whoever reads an older version fails afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from nightjar.lake import delta
from nightjar.lake.scanning import columns, scan, scan_files
from nightjar.lake.tables import COORDINATES, Table
from nightjar.rules.events import ERASED
from nightjar.storage.paths import AnyPath, access_of, remove_tree, whole

# Where changed rows are written before they replace a partition's.
_SCRATCH = "_forgetting"

# A table's rows to whether each is to be erased, and to the same rows as they are to be kept, in the same order.
Choice = Callable[[pl.DataFrame], pl.Series]
Change = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Erasure:
    """What is done to a table's rows. erase: those to erase; mask: the others as they are kept (None: unchanged).

    needed: the columns that decide both. An erased row of a table from Kafka keeps its coordinates; others are removed.
    """

    table: Table
    erase: Choice
    mask: Change | None
    needed: tuple[str, ...]

    @property
    def keeps_coordinates(self) -> bool:
        """Whether the table is one of Kafka records."""
        return "offset" in self.table.columns


@dataclass(frozen=True)
class Erased:
    """Rows of a table: erased, and kept with values masked."""

    table: str
    rows: int
    masked: int


def erase(root: AnyPath, erasure: Erasure, *, dry_run: bool) -> Erased:
    """Erase rows of one table; with dry_run only count them. Older versions keep them until `purge`."""
    table = erasure.table
    if not delta.exists(root, table):
        return Erased(table.name, 0, 0)
    by = table.partitioned_by
    erased = masked = 0
    for values in scan(root, table).select(by).unique().collect().iter_rows() if by else [()]:
        where = [pl.col(name) == value for name, value in zip(by, values, strict=True)]
        found, hidden = _counts(erasure, scan(root, table).filter(*where).select(*erasure.needed).collect())
        erased, masked = erased + found, masked + hidden
        if (found or hidden) and not dry_run:
            _rewrite(root, erasure, dict(zip(by, values, strict=True)))
    return Erased(table.name, erased, masked)


def _counts(erasure: Erasure, rows: pl.DataFrame) -> tuple[int, int]:
    gone = erasure.erase(rows)
    if erasure.mask is None:
        return int(gone.sum()), 0
    kept = rows.filter(~gone)
    masked = erasure.mask(kept)
    changed = kept.select(pl.any_horizontal(pl.col(name).ne_missing(masked[name]) for name in kept.columns))
    return int(gone.sum()), int(changed.to_series().sum())


def _rewrite(root: AnyPath, erasure: Erasure, partition: dict[str, object]) -> None:
    """Replace a partition's rows (all rows, where there are no partitions) in one commit, a file at a time."""
    table, scratch = erasure.table, root / _SCRATCH
    remove_tree(scratch)
    version = delta.version(root, table)
    files = _files(root, table, version, partition)
    written: list[AnyPath] = []
    for number, file in enumerate(files):
        fixed = [pl.lit(value).alias(name) for name, value in partition.items()]
        rows = scan_files(table, [file]).with_columns(fixed).select(*table.columns).collect()
        written.append(scratch / f"{number}.parquet")
        with whole(written[-1]) as partial:
            _changed(erasure, rows).cast(columns(table)).write_parquet(partial)
    condition = " AND ".join(f"{name} = '{value}'" for name, value in partition.items()) or None
    delta.replace(root, table, written, condition)
    remove_tree(scratch)


def _files(root: AnyPath, table: Table, version: int, partition: dict[str, object]) -> list[delta.File]:
    if not partition:
        return [delta.File(path, 0, access_of(root)) for path in delta.opened(root, table, version).file_uris()]
    ((name, value),) = partition.items()
    return delta.files_of(root, table, version, name, [(value, value)])  # type: ignore[list-item]  # tables are partitioned by date


def _changed(erasure: Erasure, rows: pl.DataFrame) -> pl.DataFrame:
    gone = erasure.erase(rows)
    kept = rows if erasure.mask is None else erasure.mask(rows)
    if not erasure.keeps_coordinates:
        return kept.filter(~gone)
    blank = {name: pl.lit(None, kind) for name, kind in columns(erasure.table).items() if name not in COORDINATES}
    blank["original"] = pl.lit(b"")
    if "rejected" in blank:
        blank |= {"rejected": pl.lit(ERASED), "detail": pl.lit("erased with the person it was about")}
    is_gone = pl.lit(gone)
    return kept.with_columns(
        pl.when(is_gone).then(value).otherwise(pl.col(name)).alias(name) for name, value in blank.items()
    )


def purge(root: AnyPath, table: Table) -> int:
    """Delete what the newest version of the table does not need, also of killed writes, and what its log says of it.

    Nobody else may write to the table meanwhile. Returns how many files of rows.

    Raises:
        OSError: one cannot be deleted.
    """
    if not delta.exists(root, table):
        return 0
    held = delta.opened(root, table)
    deleted = delta.delete_unused(held, timedelta(0))
    held = delta.opened(root, table)
    held.create_checkpoint()
    newest, log = held.version(), root / table.name / "_delta_log"
    for file in log.iterdir():
        if not _is_needed(file, newest):
            file.unlink()
    return len(deleted)


def _is_needed(file: AnyPath, newest: int) -> bool:
    """Whether a file of the log is one of its newest version; a killed commit leaves others, with minima and maxima."""
    number = file.name.partition(".")[0]
    return int(number) >= newest if number.isdigit() else file.name == "_last_checkpoint" or file.is_dir()
