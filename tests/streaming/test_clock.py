"""How far arrival has come, from where the partitions stand."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nightjar.contracts.clock import Clock
from nightjar.rules.streams import load_streams
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.clock import BrokerClock, PartitionProgress, clock_of, clocks_of_progress

CAUGHT_UP = PartitionProgress(consumed=5, end=5, last=70)
BEHIND = PartitionProgress(consumed=3, end=5, waiting=40, last=70)
NEVER_USED = PartitionProgress(consumed=0, end=0)
CONFIG = JobConfig(load_streams(), Path(), clock_margin=10)


@pytest.mark.parametrize(
    ("partitions", "now", "clock"),
    [
        ([CAUGHT_UP, NEVER_USED], 100, 100),
        ([CAUGHT_UP, BEHIND], 100, 40),
        ([BEHIND, replace(BEHIND, waiting=30)], 100, 30),
        ([CAUGHT_UP, replace(BEHIND, waiting=None)], 100, None),
        ([CAUGHT_UP, CAUGHT_UP], None, 70),
        ([CAUGHT_UP, BEHIND], None, 40),
        ([CAUGHT_UP, NEVER_USED], None, None),
        ([], 100, None),
    ],
    ids=[
        "nothing waits: the present",
        "the oldest that waits",
        "the oldest of several that wait",
        "one cannot be read",
        "producers: the last record",
        "producers: the oldest that waits",
        "producers: a partition without a record",
        "no partition is known",
    ],
)
def test_clock_is_before_every_record_yet_to_be_consumed(
    partitions: list[PartitionProgress], now: int | None, clock: int | None
) -> None:
    """And nothing is reported if that is unknown."""
    assert clock_of(partitions, now) == clock


def test_the_present_has_a_margin_and_is_known_only_if_brokers_stamp() -> None:
    """A broker's clock may be a little behind this machine's; a producer's has nothing to do with it."""
    progress = {"logins": [CAUGHT_UP], "payments": [replace(BEHIND, waiting=None)]}
    assert clocks_of_progress(CONFIG, progress, 100) == {"logins": 90}
    assert clocks_of_progress(replace(CONFIG, arrival="producer"), progress, 100) == {"logins": 70}


def test_without_a_stamp_of_the_brokers_only_what_waits_has_a_clock() -> None:
    """The host's own clock is never taken for the present."""
    progress = {"logins": [CAUGHT_UP], "payments": [BEHIND], "transactions": [BEHIND, CAUGHT_UP]}
    assert clocks_of_progress(CONFIG, progress, None) == {"payments": 40}


HOUR = 3_600_000_000


@pytest.mark.parametrize("ahead", [-2 * HOUR, 0, 2 * HOUR])
def test_the_present_is_the_brokers_whatever_the_hosts_clock(ahead: int) -> None:
    """What differs is measured, and decides nothing."""
    stamp = 1_700_000_000_000_000
    clock = BrokerClock(lambda: stamp + ahead)
    assert (clock.now(), clock.stamped, clock.skew) == (None, None, None)
    began = time.monotonic()
    clock.take(stamp, began)
    now = clock.now()
    passed = math.ceil((time.monotonic() - began) * 1_000_000)
    assert now is not None
    assert stamp <= now <= stamp + passed
    assert clock.stamped == stamp
    assert clock.skew is not None
    assert ahead - passed <= clock.skew <= max(ahead, 0), "stamped some time after it was sent"
    clock.take(stamp - 5, time.monotonic())
    assert clock.stamped == stamp, "a broker whose clock is behind the last one's does not turn it back"


def test_record_names_the_run() -> None:
    """The buckets heed the clocks of their own run only."""
    assert json.loads(Clock("run", {"logins": 7}).encoded()) == {"run_id": "run", "clocks": {"logins": 7}}


def test_lag_is_never_negative() -> None:
    """A topic that was cut short behind what is committed has no lag."""
    assert (BEHIND.lag, PartitionProgress(consumed=5, end=3).lag) == (2, 0)
