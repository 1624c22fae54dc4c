"""Engine processes: one for each number, whoever asks; it outlives the worker, and ends with the daemon."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

# A daemon that is its own worker, too. The program counts requests, and reports where it runs.
DAEMON = """
import os, pickle, signal, sys, time
from pathlib import Path
from nightjar.streaming.buckets.engine_processes import Remote, fork_starter

class Program:
    asked = 0

    def __call__(self, request):
        if request == "fail":
            raise ValueError("a program's mistake")
        if request == "slow":
            time.sleep(1)
        if isinstance(request, Path):
            (request / f"met-{os.getpid()}").touch()
            until = time.monotonic() + 60
            while len(list(request.glob("met-*"))) < 2:
                if time.monotonic() > until:
                    raise ValueError("the other one does not come")
                time.sleep(0.01)
            request = "met"
        self.asked += 1
        return os.getpid(), self.asked, request

class Freed(Program):
    def __del__(self):
        if self.asked:
            os.write(1, b"freed\\n")

def worker(number, request):
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, pickle.dumps(ask(number, request)))
        os._exit(0)
    os.wait()
    return pickle.loads(os.read(reading, 4096))

fork_starter()
program = Remote("owner", "program", pickle.dumps(Program()))
def ask(number, request, of=program):
    return of({number: request})[0]
folder = os.environ["NIGHTJAR_ENGINE_PROCESSES"]
"""


def daemon(script: str) -> list[str]:
    """The words that a daemon prints which runs this; afterwards none of its processes is left, and no folder."""
    end = "\nprint(folder, flush=True)"
    ran = subprocess.run([sys.executable, "-c", DAEMON + script + end], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *words, folder = ran.stdout.split()
    assert gone(folder)
    return words


def gone(path: str) -> bool:
    """Whether the folder, or the process, is gone soon."""
    until = time.monotonic() + 60
    while Path(path).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return not Path(path).exists()


def test_one_process_a_number_whoever_asks() -> None:
    """Two workers and the daemon speak to the same program, another number has one of its own."""
    first, second, own, other = daemon("""
for pid, asked, request in (worker(0, "a"), worker(0, "b"), ask(0, "c"), ask(1, "d")):
    print(f"{pid},{asked},{request}")
""")
    pid = first.split(",")[0]
    assert [word.split(",") for word in (first, second, own)] == [[pid, "1", "a"], [pid, "2", "b"], [pid, "3", "c"]]
    assert other.split(",")[0] != pid
    assert other.split(",")[1:] == ["1", "d"]
    assert gone(f"/proc/{pid}")
    assert gone(f"/proc/{other.split(',')[0]}")


def test_several_processes_work_at_the_same_time() -> None:
    """Two of them wait for each other. Replies are in the order of the requests, not in that in which they come."""
    replies = daemon("""
program({0: "a", 1: "b", 2: "c"})
for pid, asked, request in program({2: Path(folder), 0: "d", 1: Path(folder)}):
    print(f"{pid},{asked},{request}")
""")
    assert len({reply.split(",")[0] for reply in replies}) == 3
    assert [reply.split(",")[1:] for reply in replies] == [["2", "met"], ["2", "d"], ["2", "met"]]


def test_after_a_failure_nobody_reads_the_reply_to_another_request() -> None:
    """One of two processes fails while the other still works: what that one then says is nobody's."""
    assert daemon("""
program({0: "a", 1: "b"})
try:
    program({0: "slow", 1: "fail"})
except RuntimeError as failure:
    print(str(failure).splitlines()[-1].replace(" ", "-"))
print(*(request for _, _, request in program({0: "c", 1: "d"})))
""") == ["ValueError:-a-program's-mistake", "c", "d"]


def test_a_program_that_fails_stays() -> None:
    """The worker gets the cause, with its place; the program's state is kept."""
    assert daemon("""
ask(0, "a")
try:
    ask(0, "fail")
except RuntimeError as failure:
    print(str(failure).splitlines()[-1].replace(" ", "-"))
print(ask(0, "b")[1])
""") == ["ValueError:-a-program's-mistake", "2"]


def test_a_process_that_was_killed_is_started_again() -> None:
    """The request that it was at fails; the next goes to a new process, with the program as the driver sent it."""
    assert daemon("""
pid, _, _ = ask(0, "a")
os.kill(pid, signal.SIGKILL)
try:
    ask(0, "b")
except RuntimeError as failure:
    print(str(failure).partition(":")[0].replace(" ", "-"))
later, asked, _ = worker(0, "c")
print(later != pid, asked)
""") == ["engine-process-0-has-ended", "True", "1"]


def test_programs_of_other_owners_are_beside_it() -> None:
    """Each has its own; of many the oldest go, and come back as the driver sends them."""
    assert daemon("""
ask(0, "a")
for number in range(10):
    print(ask(0, "a", Remote(f"another {number}", "program", program.pickled))[1])
    print(ask(0, "b", Remote(f"another {number}", "program", program.pickled))[1])
print(ask(0, "b")[1])
""") == ["1", "2"] * 10 + ["1"]


def test_a_program_takes_the_place_of_its_owners_last_one() -> None:
    """A run of the query that has ended never asks for its engines again, and the process may live for days."""
    assert daemon("""
ask(0, "a", Remote("job", "first", pickle.dumps(Freed())))
print(ask(0, "a", Remote("job", "second", program.pickled))[1], flush=True)
print(ask(0, "a")[1], flush=True)
""") == ["freed", "1", "1"]


def test_the_folder_is_its_users_alone() -> None:
    """Who can reach a socket has its programs run."""
    assert daemon("print(oct(os.stat(folder).st_mode))") == ["0o40700"]


@pytest.mark.slow
def test_a_daemon_that_is_killed_leaves_nothing() -> None:
    """It gave no notice; that its pipe has closed is enough."""
    script = (
        DAEMON
        + """
pid, _, _ = ask(0, "a")
print(pid, folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid, folder = ran.stdout.split()
    assert gone(folder)
    assert gone(f"/proc/{pid}")
