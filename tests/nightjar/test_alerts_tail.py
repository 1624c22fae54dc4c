"""`nightjar alerts tail`: what a person sees of alerts."""

import json
import time
from typing import Any

import pytest

from nightjar.kafka.clients import producer
from tests.conftest import TestTopics
from tests.nightjar.test_rules_commands import environment
from tests.support.command import run

pytestmark = pytest.mark.kafka

ALERT = {
    "alert_id": "a1", "revision": 1, "kind": "alert", "rule_id": "burst", "rule_version": 2, "rule_state": "active",
    "stream": "transactions", "group": {"customer_id": "c7"}, "event_id": "t1",
    "event_time": "2026-01-05T10:00:00.000000Z", "measures": {"payments": 4}, "severity": "high",
    "text": "4 payments", "muted": False, "source": "stream", "emitted_at": "2026-01-05T10:00:01.000000Z",
}  # fmt: skip


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """An alert, its revision, its retraction, and an alert of another rule, in one partition."""
    own = kafka_topics.ensure()
    records: list[dict[str, Any]] = [
        ALERT,
        ALERT | {"revision": 2, "text": "5 payments"},
        ALERT | {"revision": 3, "kind": "retraction"},
        ALERT | {"alert_id": "a2", "rule_id": "other"},
    ]
    with producer(own.settings) as client:
        for record in records:
            sent = [("sent_at", str(time.time_ns() // 1000).encode())]
            client.send(own.settings.alerts_topic, json.dumps(record).encode(), headers=sent, partition=0).get(10)
    return own


def test_alerts_are_shown_with_what_became_of_them(own: TestTopics) -> None:
    """Revisions and retractions are marked, and every line has its latency."""
    shown = run("alerts", "tail", "--from-beginning", "-n", "4", environment=environment(own.settings)).stdout
    first, second, third, fourth = shown.splitlines()
    assert first.startswith("2026-01-05 10:00:00  high")
    assert "burst v2" in first
    assert "c7" in first
    assert "4 payments" in first
    assert first.endswith(" ms")
    assert "REVISED (2)" in second
    assert "RETRACTED" in third
    assert "other v2" in fourth


def test_one_rule_as_json(own: TestTopics) -> None:
    """--json gives the records with their latency, --rule those of one rule."""
    arguments = ("alerts", "tail", "--from-beginning", "--rule", "other", "--json", "-n", "1")
    (record,) = [
        json.loads(text) for text in run(*arguments, environment=environment(own.settings)).stdout.splitlines()
    ]
    assert record["alert_id"] == "a2"
    assert 0 <= record["latency_ms"] < 600_000
