"""Quiet hours: the part of each day, and the days, during which a target is left in peace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from nightjar.rules.states import Severity
from nightjar.rules.timestamps import from_microseconds, microseconds


@dataclass(frozen=True)
class QuietHours:
    """By the clocks of the zone.

    hours: from the first to before the second of each day; past midnight if that is not after the first. excepted:
    severities that do not wait. days: quiet as a whole, Monday is 0.
    """

    hours: tuple[time, time] | None
    zone: ZoneInfo
    excepted: frozenset[Severity] = frozenset()
    days: frozenset[int] = frozenset()

    def hold(self, instant: int) -> bool:
        """Whether they are on at a time (µs)."""
        today = from_microseconds(instant).astimezone(self.zone).date()
        if today.weekday() in self.days:
            return True
        return self.hours is not None and any(
            self._instant(day, start) <= instant < self._instant(day + timedelta(days=until <= start), until)
            for start, until in [self.hours]
            for day in (today - timedelta(days=1), today)
        )

    def _instant(self, day: date, clock: time) -> int:
        """A time that the zone skips counts as the one before the change; of one that it has twice the first."""
        return microseconds(datetime.combine(day, clock, self.zone))
