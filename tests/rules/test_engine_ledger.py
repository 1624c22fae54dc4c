"""What has been announced is remembered as long as it can change."""

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine, ledger
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
MINUTE = 60_000_000
WRITTEN = {
    "id": "r",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 1",
    "measures": {"n": {"count": "*", "over": "90d"}},
}


def payments(minutes: list[int], arrival: int) -> pa.Table:
    """One payment a minute given, all arriving at another."""
    times = pa.array([minute * MINUTE for minute in minutes]).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "transaction_id": [f"t{minute}" for minute in minutes],
            "event_time": times,
            "customer_id": ["ann"] * len(minutes),
            "terminal_id": pa.nulls(len(minutes), pa.string()),
            "amount": pa.nulls(len(minutes), pa.decimal128(12, 2)),
            "arrival_time": pa.array([arrival * MINUTE] * len(minutes)).cast(pa.timestamp("us", "UTC")),
        }
    )


def test_announcements_go_once_their_events_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the windows are that still need the events: by lateness (10 minutes), not by window (90 days)."""
    monkeypatch.setattr(ledger, "_FLOOR", 16)
    engine = Engine(STREAMS["transactions"], RuleSet.of([parse_rule(WRITTEN, STREAMS)], 0))
    held = []
    for minute in range(300):
        engine.advance(payments([minute], minute), minute * MINUTE)
        held.append(engine._ledger.count)
    assert engine.rows == 300
    assert max(held) <= 24, "twice the eleven that are not settled, and what came since"
    assert engine.snapshot().announcements.num_rows == 11


def test_what_is_still_remembered_is_revised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting others changes no revision of an alert that is not settled."""
    monkeypatch.setattr(ledger, "_FLOOR", 4)
    monkeypatch.setattr(ledger, "_MOST_TABLES", 2)
    engine = Engine(STREAMS["transactions"], RuleSet.of([parse_rule(WRITTEN, STREAMS)], 0))
    for minute in range(0, 100, 2):
        engine.advance(payments([minute], minute), minute * MINUTE)
    revised = engine.advance(payments([91, 93], 98)).alerts.to_pylist()
    assert [(alert["event_id"], alert["revision"]) for alert in revised] == [
        ("t91", 1),
        ("t92", 2),
        ("t93", 1),
        ("t94", 2),
        ("t96", 2),
        ("t98", 2),
    ]
