"""An alert as a line: only what is one, and nothing that a terminal acts upon."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nightjar.configuration.settings import Settings
from nightjar.kafka.readers import KafkaRecord
from nightjar.metrics.published import PublishedCounters
from nightjar.operations.alert_tail import AlertTail
from nightjar.terminal.alert_lines import alert_line, alert_of
from nightjar.terminal.console import SafeConsole
from tests.support import alert_records
from tests.support.reports import ALERT


def record(value: bytes | dict[str, Any], sent_at: int | None = None) -> KafkaRecord:
    """A record of the alerts topic, which arrived at 5 s and is read an hour later."""
    written = json.dumps(value).encode() if isinstance(value, dict) else value
    return KafkaRecord("alerts", 0, 0, None, written, 5_000_000, sent_at, 3_600_000_000)


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


@pytest.mark.parametrize(("sent_at", "shown"), [(4_749_000, "251 ms"), (5_001_000, "0 ms")])
def test_latency_ends_with_the_alerts_arrival(sent_at: int, shown: str) -> None:
    """Whenever it is shown; never negative, where the producer's clock is ahead of the brokers'."""
    alert = alert_of(record(ALERT, sent_at))
    assert alert is not None
    assert alert_line(alert).plain.endswith(f"4 payments  a1  {shown}")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_alert_is_legible_at_any_width(width: int) -> None:
    """Where one line does not suffice, the text is wrapped at words, and id and latency have a line of their own."""
    terminal = SafeConsole()
    terminal._force_terminal, terminal.width = True, width
    given = {"alert_id": "0123456789abcdef" * 2, "rule_id": "terminal-compromised", "severity": "critical"}
    text = "12 payments of 1,234.56 at one terminal within an hour, usually 3 of 50.00"
    alert = alert_of(record(ALERT | given | {"text": text, "muted": True}, 4_749_000))
    assert alert is not None
    first, *further, last = alert_line(alert, terminal).plain.split("\n")
    assert first == "2026-01-05 10:00:00  critical  terminal-compromised v2  c7"
    assert " ".join(" ".join(further).split()) == f"muted {text}"
    assert last == f"    {given['alert_id']}  251 ms"
    assert all(len(each) <= width for each in (first, *further, last))
    terminal.width = 250
    assert "\n" not in alert_line(alert, terminal).plain


def test_what_allow_rules_silence_is_counted() -> None:
    """S24: by a tail that leaves out muted alerts, and by the metric; a retraction is no alert that is silenced."""
    silenced = alert_records.alert("t1", muted=True, measures={"allowed_by": "trust"})
    others = (alert_records.alert("t2", muted=True), alert_records.alert("t3"))
    records = [silenced, silenced | {"kind": "retraction", "revision": 2}, *others]
    tail = AlertTail(rule=None, unmuted=True, overflow=False, per_hour=None, masks=None)
    shown = [each.record["event_id"] for each in tail.chosen(map(record, records)) if not isinstance(each, str)]
    assert shown == ["t3"]
    assert next(iter(tail.summary())) == "3 muted alerts left out, 2 of them silenced by allow rules"
    registry = CollectorRegistry()
    counters = PublishedCounters(Settings(), registry)
    for each in records:
        counters.take(record(each)._replace(topic=Settings().alerts_topic))
    labels = {"allow_rule": "trust", "rule": silenced["rule_id"]}
    assert registry.get_sample_value("nightjar_allowed_alerts_total", labels) == 1
