"""Computes how fast events arrive and are read, and when the job will have caught up, from its driver's reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nightjar.contracts.job_progress import JobReport, Lag

# Rates are measured over this much recent time (µs). Arrivals: short, so that the end of a burst shows soon. Reading:
# longer, because it advances batch by batch and a batch takes some seconds when the job is far behind.
_ARRIVING = 5_000_000
_READING = 20_000_000

# Longer estimates (seconds, about three years) are reported as "never".
_NEVER = 1e8


@dataclass(frozen=True)
class Pace:
    """Events per second of a stream. caught_up_in: seconds until the lag is zero at this pace; None: never."""

    arriving: float
    read: float
    caught_up_in: float | None

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return {"arriving": self.arriving, "read": self.read, "caught_up_in": self.caught_up_in}


def pace(reports: Sequence[JobReport], stream: str) -> Pace | None:
    """The pace of a stream; None if there are too few reports, or there is no lag.

    reports: of one run of the driver, oldest first. Reading is timed from the first report after a batch's end to the
    last such report, and only while the job was behind: an idle job does not show how fast it could read.
    """
    known: list[tuple[int, Lag]] = []
    for report in reports:
        lag = report["lag"].get(stream)
        if lag is not None and "end" in lag and (not known or report["at"] > known[-1][0]):
            known.append((report["at"], lag))
    while known and known[-1][0] - known[0][0] > _READING:
        known = known[1:]
    idle = [number for number, (_, lag) in enumerate(known) if not lag["events"]]
    behind = known[idle[-1] if idle else 0 :]
    if len(behind) < 2:
        return None
    ended, last = behind[-1]
    began, first = next((report for report in behind[:-1] if ended - report[0] <= _ARRIVING), behind[-2])
    arriving = (last["end"] - first["end"]) / (ended - began) * 1_000_000
    read = [(at, lag["end"] - lag["events"]) for at, lag in behind]
    ends = [later for earlier, later in pairwise(read) if later[1] > earlier[1]]
    if len(ends) < 2:
        return None
    (since, before), (until, after) = ends[0], ends[-1]
    reading = (after - before) / (until - since) * 1_000_000
    gains = reading - arriving
    seconds = last["events"] / gains if gains > 0 else math.inf
    return Pace(round(arriving, 1), round(reading, 1), round(seconds, 1) if seconds < _NEVER else None)
