"""Kill processes for checks/soak/crash.py by SIGKILL, at a random moment, each kind in its own way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from nightjar.configuration.settings import Settings
from nightjar.local.job_process import JobProcess
from nightjar.local.kafka import LocalKafka
from nightjar.processes.process import family, others_of_session
from nightjar.storage.paths import AnyPath, names_in
from nightjar.streaming.state.epochs import own_folder
from tests.support.spark_cluster import SparkCluster

# Seconds within which a killed process must recover; a start of the job takes half a minute on a slow machine.
PATIENCE = 240.0
# There is a batch every few seconds even without events.
_HALF_WRITTEN_SECONDS = 30.0
_LONGEST_DOWNTIME = 6.0


class Kind(StrEnum):
    """The targets. job: with all its child processes; state: the same, while a batch's state is being written; driver:
    only the Python process that was started; worker: any other Python process of the job."""

    JOB = "job"
    STATE = "state"
    JVM = "jvm"
    DRIVER = "driver"
    WORKER = "worker"
    BROKER = "broker"
    ARCHIVE = "archive"
    BACKFILL = "backfill"


NIGHTLY = (Kind.ARCHIVE, Kind.BACKFILL)
# The proportions of kinds.
PATTERN = [*Kind, Kind.JOB, Kind.STATE]


def drawn_kinds(count: int, rng: np.random.Generator) -> list[Kind]:
    """This many kinds, with a new random order for each PATTERN of them."""
    found: list[Kind] = []
    while len(found) < count:
        found += [PATTERN[at] for at in rng.permutation(len(PATTERN))]
    return found[:count]


def kill_all(pid: int) -> None:
    """Kill a program with all its processes, as a power cut would."""
    with suppress(psutil.NoSuchProcess):
        members = family(psutil.Process(pid))
        for member in members:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(members, timeout=10)


@contextmanager
def killed_if_left(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Kill a program with its children if the block is left before the program has ended."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_all(process.pid)


def _name(process: psutil.Process) -> str:
    """The name of its program; empty once it has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return ""


def _below(pids: Iterable[int]) -> list[psutil.Process]:
    """All descendants of these processes, of those that live."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found += psutil.Process(pid).children(recursive=True)
    return found


class Checkpoint:
    """The progress of a query's batches, read from its checkpoint."""

    def __init__(self, settings: Settings) -> None:
        self._checkpoint, self._state = settings.checkpoint, settings.checkpoint / "state"

    @property
    def _query(self) -> AnyPath:
        return own_folder(self._checkpoint, None) / "query"

    def newest(self, log: str) -> int:
        """The number of the last batch in `commits` or `offsets`; -1 before the first.

        Not by the files' times: in a store a restarted job copies the query's files to a folder of its own.
        """
        return max(self._batches(log), default=-1)

    def is_half_written(self) -> bool:
        """Whether the checkpoint has state, or part of it, of a batch that is not committed."""
        batch = self.newest("offsets")
        if batch < 0 or (self._query / "commits" / str(batch)).exists():
            return False
        of_batch = re.compile(rf"{batch + 1}-|head-{batch + 1}-")  # a bucket's version is one more than the batch
        return any(of_batch.match(file.name) for file in self._state.rglob("*"))

    def _batches(self, log: str) -> Iterator[int]:
        yield from (int(name) for name in names_in(self._query / log) if name.isdigit())


@dataclass(frozen=True)
class Killed:
    """A kill of a process of the job. seconds: until a batch was committed again; starts: of the job, until then."""

    seconds: float
    starts: int
    half_written: bool

    def as_json(self) -> dict[str, object]:
        """For a line."""
        return {"recovered s": self.seconds, "starts": self.starts, "half-written state": self.half_written}


class Job:
    """The job, killed and restarted at once, as by a supervisor. A context manager.

    starts: how often it was started; orphaned: seconds that a JVM outlived its killed Python driver.
    """

    def __init__(
        self, settings: Settings, broker: LocalKafka, rng: np.random.Generator, cluster: SparkCluster | None = None
    ) -> None:
        """cluster: where it runs, if not in its own process."""
        environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": broker.bootstrap, "NIGHTJAR_WARM_UP_BATCHES": "0"}
        self.process = JobProcess(settings.data_dir / "job.log", environment, settings.data_dir)
        self.starts = 0
        self.orphaned: list[float] = []
        self._broker, self._rng, self._cluster = broker, rng, cluster
        self._checkpoint = Checkpoint(settings)

    def __enter__(self) -> Job:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def kill(self, kind: Kind) -> Killed:
        """Kill a process of the job, and return once a batch is committed again.

        Raises SystemExit with the end of the job's log if that takes too long.
        """
        self.process.check()
        pid = self.process.pid
        assert pid is not None
        half_written = kind is Kind.STATE and self._await_half_written()
        at, before, orphan = time.time(), self.starts, None
        match kind:
            case Kind.JOB | Kind.STATE:
                kill_all(pid)
            case Kind.BROKER:
                assert self._broker.pid is not None
                kill_all(self._broker.pid)
                time.sleep(self._rng.uniform(0, _LONGEST_DOWNTIME))
                self._broker.start()
            case _:
                driver = psutil.Process(pid)
                java, workers = self._await_workers(driver)
                orphan = java if kind is Kind.DRIVER else None
                victims = {Kind.DRIVER: driver, Kind.JVM: java, Kind.WORKER: self._rng.choice(workers)}
                victims[kind].kill()
        self._recover(at, orphan, begun=kind in {Kind.WORKER, Kind.BROKER, Kind.DRIVER})
        return Killed(round(time.time() - at, 1), self.starts - before, half_written=half_written)

    def _start(self) -> None:
        self.process.start()
        self.starts += 1

    def _await_workers(self, driver: psutil.Process) -> tuple[psutil.Process, list[psutil.Process]]:
        """The JVM and the Python workers of a job that may be starting."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            started = others_of_session(driver.pid)
            java = next((process for process in started if _name(process) == "java"), None)
            executed = started if self._cluster is None else _below(self._cluster.every_executor())
            workers = [process for process in executed if "python" in _name(process)]
            if java is not None and workers:
                return java, workers
            time.sleep(0.05)
        raise SystemExit(f"no Python worker within {PATIENCE:.0f} s; the job's log ends:\n{self.process.tail(40)}")

    def _await_half_written(self) -> bool:
        deadline = time.monotonic() + _HALF_WRITTEN_SECONDS
        while time.monotonic() < deadline:
            if self._checkpoint.is_half_written():
                return True
            time.sleep(0.001)
        return False

    def _recover(self, at: float, orphan: psutil.Process | None, *, begun: bool) -> None:
        log = "offsets" if begun else "commits"
        last = self._checkpoint.newest(log)
        while orphan is not None or self._checkpoint.newest("commits") <= last:
            if self.process.wait(0.05):
                if orphan is None:
                    self.process.stop()  # its remaining processes are killed with it
                self._start()
            if orphan is not None and not _name(orphan):
                last = max(last, self._checkpoint.newest(log))  # its batches are not the restarted job's
                self.orphaned.append(round(time.time() - at, 1))
                orphan = None
            if time.time() - at > PATIENCE:
                raise SystemExit(
                    f"no batch {PATIENCE:.0f} s after a kill; the job's log ends:\n{self.process.tail(40)}"
                )


class Nightly:
    """The nightly commands, which end by themselves unless they are killed first."""

    def __init__(self, settings: Settings, rng: np.random.Generator) -> None:
        self._folder = settings.data_dir
        self._environment = {**os.environ, "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap}
        self._rng = rng
        self._seconds = {"archive": 12.0, "backfill": 30.0}  # until it is known how long they take
        self._running: subprocess.Popen[bytes] | None = None

    def kill(self, *command: str) -> float:
        """Run a command and kill it at a random moment; returns the seconds until then."""
        while True:
            moment = self._rng.uniform(0.2, 1) * self._seconds[command[0]]
            with self._started(command) as process:
                try:
                    process.wait(moment)
                except subprocess.TimeoutExpired:
                    kill_all(process.pid)
                    return round(moment, 1)
            self._seconds[command[0]] *= 0.8  # it ended before that

    def run(self, *command: str) -> float:
        """Run a command to its end; returns the seconds it took. Raises SystemExit with its log if it fails."""
        began = time.monotonic()
        with killed_if_left(self._started(command)) as process:
            self._running = process
            if process.wait():
                raise SystemExit(
                    f"nightjar {' '.join(command)} ended with {process.returncode}:\n{self._log.read_text()}"
                )
        self._seconds[command[0]] = took = time.monotonic() - began
        return round(took, 1)

    def stop(self) -> None:
        """Kill the command that `run` waits for in another thread, if any."""
        if self._running is not None and self._running.poll() is None:
            kill_all(self._running.pid)

    @property
    def _log(self) -> Path:
        return self._folder / "night.log"

    def _started(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "nightjar", *command],
                env=self._environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
