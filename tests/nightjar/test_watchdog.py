"""What the watchdog says of the job, for each thing that can be wrong with it."""

import time
from typing import Any

from nightjar.operations.status import JobStatus
from nightjar.operations.watchdog import problems
from tests.support.reports import word


def status(*, running: bool = True, **report: Any) -> JobStatus:
    """A status with this report."""
    return JobStatus(running=running, heartbeat_seconds=42.0, last=word(time.time_ns() // 1000, skew=0) | report)


def found(of: JobStatus) -> list[str]:
    """The problems, with the DAG's limits."""
    return problems(of, behind=60, skew=2)


def test_a_job_that_is_well_has_no_problem() -> None:
    """A little behind is well."""
    assert found(status()) == []


def test_each_problem_names_its_remedy() -> None:
    """Silent, never there, behind, and on a host whose clock is off: all that hold, at once."""
    assert found(JobStatus(running=False, heartbeat_seconds=None)) == [
        "the job has never reported. Start it: nightjar stream"
    ]
    (silent,) = found(status(running=False, state="running"))
    assert silent.startswith("the job is silent: its last report is 42 s old")
    behind, skewed = found(status(lag={"logins": {"events": 5000, "seconds": 61.0}}, skew=-3_000_000))
    assert behind.startswith("stream logins is 61 s behind (5,000 events wait)")
    assert skewed.startswith("the clock of the job's host is -3.0 s off")
