"""deploy/systemd/upgrade.sh, with releases that are scripts and a systemctl that does what the real unit says."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.units import UNITS, executable, install_systemctl

# `stream` notes who it is and is over; it counts as running until `systemctl stop`.
_RELEASE = """#!/bin/sh
cd {folder}
case $1 in
stream) {stream} ;;
status) [ ! -e job.pid ] || echo "{{\\"running\\": true, \\"process\\": $(cat job.pid)}}" ;;
esac
"""
_RUNS = 'echo $$ > job.pid; echo "{name}" >> started'


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """Two releases of which the old one runs, one that does not start, and a checkpoint."""
    for name, stream in (("old", _RUNS), ("new", _RUNS), ("broken", "exit 1")):
        program = _RELEASE.format(folder=tmp_path, stream=stream.format(name=name))
        executable(tmp_path / name / ".venv/bin/nightjar", program)
    (tmp_path / "current").symlink_to(tmp_path / "old")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state").write_text("old")
    install_systemctl(tmp_path, "{command} || :", "rm -f job.pid")
    subprocess.run([tmp_path / "bin" / "systemctl", "start"], check=True)
    return tmp_path


def upgraded(installation: Path, to: str) -> subprocess.CompletedProcess[str]:
    """The script has run."""
    given = os.environ | {"PATH": f"{installation / 'bin'}:{os.environ['PATH']}", "UPGRADE_PATIENCE": "60"}
    given |= {"UPGRADE_PATIENCE": "1"} if to == "broken" else {}
    command = [UNITS / "upgrade.sh", f"{installation}/", installation / to, installation / "checkpoint"]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def started(installation: Path) -> list[str]:
    """The releases that have run the job, in order."""
    return (installation / "started").read_text().split()


def test_the_unit_runs_the_new_release_afterwards(installation: Path) -> None:
    """And the checkpoint from before is beside the one in use."""
    done = upgraded(installation, "new")
    assert done.returncode == 0, done.stderr
    assert started(installation) == ["old", "new"]
    assert (installation / "checkpoint.before-upgrade" / "state").read_text() == "old"


def test_a_release_that_does_not_run_is_replaced_by_the_old_one(installation: Path) -> None:
    """With the exit code 1."""
    done = upgraded(installation, "broken")
    assert (done.returncode, started(installation)) == (1, ["old", "old"]), done.stderr
    assert (installation / "current").resolve().name == "old"
    assert not (installation / "checkpoint.before-upgrade").exists()


def test_a_unit_that_does_not_run_from_the_link_is_refused(installation: Path) -> None:
    """Nothing would be upgraded; the job goes on."""
    systemctl = installation / "bin" / "systemctl"
    systemctl.write_text(systemctl.read_text().replace(f"path={installation}/current/", f"path={installation}/"))
    done = upgraded(installation, "new")
    assert (done.returncode, started(installation)) == (2, ["old"])
    assert f"nightjar-job does not run from {installation}/current" in done.stderr
    assert not (installation / "checkpoint.before-upgrade").exists()
