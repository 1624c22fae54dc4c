"""Purpose: processes that keep what Python workers cannot: an executor's engines, each of them once.

How it works: Spark reuses its idle Python workers in turn, so what a worker keeps ends up in every worker. The daemon
that forks the workers (python_daemon.py) first forks a starter, which forks one engine process for each number that a
worker requests. Worker and engine process communicate over a socket in a folder that only this user can enter. What is
evaluated is a program, pickled by the driver; an engine process that lacks it receives it once.

All of them end with the daemon: by its signal to its process group, or when the pipe from it closes. If an engine
process ends, the task that waits for it fails, and the next attempt starts a new one.

What it does not do: know what a program does. A program that fails must leave its own state consistent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any, NoReturn

# The folder of the sockets; workers inherit the variable.
_FOLDER = "NIGHTJAR_ENGINE_PROCESSES"
_STARTER = "starter"
_BACKLOG = 64
# Programs that an engine process keeps: those of several jobs of one Spark.
_PROGRAMS = 8

_WANTED, _DONE, _FAILED = "program wanted", "done", "failed"

# By owner, the name of its program and the program.
Programs = OrderedDict[str, tuple[str, Callable[[Any], Any]]]

# This worker's connections to engine processes, by number.
_connections: dict[int, Connection] = {}


@dataclass(frozen=True)
class Remote:
    """A program (a callable of one argument) that engine processes run.

    owner: whose it is: an engine process keeps the last program of each owner, and frees what the one before had. name:
    unique among programs; pickled: the program.
    """

    owner: str
    name: str
    pickled: bytes

    def __call__(self, requests: Mapping[int, object]) -> list[Any]:
        """The program's replies to the requests, by the number of the engine process, in their order. The processes
        work at the same time. Called in a Python worker.

        Raises:
            RuntimeError: the program failed, or a process ended.
        """
        asked = dict[Connection, int]()
        replies = dict[int, Any]()
        try:
            for number, request in requests.items():
                with _reporting_end(number):
                    connection = _connected(number)
                    asked[connection] = number
                    connection.send((self.owner, self.name, request))
            while asked:
                for ready in wait(list(asked)):
                    assert isinstance(ready, Connection)  # noqa: S101  nothing else is waited for
                    number = asked[ready]
                    with _reporting_end(number):
                        outcome, value = ready.recv()
                        if outcome == _WANTED:
                            ready.send_bytes(self.pickled)
                            continue
                    if outcome == _FAILED:
                        raise RuntimeError(value)
                    replies[number] = value
                    del asked[ready]
                    _connections[number] = ready
        finally:
            for connection in asked:  # the next request must not read the reply to this one
                connection.close()
        return [replies[number] for number in requests]


@contextlib.contextmanager
def _reporting_end(number: int) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as failure:
        raise RuntimeError(f"engine process {number} has ended: {failure!r}") from failure


def _connected(number: int) -> Connection:
    if number in _connections:
        return _connections.pop(number)
    path = f"{os.environ[_FOLDER]}/{number}"
    with contextlib.suppress(OSError):
        return Client(path, "AF_UNIX")
    with Client(str(Path(path).with_name(_STARTER)), "AF_UNIX") as starter:
        starter.send(number)
        starter.recv()  # it is running now
    return Client(path, "AF_UNIX")


def fork_starter() -> None:
    """Fork the starter, for the workers that this process forks later.

    This process has no thread yet, and from now on leads its own process group, whose SIGHUP ends all engine processes.
    """
    os.setpgid(0, 0)
    folder = Path(tempfile.mkdtemp(prefix="nightjar-engines-"))
    listener = _listening(folder / _STARTER)
    alive, held_open = os.pipe()  # this process and the workers hold the write end: it closes with the last
    if not os.fork():
        os.close(held_open)
        nothing = os.open(os.devnull, os.O_RDONLY)  # the standard input carries Spark's commands to the daemon
        os.dup2(nothing, 0)
        os.close(nothing)
        _end_after(lambda: _start_processes(folder, listener, alive))
    listener.close()
    os.close(alive)
    os.environ[_FOLDER] = str(folder)


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen(_BACKLOG)
    return listener


def _end_after(work: Callable[[], None]) -> NoReturn:
    """End this process once the work is done, without the exit handlers of its parent."""
    try:
        work()
    except Exception:  # noqa: BLE001  nothing above would report it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _start_processes(folder: Path, listener: socket.socket, alive: int) -> None:
    """The starter: starts the process of each requested number, until no worker is left."""
    running: dict[int, int] = {}
    # The daemon's signal to its group is for the others: the folder is removed after them, when the pipe closes.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        while alive not in wait([listener, alive]):
            with contextlib.suppress(EOFError, OSError), _accepted(listener) as worker:
                number = worker.recv()
                if number not in running or os.waitpid(running[number], os.WNOHANG)[0]:
                    running[number] = _forked(folder, number, listener, alive)
                worker.send(number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forked(folder: Path, number: int, starter: socket.socket, alive: int) -> int:
    listener = _listening(folder / str(number))
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        starter.close()
        _end_after(lambda: _run_programs(listener, alive))
    listener.close()
    return pid


def _accepted(listener: socket.socket) -> Connection:
    return Connection(listener.accept()[0].detach())


def _run_programs(listener: socket.socket, alive: int) -> None:
    """An engine process: answers one request after the other, until no worker is left."""
    programs: Programs = OrderedDict()
    workers: list[Connection] = []
    while True:
        for ready in wait([listener, alive, *workers]):
            if ready == alive:
                return
            if ready is listener:
                workers.append(_accepted(listener))
                continue
            assert isinstance(ready, Connection)  # noqa: S101  the rest of what is waited for
            try:
                _answer(ready, programs)
            except (EOFError, OSError):  # the worker has ended, perhaps with its task
                workers.remove(ready)
                ready.close()


def _answer(worker: Connection, programs: Programs) -> None:
    """Raises EOFError or OSError if the worker has ended."""
    owner, name, request = worker.recv()
    pickled = None
    if owner not in programs or programs[owner][0] != name:
        worker.send((_WANTED, None))
        pickled = worker.recv_bytes()
    try:
        if pickled is not None:
            programs[owner] = name, pickle.loads(pickled)  # noqa: S301  the driver's, as all that Spark's workers run
            if len(programs) > _PROGRAMS:
                programs.popitem(last=False)
        programs.move_to_end(owner)
        answer = _DONE, programs[owner][1](request)
    except Exception:  # noqa: BLE001  it fails the task that waits
        answer = _FAILED, traceback.format_exc()
    worker.send(answer)
