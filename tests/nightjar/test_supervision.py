"""Programs that die are started again; one that cannot stay up is given up, with its last words."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nightjar.local.job_process import JobProcessError
from nightjar.processes import supervision
from nightjar.processes.process import ManagedProcess
from nightjar.processes.supervision import keep_running
from tests.support.units import UNITS, command


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, of Debian's package systemd"
)
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    """Every section and key is known; the path is that of a program here."""
    text = unit.read_text()
    copy = tmp_path / unit.name
    copy.write_text(re.sub("^ExecStart=.*", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("unit", "runs"),
    [("nightjar-job", "stream"), ("nightjar-metrics", "metrics"), ("nightjar-notifier", "alerts notify")],
)
def test_a_unit_runs_the_release_in_use_and_may_write_compiled_code(unit: str, runs: str) -> None:
    """It runs from the link that upgrade.sh moves; numba needs a folder, and there is no home for one."""
    assert command(f"{unit}.service", Path("/there")) == f"/there/current/.venv/bin/nightjar {runs}"
    lines = (UNITS / f"{unit}.service").read_text().splitlines()
    assert {"CacheDirectory=nightjar", "Environment=NUMBA_CACHE_DIR=%C/nightjar", "ProtectHome=true"} <= {*lines}


def program(folder: Path, code: str) -> ManagedProcess:
    """A running program that counts its starts in a file."""
    text = f"open('starts', 'a').write('x'); {code}"
    made = ManagedProcess("it", [sys.executable, "-c", text], folder / "log", JobProcessError, folder=folder)
    made.start()
    return made


def test_a_program_that_cannot_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After six starts, each later than the one before; the log before is kept."""
    slept: list[float] = []
    # its own name for the module: other threads sleep too
    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    said: list[str] = []
    with pytest.raises(JobProcessError, match="exited with code 1; its log ends with"):
        keep_running(program(tmp_path, "raise SystemExit('no such topic')"), said.append, lambda: None)
    assert (tmp_path / "starts").read_text() == "x" * 6
    assert slept == [1, 2, 4, 8, 16]
    assert all("no such topic" in each and "It starts again in" in each for each in said)
    assert (tmp_path / "log.1").exists()


def test_what_it_depends_on_is_looked_at_first(tmp_path: Path) -> None:
    """Without its broker a job is not started again."""

    def gone() -> None:
        raise JobProcessError("the broker exited")

    with pytest.raises(JobProcessError, match="the broker exited"):
        keep_running(program(tmp_path, "pass"), lambda _: None, gone)
    assert (tmp_path / "starts").read_text() == "x"


def test_a_program_that_ran_for_a_while_starts_from_the_first_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaths that are far apart do not add up."""
    monkeypatch.setattr(supervision, "_STEADY", 0.0)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        keep_running(program(tmp_path, "pass"), lambda _: None, lambda: None)
    assert slept == [1.0] * 8
