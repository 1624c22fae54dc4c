"""`nightjar explain` of what Kafka has and the lake does not have yet, on a real broker."""

import json
from pathlib import Path
from typing import Any

import pytest

from nightjar.contracts.alerts import alert_record, message
from nightjar.kafka.clients import producer
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.timestamps import iso_text, microseconds
from tests.support.answers import answered
from tests.support.command import environment, run
from tests.support.payments import NOON, STREAM, add, payment
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka

GROUP = '{"customer_id":"ann"}'
AT = microseconds(NOON)
MINUTE = 60_000_000
RULE: dict[str, Any] = {
    "id": "limit",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1h"}},
    "when": "n >= 2",
}
NAMED = alert_id("limit", 1, "t2", AT, GROUP)


@pytest.fixture
def given(kafka_topics: TestTopics, tmp_path: Path) -> dict[str, str]:
    """A rule that was answered, two payments and an alert, all on Kafka alone: the variables that lead there."""
    own = kafka_topics.with_arrival("producer").ensure()
    topic = own.streams["transactions"].topic
    shipped = Path("nightjar/rules/streams.toml").read_text()
    (tmp_path / "streams.toml").write_text(shipped.replace('topic = "transactions"', f'topic = "{topic}"'))
    (answer,) = answered({"transactions": STREAM}, RULE, at=AT - 60 * 24 * 60 * MINUTE)
    row = {
        "alert_id": NAMED,
        "revision": 1,
        "kind": "alert",
        "rule_id": "limit",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": GROUP,
        "event_id": "t2",
        "event_time": AT,
        "measures": '{"n":2}',
        "severity": "medium",
        "text": "",
        "muted": False,
    }
    with producer(own.settings) as client:
        status = own.settings.rule_status_topic
        client.send(status, answer.value, timestamp_ms=answer.arrival // 1000, partition=0).get(10)
        for name, at in (("t1", AT - 10 * MINUTE), ("t2", AT)):
            event = {"transaction_id": name, "event_time": iso_text(at), "customer_id": "ann", "terminal_id": "m"}
            value = json.dumps(event | {"amount": 1}).encode()
            client.send(topic, value, timestamp_ms=at // 1000, partition=0).get(10)
        client.send(topic, b"no event", timestamp_ms=AT // 1000).get(10)
        key, value = message(alert_record(row, AT))
        client.send(own.settings.alerts_topic, b"no alert", key=key).get(10)
        client.send(own.settings.alerts_topic, value, key=key).get(10)
    places = {"NIGHTJAR_STREAMS": str(tmp_path / "streams.toml"), "NIGHTJAR_LAKE_DIR": str(tmp_path / "lake")}
    return {**environment(own.settings), **places, "NIGHTJAR_DATA_DIR": str(tmp_path / "data")}


def test_a_fresh_alert_is_explained_without_a_lake(given: dict[str, str]) -> None:
    """Nothing was archived yet: alert, rule and events come from Kafka, and that is said."""
    shown = run("explain", NAMED, environment=given).stdout
    assert shown.splitlines()[0] == f"alert {NAMED}  announced by the stream"
    assert "1 record about it was read from Kafka: the archive has yet to bring that to the lake." in shown
    assert "No night has judged it yet: its event belongs to the night of 5 January 2026." in shown
    found = json.loads(run("explain", NAMED, "--json", environment=given).stdout)
    assert (found["holds"], found["measures"], found["state"]["confirmed"]) == (True, {"n": 2}, True)
    assert [row["transaction_id"] for row in found["window"]] == ["t1", "t2"]


def test_events_that_are_archived_and_on_kafka_count_once(given: dict[str, str], tmp_path: Path) -> None:
    """The archive may have written them without having noted how far it has come."""
    add(tmp_path / "lake", payment("t1", NOON.replace(hour=11, minute=50)))
    found = json.loads(run("explain", NAMED, "--json", environment=given).stdout)
    assert found["measures"] == {"n": 2}


def test_an_alert_that_nobody_knows(given: dict[str, str]) -> None:
    """Neither the lake nor Kafka has it."""
    refused = run("explain", "0" * 32, code=2, environment=given).stderr
    assert "there is no such alert" in refused
