"""Rows of tables from files, for `nightjar evaluate --table` and `nightjar table import`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.files.table_files import FileRow, read_rows, rows_of_files, rows_of_text, values_of_texts
from nightjar.kafka.topics import Topic, create
from nightjar.operations.tables import Order, _parts, imported
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.streams import SHIPPED
from nightjar.rules.tables import TableType
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, Kind, decimal
from tests.support.command import environment, run
from tests.support.topics import TestTopics

PORTS = TableType(Kind.INT64, values=(("limit", decimal(12, 2)), ("risk", INT64)))
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
        ("key,limits\n1,2\n", "Did you mean limit?"),
        ("key,limit\n1,2.001\n", "line 2: ports.limit '2.001' is not a decimal(12,2)"),
        ("key,risk\n1,2.0\n", "line 2: ports.risk '2.0' is not an int64"),
    ],
)
def test_rows_that_are_none_are_refused_with_their_line(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(SettingsError) as refusal:
        read_rows(tmp_path / "rows.csv", "ports", PORTS)
    assert what in str(refusal.value)


def test_columns_of_a_file_are_values(tmp_path: Path) -> None:
    """An empty one is NULL; a file without such columns says nothing of values."""
    (tmp_path / "rows.csv").write_text("risk,key,limit\n3,1,2.5\n,2,\n")
    assert read_rows(tmp_path / "rows.csv", "ports", PORTS) == [
        FileRow(1, values={"limit": "2.50", "risk": 3}),
        FileRow(2, values={}),
    ]
    (tmp_path / "keys.csv").write_text("key\n1\n")
    assert read_rows(tmp_path / "keys.csv", "ports", PORTS) == [FileRow(1)]


def test_values_at_a_command() -> None:
    assert values_of_texts(["risk=-3", "limit=1"], "ports", PORTS) == {"limit": "1.00", "risk": -3}
    assert values_of_texts(["risk="], "ports", PORTS) == {}
    fields = {"ok": BOOLEAN, "share": DOUBLE, "seen": TIMESTAMP, "name": STRING}
    texts = ["ok=True", "share=1e-3", "seen=2026-01-05T12:00:00Z", "name=a=b"]
    assert values_of_texts(texts, "t", TableType(Kind.STRING, values=tuple(fields.items()))) == {
        "ok": True,
        "share": 0.001,
        "seen": "2026-01-05T12:00:00.000000Z",
        "name": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("risk", "is not a name, = and a value"),
        ("rsk=1", "Did you mean risk?"),
        ("risk=one", "'one' is not an int64. It is a whole number"),
        ("risk=1_0", "is not an int64"),
        ("limit=1e5", "is not a decimal(12,2)"),
        ("=1", "an empty name: is not a value"),
    ],
)
def test_what_is_no_value_is_refused(text: str, what: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        values_of_texts([text], "ports", PORTS)
    assert what in str(refusal.value)
    with pytest.raises(SettingsError, match="is given twice"):
        values_of_texts(["risk=1", "risk=2"], "ports", PORTS)


def test_rows_with_other_values_are_set_again() -> None:
    rows = [FileRow("a", values={"risk": 1}), FileRow("b", values={"risk": 2}), FileRow("c"), FileRow("d", values={})]
    order = Order([], is_set=True, valid_from=None, author=None, reason="feed")
    present = {"a": {"risk": 1}, "b": {"risk": 1}, "c": {"risk": 1}, "d": {"risk": 1}}
    assert imported(rows, present, order) == [
        Order(["b", "d"], is_set=True, valid_from=None, author=None, reason="feed", values=[{"risk": 2}, {}])
    ]


def commands(place: Path, kafka_topics: TestTopics, declared: str) -> Callable[..., Result]:
    """`nightjar table` with such arguments, on an empty topic."""
    own = kafka_topics.settings
    create(own, Topic(own.tables_topic, 1))
    (place / "streams.toml").write_text(f"{SHIPPED.read_text()}\n{declared}\n")
    given = environment(own) | {"NIGHTJAR_TABLES_TOPIC": own.tables_topic, "COLUMNS": "200"}
    given["NIGHTJAR_STREAMS"] = str(place / "streams.toml")
    return lambda *arguments: CliRunner().invoke(app, ["table", *arguments], env=given)


@pytest.mark.kafka
def test_the_commands_set_and_show_values(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """What is set are all values of a row; a file sets those again whose values differ. What is none is not sent."""
    table = commands(tmp_path, kafka_topics, "[tables.cards]\nvalues = {country = 'string', limit = 'decimal(12,2)'}")
    (tmp_path / "cards.csv").write_text("key,country\nc1,DE\nc2,FR\nc3,[b]IT\n")
    said = ("--reason", "contract", "--author", "ann")
    done = table("set", "cards", "c1", "c2", "--value", "limit=500", "--value", "country=DE", *said)
    assert (done.exit_code, done.output) == (0, "Set 2 rows of cards.\n")
    refused = table("set", "cards", "c1", "--value", "limit=much", *said)
    assert "cards.limit: 'much' is not a decimal(12,2)" in str(refused.exception)
    assert table("set", "cards", "c1", "--value", "country=DE", *said).exit_code == 0
    assert table("import", "cards", str(tmp_path / "cards.csv"), *said).output == "Set 2 rows of cards.\n"
    assert json.loads(table("show", "cards", "--json").output) == [
        {"key": "c1", "country": "DE"},
        {"key": "c2", "country": "FR"},
        {"key": "c3", "country": "[b]IT"},
    ]
    shown = table("show", "cards").output
    assert all(each in shown for each in ("key", "country", "limit", "c3", "[b]IT"))
    changes = json.loads(table("history", "cards", "c1", "--json").output)
    assert [each["values"] for each in changes] == [[{"country": "DE", "limit": "500.00"}] * 2, [{"country": "DE"}]]
    history = table("history", "cards").output
    assert "country=DE, limit=500.00" in history
    assert "c2: country=FR; c3: country=[b]IT" in history
    assert "country string, limit decimal(12,2)" in table("list").output


@pytest.mark.kafka
def test_the_commands_approve_and_decline(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """S22.8: what waits has an id, by which somebody else approves it, or anybody declines it."""
    table = commands(tmp_path, kafka_topics, '[tables.cards]\napproved_from = "2026-01-01T00:00:00Z"')
    said = ("--reason", "seen", "--author", "ann")
    assert table("set", "cards", "c1", *said).output.startswith("Somebody else has to approve it: nightjar table")
    assert table("set", "cards", "c2", *said).exit_code == 0
    assert table("set", "cards", "c3", *said).exit_code == 0
    first, second, third = (each["id"] for each in json.loads(table("history", "cards", "--json").output))
    assert f"{first} waits" in table("history", "cards").output
    refused = {
        "was ordered by ann": table("approve", "cards", first, "--author", "Ann "),
        "author: is missing": table("decline", "cards", first, "--author", " ", "--reason", "no"),
        "has more than 500 characters": table("decline", "cards", first, "--author", "bob", "--reason", "x" * 501),
        "is no change of cards that waits": table("approve", "cards", "other", "--author", "bob"),
    }
    assert [why for why, answer in refused.items() if why not in str(answer.exception)] == []
    assert table("approve", "cards", first, "--author", "bob").output == "Approved 1 change of cards.\n"
    withdrawn = table("decline", "cards", second, "--author", "ann", "--reason", "a typing error")
    assert withdrawn.output == "Declined 1 change of cards.\n"
    assert "that waits" in str(table("approve", "cards", second, "--author", "bob").exception)
    assert json.loads(table("show", "cards", "--json").output) == ["c1"]
    decisions = ("id", "waits", "approved_by", "declined_by", "decline_reason")
    found = [[each.get(name) for name in decisions] for each in json.loads(table("history", "cards", "--json").output)]
    assert found == [
        [first, False, "bob", None, None],
        [second, False, "", "ann", "a typing error"],
        [third, True, "", None, None],
    ]
    assert "declined by ann: a typing error" in table("history", "cards").output


def test_an_order_is_as_many_records_as_its_values_need() -> None:
    """Brokers take no larger ones; keys without values are a thousand in each."""
    large = [{"name": "x" * 256}] * 3_000
    parts = [*_parts(Order([*range(3_000)], is_set=True, valid_from=None, author=None, reason="", values=large))]
    assert [part.stop - part.start for part in parts] == [1_000, 1_000, 1_000]
    wide = [{f"v{at}": "\N{GRINNING FACE}" * 256 for at in range(8)}] * 100
    parts = [*_parts(Order([*range(100)], is_set=True, valid_from=None, author=None, reason="", values=wide))]
    assert parts[0].start == 0
    assert parts[-1].stop == 100
    assert all(one.stop == other.start for one, other in pairwise(parts))
    assert max(len(json.dumps(wide[part])) for part in parts) < 500_000
    assert [*_parts(Order([], is_set=True, valid_from=None, author=None, reason=""))] == []


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
    assert imported(rows, {"b": {}, "c": {}}, order) == [
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
