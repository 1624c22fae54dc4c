"""Looks after the tables: removes old rows, merges small files, deletes files that no version needs.

The archive adds a file per table and run, so that a table of a year that is archived every quarter of an hour has tens
of thousands, and every query opens them all. Nobody else may write meanwhile (nightjar.operations.locks).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from deltalake import DeltaTable

from nightjar.lake import delta
from nightjar.lake.tables import (
    ALERTS,
    CORRECTIONS,
    LABELS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RECONCILIATION,
    RESTRICTIONS,
    SNOOZES,
    VIOLATIONS,
    Table,
)
from nightjar.storage.paths import AnyPath

# Files are merged up to about this size (bytes): large enough to be read fast, small enough to be skipped by its dates.
_FILE_SIZE = 128 * 1024 * 1024

# The log names a removed file for so much longer than the file stays. One that it no longer names counts from when it
# was written, so that it would go before an older version that needs it.
_NAMED_AFTERWARDS = timedelta(days=30)
_NAMED_FOR = "delta.deletedFileRetentionDuration"

# A table's property: the date before which rows have been removed by age, by the column that it is partitioned by.
_REMOVED_BEFORE = "nightjar.removedBefore"

# Tables whose rows may be removed by age, other than those of events. The rest define the rules, or are small.
_OF_TOPICS = (ALERTS, RESTRICTIONS, LATE_EVENTS, QUARANTINE, PROGRESS, LABELS, SNOOZES)
AGING = (*_OF_TOPICS, VIOLATIONS, RECONCILIATION, CORRECTIONS)


@dataclass(frozen=True)
class Maintained:
    """What was done to a table."""

    table: str
    files_before: int
    files: int
    bytes: int
    """`files` and `bytes`: of its newest version."""
    removed_rows: int
    """Rows removed by age."""
    deleted_files: int
    """Files deleted from the disk: no version within the retention needs them."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def maintain(root: AnyPath, table: Table, *, first: date | None, unused: timedelta) -> Maintained | None:
    """Look after one table; None if it does not exist. Every step is a commit of its own and may be repeated.

    first: rows of earlier dates, by the column that the table is partitioned by, are removed; None: none. unused: files
    are deleted once no version has needed them for so long, or, if a killed write left them, once they are so old.
    Whoever reads an older version than that fails.
    """
    if not delta.exists(root, table):
        return None
    held = delta.opened(root, table)
    files_before = len(held.file_uris())
    removed = 0 if first is None else _remove_before(held, table, first)
    held.optimize.compact(target_size=_FILE_SIZE)
    _keep_named(held, unused)
    deleted = delta.delete_unused(held, unused)
    held.create_checkpoint()
    held.cleanup_metadata()
    held.update_incremental()
    sizes = delta.sizes(held)
    return Maintained(table.name, files_before, len(sizes), sum(sizes), removed, len(deleted))


def removed_before(root: AnyPath, table: Table, at: int | None = None) -> date | None:
    """The date before which rows have been removed from the version `at` (None: the newest) of a table, or are about to
    be; None: none were."""
    return _removed_before(delta.opened(root, table, at))


def _removed_before(held: DeltaTable) -> date | None:
    written = held.metadata().configuration.get(_REMOVED_BEFORE)
    return None if written is None else date.fromisoformat(written)


def _remove_before(held: DeltaTable, table: Table, first: date) -> int:
    """Whole folders of dates, so that no file is rewritten. First of all the table says so, for the nights: they do
    not judge what depends on rows that have gone."""
    (column,) = table.partitioned_by
    dates = held.get_add_actions(flatten=True).column(f"partition.{column}").to_pylist()
    if not any(each is not None and each < first for each in dates):
        return 0
    if (known := _removed_before(held)) is None or known < first:
        held.alter.set_table_properties({_REMOVED_BEFORE: first.isoformat()}, raise_if_not_exists=False)
    return int(held.delete(f"{column} < '{first.isoformat()}'")["num_deleted_rows"] or 0)


def _keep_named(held: DeltaTable, unused: timedelta) -> None:
    """Let the log name removed files until they have been deleted; Delta's default is a week."""
    wanted = f"interval {math.ceil((unused + _NAMED_AFTERWARDS) / timedelta(days=1))} days"
    if held.metadata().configuration.get(_NAMED_FOR) != wanted:
        held.alter.set_table_properties({_NAMED_FOR: wanted})
