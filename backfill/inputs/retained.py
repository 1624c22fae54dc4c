"""From when on a run can judge alerts, once rows of the lake have been removed by age (`lake_retention`).

How it works: upkeep records on each table before which arrival date it has removed rows. What is dated later than that
date by more than the stream's `max_future_skew` arrived later, too, and so is still there, and so is what was reported
of it. An alert depends on the events in its window, on which of these were reported as late, and on its own records; of
a rule with `mute` on those of the whole date. Where one of these may have gone, nobody can judge it any more: it stands
as it was settled (S9.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nightjar.backfill.config import DAY, microseconds_of_day
from nightjar.backfill.inputs.scope import GroupBy
from nightjar.lake.maintenance import removed_before
from nightjar.lake.tables import ALERTS, LATE_EVENTS, Table, events_table
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.storage.paths import AnyPath


@dataclass(frozen=True)
class Retained:
    """Event times (µs) from which on the lake has all events of a stream, and all records about their alerts."""

    events: int = MIN_TIMESTAMP
    alerts: int = MIN_TIMESTAMP

    @classmethod
    def of(cls, root: AnyPath, stream: Stream, versions: Mapping[str, int]) -> Retained:
        """What the tables of these versions (by name) have."""

        def since(table: Table) -> int:
            removed = removed_before(root, table, versions[table.name])
            return MIN_TIMESTAMP if removed is None else microseconds_of_day(removed) + stream.max_future_skew

        # an id counts for the event that had it first, which may be so much earlier
        known = stream.allowed_lateness + stream.max_future_skew
        events = max(since(events_table(source)) for source in stream.sources)
        return cls(max(events, since(LATE_EVENTS)) + known, since(ALERTS))

    def judged_since(self, group_by: GroupBy) -> int:
        """The event time (µs) from which on alerts over the group-by can be judged."""
        since = max(self.events + group_by.reach, self.alerts)
        return -(-since // DAY) * DAY if group_by.mutes else since
