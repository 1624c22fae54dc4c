"""What the job tells about itself on the job-progress topic, and waiting for it to get somewhere.

The driver tells once a second how it stands, each bucket at most so often what it holds, once it has been given
something (an event, a rule, or the clock that comes every few seconds).
"""

import json
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nightjar.job_process import JobProcess
from nightjar.reading import Reader, Record
from nightjar.settings import Settings
from rules.errors import NightjarError

# A job that tells every second is not there any more after this long (µs); a full stop of a slow machine is shorter.
STALE = 15_000_000

_START_SECONDS = 180.0


class JobNotThereError(NightjarError):
    """The job does not get where it was waited for."""


@dataclass
class JobState:
    """The last word of the driver (None: it never said one) and of each bucket, as they are on the topic."""

    driver: dict[str, Any] | None = None
    buckets: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Take in a record of the job-progress topic."""
        told = json.loads(record.value)
        if told["kind"] == "job":
            self.driver = told
        elif told["kind"] == "bucket":
            self.buckets[told["bucket"]] = told

    def runs(self, now: int) -> bool:
        """Whether the driver said lately that it runs. now: wall clock, µs."""
        return self.driver is not None and self.driver["state"] != "stopped" and now - self.driver["at"] < STALE

    def lag(self, streams: Iterable[str]) -> int:
        """Events of these streams that waited at the driver's last word."""
        return sum(self.driver["lag"].get(name, {}).get("events", 0) for name in streams) if self.driver else 0

    def counts(self, stream: str) -> dict[str, int]:
        """The counts of a stream's buckets since the checkpoint began, together."""
        total: dict[str, int] = {}
        for told in self.buckets.values():
            if told["stream"] == stream:
                for name, count in told["counts"].items():
                    total[name] = total.get(name, 0) + count
        return total

    def retained(self, stream: str) -> dict[str, int]:
        """Events that each group-by of a stream still needs, over all buckets; a group-by is its fields with commas."""
        total: dict[str, int] = {}
        for told in self.buckets.values():
            if told["stream"] == stream:
                for group_by, rows in told["retained"].items():
                    total[group_by] = total.get(group_by, 0) + rows
        return total


def await_running(settings: Settings, job: JobProcess) -> None:
    """Return once the job says that its query runs.

    Raises JobProcessError where it ends instead, and JobNotThereError where nothing is heard of it for too long.
    """
    for state in _followed(settings, job, _START_SECONDS, "has not said that it runs"):
        if state.driver is not None and state.driver["state"] == "running" and state.driver["process"] == job.pid:
            return


def await_consumed(settings: Settings, streams: Collection[str], job: JobProcess, seconds: float) -> JobState:
    """Return once the job has committed all that is on the streams' topics now, and every bucket has said so since.

    Raises as `await_running` does.
    """
    asked = time.time_ns() // 1000
    consumed: int | None = None
    for state in _followed(settings, job, seconds, "has not consumed everything"):
        if consumed is None and state.driver is not None and state.driver["at"] > asked and not state.lag(streams):
            consumed = state.driver["at"]
        if consumed is not None and all(told["at"] > consumed for told in state.buckets.values()):
            return state
    raise AssertionError("a job is followed without an end")


def _followed(settings: Settings, job: JobProcess, seconds: float, otherwise: str) -> Iterator[JobState]:
    """What is known of the job after each word of it."""
    deadline = time.monotonic() + seconds
    state = JobState()
    with Reader(settings, settings.job_progress_topic) as reader:
        while time.monotonic() < deadline:
            job.check()
            for record in reader.poll():
                state.take(record)
            yield state
    lag = {} if state.driver is None else state.driver["lag"]
    raise JobNotThereError(
        f"the job {otherwise} after {seconds:.0f} s; waiting: {lag}; its log ends:\n{job.tail()}\n",
        where=str(job.log),
        remedy="The log names the cause",
    )
