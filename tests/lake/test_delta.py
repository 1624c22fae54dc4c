"""Tables by folder."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from nightjar.lake import delta, scanning
from nightjar.lake.config import LakeError
from nightjar.lake.open_tables import OpenTables
from nightjar.lake.tables import ALERTS, RULES, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_folder_without_a_commit_is_no_table(tmp_path: Path) -> None:
    """As a crash leaves it, which made the first append after it a table without partitions."""
    log = tmp_path / RULES.name / "_delta_log"
    log.mkdir(parents=True)
    assert not delta.exists(tmp_path, RULES)
    (log / f"{0:020}.json").touch()
    assert delta.exists(tmp_path, RULES)


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        f"{10:020}.checkpoint.parquet",
        f"{10:020}.checkpoint.{1:010}.{2:010}.parquet",
        f"{10:020}.checkpoint.0f7c.json",
        f"{10:020}.{12:020}.compacted.json",
    ],
)
def test_a_log_of_checkpoints_is_a_table(tmp_path: Path, name: str) -> None:
    """Delta removes the JSON commits that a checkpoint covers."""
    log = tmp_path / RULES.name / "_delta_log"
    log.mkdir(parents=True)
    (log / name).touch()
    assert delta.exists(tmp_path, RULES)


@pytest.mark.spark
@pytest.mark.parametrize("file", ["arrival_date=2026-01-01/part-0.parquet", "_delta_log/notes.txt"])
def test_data_without_a_log_is_refused_and_kept(spark: "SparkSession", tmp_path: Path, file: str) -> None:
    """A table whose log was lost is never removed: the error names the folder, what is there, and what to do."""
    data = tmp_path / RULES.name / file
    for folder in (data.parent, tmp_path / RULES.name / "_delta_log"):
        folder.mkdir(parents=True, exist_ok=True)
    data.write_bytes(b"data")
    with pytest.raises(LakeError, match="no commit and no checkpoint") as refused:
        delta.make(tmp_path, RULES)
    assert file in str(refused.value)
    assert str(tmp_path / RULES.name) in str(refused.value)
    assert "Restore _delta_log from a backup" in str(refused.value)
    assert data.read_bytes() == b"data"


@pytest.mark.spark
def test_a_table_is_made_where_a_crash_left_its_folder(spark: "SparkSession", tmp_path: Path) -> None:
    """Delta refuses a log without a commit, so that no archive could begin there again."""
    log = tmp_path / RULES.name / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / f".{0:020}.json.0f7c.tmp").touch()
    delta.make(tmp_path, RULES)
    assert delta.read(spark, tmp_path, RULES).count() == 0


def test_the_files_that_may_have_rows_of_a_day_are_known_by_the_log(tmp_path: Path) -> None:
    """A file that spans days is one of each, and one of which the log says nothing is one of all."""
    tables, first, last = OpenTables(tmp_path), date(2026, 1, 2), date(2026, 1, 6)
    assert tables.files_on(RULES, "arrival_time", first, last) == tables.files_of(ALERTS) == {}
    delta.make(tmp_path, RULES)
    delta.make(tmp_path, ALERTS)
    assert tables.files_on(RULES, "arrival_time", first, last) == tables.files_of(ALERTS) == {}
    noon = datetime(2026, 1, 3, 12, tzinfo=UTC)
    almost = datetime(2026, 1, 5, tzinfo=UTC) - timedelta(microseconds=1)  # the log has it a millisecond earlier
    spans = [(noon, noon), (noon, almost), (noon - timedelta(days=9), noon - timedelta(days=8)), (None, None)]
    for number, times in enumerate(spans):
        rows = [{"value": b"x", "partition": 0, "offset": at, "arrival_time": time} for at, time in enumerate(times)]
        delta.add(tmp_path, RULES, pa.Table.from_pylist(rows, RULES.arrow), "test", number)
    found = tables.files_on(RULES, "arrival_time", first, last)
    counts = {day.day: len(files) for day, files in found.items()}
    assert counts in ({2: 1, 3: 3, 4: 2, 5: 1, 6: 1}, {2: 1, 3: 3, 4: 2, 5: 2, 6: 1}), "5: by what is cut off"
    alert = dict.fromkeys(ALERTS.columns) | {"arrival_date": first}
    for number, day in enumerate((first, first, last)):
        rows = pa.Table.from_pylist([alert | {"arrival_date": day}], ALERTS.arrow)
        delta.add(tmp_path, ALERTS, rows, "test", number)
    assert {day: len(files) for day, files in tables.files_of(ALERTS).items()} == {first: 2, last: 1}


def test_an_open_table_shows_each_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a first one, and at last the table of a lake that has taken the place of the other."""
    tables = OpenTables(tmp_path)
    assert tables.version(RULES) is None
    assert tables.rows(RULES).collect().is_empty()
    assert tables.latest(RULES, "arrival_time") is None

    def add(number: int) -> None:
        at = datetime(2026, 1, number, tzinfo=UTC)
        row = {"value": b"x", "partition": 0, "offset": number, "arrival_time": at}
        rows = pa.Table.from_pylist([row], RULES.arrow)
        delta.add(tmp_path, RULES, rows, "test", number)

    delta.make(tmp_path, RULES)
    for number in (1, 2):
        add(number)
        assert tables.version(RULES) == delta.version(tmp_path, RULES) == number
        assert tables.rows(RULES).collect().height == number
        assert tables.latest(RULES, "arrival_time") == datetime(2026, 1, number, tzinfo=UTC)
    shutil.rmtree(tmp_path / RULES.name)
    delta.make(tmp_path, RULES)
    monkeypatch.setattr("nightjar.lake.open_tables._SECONDS", 0.0)
    assert tables.version(RULES) == 0
    assert tables.rows(RULES).collect().is_empty()


def test_open_tables_are_read_by_whoever_reads_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the newest version or another one, and not by other threads; another lake's tables are its own."""
    tables, elsewhere = OpenTables(tmp_path / "lake"), tmp_path / "other"
    delta.make(elsewhere, RULES)
    opens, anew = [], delta.open_anew

    def counted(root: Path, table: Table, at: int | None = None) -> DeltaTable:
        opens.append((root.name, at))
        return anew(root, table, at)

    monkeypatch.setattr(delta, "open_anew", counted)
    with tables.in_use():
        assert not delta.exists(tmp_path / "lake", RULES)
        assert scanning.rows(tmp_path / "lake", RULES).collect().is_empty()
    delta.make(tmp_path / "lake", RULES)
    row = {"value": b"x", "partition": 0, "offset": 1, "arrival_time": datetime(2026, 1, 1, tzinfo=UTC)}
    delta.add(tmp_path / "lake", RULES, pa.Table.from_pylist([row], RULES.arrow), "test", 1)
    opens.clear()
    with tables.in_use(), ThreadPoolExecutor(1) as other:
        for _ in range(3):
            assert delta.exists(tmp_path / "lake", RULES)
            assert delta.version(tmp_path / "lake", RULES) == 1
            assert scanning.scan(tmp_path / "lake", RULES, 1).collect().height == 1
        assert opens == [("lake", None)]
        assert scanning.scan(tmp_path / "lake", RULES, 0).collect().is_empty()
        assert delta.version(elsewhere, RULES) == 0
        assert other.submit(delta.version, tmp_path / "lake", RULES).result() == 1
    assert opens == [("lake", None), ("lake", 0), ("other", None), ("lake", None)]
    assert delta.version(tmp_path / "lake", RULES) == 1
    assert len(opens) == 5
