"""Which alerts of a rule are beyond its cap in an hour, so that people can be spared them (S10.6).

How it works: alerts are counted by rule and hour of event time. Once there are as many as the cap, an event time is
fixed that no alert announced so far is after; alerts with a later event in that hour overflow. So the mark of an alert
is a function of its rule and event time from then on: its revisions and retraction have it too, and nothing has to be
kept for each alert.

Known limitation: an event out of order may make an alert before the fixed time; it is beyond the cap, and not marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from nightjar.rules.durations import MICROSECONDS

HOUR = MICROSECONDS["h"]
# Rules and hours that are held, beyond which none is closed that has no alerts: anybody may have written the request,
# and a state has them all.
_MOST_HOURS = 10_000

# A rule and an hour (its begin, µs) with: the alerts counted; the latest event time (µs) of one announced; the event
# time after which alerts overflow, None while none do.
Entry = tuple[str, int, int, int, int | None]


@dataclass
class _Hour:
    counted: int
    latest: int
    after: int | None = None


class HourlyCap:
    """Counts alerts by rule and hour, except muted ones. most: of a rule in an hour, before further ones overflow."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hours: dict[tuple[str, int], _Hour] = {}

    def mark(self, alerts: pa.Table) -> NDArray[np.bool_]:
        """Whether each alert overflows; the new ones among them are counted.

        alerts: the records of a batch, with the columns rule_id, revision, event_time and muted of ALERT_SCHEMA.
        """
        marks = np.zeros(alerts.num_rows, np.bool_)
        if not alerts.num_rows:
            return marks
        at = alerts.column("event_time").cast(pa.int64()).to_numpy()
        is_new = alerts.column("revision").to_numpy() == 1
        counts = ~alerts.column("muted").to_numpy()
        keys = pl.DataFrame({"rule": pl.Series(alerts.column("rule_id")), "hour": at // HOUR * HOUR})
        for (rule, hour), part in keys.with_row_index("row").group_by("rule", "hour"):
            rows = part.get_column("row").to_numpy()
            found = self._hours.setdefault((str(rule), int(hour)), _Hour(0, int(hour) - 1))
            new = rows[is_new[rows]]
            self._count(found, at[new], counts[new])
            if found.after is not None:
                marks[rows] = at[rows] > found.after
        return marks

    def _count(self, of: _Hour, at: NDArray[np.int64], counts: NDArray[np.bool_]) -> None:
        """Count new alerts in the order of their events' times."""
        if of.after is not None or not len(at):
            return
        order = np.argsort(at, kind="stable")
        total = of.counted + np.cumsum(counts[order])
        last = int(np.searchsorted(total, self._most))
        if last < len(at):
            of.counted, of.after = self._most, max(of.latest, int(at[order[last]]))
        else:
            of.counted = int(total[-1])
        of.latest = max(of.latest, int(at.max()))

    def close(self, rule_id: str, hour: int) -> None:
        """Have the rule's later alerts in that hour (its begin, µs) overflow, however many are counted here."""
        if (rule_id, hour) not in self._hours and len(self._hours) >= _MOST_HOURS:
            return
        found = self._hours.setdefault((rule_id, hour), _Hour(0, hour - 1))
        if found.after is None:
            found.after = found.latest

    def evict(self, settled: int) -> None:
        """Drop the hours that end before this event time (µs), of which no alert is announced any more."""
        for key in [key for key in self._hours if key[1] + HOUR <= settled]:
            del self._hours[key]

    @property
    def counted(self) -> Iterator[tuple[str, int, int]]:
        """Rule, hour and number of counted alerts, where there are some."""
        return ((rule, hour, of.counted) for (rule, hour), of in self._hours.items() if of.counted)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What `restore` needs."""
        return tuple((*key, of.counted, of.latest, of.after) for key, of in sorted(self._hours.items()))

    def restore(self, entries: Iterable[Entry]) -> None:
        """Continue from these `entries`."""
        self._hours = {(rule, hour): _Hour(counted, latest, after) for rule, hour, counted, latest, after in entries}
