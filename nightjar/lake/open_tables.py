"""Delta tables that stay open, for a process that reads a lake again and again.

How it works: to see whether the log has a commit after the version that is open takes no time, to open a table up to a
tenth of a second. An open table is never changed: somebody else may be reading it. Once a minute each is opened anew,
so that nobody looks at a lake for long that another one has replaced.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from nightjar.lake import delta, scanning
from nightjar.lake.tables import Table
from nightjar.storage.paths import AnyPath

_SECONDS = 60.0
# The log's times are truncated to milliseconds.
_STEP = timedelta(milliseconds=1)


class OpenTables:
    """Those of a lake. Its methods may be called by several threads."""

    def __init__(self, root: AnyPath) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[DeltaTable, float]] = {}
        self._logs: dict[str, tuple[DeltaTable, int, pl.DataFrame]] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """All that this thread reads of the lake inside the block is of the tables that are open."""
        with delta.opened_by(lambda root, table: self._newest(table) if root == self._root else None):
            yield

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
        files, bound = self._log(table, found), f"max.{instant}"
        if bound in files.columns and not files.get_column(bound).null_count():
            known: datetime | None = files.get_column(bound).max()  # type: ignore[assignment]  # a timestamp's
        else:
            known = scanning.of(found, self._root, table).select(pl.col(instant).max()).collect().item()
        return known

    def files_on(self, table: Table, instant: str, first: date, last: date) -> dict[date, frozenset[str]]:
        """Of each of these days (UTC, both included) the files that may have rows whose `instant`, a timestamp column,
        is on it, by the table's log. Days without any are left out."""
        found = self._newest(table)
        if found is None or not (files := self._log(table, found)).height:
            return {}
        begin, end = (datetime.combine(day, datetime.min.time(), UTC) for day in (first, last + timedelta(days=1)))
        known = [name if name in files.columns else None for name in (f"min.{instant}", f"max.{instant}")]
        low, high = (pl.lit(None, pl.Datetime("us", "UTC")) if name is None else pl.col(name) for name in known)
        bounds = files.select("path", low.fill_null(begin).alias("low"), high.fill_null(end).alias("high"))
        within = bounds.filter(pl.col("low") < end, pl.col("high") + _STEP >= begin)
        of_days: dict[date, set[str]] = defaultdict(set)
        for path, least, most in within.iter_rows():
            day, until = max(least, begin).date(), min(most + _STEP, end - _STEP).date()
            while day <= until:
                of_days[day].add(path)
                day += timedelta(days=1)
        return {day: frozenset(paths) for day, paths in of_days.items()}

    def files_of(self, table: Table) -> dict[date, frozenset[str]]:
        """The files of each date that the table is partitioned by."""
        found, (column,) = self._newest(table), table.partitioned_by
        if found is None or not (files := self._log(table, found)).height:
            return {}
        paths = files.group_by(pl.col(f"partition.{column}")).agg("path")
        return {day: frozenset(of_day) for day, of_day in paths.iter_rows()}

    def _log(self, table: Table, found: DeltaTable) -> pl.DataFrame:
        """A row for each file of an open table, with what the log says of it."""
        version = found.version()
        with self._lock:
            known = self._logs.get(table.name)
        if known is None or known[0] is not found or known[1] != version:
            known = found, version, pl.DataFrame(pa.table(found.get_add_actions(flatten=True)))
            with self._lock:
                self._logs[table.name] = known
        return known[2]

    def _newest(self, table: Table) -> DeltaTable | None:
        with self._lock:
            held, since = self._opened.get(table.name, (None, 0.0))
            if held is not None and time.monotonic() < since + _SECONDS and not self._has_newer(table, held):
                return held
            if not delta.has_log(self._root, table):
                return None
            made = delta.open_anew(self._root, table)
            self._opened[table.name] = made, time.monotonic()
            return made

    def _has_newer(self, table: Table, held: DeltaTable) -> bool:
        return (self._root / table.name / "_delta_log" / f"{held.version() + 1:020}.json").exists()
