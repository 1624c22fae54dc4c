"""Programs that run in the background for this one: a log in a file, whose end is in every error, and a clean stop.

How it works: each is started in a session of its own, so that Ctrl-C reaches this process only, which then stops it in
its turn. A parent that is killed cannot; so a `Record` beside the program's data says who started what, and the next
start on the same folder is refused while that parent lives, or first stops what it left behind.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from rules.errors import NightjarError

HOST = "127.0.0.1"

POLL_SECONDS = 0.05

# Spark's errors bring their whole query plan.
_LONGEST_LINE = 4000
# What is killed is gone at once, unless the disk hangs.
_KILL_SECONDS = 20.0
# One that was killed a moment ago still shows.
_GOING_SECONDS = 1.0


class ManagedProcess:
    """One program, alive between `start` and `stop`.

    name: what errors call it. error: what they are. environment: all of it; None: this process's. folder: where it
    runs; None: here.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        error: type[NightjarError],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.log = log
        self._name, self._command, self._error = name, command, error
        self._environment, self._folder = environment, folder
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Start it, with an empty log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = psutil.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    @property
    def process(self) -> psutil.Process | None:
        """It, from its start to its stop, also when it has ended meanwhile."""
        return self._process

    @property
    def pid(self) -> int | None:
        """Its number, None when it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def check(self) -> None:
        """Raise where it has ended by itself."""
        if self.pid is None:
            code = None if self._process is None else self._process.returncode
            raise self.failure(f"{self._name} ended by itself with code {code}")

    def await_ready(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Return once it is; raises where it ends before that, or is not within that many seconds."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self.pid is None:
                raise self.failure(f"{self._name} ended while starting")
            if time.monotonic() > deadline:
                raise self.failure(f"{self._name} did not answer within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended within that time; None: as long as it takes."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except psutil.TimeoutExpired:
                return False
        return True

    def stop(self, seconds: float) -> int | None:
        """Stop it, by force after that many seconds or when interrupted, and leave nothing of its session.

        Its exit code; None where it does not run.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            with suppress(psutil.TimeoutExpired):
                process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return int(process.wait(_KILL_SECONDS))

    def tail(self, lines: int = 20) -> str:
        """The end of its log, its lines cut to a readable length."""
        with self.log.open(errors="replace") as log:
            return "\n".join(line.rstrip()[:_LONGEST_LINE] for line in deque(log, lines))

    def failure(self, what: str) -> NightjarError:
        """An error with the end of the log."""
        return self._error(
            f"{what}; its log ends:\n{self.tail()}\n", where=str(self.log), remedy="The log names the cause"
        )


def stop_families(roots: Iterable[psutil.Process], seconds: float) -> None:
    """Stop programs with all that came of them, by force after that many seconds or when interrupted."""
    started: list[psutil.Process] = []
    for root in roots:
        family = _family(root)
        started += family
        # The children, because some pass it on to theirs, and are not told of it by their parent.
        for process in family:
            with suppress(psutil.NoSuchProcess):
                if process == root or process.ppid() == root.pid:
                    process.terminate()
    try:
        psutil.wait_procs(started, seconds)
    finally:
        left = {process for survivor in started if survivor.is_running() for process in _family(survivor)}
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, _KILL_SECONDS)


class Record:
    """Which programs a process has started on a folder: a file that is there while they are to run."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, programs: Mapping[str, ManagedProcess]) -> None:
        """Record that this process has started them."""
        started = {name: program.process for name, program in programs.items()}
        identities = {name: _identity(of) for name, of in {"parent": psutil.Process(), **started}.items() if of}
        self.file.write_text(json.dumps(identities))

    def remove(self) -> None:
        """They are to run no more."""
        self.file.unlink(missing_ok=True)

    def left_behind(self, what: str, error: type[NightjarError], remedy: str) -> list[psutil.Process]:
        """The recorded programs that run although their parent is gone; raises `error` where it is not."""
        deadline = time.monotonic() + _GOING_SECONDS
        parent, found = self._running()
        while found and parent is not None:
            if time.monotonic() > deadline:
                numbers = ", ".join(f"{name} {process.pid}" for name, process in found.items())
                raise error(
                    f"{what} already runs here ({numbers}, started by process {parent.pid})",
                    where=str(self.file.parent),
                    remedy=remedy,
                )
            time.sleep(POLL_SECONDS)
            parent, found = self._running()
        return list(found.values())

    def _running(self) -> tuple[psutil.Process | None, dict[str, psutil.Process]]:
        """The parent, and of the programs by name those that run."""
        try:
            recorded = json.loads(self.file.read_text())
            parent = _living(recorded.pop("parent"))
            return parent, {name: process for name, of in recorded.items() if (process := _living(of)) is not None}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None, {}


def refuse_taken(port: int, setting: str, error: type[NightjarError], otherwise: str = "") -> None:
    """Raise `error` where another program has the port. setting: what names the port; otherwise: another way out."""
    with socket.socket() as probe:
        # As a server does: what remains of a closed connection does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise error(
                "the port is taken by another program",
                where=f"{HOST}:{port}",
                remedy=f"Stop that program, or set {setting} to another (0: any free one){otherwise}",
            ) from None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _family(root: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return [root]


def _identity(process: psutil.Process) -> tuple[int, float]:
    """A number is given to another process some time; with the time of its start it is one process's for good."""
    return process.pid, process.create_time()


def _living(identity: tuple[int, float]) -> psutil.Process | None:
    """The process of an identity; None where it has ended, though another may have its number now."""
    pid, created = identity
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
