"""Runs programs in the background: each logs to a file, its errors quote the end of that log, and it stops cleanly.

How it works: each program is started in its own session, so that Ctrl-C reaches only this process, which then stops
the programs in order. A killed parent cannot do that, so a `Record` file beside a program's data lists what was started
and by which parent. The next start on the same folder is refused while that parent is alive; otherwise it first stops
the programs left behind.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from nightjar.rules.errors import NightjarError

HOST = "127.0.0.1"

POLL_SECONDS = 0.05

# Characters per line of a quoted log: Spark's errors include their whole query plan.
_LONGEST_LINE = 4000
# A killed process ends at once, unless the disk hangs.
_KILL_SECONDS = 20.0
# A process killed a moment ago may still be listed.
_GOING_SECONDS = 1.0


class ManagedProcess:
    """One program, running between `start` and `stop`.

    name: used in error messages. error: class of the raised errors. environment: its whole environment; None: this
    process's. folder: its working directory; None: this process's.
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
        """Start it, with an empty log; that of the start before gets the suffix `.1`."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            self.log.replace(self._older_log)
        with self.log.open("ab") as log:  # so that it writes at the end, also once the log was shortened
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
    def _older_log(self) -> Path:
        return self.log.with_name(f"{self.log.name}.1")

    def rotate_log(self, most: int) -> None:
        """If the log has more than that many bytes, start a new one; what it had gets the suffix `.1`.

        The program keeps the file open, so its content is moved; what is written meanwhile may be lost.
        """
        if self.log.exists() and self.log.stat().st_size > most:
            shutil.copyfile(self.log, self._older_log)
            os.truncate(self.log, 0)

    @property
    def process(self) -> psutil.Process | None:
        """The process between `start` and `stop`, even if it has exited."""
        return self._process

    @property
    def pid(self) -> int | None:
        """Its process id, None if it is not running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def check(self) -> None:
        """Raise if it has exited on its own."""
        if self.pid is None:
            code = None if self._process is None else self._process.returncode
            raise self.failure(f"{self._name} exited with code {code}")

    def await_ready(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Return once `is_ready` returns True; raises if the program exits first, or after that many seconds."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self.pid is None:
                raise self.failure(f"{self._name} exited while starting")
            if time.monotonic() > deadline:
                raise self.failure(f"{self._name} did not respond within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end, at most that many seconds (None: no limit); return whether it has exited."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except psutil.TimeoutExpired:
                return False
        return True

    def stop(self, seconds: float) -> int | None:
        """Stop it and every process of its session; kill them after that many seconds or when interrupted.

        Returns its exit code, or None if it is not running or somebody else has collected the code.
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
        code: int | None = process.wait(_KILL_SECONDS)
        return code

    def tail(self, lines: int = 20) -> str:
        """The end of its log, with long lines truncated."""
        with self.log.open(errors="replace") as log:
            return "\n".join(line.rstrip()[:_LONGEST_LINE] for line in deque(log, lines))

    def failure(self, what: str) -> NightjarError:
        """An error with the end of the log."""
        return self._error(
            f"{what}; its log ends with:\n{self.tail()}\n", where=str(self.log), remedy="See the log for the cause"
        )


def stop_families(roots: Iterable[psutil.Process], seconds: float) -> None:
    """Stop programs with all their processes; kill them after that many seconds or when interrupted."""
    started: list[psutil.Process] = []
    for root in roots:
        members = family(root)
        started += members
        # Children get SIGTERM too: not every parent forwards it, and some children must forward it to theirs.
        for process in members:
            with suppress(psutil.NoSuchProcess):
                if process == root or process.ppid() == root.pid:
                    process.terminate()
    try:
        psutil.wait_procs(started, seconds)
    finally:
        left = {process for survivor in started if survivor.is_running() for process in family(survivor)}
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, _KILL_SECONDS)


class Record:
    """A file that lists the programs a process has started on a folder; it exists while they should be running."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, programs: Mapping[str, ManagedProcess]) -> None:
        """Record that this process has started them."""
        started = {name: program.process for name, program in programs.items()}
        identities = {name: _identity(of) for name, of in {"parent": psutil.Process(), **started}.items() if of}
        self.file.write_text(json.dumps(identities))

    def remove(self) -> None:
        """Delete the file: the programs have been stopped."""
        self.file.unlink(missing_ok=True)

    def left_behind(self, what: str, error: type[NightjarError], remedy: str) -> list[psutil.Process]:
        """The recorded programs that outlived their parent; raises `error` if the parent is alive."""
        deadline = time.monotonic() + _GOING_SECONDS
        parent, found = self._running()
        while found and parent is not None:
            if time.monotonic() > deadline:
                numbers = ", ".join(f"{name} {process.pid}" for name, process in found.items())
                raise error(
                    f"{what} is already running here ({numbers}, started by process {parent.pid})",
                    where=str(self.file.parent),
                    remedy=remedy,
                )
            time.sleep(POLL_SECONDS)
            parent, found = self._running()
        return list(found.values())

    @property
    def running(self) -> dict[str, psutil.Process]:
        """The recorded programs that are running, by name."""
        return self._running()[1]

    def _running(self) -> tuple[psutil.Process | None, dict[str, psutil.Process]]:
        """The parent, or None if it is gone, and the running programs by name."""
        try:
            recorded = json.loads(self.file.read_text())
            parent = _living(recorded.pop("parent"))
            return parent, {name: process for name, of in recorded.items() if (process := _living(of)) is not None}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None, {}


def refuse_taken(port: int, setting: str, error: type[NightjarError], otherwise: str = "") -> None:
    """Raise `error` if another program uses the port. setting: the one that sets it; otherwise: another remedy."""
    with socket.socket() as probe:
        # As servers do: connections that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise error(
                "the port is in use by another program",
                where=f"{HOST}:{port}",
                remedy=f"Stop that program, or set {setting} to another (0: any free one){otherwise}",
            ) from None


def free_port() -> int:
    """A currently unused port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def others_of_session(leader: int) -> list[psutil.Process]:
    """The other processes of the session that a program leads, whoever is their parent: where the daemon of Python
    workers has been killed, Spark goes on with its orphans."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if process.pid != leader and os.getsid(process.pid) == leader:
                found.append(process)
    return found


def family(root: psutil.Process) -> list[psutil.Process]:
    """A program, all its descendants, and all others of the session that it leads."""
    found = {root: None}
    with suppress(psutil.NoSuchProcess):
        found |= dict.fromkeys(root.children(recursive=True))
    return [*(found | dict.fromkeys(others_of_session(root.pid)))]


def _identity(process: psutil.Process) -> tuple[int, float]:
    """Process id and start time: an id alone may be reused by another process later."""
    return process.pid, process.create_time()


def _living(identity: tuple[int, float]) -> psutil.Process | None:
    """The process with this identity; None if it has ended, even if another process has its id now."""
    pid, created = identity
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
