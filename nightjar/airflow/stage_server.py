"""Purpose: keep one Spark session and the imported code for all tasks of a night, since starting them takes each task
half a minute.

How it works: `python -m nightjar.airflow.stage_server FOLDER` listens on a socket named after everything its session
depends on (see stage_socket.py). It runs the requested stages one at a time: the program `backfill_stage.py` with the
given arguments, and nothing else. The output of the stage, Spark's JVM and its Python workers goes to the client as it
comes, followed by the stage's exit code.

It exits, with everything it has started: after some idle time; after a stage that failed for another reason than its
checks, because the session may be at fault; when its JVM has exited; and immediately if the client of the running stage
disconnects, since a killed task must not continue.

What it does not do: listen on a network, accept anything but text from the socket, or serve another user.
"""

import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import wait
from pathlib import Path
from typing import IO, Any, NoReturn

import psutil

from nightjar.airflow.stage_socket import (
    Parts,
    StageServerError,
    changed_parts,
    is_own,
    messages,
    send,
    server_key,
    session_parts,
)
from nightjar.airflow.submission import FAILED, VERDICT
from nightjar.backfill.stages import STAGES
from nightjar.operations.locks import locked
from nightjar.rules.errors import NightjarError

# Airflow takes a few seconds between two tasks, and a minute or more before a retry. After a night's last stage only
# another night can follow, which Airflow starts within seconds.
IDLE_SECONDS = 120.0
IDLE_AFTER_LAST_SECONDS = 20.0

# An exiting server of the same name holds its lock for at most this long.
_LOCK_SECONDS = 15.0
_REQUEST_SECONDS = 10.0
# A stopping JVM first removes its temporary files.
_JVM_ENDS_SECONDS = 15.0
# A stage whose JVM was killed fails on its own within this time, unless it waits for the JVM forever.
_STAGE_ENDS_SECONDS = 30.0
_OUTPUT_SECONDS = 10.0
_KEPT_LINES = 1000
_LONGEST_LINE = 64 * 1024  # bytes


class _Ended(BaseException):
    """Raised to stop the server. Not an Exception, so that a stage does not handle it as its own failure."""


class Output:
    """Forwards the standard output and error of this process and its children to the client, line by line.

    Lines written while no client is connected are kept for the next one, for example Spark's warnings at its start.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        for stream in (1, 2):
            os.dup2(writing, stream)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb")
        self._lock = threading.Lock()
        self._client: socket.socket | None = None
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._mark, self._reached = b"", threading.Event()
        threading.Thread(target=self._pump, name="output", daemon=True).start()

    def to(self, client: socket.socket) -> None:
        """Send the kept lines and all further output to this client."""
        with self._lock:
            self._client = client
            kept, self._kept = self._kept, deque(maxlen=_KEPT_LINES)
            for line in kept:
                self._send(line)

    def finish(self) -> None:
        """Return once the client has all output written so far; later output is kept for the next client."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # A random mark, so that no other output can contain it.
        self._reached.clear()
        self._mark = f"\0{secrets.token_hex(16)}".encode()
        os.write(2, self._mark + b"\n")
        self._reached.wait(_OUTPUT_SECONDS)
        with self._lock:
            self._client = None

    def _pump(self) -> None:
        while line := self._pipe.readline(_LONGEST_LINE):
            text, mark, _ = line.partition(self._mark) if self._mark else (line, b"", b"")
            if text.strip():
                with self._lock:
                    self._send(text.rstrip(b"\n").decode(errors="replace"))
            if mark:
                self._mark = b""
                self._reached.set()

    def _send(self, line: str) -> None:
        if self._client is None:
            self._kept.append(line)
            return
        with contextlib.suppress(OSError):  # `_end_with` notices a disconnected client
            send(self._client, {"line": line})


class Server:
    """A listening socket, and the session behind it."""

    def __init__(self, listener: socket.socket, environment: dict[str, str], parts: Parts, output: Output) -> None:
        self._listener = listener
        self._environment = environment
        self._parts = parts
        self._output = output
        self._jvm: Any = None
        self._busy = threading.Lock()

    def serve(self) -> None:
        """Run the stages that clients request until it is time to exit."""
        self._prepare()
        idle = IDLE_SECONDS
        while True:
            self._listener.settimeout(idle)
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                return
            with client:
                arguments = self._request(client)
                if arguments is None:
                    continue
                if changed := changed_parts(self._parts, session_parts(self._environment)):
                    with contextlib.suppress(OSError):
                        send(client, {"line": f"another stage server is needed, because these changed: {changed}"})
                    return
                code = self._stage(client, arguments)
            if code not in {0, VERDICT} or self._jvm_has_ended():
                return
            idle = IDLE_AFTER_LAST_SECONDS if arguments[:1] == [STAGES[-1]] else IDLE_SECONDS

    def close(self) -> None:
        """Stop Spark: its JVM exits when its standard input closes."""
        self._watch_jvm()
        if self._jvm is None or self._jvm_has_ended():
            return
        with contextlib.suppress(OSError):
            self._jvm.stdin.close()
        with contextlib.suppress(Exception):
            self._jvm.wait(_JVM_ENDS_SECONDS)

    def _prepare(self) -> None:
        """Import the stages' code while the JVM starts, and the gate's libraries while the first stage runs."""
        from nightjar.configuration.lake import lake_config
        from nightjar.configuration.settings import load_settings
        from nightjar.operations import preload
        from nightjar.rules.streams import load_streams

        starting = []
        with contextlib.suppress(NightjarError):  # if the settings are invalid, the stage reports it
            settings = load_settings()
            starting.append(preload.start_session(lake_config(settings, load_streams(settings.streams))))
        from nightjar.airflow import backfill_stage  # noqa: F401

        # Not earlier: a starting JVM uses all of a small machine's processors.
        wait(starting)
        self._watch_jvm()
        preload.import_gate()

    def _request(self, client: socket.socket) -> list[str] | None:
        """The arguments of the stage that a client requests; None if the request must be ignored."""
        client.settimeout(_REQUEST_SECONDS)
        if not is_own(client):
            return None
        try:
            arguments = next(messages(client), {}).get("arguments")
            client.settimeout(None)
            # A client that disconnected while it waited for its turn must not stop the server.
            if client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                return None
        except BlockingIOError:
            pass
        except (StageServerError, OSError):
            return None
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            return None
        return arguments

    def _stage(self, client: socket.socket, arguments: list[str]) -> int:
        """Run a stage; return its exit code."""
        done = threading.Event()
        with self._busy:
            with contextlib.suppress(OSError):
                send(client, {"taken": os.getpid()})
            threading.Thread(target=_end_with, args=(client, done), name="client", daemon=True).start()
            self._output.to(client)
            code = _exit_code(arguments)
            self._output.finish()
            done.set()
            with contextlib.suppress(OSError):
                send(client, {"exit": code})
                client.shutdown(socket.SHUT_RDWR)
        self._watch_jvm()
        return code

    def _watch_jvm(self) -> None:
        from pyspark import SparkContext

        jvm = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001  PySpark has no other way to it
        if jvm is not None and jvm is not self._jvm:
            self._jvm = jvm
            threading.Thread(target=self._end_with_jvm, args=(jvm,), name="jvm", daemon=True).start()

    def _end_with_jvm(self, jvm: Any) -> None:
        jvm.wait()
        # Gives a running stage time to fail on its own and report why; none can start while this thread has the lock.
        self._busy.acquire(timeout=_STAGE_ENDS_SECONDS)
        kill_all()

    def _jvm_has_ended(self) -> bool:
        return self._jvm is not None and self._jvm.poll() is not None


def _exit_code(arguments: list[str]) -> int:
    from nightjar.airflow.backfill_stage import program

    try:
        program(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return 0


def _end_with(client: socket.socket, done: threading.Event) -> None:
    """Return when the stage is done; kill this process and all its children if the client disconnects before."""
    with contextlib.suppress(OSError):
        while client.recv(1024):
            pass  # ignore whatever it sends
    if not done.is_set():
        kill_all()


def kill_all() -> NoReturn:
    """Kill this process, Spark's JVM and its Python workers immediately."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    os._exit(FAILED)


def _locked(file: Path) -> IO[str] | None:
    """The lock of the server of this name, holding this process's id; None if another server keeps it."""
    lock = file.open("a+")
    until = time.monotonic() + _LOCK_SECONDS
    while not locked(lock):
        if time.monotonic() > until:
            return None
        time.sleep(0.05)
    return lock


def _terminated(*_: Any) -> NoReturn:
    raise _Ended


def main(folder: Path) -> None:
    """Serve under the key of this process's settings and environment."""
    environment = dict(os.environ)
    signal.signal(signal.SIGTERM, _terminated)
    parts = session_parts(environment)
    key = server_key(parts)
    lock = _locked(folder / f"{key}.lock")
    if lock is None:
        return
    path = folder / f"{key}.socket"
    path.unlink(missing_ok=True)  # left by a killed server
    with contextlib.suppress(_Ended), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        server = Server(listener, environment, parts, Output())
        try:
            server.serve()
        finally:
            path.unlink(missing_ok=True)
            listener.close()  # a client that connects now starts another server, which waits for the lock
            server.close()
    kill_all()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
