"""Programs in the background: what they leave when they end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from nightjar.processes.process import ManagedProcess, others_of_session, stop_families
from nightjar.rules.errors import NightjarError


def test_exit_code_that_another_collected_is_unknown(tmp_path: Path) -> None:
    """A program that was killed and waited for elsewhere in this process stops without a code, and starts again."""
    sleeper = ManagedProcess(
        "a sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", NightjarError
    )
    sleeper.start()
    assert sleeper.pid is not None
    killed = psutil.Process(sleeper.pid)
    killed.kill()
    killed.wait(60)
    assert sleeper.stop(60) is None
    sleeper.start()
    assert sleeper.stop(60) == -15


def test_a_long_log_is_moved_while_the_program_writes(tmp_path: Path) -> None:
    """There is one older file; the program writes on at the beginning of the new one."""
    code = "import sys; print('a' * 100, flush=True)\nfor line in sys.stdin: print(line, end='', flush=True)"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = ManagedProcess(
        "a writer", ["sh", "-c", f'exec "$0" -c "$1" < {pipe}', sys.executable, code], tmp_path / "log", NightjarError
    )
    program.start()
    with pipe.open("w") as lines:
        until(lambda: program.log.stat().st_size == 101)
        program.rotate_log(101)
        assert program.log.stat().st_size == 101
        program.rotate_log(100)
        assert program.log.stat().st_size == 0
        lines.write("more\n")
        lines.flush()
        until(lambda: program.log.read_text() == "more\n")
    assert program.wait(60)
    assert (tmp_path / "log.1").read_text() == "a" * 100 + "\n"


def test_orphans_are_stopped_with_the_program_they_come_from() -> None:
    """A child of the program has a child of its own and is killed: what it leaves belongs to the program still."""
    code = "(sleep 61 & exec sleep 62) & wait; sleep 63"
    with subprocess.Popen(["sh", "-c", code], start_new_session=True) as program:
        until(lambda: living(program.pid).keys() >= {"61", "62"})
        living(program.pid)["62"].kill()
        until(lambda: "62" not in living(program.pid))
        orphan = living(program.pid)["61"]
        assert orphan not in psutil.Process(program.pid).children(recursive=True)
        stop_families([psutil.Process(program.pid)], 1)  # nobody asks the orphan: it is killed after that
    assert not orphan.is_running()


def living(leader: int) -> dict[str, psutil.Process]:
    """The other processes of the session by their last argument."""
    found = {}
    for each in others_of_session(leader):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if each.status() != psutil.STATUS_ZOMBIE and (arguments := each.cmdline()):
                found[arguments[-1]] = each
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
