"""docs/tutorial/idea-to-live.md: its files are written and its commands are run, in their order, as a person would."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nightjar.jvm.jars import PROJECT

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = PROJECT / "docs" / "tutorial" / "idea-to-live.md"
GIVEN = {"NIGHTJAR_KAFKA_PORT": "0", "NIGHTJAR_KAFKA_HEAP": "384m", "NIGHTJAR_DRIVER_MEMORY": "1g", "COLUMNS": "200"}
BLOCK = re.compile(r'^```(sh|text|yaml title="([^"]+)")\n(.*?)^```', re.DOTALL | re.MULTILINE)
STARTS = "nightjar up"


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


def test_the_commands_of_the_tutorial_lead_to_a_live_rule(tmp_path: Path) -> None:
    """Each does what the page says: lines that it shows are printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **GIVEN, "PATH": path}
    outputs: list[str] = []
    up = None
    try:
        for kind, file, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if file:
                (tmp_path / file).parent.mkdir(exist_ok=True)
                (tmp_path / file).write_text(text)
            elif kind == "text":
                printed = outputs[-1].splitlines()
                assert [line for line in text.splitlines() if line not in printed] == [], outputs[-1]
            elif text.rstrip().endswith(STARTS):
                shell(text.replace(STARTS, ""), tmp_path, environment)
                up = started(tmp_path, environment)
            else:
                outputs.append(shell(text, tmp_path, environment))
    finally:
        if up is not None:
            up.send_signal(signal.SIGTERM)
            up.wait(120)
    *_, approved, alert = outputs
    assert "card-burst version 1  ACTIVE" in approved
    assert "bob, " in approved
    assert "4 payments at 4 terminals within ten minutes" in alert
    assert (tmp_path / "report.html").stat().st_size > 0
