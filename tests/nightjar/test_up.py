"""`nightjar up` as a person uses it: everything started, a rule published, an alert seen, everything stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

RULE = """
id: burst
stream: transactions
group_by: [customer_id]
effective: 2020-01-01T00:00:00Z
measures:
  payments: {count: "*", over: 10m}
when: "payments >= 2"
description: "{payments} payments"
"""
EVENTS = """transaction_id,event_time,customer_id,terminal_id,amount
1,2026-01-05T00:00:00Z,c,t,9.99
2,2026-01-05T00:00:01Z,c,t,9.99
"""
GIVEN = {"NIGHTJAR_KAFKA_PORT": "0", "NIGHTJAR_KAFKA_HEAP": "384m", "NIGHTJAR_DRIVER_MEMORY": "1g"}


def started(process: subprocess.Popen[str], log: Path) -> None:
    """Wait until it reports that it is up."""
    deadline = time.monotonic() + 240
    while "nightjar is up" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)


def status_of(folder: Path) -> dict[str, Any]:
    """What `nightjar status` says, running or not."""
    command = [str(Path(sys.executable).with_name("nightjar")), "status", "--json"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **GIVEN}, capture_output=True, text=True, check=False, timeout=120
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_up_runs_everything_until_it_is_stopped(tmp_path: Path) -> None:
    """A rule becomes active, its alert is shown, the status is right; SIGTERM ends broker and job, exit code 0."""
    (tmp_path / "burst.yaml").write_text(RULE)
    (tmp_path / "events.csv").write_text(EVENTS)
    log = tmp_path / "log"
    with log.open("w") as output:
        command = [str(Path(sys.executable).with_name("nightjar")), "up"]
        environment = {**os.environ, **GIVEN}
        up = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=output, text=True)
    try:
        started(up, log)
        options = {"folder": tmp_path, "environment": GIVEN}
        assert "a job is already running on it" in run("up", code=2, **options).stderr
        assert "burst version 1  ACTIVE" in run("rules", "publish", "burst.yaml", "--wait", **options).stdout
        run("replay", "events.csv", "--stream", "transactions", "--speed", "max", **options)
        alert = json.loads(run("alerts", "tail", "--from-beginning", "--json", "-n", "1", **options).stdout)
        assert alert["text"] == "2 payments"
        assert alert["latency_ms"] > 0
        status = json.loads(run("status", "--json", **options).stdout)
        assert list(status["rules"]) == ["burst"]
        assert status["latency"]["alerts"] == 1
        os.kill(status["process"], signal.SIGKILL)
        (tmp_path / "events.csv").write_text(EVENTS.replace("\n1,", "\n3,").replace("\n2,", "\n4,"))
        run("replay", "events.csv", "--stream", "transactions", "--speed", "max", **options)
        deadline = time.monotonic() + 120
        while (again := status_of(tmp_path))["process"] == status["process"] or not again["running"]:
            assert time.monotonic() < deadline, log.read_text()
        lines = run("alerts", "tail", "--from-beginning", "--json", "-n", "3", **options).stdout.splitlines()
        assert {json.loads(line)["event_id"] for line in lines} == {"2", "3", "4"}
        assert "the job exited with code -9" in log.read_text()
        assert "It starts again in 1 s." in log.read_text()
    finally:
        up.send_signal(signal.SIGTERM)
        code = up.wait(120)
    assert code == 0, log.read_text()
    assert not (tmp_path / ".nightjar" / "kafka" / "broker.json").exists()
    assert "Traceback" not in log.read_text()
