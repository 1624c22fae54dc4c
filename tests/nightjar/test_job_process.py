"""One job a checkpoint, and the job as a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.local.job_process import JobProcess, JobProcessError
from nightjar.operations.locks import AlreadyRunningError, refuse_running, sole_job
from tests.support.command import run

HOLDER = """
import sys
from pathlib import Path
from nightjar.operations.locks import sole_job
with sole_job(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_job_on_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """While a process holds the checkpoint no other gets it, and the message names the holder; killed, it is free."""
    checkpoint = tmp_path / "data" / "checkpoint"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            AlreadyRunningError, match=rf"a job is already running on it \(process {holder.pid}\).*SIGTERM"
        ):
            refuse_running(checkpoint)
    finally:
        holder.kill()
        holder.communicate()
    with sole_job(checkpoint):
        pass


def test_up_refuses_where_a_job_runs(tmp_path: Path) -> None:
    """Before anything is started."""
    with sole_job(tmp_path / ".nightjar" / "checkpoint"):
        done = run("up", code=2, folder=tmp_path, environment={"NIGHTJAR_KAFKA_PORT": "0"})
    assert "a job is already running on it" in done.stderr
    assert not (tmp_path / ".nightjar" / "kafka").exists()


@pytest.mark.slow
def test_job_that_ends_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """The error has the job's last output."""
    job = JobProcess(tmp_path / "job.log", {"NIGHTJAR_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, tmp_path)
    with job:
        assert job.wait(60)
        with pytest.raises(JobProcessError, match=r"(?s)exited with code 2.*no broker responds"):
            job.check()
    assert job.pid is None
