"""docs/tutorial/idea-to-live.md: its files are written and its commands are run, in their order, as a person would.

Its `nightjar up` is then tried further: what it refuses, restarts and leaves.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nightjar.jvm.jars import PROJECT

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = PROJECT / "docs" / "tutorial" / "idea-to-live.md"
GIVEN = {"NIGHTJAR_KAFKA_PORT": "0", "NIGHTJAR_KAFKA_HEAP": "384m", "NIGHTJAR_DRIVER_MEMORY": "1g", "COLUMNS": "200"}
BLOCK = re.compile(r'^```(sh|text|yaml title="([^"]+)")\n(.*?)^```', re.DOTALL | re.MULTILINE)
STARTS = "nightjar up"
REPLAY = "nightjar replay {} --stream transactions --speed max"


def shell(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """What commands print on standard output; one that fails fails the test."""
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class Walk:
    """What came of the commands: their outputs, and `nightjar up`, which still runs."""

    folder: Path
    environment: dict[str, str]
    outputs: list[str] = field(default_factory=list)
    up: "subprocess.Popen[str] | None" = None

    def run(self, *commands: str) -> str:
        return shell("\n".join(commands), self.folder, self.environment)

    @property
    def log(self) -> str:
        return (self.folder / "up.log").read_text()

    @property
    def status(self) -> dict[str, Any]:
        """What `nightjar status` says, whether the job runs or not."""
        found: dict[str, Any] = json.loads(self.run("nightjar status --json || true"))
        return found


def started(folder: Path, environment: dict[str, str]) -> "subprocess.Popen[str]":
    """`nightjar up`, once it is up."""
    log = folder / "up.log"
    with log.open("w") as output:
        up = subprocess.Popen(["nightjar", "up"], cwd=folder, env=environment, stderr=output, text=True)
    deadline = time.monotonic() + 240
    while "nightjar is up" not in log.read_text():
        assert up.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with pytest.raises(subprocess.TimeoutExpired):
            up.wait(0.2)
    return up


def own_environment() -> dict[str, str]:
    """Without this installation's settings, with ports of its own, and this Python's commands."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTJAR_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**others, **GIVEN, "PATH": path}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The tutorial, walked to its end; lines that the page shows are printed by the command before them."""
    done = Walk(tmp_path_factory.mktemp("walk"), own_environment())
    try:
        for kind, file, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if file:
                (done.folder / file).parent.mkdir(exist_ok=True)
                (done.folder / file).write_text(text)
            elif kind == "text":
                printed = done.outputs[-1].splitlines()
                assert [line for line in text.splitlines() if line not in printed] == [], done.outputs[-1]
            elif text.rstrip().endswith(STARTS):
                done.run(text.replace(STARTS, ""))
                done.up = started(done.folder, done.environment)
            else:
                done.outputs.append(done.run(text))
        yield done
    finally:
        if done.up is not None and done.up.poll() is None:
            done.up.send_signal(signal.SIGTERM)
            done.up.wait(120)


def test_the_commands_of_the_tutorial_lead_to_a_live_rule(walk: Walk) -> None:
    *_, approved, alert = walk.outputs
    assert "card-burst version 1  ACTIVE" in approved
    assert "bob, " in approved
    assert "4 payments at 4 terminals within ten minutes" in alert
    assert (walk.folder / "report.html").stat().st_size > 0


def test_a_second_one_is_refused(walk: Walk) -> None:
    assert "a job is already running on it" in walk.run("nightjar up 2>&1 || test $? = 2")


def test_a_killed_job_starts_again_and_goes_on(walk: Walk) -> None:
    """A payment that arrives meanwhile is the fifth of its card, as if nothing had happened."""
    before = walk.status
    assert list(before["rules"]) == ["card-burst"]
    assert before["latency"]["alerts"] == 1
    os.kill(before["process"], signal.SIGKILL)
    walk.run("sed 's/^x4/y1/; s/T10:03/T10:04/; s/,m4/,m5/; /^x/d' now.csv > later.csv", REPLAY.format("later.csv"))
    deadline = time.monotonic() + 120
    while (now := walk.status)["process"] == before["process"] or not now["running"]:
        assert time.monotonic() < deadline, walk.log
    lines = walk.run("nightjar alerts tail --from-beginning --json -n 2").splitlines()
    alerts = {alert["event_id"]: alert for alert in map(json.loads, lines)}
    assert {event: alert["measures"]["payments"] for event, alert in alerts.items()} == {"x4": 4, "y1": 5}
    assert all(alert["latency_ms"] > 0 for alert in alerts.values())
    assert "the job exited with code -9" in walk.log
    assert "It starts again in 1 s." in walk.log


def test_it_stops_what_it_started(walk: Walk) -> None:
    """SIGTERM ends broker and job, and the exit code is 0."""
    assert walk.up is not None
    walk.up.send_signal(signal.SIGTERM)
    assert walk.up.wait(120) == 0, walk.log
    assert not (walk.folder / ".nightjar" / "kafka" / "broker.json").exists()
    assert "Traceback" not in walk.log
