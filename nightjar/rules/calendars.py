"""Units of the calendar: when a day, a week or a month begins by the clocks of a zone."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from nightjar.rules.durations import MICROSECONDS

_DAY, _HOUR = MICROSECONDS["d"], MICROSECONDS["h"]
# The zone of a calendar that names none.
UTC = "UTC"
_MONDAY = 3  # days from a Monday to the first day of 1970


class Calendar(StrEnum):
    """The units, by their names in a rule."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def longest(self) -> int:
        """µs. Since 1970 clocks have been set back by three hours at most, but once, at Vostok in 1994."""
        return {Calendar.DAY: 1, Calendar.WEEK: 7, Calendar.MONTH: 31}[self] * _DAY + 3 * _HOUR


def begins(times: npt.NDArray[np.int64], unit: Calendar, zone: str) -> npt.NDArray[np.int64]:
    """When the unit of each time (µs since 1970 UTC) began (S16.3), at most its longest length before it."""
    first, last = (
        int(np.datetime64(int(time), "us").astype("datetime64[Y]").astype(np.int64)) for time in _ends(times)
    )
    starts = _starts(unit, zone, first, last)
    found: npt.NDArray[np.int64] = starts[np.searchsorted(starts, times, side="right") - 1]
    return np.maximum(found, times - unit.longest)


def _ends(times: npt.NDArray[np.int64]) -> tuple[np.int64, np.int64]:
    return times.min(), times.max()


@lru_cache(maxsize=16)
def _starts(unit: Calendar, zone: str, first: int, last: int) -> npt.NDArray[np.int64]:
    """When the units of the years first to last (since 1970) began, and the one before them."""
    begin, end = (np.datetime64(year, "Y").astype("datetime64[M]") for year in (first, last + 1))
    months = np.arange(begin - 1, end + 1)
    days = np.arange(months[0].astype("datetime64[D]"), months[-1].astype("datetime64[D]") + 2)
    midnights = {
        Calendar.DAY: days,
        Calendar.WEEK: days[(days.astype(np.int64) + _MONDAY) % 7 == 0],
        Calendar.MONTH: months,
    }[unit]
    clocks = midnights.astype("datetime64[us]").astype(np.int64)
    local = pl.Series(clocks).cast(pl.Datetime("us"))
    shown = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    instants = shown.to_physical().fill_null(0).to_numpy().copy()
    skipped = shown.is_null().to_numpy()
    instants[skipped] = _first_after(clocks[skipped], zone)
    return instants


def _first_after(clocks: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """The first instants at which the clocks of a zone show these times, which they skip, or later ones."""
    low, high = clocks - 2 * _DAY, clocks + 2 * _DAY
    while np.any(high - low > 1):
        middle = (low + high) // 2
        local = pl.Series(middle).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone).dt.replace_time_zone(None)
        is_after = local.to_physical().to_numpy() >= clocks
        low, high = np.where(is_after, low, middle), np.where(is_after, middle, high)
    return high
