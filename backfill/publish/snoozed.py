"""Which groups were snoozed on a day, and how many of its alerts nobody was notified of because of that.

How it works: a snooze counts as its records had it at the run's cut, so that the run of an old day counts what was
known then. The alerts count as they stand: those that were retracted do not. An alert that two snoozes cover counts for
each.

What it does not do: decide. No outcome, cause or correction depends on a snooze
(docs/explanation/decisions/0013-snoozes.md). A manifest names a snooze by its id alone: whom and what it is about stays
in the table `snoozes`, which knows how to forget a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import polars as pl

from nightjar.backfill.publish.precision import holding
from nightjar.contracts.snoozes import Snooze, Snoozes
from nightjar.lake import scanning
from nightjar.lake.snoozes import archived_snoozes
from nightjar.lake.tables import ALERTS
from nightjar.rules.timestamps import microseconds
from nightjar.storage.paths import AnyPath


@dataclass(frozen=True)
class Snoozed:
    """How many alerts of a day a snooze covers."""

    snooze_id: str
    rule_id: str
    alerts: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def snoozed(root: AnyPath, day: date, until: datetime) -> list[Snoozed]:
    """The snoozes that cover event times of the day (UTC), as they were known by `until`, sorted by their alerts."""
    begin, end = (datetime.combine(each, time(), UTC) for each in (day, day + timedelta(days=1)))
    first, after = microseconds(begin), microseconds(end)
    known = [each for each in archived_snoozes(root, until).every if max(each.since, first) < min(each.until, after)]
    if not known:
        return []
    inside = (pl.col("event_time") >= begin) & (pl.col("event_time") < end)
    inside &= pl.col("rule_id").is_in({each.rule_id for each in known})
    inside &= pl.col("group").is_in({each.group for each in known})
    alerts = holding(scanning.rows(root, ALERTS).filter(inside))
    at = pl.col("event_time").dt.epoch("us")
    counted = alerts.group_by("rule_id", "group").agg(at.alias("times")).collect()
    times = {(rule_id, group): found for rule_id, group, found in counted.iter_rows()}
    found = [
        Snoozed(each.snooze_id, each.rule_id, sum(map(each.covers, times.get((each.rule_id, each.group), []))))
        for each in known
    ]
    return sorted(found, key=lambda each: (-each.alerts, each.rule_id, each.snooze_id))


def read_snoozed(written: Mapping[str, Any], known: Snoozes) -> tuple[Snoozed, Snooze | None]:
    """What `as_dict` has written, and the snooze; None if it was erased. known: see `archived_snoozes`."""
    found = Snoozed(**written)
    return found, next((each for each in known.every if each.snooze_id == found.snooze_id), None)
