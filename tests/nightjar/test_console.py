"""The one place of output: what is given to it is text, whoever wrote it."""

import json
import re
from typing import Any

import pytest
import structlog
from rich.table import Table

from nightjar.configuration import logs
from nightjar.rules.display import readable
from nightjar.rules.errors import NightjarError
from nightjar.terminal.console import SafeConsole, counted, line, lines, show_error, show_json

HOSTILE = "a[/x][bold]b[/bold]:bomb:\x1b[2J\x9b2J\u202e\n\r"
SHOWN = "a[/x][bold]b[/bold]:bomb:\\x1b[2J\\x9b2J\\u202e\\n\\r"
# What Rich itself sends to a terminal for styles, links and cursor movements.
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("terminal", [True, False])
def test_strings_are_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool) -> None:
    """In print, in lines and their styles, in tables and their titles, at a terminal and in a file."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    console = SafeConsole()
    assert console.is_terminal is terminal
    console.width = 300
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    console.print(HOSTILE)
    console.print(line(HOSTILE, (HOSTILE, "bold")))
    console.print(table)
    console.print(lines(f"{HOSTILE}second", "red"))
    written = capsys.readouterr().out
    assert "\x1b[2J" not in written
    plain = STYLES.sub("", written)
    assert {character for character in plain if not character.isprintable()} == {"\n"}
    assert plain.count(SHOWN) == 7
    assert plain.splitlines()[-1] == "\\rsecond"


def test_an_error_cannot_pose_as_two(capsys: pytest.CaptureFixture[str]) -> None:
    """Its further lines are indented, and the place it names is one line."""
    show_error(NightjarError("first\nerror: second\x1b[2J", where=f"file {HOSTILE}"))
    shown = capsys.readouterr().err.splitlines()
    assert [each[:7] for each in shown] == ["error: ", "  error"]
    assert SHOWN in shown[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [({"a": float("nan")}, '{"a": null}'), ([float("inf"), 1], "[null, 1]"), ("\x7f\x1b\u202e", None), ({1, 2}, None)],
)
def test_json_is_json_in_ascii(capsys: pytest.CaptureFixture[str], value: Any, text: str | None) -> None:
    """Without NaN, control characters, or values that JSON has no form for."""
    show_json(value)
    written = capsys.readouterr().out
    assert text is None or written == f"{text}\n"
    assert written.isascii()
    assert written.removesuffix("\n").isprintable()
    assert json.loads(written) == (value if isinstance(value, str) else json.loads(written))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (37.340666666666664, "37.34"),
        (1234.5, "1,234.50"),
        (0.0, "0.00"),
        (0.00123, "0.0012"),
        (3, "3"),
        (1e300, "1e+300"),
        ("37.340666", "37.340666"),
        ({"n": 3, "mean": 0.5, "last": None}, "n 3, mean 0.50, last null"),
    ],
)
def test_measures_have_the_digits_a_person_needs(value: Any, text: str) -> None:
    """Doubles two after the point; all else is exact."""
    assert readable(value) == text


def test_plurals() -> None:
    """One event, two events."""
    assert [counted(number, "event") for number in (0, 1, 2, 2000)] == [
        "0 events",
        "1 event",
        "2 events",
        "2,000 events",
    ]


def test_log_lines_cannot_be_forged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At a terminal too, whatever is logged: values and the messages of exceptions."""
    before = structlog.get_config()
    try:
        for terminal in (True, False):
            monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
            logs.configure("info")
            structlog.get_logger().warning("record_skipped", kind=HOSTILE, held=[HOSTILE])
            try:
                raise ValueError(HOSTILE)
            except ValueError:
                structlog.get_logger().exception("failed")
            plain = STYLES.sub("", capsys.readouterr().err)
            assert "bomb" in plain
            assert {character for character in plain if not character.isprintable()} == {"\n"}
            assert not any(each.startswith("a[/x]") for each in plain.splitlines())
    finally:
        structlog.configure(**before)
