"""An alert that nothing explains, on a real night: it is held back, and nothing else is."""

import json

import polars as pl
import pytest

from nightjar.backfill.publish.verdicts import HeldBackError
from nightjar.backfill.run import run_all
from nightjar.kafka.clients import producer
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RECONCILIATION, RUNS, VIOLATIONS
from nightjar.operations.backfill_requests import request_of
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.canonical import canonical
from nightjar.rules.timestamps import iso_text, microseconds
from tests.support.nights import DAY, FirstNight, Night, expected, latest_alerts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def forged(night: Night) -> str:
    """Put an alert on the topic that the stream would never have sent, about an event that is there; its id."""
    true = set(night.alerts().filter(pl.col("rule_id") == "busy")["event_id"])
    events = night.history.streams["transactions"].events.to_pylist()
    event = next(event for event in events if event["transaction_id"] not in true)
    group = {"customer_id": event["customer_id"]}
    alert = alert_id("busy", 1, event["transaction_id"], microseconds(event["event_time"]), canonical(group))
    record = {
        "alert_id": alert,
        "revision": 1,
        "kind": "alert",
        "rule_id": "busy",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": group,
        "event_id": event["transaction_id"],
        "event_time": iso_text(microseconds(event["event_time"])),
        "measures": {"n": 9, "spent": "900.00"},
        "severity": "medium",
        "text": "",
        "muted": False,
        "source": "stream",
        "emitted_at": iso_text(0),
    }
    with producer(night.settings) as client:
        client.send(night.settings.alerts_topic, json.dumps(record).encode()).get()
    return alert


def test_an_unexplained_alert_is_held_back_and_the_rest_of_its_day_is_published(
    first_night: FirstNight, copied: Night
) -> None:
    """The run ends with a verdict that lists it, and whoever runs several days gets those behind it too."""
    night, root = copied, copied.config.lake.root
    wrong = forged(night)
    day = DAY.date()
    requests = [request_of(day, night.config.streams, run_id=name) for name in ("held", "after")]
    held, after = run_all(night.session, night.config, requests)

    assert isinstance(held.verdict, HeldBackError)
    assert [alert["alert_id"] for alert in held.verdict.alerts] == [wrong]
    assert f"alert {wrong}: retracted, rule busy version 1" in str(held.verdict)
    assert (held.counts["held_back"], held.counts["published"]) == (1, first_night.counts["published"])
    reported = {alert for alert in latest_alerts(night.alerts()) if alert[0] != wrong}
    assert reported == expected(night)
    assert set(scan(root, VIOLATIONS).collect()["alert_id"]) == {alert for alert, _ in expected(night)}
    causes = dict(scan(root, RECONCILIATION).select("alert_id", "cause").collect().iter_rows())
    assert [alert for alert, cause in causes.items() if cause == "unexplained"] == [wrong]
    run = scan(root, RUNS).filter(pl.col("run_id") == "held").collect().to_dicts()[-1]
    assert (run["state"], json.loads(run["counts"])["held_back"]) == ("finished", 1)
    assert wrong in run["failure"]

    assert isinstance(after.verdict, HeldBackError), "it stays so until somebody has found the cause"
    assert (after.counts["published"], after.counts["violations_changed"]) == (0, 0)
