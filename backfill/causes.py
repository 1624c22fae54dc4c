"""Why the stream's last word and the truth differ.

How it works: the groups with differences are replayed through the engine as the stream ran it: late are the events that
the stream reported as late. If the replay says what the stream said, these events are the cause, and that is proven.
Else the other ways out of law 9 are looked at: the stream had not read the events, the rule came after them, its
history was not there, an id names two events. What is left is `unexplained`: a defect.

All is found from arrays in the order of group and time, so that a difference costs what it takes to find its window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa

from backfill.histories import Published
from backfill.reconciliation import Outcome, canonical, last_words
from backfill.scope import GroupBy, group_texts, microseconds_of
from rules.engine import Engine
from rules.engine.store import ARRIVAL, LATE
from rules.streams import Stream
from rules.versions import RuleSet, RuleVersion

# Whether an event's id names another event, too.
CONFLICTS = "run.conflicts"


class Cause(StrEnum):
    """Why an alert differs."""

    LATE_EVENT = "late_event"
    STREAM_DOWN = "stream_down"
    RULE_PROPAGATION = "rule_propagation"
    COLD_START = "cold_start"
    SETTINGS_CHANGED = "settings_changed"
    DUPLICATE_CONFLICT = "duplicate_conflict"
    UNEXPLAINED = "unexplained"


class Witness:
    """What is known about some groups of one group-by.

    events: the stream's fields, arrival_time, partition and offset of all records of these groups, duplicates too, from
    the widest window before the differences on; `late`: whether the stream reported the event as late; CONFLICTS.
    published: by rule id and version. consumed, began: partition to the offset after the last record that the stream
    had read, and to that of the first one that its state can hold.
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
        began: Mapping[int, int],
    ) -> None:
        self._published = published
        self._versions: dict[str, list[RuleVersion]] = defaultdict(list)
        for version in ruleset.of_stream(stream.name).versions:
            self._versions[version.rule.id].append(version)
        engine = Engine(stream, ruleset, group_bys=frozenset({group_by.fields}))
        self._replayed = last_words(pl.DataFrame(engine.advance(events).alerts)).filter(pl.col("kind") == "alert")
        self._windows = _Windows(stream, group_by, events, consumed, began)

    def causes(self, differing: pl.DataFrame) -> pl.DataFrame:
        """alert_id and `cause` of each row of `reconciliation.reconcile` that differs."""
        about = differing.with_columns(pl.col("event_time").dt.epoch("us").alias("at"))
        replayed = self._replayed.join(about, on="alert_id", how="semi")
        again = canonical(replayed).select("alert_id", pl.col("measures").alias("replayed"))
        missed = pl.col("outcome") == Outcome.MISSED.value
        said = pl.when(missed).then(pl.lit(None, pl.String)).otherwise("stream_measures")
        about = about.join(again, on="alert_id", how="left", maintain_order="left")
        as_replayed = about.select(said.eq_missing(pl.col("replayed"))).to_series()
        found = [
            self._cause(rule_id, number, at, window, same)
            for rule_id, number, at, window, same in zip(
                *(about.get_column(name) for name in ("rule_id", "rule_version", "at")),
                self._windows.of(about),
                as_replayed,
                strict=True,
            )
        ]
        return about.select("alert_id", pl.Series("cause", [cause.value for cause in found], pl.String))

    def _cause(self, rule_id: str, number: int, at: int, window: _Window, as_replayed: bool) -> Cause:
        if window.unread:
            return Cause.STREAM_DOWN
        if as_replayed and window.late:
            return Cause.LATE_EVENT if window.late_as_declared else Cause.SETTINGS_CHANGED
        # where a version has displaced another in the past, both are announced: what it says, and what that one said
        in_force = next((v for v in reversed(self._versions[rule_id]) if v.effective <= at), None)
        came = None if in_force is None else self._published.get((rule_id, in_force.version))
        if came is not None and window.arrival is not None and window.arrival <= came.arrival:
            return Cause.RULE_PROPAGATION
        published = self._published.get((rule_id, number))
        if window.before_state or (published is not None and window.first < published.history_since):
            return Cause.COLD_START
        return Cause.DUPLICATE_CONFLICT if window.conflicting else Cause.UNEXPLAINED


@dataclass(frozen=True, slots=True)
class _Window:
    """What a difference's window holds.

    first: the first event's time, µs; arrival: that of the difference's own event, µs (None: it is not there). How many
    events: unread: the stream had not read; before_state: it had read before its state began; late: it reported as
    late; late_as_declared: these, as far as they are late by today's declaration; conflicting: have an id of another.
    """

    first: int
    arrival: int | None
    unread: int
    before_state: int
    late: int
    late_as_declared: int
    conflicting: int


class _Windows:
    """The windows of some groups: their events in the order of group and time, and of each flag how many before."""

    def __init__(
        self,
        stream: Stream,
        group_by: GroupBy,
        events: pa.Table,
        consumed: Mapping[int, int],
        began: Mapping[int, int],
    ) -> None:
        self._reach = group_by.reach
        rows = pl.DataFrame(events).with_columns(
            microseconds_of(stream).alias("at"), pl.col(ARRIVAL).dt.epoch("us").alias("arrival")
        )
        keys = list(group_by.fields)
        groups = rows.select(keys).unique() if keys else pl.DataFrame({"": [None]})
        texts = group_texts(groups.to_arrow(compat_level=pl.CompatLevel.oldest()), stream, group_by)
        numbered = groups.with_columns(pl.Series("group", range(len(texts)), pl.Int64))
        rows = rows.join(numbered, on=keys) if keys else rows.with_columns(pl.lit(0, pl.Int64).alias("group"))
        rows = rows.sort("group", "at")
        self._of_group = {text: number for number, text in enumerate(texts)}
        self._times = rows.get_column("at").to_numpy()
        self._ends = np.searchsorted(rows.get_column("group").to_numpy(), np.arange(len(texts) + 1))
        partitions, offsets = (rows.get_column(name).to_numpy() for name in ("partition", "offset"))
        lateness = pl.col("arrival") - pl.col("at")
        late = rows.get_column(LATE).to_numpy()
        flags = {
            "unread": offsets >= _of_partition(consumed, partitions),
            "before_state": offsets < _of_partition(began, partitions),
            "late": late,
            "late_as_declared": late & rows.select(lateness > stream.allowed_lateness).to_series().to_numpy(),
            "conflicting": rows.get_column(CONFLICTS).to_numpy(),
        }
        self._before = {name: np.append(0, np.cumsum(flag)) for name, flag in flags.items()}
        self._arrivals = rows.group_by(pl.col(stream.event_id).alias("event_id"), "at").agg(pl.col("arrival").min())

    def of(self, about: pl.DataFrame) -> Iterator[_Window]:
        """The window of each row: `group`, `event_id` and `at` (µs)."""
        arrivals = about.join(self._arrivals, on=["event_id", "at"], how="left", maintain_order="left")
        for group, at, arrival in arrivals.select("group", "at", "arrival").iter_rows():
            first, end = self._places(group, at)
            counts = {name: int(before[end] - before[first]) for name, before in self._before.items()}
            yield _Window(int(self._times[first]) if first < end else at, arrival, **counts)

    def _places(self, group: str, at: int) -> tuple[int, int]:
        number = self._of_group.get(group)
        if number is None:
            return 0, 0
        begin, end = self._ends[number], self._ends[number + 1]
        first, after = np.searchsorted(self._times[begin:end], [at - self._reach, at + 1])
        return int(begin + first), int(begin + after)


def _of_partition(offsets: Mapping[int, int], partitions: np.ndarray) -> np.ndarray:
    """The offset that each row's partition has, 0 where it has none."""
    found, place = np.unique(partitions, return_inverse=True)
    values: np.ndarray = np.array([offsets.get(int(number), 0) for number in found], np.int64)[place]
    return values
