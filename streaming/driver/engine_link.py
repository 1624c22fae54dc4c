"""The driver's side of the engine process of a real-time query (real_time/engine_process.py): starts and ends it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from nightjar.rules.rulebook import Record
from nightjar.storage.objects import ObjectPath
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.real_time.engine_process import DONE, HOLD, REST, EnginePlan, Release
from nightjar.streaming.real_time.group_times import GroupTimes

# Begins the name of the jar with EngineBridge.java.
JAR = "engine-bridge-"
_MODULE = "nightjar.streaming.real_time.engine_process"
_SOCKET = "engine"
# Seconds until the engine agrees to hold: a batch may be about to end, and a large group to be evaluated.
_PATIENCE = 60.0
_END_SECONDS = 10.0
_LAST_SECONDS = 1.0
# If more are read between two answers of the driver's own, the engine waits for the task that reads them.
_MOST_ANSWERS = 10_000


def refuse_real_time(config: JobConfig) -> None:
    """Raise JobError if the job cannot run in real time."""
    where = 'latency = "real-time"'
    if not config.spark.master.startswith("local") or isinstance(config.checkpoint, ObjectPath):
        raise JobError(
            "real time needs Spark on one machine (spark_master = local) and a checkpoint on its disk",
            where=where,
            remedy='Set latency = "micro-batch"',
        )
    if not any(jar.name.startswith(JAR) for jar in config.spark.jars):
        raise JobError("the operator of real-time queries is not compiled", where=where, remedy="Run `nightjar jars`")


class EngineEndedError(JobError):
    """It has failed, or its query has."""


class EngineKilledError(JobError):
    """A signal has ended it, as of a kernel that is out of memory."""


class EngineLink:
    """A running engine process."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self._folder, self._process, self._connection = folder, process, connection
        self._is_held = self._rests = False
        self._answers = deque[Record](maxlen=_MOST_ANSWERS)
        self._reports = list[GroupTimes]()

    @classmethod
    def start(cls) -> Self:
        """Start a process, which imports what it needs until `run`."""
        ours, theirs = socket.socketpair()
        folder = Path(tempfile.mkdtemp(prefix="nightjar-engine-"))  # only this user can enter it
        environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
        command = [sys.executable, "-m", _MODULE, str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the driver, which ends it
        )
        theirs.close()
        return cls(folder, process, Connection(ours.detach()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def path(self) -> str:
        """The socket that tasks connect to."""
        return str(self._folder / _SOCKET)

    def refuse_killed(self) -> None:
        """Raise EngineKilledError if a signal has ended it. If the query fails, it ends itself."""
        if (self._process.poll() or 0) < 0:
            raise EngineKilledError("the engine process was killed", where=self._place)

    def run(self, plan: EnginePlan) -> None:
        """Give it the plan, and wait until it listens.

        Raises:
            EngineEndedError, EngineKilledError: it has ended.
        """
        self._say(plan)
        self._await()

    def hold(self) -> None:
        """Have it evaluate nothing until `release`. Raises EngineEndedError or EngineKilledError."""
        if not self._is_held:
            self._say(HOLD)
            self._await()
            self._is_held = True

    def note(self, answer: Record) -> None:
        """A record of `rule-status` that was read, for the next `release`."""
        self._answers.append(answer)

    def release(self) -> None:
        """Have it go on, if it holds, with the answers that were noted since."""
        if self._is_held:
            self._say(Release(tuple(self._answers)))
            self._is_held = False
            self._answers.clear()

    def rest(self) -> None:
        """Have events wait between two batches from now on."""
        if not self._rests:
            self._say(REST)
            self._rests = True

    def reports(self) -> list[GroupTimes]:
        """What it has reported since the last call."""
        with contextlib.suppress(EOFError, OSError):  # the query fails, and says why
            while self._connection.poll():
                self._reports.append(self._connection.recv())
        reports, self._reports = self._reports, []
        return reports

    def end(self) -> None:
        """End it. What it has not stored is evaluated again by the next run."""
        self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _say(self, what: object) -> None:
        try:
            self._connection.send(what)
        except OSError as failure:
            raise self._ended() from failure

    def _await(self) -> None:
        try:
            while True:
                if not self._connection.poll(_PATIENCE):
                    raise JobError("the engine process does not answer", where=self._place)
                if (said := self._connection.recv()) == DONE:
                    return
                self._reports.append(said)
        except (EOFError, OSError) as failure:
            raise self._ended() from failure

    @property
    def _place(self) -> str:
        return f"process {self._process.pid}"

    def _ended(self) -> EngineEndedError:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its sockets close a moment before
            self._process.wait(_LAST_SECONDS)
        self.refuse_killed()
        return EngineEndedError(
            "the engine process has ended",
            where=self._place,
            remedy="The log above has the cause. Start the job again: it resumes where it stopped",
        )
