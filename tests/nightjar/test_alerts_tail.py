"""`nightjar alerts tail`: what a person sees of alerts."""

import json
import time
from typing import Any

import pytest

from nightjar.kafka.clients import producer
from tests.support.command import environment, run
from tests.support.reports import ALERT
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """An alert, its revision, its retraction, and an alert of another rule, in one partition."""
    own = kafka_topics.ensure()
    records: list[dict[str, Any]] = [
        ALERT,
        ALERT | {"revision": 2, "text": "5 payments"},
        ALERT | {"revision": 3, "kind": "retraction"},
        ALERT | {"alert_id": "a3", "muted": True},
        ALERT | {"alert_id": "a2", "rule_id": "other"},
    ]
    with producer(own.settings) as client:
        for record in records:
            sent = [("sent_at", str(time.time_ns() // 1000).encode())]
            client.send(own.settings.alerts_topic, json.dumps(record).encode(), headers=sent, partition=0).get()
    return own


def test_alerts_are_shown_with_what_became_of_them(own: TestTopics) -> None:
    """Revisions and retractions are marked, and every line has its latency."""
    shown = run("alerts", "tail", "--from-beginning", "-n", "5", environment=environment(own.settings)).stdout
    first, second, third, muted, fourth = shown.splitlines()
    assert first.startswith("2026-01-05 10:00:00  high")
    assert "burst v2" in first
    assert "c7" in first
    assert "4 payments" in first
    assert first.endswith(" ms")
    assert "4 payments  a1  " in first
    assert "REVISED (2)" in second
    assert "RETRACTED" in third
    assert "muted  4 payments" in muted
    assert "other v2" in fourth


def test_one_rule_as_json(own: TestTopics) -> None:
    """--json gives the records with their latency, --rule those of one rule."""
    arguments = ("alerts", "tail", "--from-beginning", "--rule", "other", "--json", "-n", "1")
    (record,) = [
        json.loads(text) for text in run(*arguments, environment=environment(own.settings)).stdout.splitlines()
    ]
    assert record["alert_id"] == "a2"
    assert 0 <= record["latency_ms"] < 600_000


def test_muted_alerts_may_be_left_out(own: TestTopics) -> None:
    """--unmuted shows the others, and how many there were."""
    arguments = ("alerts", "tail", "--from-beginning", "--unmuted", "-n", "4")
    done = run(*arguments, environment=environment(own.settings))
    assert len(done.stdout.splitlines()) == 4
    assert "muted" not in done.stdout
    assert "1 muted alert left out" in done.stderr


def test_alerts_beyond_the_cap_are_summarised(own: TestTopics) -> None:
    """S10.6: marked ones are counted by rule and hour; --overflow shows them, and --json leaves nothing out."""
    with producer(own.settings) as client:
        for number in range(3):
            record = ALERT | {"alert_id": f"o{number}", "overflow": True}
            client.send(own.settings.alerts_topic, json.dumps(record).encode(), partition=0).get()
        client.send(own.settings.alerts_topic, json.dumps(ALERT | {"alert_id": "last"}).encode(), partition=0).get()
    given = environment(own.settings)
    done = run("alerts", "tail", "--from-beginning", "-n", "6", environment=given)
    assert len(done.stdout.splitlines()) == 6
    assert "overflow" not in done.stdout
    assert done.stderr.count("burst: beyond the cap in the hour from 2026-01-05 10:00 on") == 1
    assert "burst: 3 records marked overflow in the hour from 2026-01-05 10:00 on" in done.stderr
    whole = run("alerts", "tail", "--from-beginning", "-n", "9", "--overflow", environment=given)
    assert whole.stdout.count("overflow") == 3
    printed = run("alerts", "tail", "--from-beginning", "-n", "9", "--json", environment=given).stdout
    assert sum(json.loads(line).get("overflow", False) for line in printed.splitlines()) == 3


def test_a_flood_of_alerts_is_summarised(own: TestTopics) -> None:
    """--per-hour shows the first alerts of a rule and hour with their revisions, and counts the others."""
    arguments = ("alerts", "tail", "--from-beginning", "--per-hour", "1", "-n", "4")
    done = run(*arguments, environment=environment(own.settings))
    assert len(done.stdout.splitlines()) == 4
    assert "REVISED (2)" in done.stdout
    assert "burst: 1 record left out, beyond 1 alerts an hour" in done.stderr
