"""The rows of tables, with their history, from the lake: what a night and a look at past events evaluate with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from nightjar.contracts.table_changes import ChangeReader
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import TABLES
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.types import FieldType
from nightjar.storage.paths import AnyPath


@dataclass(frozen=True)
class LakeTables:
    """Where the rows are; what tasks are given, each of which reads them once.

    version: of the lake's table, None if there is none. declared: the tables, with the type of each one's key.
    """

    root: AnyPath
    version: int | None
    declared: tuple[tuple[str, FieldType], ...]

    @classmethod
    def newest(cls, root: AnyPath, declared: Mapping[str, FieldType]) -> LakeTables | None:
        """As the lake has them now; None if no table is declared."""
        version = delta.version(root, TABLES) if declared and delta.exists(root, TABLES) else None
        return cls(root, version, tuple(declared.items())) if declared else None

    def rows(self) -> TableRows:
        """The rows."""
        return _rows(self)

    def records(self) -> list[Record]:
        """All records of the topic, in order."""
        if self.version is None:
            return []
        arrival = pl.col("arrival_time").dt.epoch("us")
        read = scan(self.root, TABLES, self.version).sort("offset").select("offset", arrival, "value").collect()
        return [Record(offset, at, value or b"") for offset, at, value in read.iter_rows()]


def rows_of(tables: LakeTables | None) -> TableRows | None:
    """The rows, where tables are declared."""
    return None if tables is None else tables.rows()


def lake_rows(root: AnyPath, stream: Stream) -> TableRows | None:
    """The newest rows of a stream's tables; None if it has none."""
    return rows_of(LakeTables.newest(root, stream.tables))


# A process evaluates for one run at a time.
@lru_cache(maxsize=1)
def _rows(tables: LakeTables) -> TableRows:
    declared = dict(tables.declared)
    rows, records = TableRows(declared), tables.records()
    rows.add(ChangeReader(declared).read(records), records[-1].offset + 1 if records else 0)
    return rows
