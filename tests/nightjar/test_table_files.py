"""Rows of tables from files, for `nightjar evaluate --table` and `nightjar table import`."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nightjar.files.table_files import FileRow, read_rows, rows_of_files, rows_of_text
from nightjar.operations.tables import Order, imported
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.streams import SHIPPED
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import INT64, STRING
from tests.support.command import run

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ONE = datetime(2026, 1, 5, 13, tzinfo=UTC)
RULE = """
id: blocked-login
stream: logins
group_by: [customer_id]
when: "ip IN blocked_ips"
"""
EVENTS = """login_id,event_time,customer_id,ip,device,status
a,2026-01-05T11:59:59Z,7,10.0.0.1,d,FAIL
b,2026-01-05T12:00:00Z,7,10.0.0.1,d,FAIL
c,2026-01-05T13:00:00Z,7,10.0.0.1,d,FAIL
d,2026-01-05T13:00:00Z,7,10.0.0.2,d,FAIL
"""
ROWS = """key,valid_from,valid_until
10.0.0.1,2026-01-05T12:00:00Z,2026-01-05T13:00:00Z
10.0.0.2,,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Logins, a rule that asks a list, and streams with such."""
    (tmp_path / "rules.yaml").write_text(RULE)
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "streams.toml").write_text(SHIPPED.read_text() + "\n[tables.blocked_ips]\n[tables.more]\n")
    return tmp_path


def evaluated(folder: Path, *more: str, code: int = 0) -> str:
    """Errors of `nightjar evaluate` there, which ends with this code."""
    of = {name: str(folder / file) for name, file in {"rules": "rules.yaml", "events": "events.csv"}.items()}
    of |= {"streams": str(folder / "streams.toml"), "out": str(folder / "v.parquet"), "stream": "logins"}
    return run(
        "evaluate", *(part for name, value in of.items() for part in (f"--{name}", value)), *more, code=code
    ).stderr


def test_events_are_evaluated_by_the_rows_of_a_file(folder: Path) -> None:
    """S22.2: from `valid_from` until before `valid_until`; without a time always."""
    evaluated(folder, "--table", f"blocked_ips={folder / 'rows.csv'}")
    assert pq.read_table(folder / "v.parquet").column("event_id").to_pylist() == ["b", "d"]


def test_a_table_that_is_asked_needs_rows(folder: Path) -> None:
    refusal = evaluated(folder, "--table", f"more={folder / 'rows.csv'}", code=2)
    assert "table blocked_ips: a rule asks it, and its rows are not given" in refusal
    assert "--table" in refusal


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("blocked_ips", "names no file"),
        ("blocked_ips=", "names no file"),
        ("blocked=rows.csv", "Did you mean blocked_ips"),
        ("blocked_ips=none.csv", "cannot be read"),
    ],
)
def test_a_text_that_gives_no_rows_is_refused(given: str, what: str) -> None:
    with pytest.raises(NightjarError, match=what):
        rows_of_files([given], {"blocked_ips": STRING})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "there is no column `key`"),
        ("keys\n", "'keys' is not a column of rows"),
        ("key,key\n", "'key' is not a column of rows"),
        ("key,reason\n1\n", "line 2: has 1 values"),
        ("key\n1\nx\n", "line 3: x cannot be a key"),
        ("key,valid_from\n1,2026-01-05\n", "line 2: valid_from '2026-01-05' is not a point in time"),
        ("key,valid_from,valid_until\n1,2026-01-05T12:00:00Z,2026-01-05T12:00:00Z\n", "is not after valid_from"),
        (f"key,author\n1,{'x' * 501}\n", "more than 500 characters"),
        ('key\n"1\n', "is not CSV"),
    ],
)
def test_rows_that_are_none_are_refused_with_their_line(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(SettingsError) as refusal:
        read_rows(tmp_path / "rows.csv", "ports", INT64)
    assert what in str(refusal.value)


def test_lines_are_keys(tmp_path: Path) -> None:
    (tmp_path / "ports.txt").write_text("22\n# comment\n\n  -5 \n22\n")
    assert read_rows(tmp_path / "ports.txt", "ports", INT64) == [FileRow(22), FileRow(-5)]


def test_what_a_file_says_takes_the_place_of_the_options() -> None:
    """Keys that the table has are set again only from a time that the file states; equal orders are one."""
    noon, one = microseconds(NOON), microseconds(ONE)
    rows = [
        FileRow("a"),
        FileRow("b"),
        FileRow("c", noon, one, "bob", "seen"),
        FileRow("d"),
    ]
    order = Order([], is_set=True, valid_from=ONE, author=None, reason="feed")
    assert imported(rows, {"b", "c"}, order) == [
        Order(["a", "d"], is_set=True, valid_from=ONE, author=None, reason="feed"),
        Order(["c"], is_set=True, valid_from=NOON, author="bob", reason="seen"),
        Order(["c"], is_set=False, valid_from=ONE, author="bob", reason="seen"),
    ]


@pytest.mark.parametrize(
    ("text", "is_csv", "lines"),
    [
        ("22\nx\n\n-5\n", False, [1, -2, 4]),
        ("key,reason\n22,a\nx,b\n7\n\n8,c\n", True, [2, -3, -4, 6]),
        ('key\n22\n"1"2\n7\n', True, [2, -3, 4]),
    ],
)
def test_what_is_no_row_does_not_hide_the_rows_after_it(text: str, *, is_csv: bool, lines: list[int]) -> None:
    """Each with its line; negative here: why it is no row."""
    found = rows_of_text(text, "ports", INT64, is_csv=is_csv)
    assert [line if isinstance(row, FileRow) else -line for line, row in found] == lines
