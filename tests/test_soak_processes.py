"""What a soak counts and kills is every process of a program."""

import subprocess
import time
from contextlib import suppress

import psutil

from bench.processes import others_of_session
from soak.kill_targets import kill_all

# A program, whose child is a daemon, which has a worker.
_PROGRAM = "(sleep 61 & exec sleep 62) & wait; sleep 63"


def alive(leader: int) -> dict[str, psutil.Process]:
    """The other processes of the session by their last argument."""
    found = {}
    for each in others_of_session(leader):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if each.status() != psutil.STATUS_ZOMBIE and (arguments := each.cmdline()):
                found[arguments[-1]] = each
    return found


def test_orphans_belong_to_the_program_they_come_from() -> None:
    """Their parent has ended; they are found, and killed with the program."""
    with subprocess.Popen(["sh", "-c", _PROGRAM], start_new_session=True) as program:
        deadline = time.monotonic() + 60
        while not alive(program.pid).keys() >= {"61", "62"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        alive(program.pid)["62"].kill()
        while "62" in (left := alive(program.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker = left["61"]
        assert worker not in psutil.Process(program.pid).children(recursive=True)
        kill_all(program.pid)
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running()
