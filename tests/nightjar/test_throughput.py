"""When a job that is behind will catch up, from its driver's reports."""

from typing import Any

import pytest

from nightjar.operations.throughput import Pace, pace

SECOND = 1_000_000


def words(*reported: tuple[float, int, int]) -> list[dict[str, Any]]:
    """Words of the driver: at (s), events that there are, and of them read."""
    return [
        {"at": int(at * SECOND), "lag": {"logins": {"events": end - read, "seconds": 0.0, "end": end}}}
        for at, end, read in reported
    ]


def test_it_is_the_backlog_over_what_is_read_more_than_arrives() -> None:
    """10,000 wait, 3,000 are read a second and 1,000 come: five seconds."""
    reported = words(*((at, 12_000 + 1000 * at, 3000 * at) for at in range(6)))
    assert pace(reported[:2], "logins") is None, "one batch has no duration"
    assert pace(reported[:3], "logins") == Pace(1000.0, 3000.0, 4.0)
    assert pace(reported, "logins") == Pace(1000.0, 3000.0, 1.0)


def test_reading_is_timed_from_batch_to_batch() -> None:
    """Between two ends of batches nothing moves; reports before the first end belong to no known batch."""
    reported = words((0, 1000, 0), (1, 1000, 0), (2, 1000, 300), (3, 1000, 300), (4, 1000, 300), (5, 1000, 600))
    assert pace(reported, "logins") == Pace(0.0, 100.0, 4.0)
    assert pace([*reported, *words((6, 1000, 600))], "logins") == Pace(0.0, 100.0, 4.0)


@pytest.mark.parametrize("arriving", [100, 150])
def test_a_job_that_reads_no_faster_than_events_come_never_catches_up(arriving: int) -> None:
    """At this pace."""
    reported = words(*((at, 1000 + arriving * at, 100 * at) for at in range(5)))
    assert pace(reported, "logins") == Pace(float(arriving), 100.0, None)


def test_the_time_before_it_fell_behind_does_not_count() -> None:
    """Neither what was read while nothing waited nor what was long ago."""
    quiet = words(*((at, 10 * at, 10 * at) for at in range(5)))
    burst = words(*((5 + at, 50_040 + 10 * at, 40 + 2000 * at) for at in range(4)))
    assert pace([*quiet, *burst], "logins") == Pace(pytest.approx(50_030 / 4, 0.1), 2000.0, None)
    slow = words(*((at, 100_000, 10 * at) for at in range(20)))
    fast = words(*((40 + at, 100_000, 200 + 1000 * at) for at in range(5)))
    assert pace([*slow, *fast], "logins") == Pace(0.0, 1000.0, 95.8)


def test_the_end_of_a_burst_is_seen_within_seconds() -> None:
    """Reading is timed over many batches, and arriving over the last five seconds."""
    burst = words(*((at, 20_000 * at, 5000 * at) for at in range(4)))
    after = words(*((3 + at, 60_000 + 1000 * at, 15_000 + 5000 * at) for at in range(1, 6)))
    assert pace([*burst, *after[:1]], "logins") == Pace(pytest.approx(15_250), 5000.0, None)
    assert pace([*burst, *after], "logins") == Pace(1000.0, 5000.0, 6.2)


def test_where_nothing_waits_there_is_nothing_to_say() -> None:
    """Nor for a stream, or by a job, that reports no end."""
    assert pace(words((0, 5, 5), (1, 9, 9)), "logins") is None
    assert pace(words((0, 5, 1), (1, 9, 4)), "payments") is None
    assert pace([{"at": 0, "lag": {"logins": {"events": 1, "seconds": 1.0}}}] * 3, "logins") is None
    assert pace([], "logins") is None
