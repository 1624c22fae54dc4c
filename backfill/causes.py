"""Why the stream's last word and the truth differ.

How it works: the groups with differences are enacted again by the engine as the stream runs it, late events and all. If
that says what the stream said, lateness is the cause, and proven. Else the other ways out of law 9 are looked at: the
stream had not read the events, the rule came after them, its history was not there, an id names two events. What is
left is `unexplained`: a defect.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl
import pyarrow as pa

from backfill.reconciliation import Outcome, canonical, last_words
from backfill.scope import GroupBy, group_texts
from rules.engine import Engine
from rules.streams import Stream
from rules.versions import RuleSet


class Cause(StrEnum):
    """Why an alert differs."""

    LATE_EVENT = "late_event"
    STREAM_DOWN = "stream_down"
    RULE_PROPAGATION = "rule_propagation"
    COLD_START = "cold_start"
    DUPLICATE_CONFLICT = "duplicate_conflict"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Published:
    """When (µs) a rule's version arrived, and the arrival from which on its history is complete in the stream."""

    arrival: int
    history_since: int


@dataclass(frozen=True)
class _Event:
    event_time: int
    arrival: int
    partition: int
    offset: int
    event_id: str


class Witness:
    """What is known about some groups of one group-by.

    events: the stream's fields, arrival_time, partition and offset of all records of these groups, duplicates too, from
    the widest window before the differences on. published: by rule id and version. consumed: partition to the offset
    after the last record that the stream had read. conflicting: event ids that name two different events.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        group_by: GroupBy,
        events: pa.Table,
        *,
        published: Mapping[tuple[str, int], Published],
        consumed: Mapping[int, int],
        conflicting: frozenset[str],
    ) -> None:
        self._ruleset, self._published = ruleset, published
        self._consumed, self._conflicting = consumed, conflicting
        self._reach = group_by.reach
        engine = Engine(stream, ruleset, group_bys=frozenset({group_by.fields}))
        enacted = pl.DataFrame(engine.advance(events).alerts)
        standing = canonical(last_words(enacted).filter(pl.col("kind") == "alert"))
        self._enacted: dict[str, str] = dict(standing.select("alert_id", "measures").iter_rows())
        self._groups: dict[str, list[_Event]] = defaultdict(list)
        columns = [
            group_texts(events, stream, group_by),
            events.column(stream.event_time).cast(pa.int64()).to_pylist(),
            events.column("arrival_time").cast(pa.int64()).to_pylist(),
            *(events.column(name).to_pylist() for name in ("partition", "offset", stream.event_id)),
        ]
        for group, *event in zip(*columns, strict=True):
            self._groups[group].append(_Event(*event))
        for rows in self._groups.values():
            rows.sort(key=lambda event: event.event_time)

    def cause(self, difference: Mapping[str, Any]) -> Cause:
        """Of one row of `reconciliation.reconcile`; its event_time in µs."""
        said = None if difference["outcome"] == Outcome.MISSED else difference["stream_measures"]
        window = self._window(difference["group"], difference["event_time"])
        if any(event.offset >= self._consumed.get(event.partition, 0) for event in window):
            return Cause.STREAM_DOWN
        if self._enacted.get(difference["alert_id"]) == said:
            return Cause.LATE_EVENT
        arrivals = [event.arrival for event in window if event.event_id == difference["event_id"]]
        # of a version that took another's place in the past, both are told: what it says, and what that one had said
        in_force = self._ruleset.applicable(difference["rule_id"], difference["event_time"])
        came = None if in_force is None else self._published.get((in_force.rule.id, in_force.version))
        if came is not None and arrivals and min(arrivals) < came.arrival:
            return Cause.RULE_PROPAGATION
        published = self._published.get((difference["rule_id"], difference["rule_version"]))
        if published is not None and any(event.event_time < published.history_since for event in window):
            return Cause.COLD_START
        if any(event.event_id in self._conflicting for event in window):
            return Cause.DUPLICATE_CONFLICT
        return Cause.UNEXPLAINED

    def _window(self, group: str, event_time: int) -> list[_Event]:
        rows = self._groups.get(group, [])
        first = bisect_left(rows, event_time - self._reach, key=lambda event: event.event_time)
        return rows[first : bisect_right(rows, event_time, key=lambda event: event.event_time)]
