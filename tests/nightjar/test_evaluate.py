"""`nightjar evaluate`, compared with DuckDB's window functions, and its messages about unusable input."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nightjar.cli.app import app
from nightjar.files.evaluate import evaluate
from nightjar.files.event_files import read_events
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import SHIPPED, load_streams
from nightjar.rules.truth import RESULT_SCHEMA
from tests.support.command import run

STREAMS = load_streams()
TRANSACTIONS = STREAMS["transactions"]
RULE = """
id: spending
stream: transactions
group_by: [customer_id]
measures: {spent: {sum: amount, over: 1h}}
when: "spent > 25"
"""
EVALUATE = [
    "evaluate",
    "--stream",
    "transactions",
    "--rules",
    "rules.yaml",
    "--events",
    "events.csv",
    "--out",
    "v.parquet",
]
EVENTS = """transaction_id,event_time,customer_id,terminal_id,amount
1,2026-01-05T12:00:00Z,7,3,20
2,2026-01-05T12:30:00Z,7,3,5.01
3,2026-01-05T13:30:01Z,7,4,20.00
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three payments of one customer, and a rule."""
    (tmp_path / "rules.yaml").write_text(RULE)
    (tmp_path / "events.csv").write_text(EVENTS)
    return tmp_path


def generated(rows: int, seed: int) -> pa.Table:
    """Payments of 40 customers over three days, no two at the same microsecond, one amount in ten NULL."""
    rng = np.random.default_rng(seed)
    times = rng.choice(3 * 86_400_000_000, rows, replace=False) + 1_767_600_000_000_000
    cents = rng.integers(-2_000, 50_000, rows)
    amounts = pa.array(cents).cast(pa.decimal128(19, 0)).cast(pa.float64()).to_numpy() / 100
    return pa.table(
        {
            "transaction_id": pa.array(np.arange(rows), pa.int32()),
            "event_time": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "customer_id": pa.array(rng.integers(0, 40, rows), pa.int16()),
            "terminal_id": pa.array([f"m{t}" for t in rng.integers(0, 9, rows)]).dictionary_encode(),
            "amount": pa.array(amounts, mask=rng.random(rows) < 0.1),
        }
    )


FUNCTIONS = {
    "n": ("count", "*", "count(*) OVER w"),
    "given": ("count", "amount", "count(amount) OVER w"),
    "spent": ("sum", "amount", "coalesce(sum(amount) OVER w, 0)"),
    "mean": ("avg", "amount", "(avg(cents) OVER w) / 100"),
    "least": ("min", "amount", "min(amount) OVER w"),
    "most": ("max", "amount", "max(amount) OVER w"),
}


@pytest.mark.parametrize("over", ["10m", "6h", "40h"])
@pytest.mark.parametrize("group_by", [["customer_id"], ["customer_id", "terminal_id"], []], ids=",".join)
def test_measures_equal_duckdbs_window_functions(tmp_path: Path, over: str, group_by: list[str]) -> None:
    """Every measure of every event, and the violations that follow."""
    pq.write_table(generated(3_000, seed=len(over) + len(group_by)), tmp_path / "events.parquet")
    events = read_events(tmp_path / "events.parquet", TRANSACTIONS)
    measures = {name: {function: field, "over": over} for name, (function, field, _) in FUNCTIONS.items()}
    rule = {
        "id": "r",
        "stream": "transactions",
        "group_by": group_by,
        "measures": measures,
        "when": "n >= 3 AND most > 400",
    }
    found = evaluate(TRANSACTIONS, [parse_rule(rule, STREAMS)], events).table(every=True)
    interval = {"m": "MINUTE", "h": "HOUR"}[over[-1]]
    columns = ", ".join(f"{sql} AS {name}" for name, (_, _, sql) in FUNCTIONS.items())
    by = f"PARTITION BY {', '.join(group_by)}" if group_by else ""
    expected = duckdb.sql(
        f"SELECT transaction_id, {columns}"  # noqa: S608  the names are the test's own
        " FROM (SELECT *, CAST(amount * 100 AS BIGINT) AS cents FROM events)"
        f" WINDOW w AS ({by} ORDER BY event_time"
        f" RANGE BETWEEN INTERVAL {over[:-1]} {interval} PRECEDING AND CURRENT ROW)"
    )
    by_id = {row[0]: dict(zip(FUNCTIONS, row[1:], strict=True)) for row in expected.fetchall()}
    assert found.num_rows == len(by_id) == 3_000
    for row in found.to_pylist():
        want, got = by_id[row["event_id"]], json.loads(row["measures"])
        assert (got["n"], got["given"]) == (want["n"], want["given"])
        for name in ("spent", "least", "most"):
            assert got[name] == (None if want[name] is None else f"{want[name]:.2f}"), name
        assert got["mean"] == (None if want["mean"] is None else pytest.approx(want["mean"], rel=1e-12))
        assert row["violated"] == (want["n"] >= 3 and want["most"] is not None and want["most"] > 400)


@pytest.mark.slow
def test_ten_rules_agree_with_duckdb_on_every_row() -> None:
    """`checks/soak/agree.py`: every function and option, windows up to 30 days, ties at one second."""
    command = [sys.executable, "-m", "checks.soak.agree", "--generated", "4000"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=200
    )
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [figure["differences"] for figure in figures[:-1]] == [0] * 10
    assert all(figure["violations"] for figure in figures[:-1])


@pytest.mark.slow
def test_violations_are_written_and_summed_up(folder: Path) -> None:
    """The readme's first minute: one file of rules, one of events, one of violations."""
    done = run(
        *EVALUATE,
        folder=folder,
    )
    assert pq.read_schema(folder / "v.parquet").equals(RESULT_SCHEMA)
    (row,) = pq.read_table(folder / "v.parquet").to_pylist()
    assert (row["rule_id"], row["event_id"], row["violated"]) == ("spending", "2", True)
    assert json.loads(row["measures"]) == {"spent": "25.01"}
    assert json.loads(row["group"]) == {"customer_id": "7"}
    assert "spending" in done.stdout
    assert "3 events" in done.stdout


@pytest.mark.slow
def test_all_evaluations_are_written_on_demand(folder: Path) -> None:
    """With --measures every event has a row, and --json prints the counts for a program."""
    done = run(
        *EVALUATE,
        "--measures",
        "--json",
        folder=folder,
    )
    assert json.loads(done.stdout) == {
        "out": "v.parquet",
        "rows": 3,
        "bad_lines": 0,
        "events": 3,
        "duplicates": 0,
        "rules": [{"rule_id": "spending", "rule_version": 1, "evaluated": 3, "violations": 1}],
        "allow_rules": [],
    }
    assert pq.read_table(folder / "v.parquet").column("violated").to_pylist() == [False, True, False]


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"--stream": "transaction"}, "Did you mean transactions?"),
        ({"--rules": "none.yaml"}, "none.yaml: cannot be read"),
        ({"--events": "none.csv"}, "none.csv: does not exist"),
        ({"--streams": "none.toml"}, "none.toml: cannot be read"),
        ({"--out": "nowhere/v.parquet"}, "nowhere/v.parquet: cannot be written"),
        ({"--out": "v.csv"}, "Name it like violations.parquet"),
        ({"--stream": "logins"}, "has no rule on stream logins"),
        ({"--zone": "Mars"}, "'Mars' is not a zone"),
        ({"--events": ".", "--out": "v.parquet"}, "lies in the folder of events"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_option_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], reported: str
) -> None:
    """What is wrong with it and what would be right, and nothing is written."""
    monkeypatch.chdir(folder)
    given = {"--stream": "transactions", "--rules": "rules.yaml", "--events": "events.csv", "--out": "v.parquet"}
    options = [word for pair in (given | changes).items() for word in pair]
    with pytest.raises(NightjarError) as refusal:
        app(["evaluate", *options], standalone_mode=False)
    assert reported in str(refusal.value)
    assert sorted(path.name for path in folder.iterdir()) == ["events.csv", "rules.yaml"]


@pytest.mark.parametrize(
    ("name", "change", "reported"),
    [
        (
            "events.csv",
            ("5.01", "5.011"),
            "events.csv: line 3: amount (string): '5.011' cannot be read as decimal(12,2)",
        ),
        ("events.csv", ("\n3,", "\n,"), "events.csv: line 4: transaction_id: is NULL"),
        ("events.csv", ("2026-01-05T12:30:00Z", ""), "events.csv: line 3: event_time: is NULL"),
        ("events.csv", (",customer_id,", ",customer,"), "has no column customer_id"),
        ("events.csv", ("2,2026-01-05T12:30:00Z", '2,"2026-01-05T12:30:00Z'), "events.csv: line 3: has a quote that"),
        ("events.csv", ("12:30:00Z", "12:30:00"), "its zone is missing"),
        ("rules.yaml", ("amount", "amonut"), "Did you mean amount?"),
        ("rules.yaml", ("spent > 25", "spent > > 25"), "when"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_content_is_reported_with_its_place(
    folder: Path, name: str, change: tuple[str, str], reported: str
) -> None:
    """Column, row and value of an event; key and position of a rule."""
    path = folder / name
    path.write_text(path.read_text().replace(*change))
    options = {"--stream": "transactions", "--rules": folder / "rules.yaml", "--events": folder / "events.csv"}
    words = [str(word) for pair in options.items() for word in pair]
    with pytest.raises(NightjarError) as refusal:
        app(["evaluate", *words, "--out", str(folder / "v.parquet")], standalone_mode=False)
    assert reported in str(refusal.value)
    assert not (folder / "v.parquet").exists()


def evaluated(folder: Path, events: str, *options: str) -> list[dict[str, object]]:
    """The violations in a file, or folder, of events."""
    given = ["--stream", "transactions", "--rules", str(folder / "rules.yaml"), "--events", str(folder / events)]
    app(["evaluate", *given, "--out", str(folder / "v.parquet"), "--json", *options], standalone_mode=False)
    found: list[dict[str, object]] = pq.read_table(folder / "v.parquet").to_pylist()
    return found


def test_times_without_a_zone_are_in_the_one_that_is_named(folder: Path) -> None:
    """An export in local time is evaluated at its true times."""
    (folder / "local.csv").write_text(EVENTS.replace("Z,", ","))
    (row,) = evaluated(folder, "local.csv", "--zone", "Asia/Tokyo")
    assert row["event_time"] == datetime(2026, 1, 5, 3, 30, tzinfo=UTC)


def test_a_folder_is_evaluated(folder: Path) -> None:
    """Here the three events are in two files."""
    header, *lines = EVENTS.splitlines(keepends=True)
    (folder / "in").mkdir()
    (folder / "in" / "part-0.csv").write_text(header + lines[0])
    (folder / "in" / "part-1.csv").write_text(header + "".join(lines[1:]))
    assert [row["event_id"] for row in evaluated(folder, "in")] == ["2"]


def test_arrivals_make_no_difference(folder: Path) -> None:
    """S8.5: of two events with one id the one with the earliest time counts, whatever the column arrival_time holds."""
    rows = [*EVENTS.splitlines(), "2,2026-01-05T12:40:00Z,7,3,9000"]
    (folder / "events.csv").write_text("\n".join([f"{rows[0]},arrival_time", *(f"{row},gate 4" for row in rows[1:])]))
    (row,) = evaluated(folder, "events.csv")
    assert (row["event_time"], row["measures"]) == (datetime(2026, 1, 5, 12, 30, tzinfo=UTC), '{"spent":"25.01"}')


def test_epoch_seconds_are_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that the summary stays JSON."""
    (folder / "events.csv").write_text(EVENTS.replace("2026-01-05T12:00:00Z", "1767614400"))
    evaluated(folder, "events.csv")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["events"] == 3
    assert "1 of 3 events have an event_time between 1970 and 1973" in shown.err
    assert "1767614400 in seconds? Numbers are epoch milliseconds" in shown.err


@pytest.mark.slow
def test_overflow_is_reported(folder: Path) -> None:
    """A sum beyond 64 bits ends the command with code 2 and one message; no row of a half truth is written."""
    (folder / "streams.toml").write_text(SHIPPED.read_text().replace("decimal(12,2)", "decimal(18,0)"))
    rows = [f"x{i},2026-01-05T12:{i:02d}:00Z,7,3,{10**18 - 1}" for i in range(10)]
    (folder / "events.csv").write_text("\n".join([EVENTS.splitlines()[0], *rows]) + "\n")
    done = run(
        *EVALUATE,
        "--streams",
        "streams.toml",
        code=2,
        folder=folder,
    )
    assert "Traceback" not in done.stderr
    assert "error: rule spending: measures.spent: its exact value at event x9" in done.stderr
    assert not (folder / "v.parquet").exists()
