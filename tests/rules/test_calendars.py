"""S16.3: when days, weeks and months begin by the clocks of a zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.calendars import Calendar, begins
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from tests.support.reference import midnight

SECOND = 1_000_000
HOUR = 3600 * SECOND
# Clocks that change at midnight, by half an hour, by two hours, and not at all.
ZONES = ("UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "America/Santiago", "Australia/Lord_Howe")
UNITS = st.sampled_from(Calendar)


def at(text: str, zone: str = "UTC") -> int:
    """µs since 1970."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


@given(st.lists(st.integers(at("1970-02-01"), at("2030-01-01")), min_size=1), UNITS, st.sampled_from(ZONES))
def test_units_begin_as_the_standard_library_says(times: list[int], unit: Calendar, zone: str) -> None:
    """To the microsecond."""
    found = begins(np.array(times), unit, zone).tolist()
    assert found == [midnight(time, unit.value, zone) for time in times]


@pytest.mark.parametrize(
    ("time", "zone", "hours"),
    [
        ("2026-03-29T23:59:59", "Europe/Berlin", 23),
        ("2026-10-25T23:59:59", "Europe/Berlin", 25),
        ("2026-03-08T23:59:59", "America/Havana", 23),  # there is no midnight
        ("2026-11-01T23:59:59", "America/Havana", 25),  # midnight comes twice
    ],
)
def test_days_are_as_long_as_clocks_make_them(time: str, zone: str, hours: int) -> None:
    """Where daylight-saving time begins or ends."""
    end = at(time, zone) + SECOND
    assert begins(np.array([end - 1]), Calendar.DAY, zone).tolist() == [end - hours * HOUR]


@pytest.mark.parametrize(
    ("changed", "zone"),
    [
        ("2010-11-07T02:31", "America/St_Johns"),  # from 00:01 to 23:01, so that the day before is shown once more
        ("2001-10-28T03:01", "America/Moncton"),
        ("2010-03-04T15:00", "Antarctica/Casey"),
        ("2026-11-01T05:00", "America/Havana"),
        ("2026-10-25T01:00", "Europe/Berlin"),
        ("2025-04-06T03:00", "America/Santiago"),
        ("2011-12-30T10:00", "Pacific/Apia"),  # which had no 30th
    ],
)
@pytest.mark.parametrize("unit", Calendar)
def test_units_begin_as_the_standard_library_says_around_a_change(changed: str, zone: str, unit: Calendar) -> None:
    """Every ten minutes of the day before it and the day after it."""
    times = np.arange(at(changed) - 30 * HOUR, at(changed) + 30 * HOUR, HOUR // 6) + 1
    wanted = [max(midnight(time, unit.value, zone), time - unit.longest) for time in times.tolist()]
    assert begins(times, unit, zone).tolist() == wanted


def test_a_longer_day_begins_its_longest_length_before() -> None:
    """At Vostok clocks were once set back by seven hours."""
    last = at("1994-02-01T00:00:00", "Antarctica/Vostok") - 1
    assert begins(np.array([last]), Calendar.DAY, "Antarctica/Vostok").tolist() == [last - 27 * HOUR]


@given(UNITS, st.sampled_from(ZONES))
def test_every_time_has_a_day(unit: Calendar, zone: str) -> None:
    """Also the first and the last."""
    times = np.array([MIN_TIMESTAMP, MAX_TIMESTAMP])
    found = begins(times, unit, zone)
    assert ((found <= times) & (found >= times - unit.longest)).all()
