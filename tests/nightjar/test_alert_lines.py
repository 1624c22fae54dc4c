"""An alert as a line: only what is one, and nothing that a terminal acts upon."""

import json
from typing import Any

import pytest

from nightjar.cli.alert_lines import alert_line, alert_of
from nightjar.kafka.readers import Record
from tests.support.reports import ALERT


def record(value: bytes | dict[str, Any]) -> Record:
    """A record of the alerts topic."""
    written = json.dumps(value).encode() if isinstance(value, dict) else value
    return Record("alerts", 0, 0, None, written, 0, None, 0)


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[" * 100_000, b"[]", {"alert_id": "a", "revision": 1}, ALERT | {"group": [1]}]
)
def test_what_is_no_alert_is_passed_over(value: bytes | dict[str, Any]) -> None:
    """Anybody may write to the topic."""
    assert alert_of(record(value)) is None


def test_an_event_cannot_command_a_terminal() -> None:
    """Its values are shown with control characters written out."""
    alert = alert_of(record(ALERT | {"group": {"customer_id": "\x1b[2Jc"}, "text": "paid at \x1b]0;x\x07\u202e"}))
    assert alert is not None
    shown = alert_line(alert).plain
    assert "\\x1b[2Jc" in shown
    assert "paid at \\x1b]0;x\\x07\\u202e" in shown
    assert shown.isprintable()
