"""What the job reports of itself on the job-progress topic, and waiting for it to get somewhere.

Each bucket reports once it has been given something (an event, a rule, or the clock that comes every few seconds).
Anybody may write to the topic: what is not a report by its schema (contracts.job_progress) is skipped and counted.
"""

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from contracts.job_progress import BucketReport, JobReport, is_of_another_kind, read_report
from nightjar.configuration.settings import Settings
from nightjar.kafka.readers import Reader, Record, Skipped
from nightjar.local.job_process import JobProcess
from rules.errors import NightjarError

# A job that reports every second has ended after this long without a report (µs); pauses of a slow machine are shorter.
STALE = 15_000_000

_START_SECONDS = 180.0


class JobNotThereError(NightjarError):
    """The job did not reach the state that was waited for."""


@dataclass
class JobState:
    """The last report of the driver (None: there is none) and of each bucket, as they are on the topic."""

    driver: JobReport | None = None
    buckets: dict[int, BucketReport] = field(default_factory=dict)
    skipped: Skipped = field(default_factory=Skipped)

    def take(self, record: Record) -> None:
        """Take in a record of the job-progress topic."""
        report = read_report(record.value)
        if report is None:
            if not is_of_another_kind(record.value):
                self.skipped.add(record, "not a report of the job")
            return
        if report["kind"] == "job":
            self.driver = report
        else:
            self.buckets[report["bucket"]] = report

    def runs(self, now: int) -> bool:
        """Whether the driver reported lately that it runs. now: wall clock, µs."""
        return self.driver is not None and self.driver["state"] != "stopped" and now - self.driver["at"] < STALE

    def lag(self, streams: Iterable[str]) -> int:
        """Events of these streams that waited at the driver's last report."""
        lags = {} if self.driver is None else self.driver["lag"]
        return sum(lags[name]["events"] for name in streams if name in lags)

    def counts(self, stream: str) -> dict[str, int]:
        """The counts of a stream's buckets since the checkpoint began, together."""
        total: dict[str, int] = {}
        for told in self.buckets.values():
            if told["stream"] == stream:
                for name, count in told["counts"].items():
                    total[name] = total.get(name, 0) + count
        return total

    @property
    def stored(self) -> int:
        """Bytes of all buckets' state in the checkpoint."""
        return sum(told.get("stored", 0) for told in self.buckets.values())

    def retained(self, stream: str) -> dict[str, int]:
        """Events that each group-by of a stream still needs, over all buckets; a group-by is its fields with commas."""
        total: dict[str, int] = {}
        for told in self.buckets.values():
            if told["stream"] == stream:
                for group_by, rows in told["retained"].items():
                    total[group_by] = total.get(group_by, 0) + rows
        return total


def await_running(settings: Settings, job: JobProcess) -> None:
    """Return once the job reports that its query runs.

    Raises JobProcessError where it ends instead, and JobNotThereError where it reports nothing for too long.
    """
    for state in _followed(settings, job, _START_SECONDS, "has not reported that it runs"):
        if state.driver is not None and state.driver["state"] == "running" and state.driver["process"] == job.pid:
            return


def await_consumed(settings: Settings, streams: Collection[str], job: JobProcess, seconds: float) -> JobState:
    """Return once the job has committed all that is on the streams' topics now, and every bucket has reported since.

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
    """What is known of the job after each report."""
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
