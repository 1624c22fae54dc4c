"""Upkeep of real Delta tables: rows stay, files go, and what was written once is still not written twice."""

import os
import time
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from nightjar.backfill.erasure.rows import purge
from nightjar.configuration.settings import load_settings
from nightjar.contracts.run_manifest import RunState
from nightjar.lake import delta
from nightjar.lake.config import LakeError
from nightjar.lake.maintenance import maintain, removed_before
from nightjar.lake.scanning import scan
from nightjar.lake.tables import QUARANTINE, RULE_STATUS
from nightjar.operations.lake_upkeep import refuse_too_short, upkeep
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.errors import SettingsError
from nightjar.rules.timestamps import microseconds
from tests.support.answers import answered
from tests.support.lakes import STREAM, add, add_run, config_of

WEEK = timedelta(days=7)
WRITER = "archive"


def row(day: int, number: int) -> pa.Table:
    """A quarantined record of a day of January."""
    record = dict.fromkeys(QUARANTINE.columns) | {"arrival_date": date(2026, 1, day), "reason": f"r{number}"}
    return pa.Table.from_pylist([record], QUARANTINE.arrow)


def small_files(root: Path) -> None:
    """Five days with three files each, as an archive writes them."""
    delta.make(root, QUARANTINE)
    for number in range(15):
        delta.add(root, QUARANTINE, row(1 + number // 3, number), WRITER, number)


def reasons(root: Path) -> list[str]:
    """Of all rows."""
    return sorted(scan(root, QUARANTINE).select("reason").collect().to_series())


def test_small_files_are_merged_and_no_row_is_lost(tmp_path: Path) -> None:
    """One file a day; the old ones are still there, for whoever reads an older version."""
    small_files(tmp_path)
    before = reasons(tmp_path)
    version = delta.version(tmp_path, QUARANTINE)
    done = maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    assert done is not None
    assert (done.files_before, done.files, done.removed_rows, done.deleted_files) == (15, 5, 0, 0)
    assert reasons(tmp_path) == before
    assert scan(tmp_path, QUARANTINE, version).select(pl.len()).collect().item() == 15
    again = maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    assert again is not None
    assert (again.files_before, again.files) == (5, 5)


def test_files_that_nothing_needs_are_deleted(tmp_path: Path) -> None:
    """Only the newest version's are left on the disk."""
    small_files(tmp_path)
    before = reasons(tmp_path)
    done = maintain(tmp_path, QUARANTINE, first=None, unused=timedelta(0))
    assert done is not None
    assert done.deleted_files == 15
    assert len([*(tmp_path / QUARANTINE.name).glob("arrival_date=*/*.parquet")]) == 5
    assert reasons(tmp_path) == before


def left_by_a_killed_write(root: Path, name: str, age: timedelta) -> Path:
    """A file of rows that no commit names."""
    file = root / QUARANTINE.name / "arrival_date=2026-01-01" / name
    pq.write_table(row(1, 0), file)
    _written(file, age)
    return file


def _written(file: Path, age: timedelta) -> None:
    written = time.time() - age.total_seconds()
    os.utime(file, (written, written))


def test_files_of_killed_writes_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    """A young one may belong to a commit that is about to come."""
    small_files(tmp_path)
    before = reasons(tmp_path)
    old = left_by_a_killed_write(tmp_path, "old.parquet", WEEK + timedelta(hours=1))
    young = left_by_a_killed_write(tmp_path, "young.parquet", WEEK - timedelta(hours=1))
    done = maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    assert done is not None
    assert done.deleted_files == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert reasons(tmp_path) == before


def test_a_file_is_kept_from_when_no_version_needs_it(tmp_path: Path) -> None:
    """Not from when it was written, however long that is ago and however often the log is checkpointed."""
    small_files(tmp_path)
    version = delta.version(tmp_path, QUARANTINE)
    for file in (tmp_path / QUARANTINE.name).glob("arrival_date=*/*.parquet"):
        _written(file, 9 * WEEK)
    for _ in range(2):
        maintain(tmp_path, QUARANTINE, first=None, unused=8 * WEEK)
    assert scan(tmp_path, QUARANTINE, version).select(pl.len()).collect().item() == 15
    settings = delta.opened(tmp_path, QUARANTINE).metadata().configuration
    assert settings == {"delta.deletedFileRetentionDuration": "interval 86 days"}


def test_a_table_in_which_nothing_is_to_be_done_gets_no_commit(tmp_path: Path) -> None:
    """Else its log would grow by upkeep alone."""
    small_files(tmp_path)
    maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    version = delta.version(tmp_path, QUARANTINE)
    maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    assert delta.version(tmp_path, QUARANTINE) == version


def test_an_erasure_leaves_only_what_the_newest_version_needs(tmp_path: Path) -> None:
    """No file of a killed write, however young, none that a checkpoint has forgotten, no commit that was never made."""
    small_files(tmp_path)
    before = reasons(tmp_path)
    maintain(tmp_path, QUARANTINE, first=None, unused=WEEK)
    held = delta.opened(tmp_path, QUARANTINE)
    held.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    held.create_checkpoint()
    left_by_a_killed_write(tmp_path, "killed.parquet", timedelta(0))
    log = tmp_path / QUARANTINE.name / "_delta_log"
    (log / "_commit_0a1b.json.tmp").write_text("C123")
    assert purge(tmp_path, QUARANTINE) == 16
    needed = {Path(file).name for file in delta.opened(tmp_path, QUARANTINE).file_uris()}
    assert {file.name for file in (tmp_path / QUARANTINE.name).rglob("*.parquet") if log != file.parent} == needed
    newest = f"{delta.version(tmp_path, QUARANTINE):020}"
    assert {file.name.partition(".")[0] for file in log.iterdir()} == {newest, "_last_checkpoint"}
    assert reasons(tmp_path) == before


def test_old_rows_are_removed_by_whole_days(tmp_path: Path) -> None:
    """Those before the date, and no others."""
    small_files(tmp_path)
    done = maintain(tmp_path, QUARANTINE, first=date(2026, 1, 4), unused=WEEK)
    assert done is not None
    assert done.removed_rows == 9
    assert reasons(tmp_path) == ["r10", "r11", "r12", "r13", "r14", "r9"]


def test_a_table_knows_up_to_when_rows_were_removed(tmp_path: Path) -> None:
    """For the nights; it says so before the rows go, and never an earlier date, or one before which there was none."""
    small_files(tmp_path)
    unread = delta.version(tmp_path, QUARANTINE)
    for first, known in ((date(2025, 1, 1), None), (date(2026, 1, 3), 3), (date(2026, 1, 2), 3), (date(2026, 1, 5), 5)):
        maintain(tmp_path, QUARANTINE, first=first, unused=WEEK)
        assert removed_before(tmp_path, QUARANTINE) == (None if known is None else date(2026, 1, known))
    assert removed_before(tmp_path, QUARANTINE, unread) is None
    history = DeltaTable(delta.folder(tmp_path, QUARANTINE)).history()
    done = [
        commit["operation"] for commit in reversed(history) if commit["operation"] in ("DELETE", "SET TBLPROPERTIES")
    ]
    assert [what for what, after in pairwise(done) if after == "DELETE"] == ["SET TBLPROPERTIES"] * 2


def test_what_was_written_before_is_not_written_again(tmp_path: Path) -> None:
    """The archive repeats its last batch after a crash; the table's memory of its number survives the upkeep."""
    small_files(tmp_path)
    maintain(tmp_path, QUARANTINE, first=None, unused=timedelta(0))
    delta.add(tmp_path, QUARANTINE, row(5, 14), WRITER, 14)
    assert len(reasons(tmp_path)) == 15
    delta.add(tmp_path, QUARANTINE, row(6, 15), WRITER, 15)
    assert len(reasons(tmp_path)) == 16
    held = DeltaTable(delta.folder(tmp_path, QUARANTINE))
    assert held.transaction_version(WRITER) == 15


def test_retention_keeps_what_a_backfill_may_need(tmp_path: Path) -> None:
    """The pending days, and the widest window before them; an unknown table and a lake that is none are named."""
    config = config_of(tmp_path / "lake")
    rule = {
        "id": "r",
        "stream": STREAM.name,
        "group_by": ["customer_id"],
        "when": "n > 1",
        "measures": {"n": {"count": "*", "over": "90d"}},
    }
    (answer,) = answered({STREAM.name: STREAM}, rule)
    value = pl.read_ndjson(answer.value).select("status", "rule_id", "rule_version", "message", "route").to_dicts()[0]
    text = pa.array([answer.value.decode()])
    written = value | {"offset": 0, "arrival_time": datetime(2026, 1, 1, tzinfo=UTC)}
    written |= {"effective": datetime(2026, 1, 1, tzinfo=UTC), "rule": pl.Series(text).str.json_path_match("$.rule")[0]}
    add(config, RULE_STATUS, [written | {"reasons": "[]"}])
    for kept, accepted in (("121d", False), ("122d", True)):
        for table in ("events", "late_events"):
            settings = load_settings(lake_retention={table: kept}, pending_days=31)
            if accepted:
                refuse_too_short(settings, config)
            else:
                with pytest.raises(SettingsError, match=r"may need rows of 122d .*the widest window of a rule is 90d"):
                    refuse_too_short(settings, config)
    with pytest.raises(SettingsError, match="Did you mean events"):
        refuse_too_short(load_settings(lake_retention={"event": "900d"}), config)
    with pytest.raises(LakeError, match="there is no lake"):
        list(upkeep(load_settings(), config_of_nothing(tmp_path), 0))


def config_of_nothing(folder: Path) -> "object":
    """The configuration of a lake that has never been."""
    from dataclasses import replace

    config = config_of(folder / "other")
    return replace(config, lake=replace(config.lake, root=folder / "none"))


def test_the_whole_lake_is_looked_after(tmp_path: Path) -> None:
    """Each table that exists, and folders of runs that are over; a failed run's stays."""
    config = config_of(tmp_path / "lake", staging_retention=MICROSECONDS["d"])
    small_files(config.lake.root)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    for name, state in (("done", RunState.FINISHED), ("failed", RunState.FAILED)):
        add_run(config, date(2026, 1, 5), datetime(2026, 1, 6, tzinfo=UTC), run_id=name, state=state.value)
    done = list(upkeep(load_settings(lake_retention={"quarantine": "40d"}), config, microseconds(now)))
    assert {each.table for each in done} == {
        "events_transactions",
        "quarantine",
        "reconciliation",
        "archives",
        "runs",
    }
    (quarantine,) = [each for each in done if each.table == "quarantine"]
    assert quarantine.removed_rows == 15
    assert reasons(config.lake.root) == []
