"""Runs a stage on the stage server, and starts the server if it is not running.

Nothing heavy is imported, so a task that waits for a stage uses few resources.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from nightjar.airflow.stage_socket import (
    StageServerError,
    is_own,
    messages,
    send,
    server_folder,
    server_key,
    session_parts,
)
from nightjar.airflow.submission import FAILED

_log = structlog.get_logger(__name__)

SERVER = "nightjar.airflow.stage_server"

# A server listens a second after its start, or several seconds on a busy machine.
START_SECONDS = 90.0
# On SIGTERM it stops Spark and exits; after this time it is killed.
STOP_SECONDS = 20.0

# A server may be exiting just when it gets a request; then another one is started.
_TRIES = 3
_POLL_SECONDS = 0.05
_ERROR = "error: "


class StageFailedError(StageServerError):
    """A stage failed. code: the exit code of its program; the message is the program's last error."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class StageClient:
    """Runs one stage on the server of an owner (see stage_socket.server_folder) and of this process's settings."""

    def __init__(self, owner: str, arguments: Sequence[str]) -> None:
        self._owner = owner
        self._arguments = list(arguments)
        self._connection: socket.socket | None = None
        self._stopped = False

    def run(self, log: Callable[[str], object]) -> None:
        """Run the stage and pass its log to `log`, line by line as it comes.

        Raises:
            StageFailedError: it exited with a code other than 0, or its server was lost.
            NightjarError: no server can be used: the settings are invalid, or the folder is not this user's.
        """
        for _ in range(_TRIES):
            with self._connected() as connection:
                self._connection = connection
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    send(connection, {"arguments": self._arguments})
                if self._followed(connection, log):
                    return
        raise StageFailedError(
            FAILED, f"the stage server exited {_TRIES} times on a request: see its log in its folder"
        )

    def stop(self) -> None:
        """Stop the stage: its server exits with everything it has started. May be called while `run` waits."""
        self._stopped = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _followed(self, connection: socket.socket, log: Callable[[str], object]) -> bool:
        """Pass on the log until the stage is done; False if the server exited without accepting it.

        Raises:
            StageFailedError: the stage failed.
        """
        taken, last_error = False, list[str]()
        for message in messages(connection):
            if "exit" in message:
                if (code := int(message["exit"])) != 0:
                    reason = "\n".join(last_error).removeprefix(_ERROR) or f"it exited with code {code}"
                    raise StageFailedError(code, reason)
                return True
            taken = taken or "taken" in message
            if "line" in message:
                line = str(message["line"])
                log(line)
                # An error's further lines are indented; any other line ends it.
                if line.startswith(_ERROR):
                    last_error = [line]
                else:
                    last_error = [*last_error, line] if last_error and line[:1] == " " else []
        if self._stopped:
            raise StageFailedError(FAILED, "the stage was stopped, together with its Spark session")
        if taken:
            raise StageFailedError(
                FAILED,
                "the stage server died during the stage: it was killed, or the machine ran out of memory. "
                "Staged data is kept; a retry starts another server",
            )
        return False

    def _connected(self) -> socket.socket:
        folder, key = server_folder(self._owner), server_key(session_parts(os.environ))
        started: subprocess.Popen[bytes] | None = None
        log = folder / f"{key}.log"
        until = time.monotonic() + START_SECONDS
        while not self._stopped:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(str(folder / f"{key}.socket"))
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
            else:
                if not is_own(connection):
                    connection.close()
                    raise StageServerError("belongs to another user", where=str(folder), remedy="Remove the folder")
                return connection
            if started is None:
                _log.info("starting a stage server", log=str(log))
                started = _start(folder, log)
            elif started.poll() is not None or time.monotonic() > until:
                _kill(started)
                raise StageFailedError(FAILED, f"the stage server did not start; its log ends with:\n{_end_of(log)}")
            time.sleep(_POLL_SECONDS)
        raise StageFailedError(FAILED, "the stage was stopped before it began")


def _start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        # A process session of its own, because the server outlives the task that starts it.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", SERVER, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def stop_servers(owner: str) -> None:
    """Stop every stage server of an owner and everything they have started; return once they have exited."""
    folder = server_folder(owner)
    until = time.monotonic() + STOP_SECONDS
    signalled: set[Path] = set()
    while holders := {lock: pid for lock in folder.glob("*.lock") if (pid := _holder(lock)) is not None}:
        late = time.monotonic() > until
        for lock, pid in holders.items():
            if late or lock not in signalled:
                with contextlib.suppress(ProcessLookupError):
                    if late:
                        os.killpg(pid, signal.SIGKILL)
                    else:
                        os.kill(pid, signal.SIGTERM)
                signalled.add(lock)
        time.sleep(_POLL_SECONDS)
    for file in folder.iterdir():
        file.unlink(missing_ok=True)
    folder.rmdir()


def _holder(lock: Path) -> int | None:
    """The process that holds a server's lock."""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            number = file.read().strip()
            return int(number) if number.isdigit() else None
    return None
