"""The command line: fast help, and bad input is one message and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.cli.app import COMMANDS
from tests.support.command import run


def test_help_names_every_command() -> None:
    """`nightjar --help` lists the commands and ends well."""
    shown = run("--help").stdout
    for command in COMMANDS:
        assert command in shown


def test_help_imports_nothing_heavy() -> None:
    """What takes a second to import is imported by the command that needs it."""
    heavy = ("pyspark", "numba", "polars", "pyarrow", "pandas", "numpy", "kafka", "sqlglot")
    code = f"import nightjar.cli.app, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version() -> None:
    """`--version` prints it and nothing else."""
    assert run("--version").stdout.strip().startswith("0.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain", "a1"], "there is no such alert"),
        (["lake", "maintain"], "there is no lake"),
        (["lake", "repair"], "there is no lake"),
        (["lake", "forget", "--key", "customer_id=c1"], "there is no lake"),
        (["archive"], "gone/"),  # the folder that NIGHTJAR_JAR_DIR names
    ],
)
def test_what_starts_no_spark_needs_neither_jars_nor_java(tmp_path: Path, arguments: list[str], expected: str) -> None:
    """Such commands work where nothing but the lake is; the archive names the folder without jars."""
    given = {"NIGHTJAR_JAR_DIR": str(tmp_path / "gone"), "JAVA_HOME": "/nonexistent", "NIGHTJAR_KAFKA_PORT": "1"}
    assert expected in run(*arguments, code=2, environment=given, folder=tmp_path).stderr


EVENTS = "transaction_id,event_time,customer_id,terminal_id,amount\n1,2026-01-05T00:00:00Z,c,t,9.99\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["replay", "events.csv", "--stream", "transaction"], "Did you mean transactions?"),
        (["replay", "gone.csv", "--stream", "transactions"], "gone.csv: does not exist"),
        (["replay", "events.txt", "--stream", "transactions"], "Supported extensions are .parquet, .csv"),
        (["replay", "events.csv", "--stream", "logins"], "has no column login_id"),
        (["replay", "events.csv", "--stream", "transactions", "--speed", "fast"], "Give a positive number, or max"),
        (["replay", "events.csv", "--stream", "transactions", "--keep-times"], "Set arrival = producer"),
        (
            ["replay", "events.csv", "--stream", "transactions", "--max-delay", "5"],
            "--max-delay: '5' is not a duration",
        ),
        (["replay", "events.csv", "--stream", "transactions"], "no broker responds"),
        (["--settings", "gone.toml", "replay", "events.csv", "--stream", "transactions"], "gone.toml: cannot be read"),
        (["generate", "--out", "events.csv"], "events.csv: cannot be created"),
        (["generate", "--out", "o", "--days", "0"], "days: 0 is out of range"),
        (["generate"], "Missing option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_message(tmp_path: Path, arguments: list[str], expected: str) -> None:
    """What is wrong and what to do, on standard error, without a traceback; the exit code is 2."""
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "events.txt").write_text(EVENTS)
    unreachable = {"NIGHTJAR_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = run(*arguments, code=2, folder=tmp_path, environment=unreachable)
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
