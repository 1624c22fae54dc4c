"""Delta tables that stay open, for a process that reads a lake again and again.

How it works: to see whether an open table has a newer version takes a millisecond, to open it and have Polars read its
schema a tenth of a second. Once a minute each is opened anew, so that nobody looks at a lake for long that another one
has replaced.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from nightjar.lake import delta, scanning
from nightjar.lake.tables import Table
from nightjar.storage.paths import AnyPath

_SECONDS = 60.0


class OpenTables:
    """Those of a lake. Its methods may be called by several threads."""

    def __init__(self, root: AnyPath) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[DeltaTable, float]] = {}

    def version(self, table: Table) -> int | None:
        """The table's newest version; None where there is no table yet."""
        found = self._newest(table)
        return None if found is None else found.version()

    def rows(self, table: Table) -> pl.LazyFrame:
        """See scanning.rows."""
        found = self._newest(table)
        return pl.LazyFrame(schema=scanning.columns(table)) if found is None else scanning.of(found, self._root, table)

    def latest(self, table: Table, instant: str) -> datetime | None:
        """The latest value of a timestamp column, to the millisecond: by the table's log, where that says it of every
        file. None where there is none."""
        found = self._newest(table)
        if found is None:
            return None
        files, bound = pl.DataFrame(pa.table(found.get_add_actions(flatten=True))), f"max.{instant}"
        if bound in files.columns and not files.get_column(bound).null_count():
            known: datetime | None = files.get_column(bound).max()  # type: ignore[assignment]  # a timestamp's
        else:
            known = scanning.of(found, self._root, table).select(pl.col(instant).max()).collect().item()
        return known

    def _newest(self, table: Table) -> DeltaTable | None:
        with self._lock:
            held, since = self._opened.get(table.name, (None, 0.0))
            if held is not None and time.monotonic() < since + _SECONDS:
                try:
                    held.update_incremental()
                except DeltaError:  # what leads from its version to the newest has been cleaned up
                    pass
                else:
                    return held
            if not delta.exists(self._root, table):
                return None
            made = delta.opened(self._root, table)
            self._opened[table.name] = made, time.monotonic()
            return made
