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
    since, starts = _starts(unit, zone, first, last)
    found: npt.NDArray[np.int64] = starts[np.searchsorted(since, times, side="right") - 1]
    return np.maximum(found, times - unit.longest)


def _ends(times: npt.NDArray[np.int64]) -> tuple[np.int64, np.int64]:
    return times.min(), times.max()


@lru_cache(maxsize=16)
def _starts(unit: Calendar, zone: str, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Instants from which on clocks show one of the units of the years first to last (since 1970) or the one before
    them, until the next instant, and when that unit began.

    Clocks that are set back across midnight show the unit before once more.
    """
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
    again = (
        local.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null").to_physical().fill_null(0).to_numpy()
    )
    instants = shown.to_physical().fill_null(0).to_numpy().copy()
    twice = np.flatnonzero(again > instants)
    skipped = shown.is_null().to_numpy()
    instants[skipped] = _first_at(clocks[skipped], clocks[skipped] - 2 * _DAY, clocks[skipped] + 2 * _DAY, zone)
    set_back = _first_at(clocks[twice], instants[twice], again[twice], zone, before=True)
    since = np.concatenate([instants, set_back, again[twice]])
    starts = np.concatenate([instants, instants[np.maximum(twice - 1, 0)], instants[twice]])
    order = np.argsort(since, kind="stable")
    return since[order], starts[order]


def _first_at(
    clocks: npt.NDArray[np.int64],
    low: npt.NDArray[np.int64],
    high: npt.NDArray[np.int64],
    zone: str,
    *,
    before: bool = False,
) -> npt.NDArray[np.int64]:
    """The first instants after `low` at which the clocks of a zone show these times or later ones, or earlier ones if
    `before`; `high` at the latest."""
    while np.any(high - low > 1):
        middle = (low + high) // 2
        local = pl.Series(middle).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone).dt.replace_time_zone(None)
        is_there = (local.to_physical().to_numpy() < clocks) == before
        low, high = np.where(is_there, low, middle), np.where(is_there, middle, high)
    return high
