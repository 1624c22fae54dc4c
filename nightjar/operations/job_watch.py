"""Reads the job's reports on the job-progress topic, and waits until the job has reached a given state.

A bucket reports once it has received something: an event, a rule, or the clock that comes every few seconds. Anybody
may write to the topic, so records that do not match the schema (contracts.job_progress) are skipped and counted.
"""

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from nightjar.configuration.settings import Settings
from nightjar.contracts.job_progress import BucketReport, JobReport, is_of_another_kind, read_report
from nightjar.kafka.readers import KafkaRecord, Reader, Skipped
from nightjar.local.job_process import JobProcess
from nightjar.rules.errors import NightjarError

# A job reports every second; after this long without a report (µs) it counts as stopped. Pauses of a slow machine are
# shorter.
STALE = 15_000_000

_START_SECONDS = 180.0


class JobNotThereError(NightjarError):
    """The job did not reach the awaited state in time."""


@dataclass
class JobState:
    """The last report of the driver (None: no report yet) and of each bucket on the topic."""

    driver: JobReport | None = None
    buckets: dict[int, BucketReport] = field(default_factory=dict)
    skipped: Skipped = field(default_factory=Skipped)

    def take(self, record: KafkaRecord) -> None:
        """Apply a record of the job-progress topic."""
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
        """Whether the driver has recently reported that it is running. now: wall clock, µs."""
        return self.driver is not None and self.driver["state"] != "stopped" and now - self.driver["at"] < STALE

    def lag(self, streams: Iterable[str]) -> int:
        """Unread events of these streams at the driver's last report."""
        lags = {} if self.driver is None else self.driver["lag"]
        return sum(lags[name]["events"] for name in streams if name in lags)

    def counts(self, stream: str) -> dict[str, int]:
        """Counts of a stream since the checkpoint was created, summed over its buckets."""
        total: dict[str, int] = {}
        for report in self.buckets.values():
            if report["stream"] == stream:
                for name, count in report["counts"].items():
                    total[name] = total.get(name, 0) + count
        return total

    @property
    def stored(self) -> int:
        """Bytes of all buckets' state in the checkpoint."""
        return sum(report.get("stored", 0) for report in self.buckets.values())

    def retained(self, stream: str) -> dict[str, int]:
        """Events retained for each group-by of a stream, over all buckets; a group-by is its comma-separated fields."""
        total: dict[str, int] = {}
        for report in self.buckets.values():
            if report["stream"] == stream:
                for group_by, rows in report["retained"].items():
                    total[group_by] = total.get(group_by, 0) + rows
        return total


def await_running(settings: Settings, job: JobProcess) -> None:
    """Return once the job reports that its query is running.

    Raises:
        JobProcessError: the job exits.
        JobNotThereError: it does not report in time.
    """
    for state in _followed(settings, job, _START_SECONDS, "has not reported that it runs"):
        if state.driver is not None and state.driver["state"] == "running" and state.driver["process"] == job.pid:
            return


def await_consumed(settings: Settings, streams: Collection[str], job: JobProcess, seconds: float) -> JobState:
    """Return once the job has committed everything now on the streams' topics, and every bucket has reported since.

    Raises as `await_running` does.
    """
    asked = time.time_ns() // 1000
    consumed: int | None = None
    for state in _followed(settings, job, seconds, "has not consumed everything"):
        if consumed is None and state.driver is not None and state.driver["at"] > asked and not state.lag(streams):
            consumed = state.driver["at"]
        if consumed is not None and all(report["at"] > consumed for report in state.buckets.values()):
            return state
    raise AssertionError("_followed ends only by raising")


def _followed(settings: Settings, job: JobProcess, seconds: float, otherwise: str) -> Iterator[JobState]:
    """The state of the job after each poll, until the time is up."""
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
        f"the job {otherwise} after {seconds:.0f} s; its lag is {lag}; its log ends with:\n{job.tail()}\n",
        where=str(job.log),
        remedy="See the log for the cause",
    )
