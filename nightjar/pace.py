"""How fast events come and are read, from what the job's driver has told, and when it will have caught up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Only what happened this lately (µs) says something of what comes next. The end of a burst is to be seen soon; what is
# read comes batch by batch, each some seconds where the job is far behind.
_ARRIVING = 5_000_000
_READING = 20_000_000


@dataclass(frozen=True)
class Pace:
    """Events per second of a stream. caught_up_in: seconds until none waits, at this pace; None: never."""

    arriving: float
    read: float
    caught_up_in: float | None

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return {"arriving": self.arriving, "read": self.read, "caught_up_in": self.caught_up_in}


def pace(words: Sequence[Mapping[str, Any]], stream: str) -> Pace | None:
    """The pace of a stream; None where the words do not tell it, or nothing waits.

    words: of one run of the driver, oldest first. Reading is timed from the first word of a batch's end to the last
    one, while the job was behind: a job that has nothing to do shows nothing of how fast it can be.
    """
    known = [(word["at"], word["lag"][stream]) for word in words if "end" in word["lag"].get(stream, {})]
    while known and known[-1][0] - known[0][0] > _READING:
        known = known[1:]
    idle = [number for number, (_, lag) in enumerate(known) if not lag["events"]]
    behind = known[idle[-1] if idle else 0 :]
    if len(behind) < 2:
        return None
    ended, last = behind[-1]
    began, first = next((word for word in behind[:-1] if ended - word[0] <= _ARRIVING), behind[-2])
    arriving = (last["end"] - first["end"]) / (ended - began) * 1_000_000
    read = [(at, lag["end"] - lag["events"]) for at, lag in behind]
    ends = [later for earlier, later in pairwise(read) if later[1] > earlier[1]]
    if len(ends) < 2:
        return None
    (since, before), (until, after) = ends[0], ends[-1]
    reading = (after - before) / (until - since) * 1_000_000
    gains = reading - arriving
    return Pace(round(arriving, 1), round(reading, 1), round(last["events"] / gains, 1) if gains > 0 else None)
