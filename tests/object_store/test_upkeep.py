"""Upkeep and erasure of a table in a real store: files that no commit names are found there too."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import polars as pl
import pyarrow as pa
import pytest

from nightjar.backfill.erasure.rows import purge
from nightjar.lake import delta
from nightjar.lake.maintenance import maintain
from nightjar.lake.scanning import scan
from nightjar.lake.tables import QUARANTINE
from nightjar.storage.paths import AnyPath
from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.slow
RECORD = dict.fromkeys(QUARANTINE.columns) | {"arrival_date": date(2026, 1, 1)}


def files(root: AnyPath) -> set[str]:
    """The names of the table's files, of whichever version or none."""
    return {file.name for file in (root / QUARANTINE.name).rglob("*.parquet") if "_delta_log" not in str(file)}


def test_files_that_no_commit_names_are_deleted_from_a_store(store: ObjectStore) -> None:
    """By upkeep once they are old, by an erasure at once."""
    root = store.place("upkeep")
    delta.make(root, QUARANTINE)
    for number in range(3):
        delta.add(root, QUARANTINE, pa.Table.from_pylist([RECORD], QUARANTINE.arrow), "archive", number)
    (root / QUARANTINE.name / "arrival_date=2026-01-01" / "killed.parquet").write_bytes(b"rows")
    kept = maintain(root, QUARANTINE, first=None, unused=timedelta(days=7))
    assert kept is not None
    assert (kept.files_before, kept.files, kept.deleted_files) == (3, 1, 0)
    assert len(files(root)) == 5
    assert scan(root, QUARANTINE).select(pl.len()).collect().item() == 3
    assert purge(root, QUARANTINE) == 4
    assert files(root) == {uri.rpartition("/")[2] for uri in delta.opened(root, QUARANTINE).file_uris()}


def test_writers_at_once_lose_no_rows(store: ObjectStore) -> None:
    """A commit is written on the condition that there is none of its number; who comes second takes the next one."""
    root = store.place("at-once")
    delta.make(root, QUARANTINE)
    rows = pa.Table.from_pylist([RECORD], QUARANTINE.arrow)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: delta.add(root, QUARANTINE, rows, f"writer {number}", 1), range(8)))
    assert scan(root, QUARANTINE).select(pl.len()).collect().item() == 8
    assert delta.version(root, QUARANTINE) == 8
