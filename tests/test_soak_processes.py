"""What a soak counts and kills is every process of a program."""

import subprocess
import time

import psutil

from bench.processes import others_of_session
from soak.kill_targets import kill_all


def test_orphans_belong_to_the_program_they_come_from() -> None:
    """Their parent has ended; they are found, and killed with the program."""
    with subprocess.Popen(["sh", "-c", "(sleep 60 & exec sleep 60) & wait"], start_new_session=True) as program:
        deadline = time.monotonic() + 30
        while len(others_of_session(program.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child = psutil.Process(program.pid).children()[0]
        child.kill()
        orphans = [each for each in others_of_session(program.pid) if each.status() != psutil.STATUS_ZOMBIE]
        assert orphans
        assert not set(orphans) & set(psutil.Process(program.pid).children(recursive=True))
        kill_all(program.pid)
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in orphans)
