"""Records that change tables (S22.1): written as they are read, and anything else has no effect."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

from nightjar.contracts.table_changes import MAX_KEYS, change_record, read_change, read_changes
from nightjar.lake.table_rows import LakeTables
from nightjar.lake.tables import TABLES
from nightjar.rules.engine.table_rows import Change
from nightjar.rules.rulebook import Record
from nightjar.rules.types import INT64, STRING

DECLARED = {"blocked": STRING, "ports": INT64}
GOOD = {"table": "blocked", "set": ["x"]}


def test_a_record_is_read_as_it_was_written() -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    _, value = change_record("ports", [1, -5], is_set=False, valid_from=at, author="ann", reason="é")
    found = read_change(Record(7, 9, value), DECLARED)
    assert found == Change(
        7, 9, "ports", [1, -5], is_set=False, valid_from=1_767_571_200_000_000, author="ann", reason="é"
    )


def test_without_a_time_it_is_valid_from_its_arrival() -> None:
    found = read_change(Record(0, 9, json.dumps(GOOD).encode()), DECLARED)
    assert found is not None
    assert found.valid_from == 9


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b'{"table": "blocked", "set": ["\\ud800"]}',
        {},
        [],
        {**GOOD, "table": "other"},
        {**GOOD, "table": ["blocked"]},
        {**GOOD, "table": None},
        {**GOOD, "remove": ["x"]},
        {"table": "blocked"},
        {**GOOD, "more": 1},
        {**GOOD, "set": "x"},
        {**GOOD, "set": []},
        {**GOOD, "set": [""]},
        {**GOOD, "set": ["x", 1]},
        {**GOOD, "set": ["x" * 257]},
        {**GOOD, "set": ["x"] * (MAX_KEYS + 1)},
        {"table": "ports", "set": [True]},
        {"table": "ports", "set": [1.0]},
        {"table": "ports", "set": [1 << 63]},
        {"table": "ports", "set": ["1"]},
        {**GOOD, "valid_from": "2026-01-05"},
        {**GOOD, "valid_from": 1},
        {**GOOD, "valid_from": None},
        {**GOOD, "author": 1},
        {**GOOD, "reason": "x" * 501},
    ],
)
def test_anything_else_has_no_effect(written: Any) -> None:
    value = written if isinstance(written, bytes) else json.dumps(written).encode()
    assert read_change(Record(0, 0, value), DECLARED) is None


def test_the_lake_has_the_rows_of_its_version(tmp_path: Path) -> None:
    """A run that is repeated sees the rows that it saw."""
    assert LakeTables.newest(tmp_path, {}) is None
    nothing = LakeTables.newest(tmp_path, DECLARED)
    assert nothing is not None
    assert nothing.rows().keys_at("blocked", 10).to_pylist() == []
    for offset, record in enumerate([GOOD, {"table": "blocked", "remove": ["x"]}]):
        place = {"partition": 0, "offset": offset, "arrival_time": datetime.fromtimestamp(0, UTC), "arrival_date": None}
        row = {"value": json.dumps(record).encode(), **place}
        content = pl.DataFrame([row], schema_overrides={"partition": pl.Int32, "arrival_date": pl.Date}).to_arrow()
        write_deltalake(str(tmp_path / TABLES.name), content.cast(TABLES.arrow), mode="append")
        if offset == 0:
            first = LakeTables.newest(tmp_path, DECLARED)
    newest = LakeTables.newest(tmp_path, DECLARED)
    assert first is not None
    assert newest is not None
    assert first.rows().keys_at("blocked", 10).to_pylist() == ["x"]
    assert newest.rows().keys_at("blocked", 10).to_pylist() == []
    assert [change.is_set for change in read_changes(newest.records(), DECLARED)] == [True, False]
