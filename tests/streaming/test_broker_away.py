"""The job while no broker answers."""

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import CapturingLogger

from nightjar.cases.model import Message, Step
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.streaming.driver import outbox
from tests.support.job_host import logins_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]

NOON = parse_timestamp("2026-01-05T12:00:00Z", zone_required=True) or 0
RULE = {"id": "failed", "stream": "logins", "group_by": ["customer_id"], "when": "status = 'FAIL'"}


def step(number: int, *rules: dict[str, object]) -> Step:
    """A failed login, and before it rules."""
    at = NOON + number * 1_000_000
    login = {
        "login_id": f"l{number}",
        "event_time": iso_text(at),
        "customer_id": "ann",
        "ip": "::1",
        "device": "d",
        "status": "FAIL",
    }
    message = Message("logins", json.dumps(login).encode())
    return Step(at, crash=False, rules=tuple(json.dumps(rule).encode() for rule in rules), events=(message,))


def test_the_job_survives_and_reports_again(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed and comes back costs time: the same run of the job takes rules and events after it."""
    log = CapturingLogger()
    monkeypatch.setattr(outbox, "_log", log)
    with logins_job(spark, tmp_path) as (broker, job):
        job.take(step(0, RULE))
        job.await_reported()
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        missing = "Kafka does not answer"
        job.wait_for(lambda: any(missing in call.args for call in log.calls), f"the warning {missing!r}", log.calls)
        broker.start()
        job.take(step(1))
        job.take(step(2, {**RULE, "id": "failed-too"}))
        job.await_reported()
        reported = {(alert["rule_id"], alert["event_id"]) for alert in job.outcome().alerts}
    assert reported == {("failed", "l0"), ("failed", "l1"), ("failed", "l2"), ("failed-too", "l2")}
