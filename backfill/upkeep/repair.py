"""Purpose: make a day of a damaged table whole again, so that the gate accepts it.

How it works: the day is checked as the gate checks it. Rows that occur several times, and are equal, are kept once. If
that does not suffice, the versions of the table before each commit that changed the day are searched, newest first: the
version's rows count, and of the newest version those that it does not have. The result replaces the day in one commit
only if it is whole: every critical expectation holds, every file can be read, and no record is missing that any version
has. Earlier versions stay readable until `nightjar lake
maintain` deletes files that no version has needed for `lake_file_retention`.

What it does not do: invent rows. What no version has is lost, or still in Kafka. It restores no result of nights: a run
of the day writes these again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from urllib.parse import unquote

import polars as pl
from deltalake.exceptions import DeltaError

from nightjar.backfill.config import BackfillConfig
from nightjar.expectations.suites import Expectation, events_suite
from nightjar.lake import delta
from nightjar.lake.config import LakeError
from nightjar.lake.scanning import columns, scan_files
from nightjar.lake.tables import (
    ALERTS,
    CORRECTIONS,
    LABELS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RECONCILIATION,
    RESTRICTIONS,
    RULE_STATUS,
    RULES,
    SNOOZES,
    TABLES,
    VIOLATIONS,
    Table,
    events_table,
)
from nightjar.rules.events import ERASED
from nightjar.rules.streams import recorded_streams, tables_of
from nightjar.storage.paths import access_of, remove_tree, whole

_SCRATCH = "_repair"
_COORDINATES = ("partition", "offset")


@dataclass(frozen=True)
class Repairable:
    """A table, what names one of its rows, and what must hold of each. is_archived: its rows came from Kafka, and only
    age removes them; else they are results of nights."""

    table: Table
    key: tuple[str, ...] = _COORDINATES
    expectations: tuple[Expectation, ...] = ()
    is_archived: bool = True

    @property
    def dated(self) -> str | None:
        """The column of the date that it is partitioned by, if it is."""
        return next(iter(self.table.partitioned_by), None)


def repairable(config: BackfillConfig) -> dict[str, Repairable]:
    """The tables that can be repaired, by name."""
    found = []
    for stream in recorded_streams(config.streams.values()):
        suite = events_suite(stream, events_table(stream).columns)
        rows = tuple(each for each in suite.expectations if each.severity == "critical" and each.breaking)
        found.append(Repairable(events_table(stream), expectations=rows))
    found += [Repairable(table) for table in (ALERTS, RESTRICTIONS, LATE_EVENTS, QUARANTINE, PROGRESS, LABELS, SNOOZES)]
    found += [Repairable(table) for table in (RULES, RULE_STATUS, *([TABLES] if tables_of(config.streams) else []))]
    results = ((VIOLATIONS, ("alert_id",)), (RECONCILIATION, ("alert_id",)))
    found += [Repairable(table, key, is_archived=False) for table, key in results]
    found.append(Repairable(CORRECTIONS, ("run_id", "alert_id", "revision"), is_archived=False))
    return {each.table.name: each for each in found}


@dataclass(frozen=True)
class Repair:
    """What is wrong with a day of a table (with all of it, where it has no days), and what is to be done about it."""

    table: str
    day: date | None
    version: int
    """The newest."""
    rows: int
    """Of it, those that can be read."""
    problems: tuple[str, ...] = ()
    """Sentences; none if it is whole."""
    rows_after: int | None = None
    """Once it is repaired; None if nothing is to be done or can be."""
    restored: int | None = None
    """The version that missing or changed rows come from."""
    taken: int = 0
    """How many of them."""
    refused: str = ""
    """Why it cannot be repaired."""


@dataclass(frozen=True)
class _Rows:
    """The day's rows in a version, as far as they can be read. unreadable: the other files; recorded: how many rows it
    has by the table's log."""

    rows: pl.LazyFrame
    unreadable: tuple[str, ...]
    recorded: int
    paths: frozenset[str]


@dataclass(frozen=True)
class _Judged:
    """How many rows there are, and what the gate would refuse of them."""

    height: int
    problems: tuple[str, ...]


class Repairing:
    """The repair of a day of a table; of a table without days, of all of it. Nobody else may write to it meanwhile.

    Raises:
        LakeError: there is no such table, or it has columns that writing it again would lose.
    """

    def __init__(self, config: BackfillConfig, what: Repairable, day: date | None) -> None:
        self._root, self._lake, self._what, self._day = config.lake.root, config.lake, what, day
        table = what.table
        if not delta.exists(self._root, table):
            raise LakeError("the table does not exist", where=table.name, remedy="`nightjar archive` creates it")
        self._version = delta.version(self._root, table)
        self._key = list(what.key)
        self._why_unreadable: dict[str, str] = {}
        if unknown := sorted(set(delta.schema(self._root, table).names) - set(table.columns)):
            raise LakeError(
                f"has columns that are not declared, and would be lost: {', '.join(unknown)}",
                where=table.name,
                remedy="Repair it with the declaration and the release that wrote it",
            )

    def plan(self, version: int | None = None) -> Repair:
        """What is wrong, and what is to be done. version: restore rows from this one."""
        return self._planned(version)[0]

    def apply(self, version: int | None = None) -> Repair:
        """Do what `plan` says, in one commit."""
        found, rows = self._planned(version)
        if rows is None:
            return found
        table, scratch = self._what.table, self._root / _SCRATCH
        remove_tree(scratch)
        with whole(scratch / "rows.parquet") as partial:
            rows.select(*table.columns).cast(columns(table)).sink_parquet(partial)
        self._lake.refuse_overtaken()
        condition = None if self._day is None else f"{self._what.dated} = '{self._day}'"
        delta.replace(self._root, table, [scratch / "rows.parquet"], condition)
        remove_tree(scratch)
        return found

    def _planned(self, version: int | None) -> tuple[Repair, pl.LazyFrame | None]:
        """The plan, and the rows to write."""
        if version is not None and not 0 <= version < self._version:
            what, remedy = f"has no version {version} before its newest, {self._version}", "Name an earlier version"
            raise LakeError(what, where=self._what.table.name, remedy=remedy)
        now = self._read(self._version)
        as_is, lost = self._judged(now.rows), self._lost(now)
        problems = self._problems(now, as_is, lost)
        found = Repair(self._what.table.name, self._day, self._version, as_is.height, problems)
        if not problems and version is None:
            return found, None
        kept = self._once(now.rows)
        once = self._judged(kept)
        if not (once.problems or now.unreadable or lost.height or version is not None):
            return replace(found, rows_after=once.height), kept
        if not self._what.is_archived:
            command = "nightjar backfill" + (f" --day {self._day}" if self._day else "")
            return replace(found, refused=f"nights write these rows: `{command}` does so again"), None
        least = now.recorded - (as_is.height - once.height) if now.unreadable else 0
        refused, candidates = "", self._earlier if version is None else [version]
        for candidate in candidates:
            before = self._read(candidate)
            merged = self._merged(before.rows, kept)
            judged = self._judged(merged)
            if reasons := self._lacking(before, merged, judged, lost, least):
                refused = refused or f"version {candidate} does not help: {'; '.join(reasons)}"
                continue
            taken = before.rows.join(now.rows, on=list(self._what.table.columns), how="anti", nulls_equal=True)
            count = taken.select(pl.len()).collect(engine="streaming").item()
            return replace(found, rows_after=judged.height, restored=candidate, taken=count), merged
        nor = "; nor does any before it" if len(candidates) > 1 else ""
        return replace(found, refused=f"{refused}{nor}" if refused else "no earlier version is left"), None

    @staticmethod
    def _problems(now: _Rows, as_is: _Judged, lost: pl.DataFrame) -> tuple[str, ...]:
        problems = list(as_is.problems)
        if now.unreadable:
            problems.append(f"{len(now.unreadable)} of its files cannot be read: {'; '.join(now.unreadable[:3])}")
        if lost.height:
            problems.append(f"{_rows(lost.height)} that earlier versions have {_are(lost.height)} missing")
        return tuple(problems)

    def _lacking(
        self, before: _Rows, merged: pl.LazyFrame, judged: _Judged, lost: pl.DataFrame, least: int
    ) -> list[str]:
        """Why the rows are not whole with those of an earlier version. least: how many there must be at least."""
        lacking = lost.join(merged.select(self._key).collect(), on=self._key, how="anti", nulls_equal=True).height
        lacking = max(lacking, least - judged.height)
        reasons = list(judged.problems)
        if before.unreadable:
            reasons.append(f"{len(before.unreadable)} of its files cannot be read")
        if lacking:
            reasons.append(f"{_rows(lacking)} {_are(lacking)} missing there too")
        return reasons

    def _read(self, version: int) -> _Rows:
        table = self._what.table
        dates = None if self._day is None else [(self._day, self._day)]
        files = delta.files_of(self._root, table, version, self._what.dated or "", dates)
        why = {file.path: reason for file in files if (reason := self._unreadable(file.path))}
        fixed = [] if self._day is None else [pl.lit(self._day).alias(str(self._what.dated))]
        rows = scan_files(table, [file for file in files if file.path not in why]).with_columns(fixed)
        named = tuple(f"{path.removeprefix(f'{self._root}/')}: {reason}" for path, reason in why.items())
        paths = frozenset(file.path for file in files)
        return _Rows(rows.select(*table.columns), named, sum(file.rows for file in files), paths)

    def _unreadable(self, path: str) -> str:
        """Why a file cannot be read, with all its columns; empty if it can."""
        if path not in self._why_unreadable:
            try:
                file = delta.File(path, 0, access_of(self._root))
                scan_files(self._what.table, [file]).select(pl.all().null_count()).collect(engine="streaming")
                self._why_unreadable[path] = ""
            except (OSError, pl.exceptions.PolarsError) as failure:
                self._why_unreadable[path] = str(failure).split("\n")[0][:200] or type(failure).__name__
        return self._why_unreadable[path]

    def _once(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The rows, equal ones once. Only rows whose key occurs several times are compared."""
        several = self._several(rows).select(self._key).collect(engine="streaming").lazy()
        alone = rows.join(several, on=self._key, how="anti", nulls_equal=True)
        return pl.concat([alone, rows.join(several, on=self._key, how="semi", nulls_equal=True).unique()])

    def _several(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.group_by(self._key).agg(pl.len().alias("times")).filter(pl.col("times") > 1)

    def _merged(self, before: pl.LazyFrame, now: pl.LazyFrame) -> pl.LazyFrame:
        """A version's rows, and those of the newest that it has not. What was erased since then stays so."""
        old, erased = self._once(before), now.clear()
        if "rejected" in self._what.table.columns:
            erased = now.filter(pl.col("rejected") == ERASED)
        old = old.join(erased, on=self._key, how="anti", nulls_equal=True)
        return pl.concat([old, now.join(old, on=self._key, how="anti", nulls_equal=True)])

    def _judged(self, rows: pl.LazyFrame) -> _Judged:
        expectations = self._what.expectations
        breaking = [pl.sql_expr(each.breaking).sum().alias(each.name) for each in expectations]
        height, *counts = rows.select(pl.len(), *breaking).collect(engine="streaming").row(0)
        problems = [
            f"violated by {_rows(count)}: {each.sentence}"
            for each, count in zip(expectations, counts, strict=True)
            if count
        ]
        several = self._several(rows).sort(self._key).collect(engine="streaming")
        if several.height:
            some = (
                ", ".join(f"{n} {v}" for n, v in zip(self._key, row, strict=False)) for row in several.head(3).rows()
            )
            surplus = int(several.get_column("times").sum()) - several.height
            more = "; ..." if several.height > 3 else ""
            problems.append(
                f"{_rows(surplus)} too many: several for the same {' and '.join(self._key)} ({'; '.join(some)}{more})"
            )
        return _Judged(height, tuple(problems))

    def _lost(self, now: _Rows) -> pl.DataFrame:
        """The keys of records in files that were removed and still exist, which the newest version does not have."""
        removed = self._removed - now.paths if self._what.is_archived else frozenset()
        files = [delta.File(path, 0, access_of(self._root)) for path in removed if not self._unreadable(path)]
        earlier = scan_files(self._what.table, files).select(self._key).unique()
        return earlier.join(now.rows.select(self._key), on=self._key, how="anti", nulls_equal=True).collect()

    @cached_property
    def _commits(self) -> dict[int, tuple[frozenset[str], bool]]:
        """By version, as far as the log has them: the day's files that its commit removed; whether it changed any."""
        log, found = self._root / self._what.table.name / "_delta_log", {}
        for file in log.iterdir():
            if not file.name.endswith(".json") or not file.name[:-5].isdigit():
                continue
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            mine = [
                (kind, each[kind]["path"])
                for each in actions
                for kind in ("add", "remove")
                if self._is_mine(each, kind)
            ]
            removed = (
                f"{delta.folder(self._root, self._what.table)}/{unquote(path)}"
                for kind, path in mine
                if kind == "remove"
            )
            found[int(file.name[:-5])] = frozenset(removed), bool(mine)
        return found

    def _is_mine(self, action: dict[str, dict[str, str]], kind: str) -> bool:
        part = "" if self._day is None else f"{self._what.dated}={self._day}/"
        return kind in action and action[kind]["path"].startswith(part)

    @cached_property
    def _removed(self) -> frozenset[str]:
        return frozenset().union(*(removed for removed, _ in self._commits.values()))

    @cached_property
    def _earlier(self) -> list[int]:
        """The versions before each commit that changed the day, newest first, that can still be opened."""
        found = []
        for number in sorted(self._commits, reverse=True):
            if number and self._commits[number][1]:
                try:
                    delta.opened(self._root, self._what.table, number - 1)
                except (DeltaError, OSError):
                    break
                found.append(number - 1)
        return found


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
