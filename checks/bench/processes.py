"""Watches programs for checks/soak/end_to_end.py: samples their memory, and runs a job that is killed repeatedly."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import psutil

from checks.bench.figures import log_progress
from checks.bench.pipeline import committed
from nightjar.configuration.settings import Settings
from nightjar.local.job_process import JobProcess
from nightjar.operations.job_watch import await_running
from nightjar.processes.process import others_of_session

_EVERY_SECONDS = 1.0
_MEGABYTE = 1 << 20


class Memory:
    """Samples resident memory from a thread of its own; a context manager.

    pid: asked for at each sample, since a program may be killed and started again; None where it does not run.
    """

    def __init__(self, pid: Callable[[], int | None]) -> None:
        self._pid = pid
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    def quarters(self) -> dict[str, dict[str, Any]]:
        """MB of each part of the program (`jvm`, `driver`: the Python that was started, `workers`: all other Pythons):
        the median and the most of each quarter of the time."""
        return {part: quarters(samples) for part, samples in self._samples.items()}

    def _run(self) -> None:
        while not self._leave.wait(_EVERY_SECONDS):
            pid = self._pid()
            if pid is not None:
                with suppress(psutil.NoSuchProcess):
                    self._sample(psutil.Process(pid))

    def _sample(self, program: psutil.Process) -> None:
        found = {"driver": program.memory_info().rss}
        for process in others_of_session(program.pid):
            with suppress(psutil.NoSuchProcess):
                part = "jvm" if process.name() == "java" else "workers"
                found[part] = found.get(part, 0) + process.memory_info().rss
        for part, size in found.items():
            self._samples.setdefault(part, []).append((time.monotonic(), size / _MEGABYTE))


def quarters(samples: list[tuple[float, float]]) -> dict[str, Any]:
    """Of (time, value): the median and the most of each quarter of the time. What stays as it is has equal ones."""
    times, values = np.array(samples).T
    bounds = np.linspace(times[0], times[-1], 5)[1:-1]
    parts = [values[np.searchsorted(bounds, times) == quarter] for quarter in range(4)]
    return {
        "median of each quarter": [round(float(np.median(part))) if part.size else None for part in parts],
        "most in each quarter": [round(float(part.max())) if part.size else None for part in parts],
    }


class KilledJob:
    """The job as a process, killed with all that it has started, and started again. A context manager.

    process: the one that runs now. Kills come once it has read their share of `total` records of `topic`, at moments
    drawn within a second; downtimes: seconds from each until the job ran again.
    """

    def __init__(self, settings: Settings, topic: str, total: int, kills: int, seed: int) -> None:
        self.downtimes: list[float] = []
        self._settings, self._topic, self._total, self._kills = settings, topic, total, kills
        self._drawn = np.random.default_rng(seed)
        self._starts = 0
        self._failure: BaseException | None = None
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kills", daemon=True)
        self.process = self._start()

    def __enter__(self) -> KilledJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        if self._thread.is_alive():
            self._thread.join()
        self.process.stop()

    def begin(self) -> None:
        """Begin with the kills."""
        self._thread.start()

    def settle(self) -> None:
        """Return once all kills are done, and raise what went wrong with them."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _start(self) -> JobProcess:
        self._starts += 1
        folder = self._settings.data_dir
        environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": self._settings.bootstrap}
        process = JobProcess(folder / f"job-{self._starts}.log", environment, folder)
        process.start()
        return process

    def _run(self) -> None:
        try:
            for number in range(1, self._kills + 1):
                while self._read() < self._total * number / (self._kills + 1):
                    self.process.check()
                    if self._leave.wait(0.1):
                        return
                time.sleep(self._drawn.random())
                log_progress(f"kill {number} of {self._kills}, after {self._read():,} records")
                self._kill()
        except BaseException as failure:  # noqa: BLE001  it is raised where somebody can act on it
            self._failure = failure

    def _read(self) -> int:
        return committed(self._settings.data_dir, self._topic)

    def _kill(self) -> None:
        began, pid = time.monotonic(), self.process.pid
        assert pid is not None, "the job runs until it is killed"
        os.killpg(pid, signal.SIGKILL)
        self.process.stop()
        self.process = self._start()
        await_running(self._settings, self.process)
        self.downtimes.append(round(time.monotonic() - began, 1))
