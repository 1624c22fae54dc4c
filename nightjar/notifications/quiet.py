"""Quiet hours: the part of each day during which a target is left in peace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from nightjar.rules.states import Severity
from nightjar.rules.timestamps import from_microseconds, microseconds


@dataclass(frozen=True)
class QuietHours:
    """From `start` to before `until`, by the clocks of the zone; past midnight if `until` is not after `start`.

    excepted: severities that do not wait.
    """

    start: time
    until: time
    zone: ZoneInfo
    excepted: frozenset[Severity] = frozenset()

    def hold(self, instant: int) -> bool:
        """Whether they are on at a time (µs)."""
        today = from_microseconds(instant).astimezone(self.zone).date()
        return any(self._begins(day) <= instant < self._ends(day) for day in (today - timedelta(days=1), today))

    def _begins(self, day: date) -> int:
        return self._instant(day, self.start)

    def _ends(self, day: date) -> int:
        return self._instant(day + timedelta(days=self.until <= self.start), self.until)

    def _instant(self, day: date, clock: time) -> int:
        """A time that the zone skips counts as the one before the change; of one that it has twice the first."""
        return microseconds(datetime.combine(day, clock, self.zone))
