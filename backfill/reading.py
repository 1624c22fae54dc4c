"""What a run reads of a stream's events: of which files, and which of their rows count."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from backfill.config import BackfillConfig, Request
from backfill.scope import GroupBy, belongs, group_bys, microseconds_of
from backfill.staging import Notes
from lake import delta
from lake.events import date_of
from lake.reading import scan, scan_files
from lake.tables import events_table
from rules.streams import Stream
from rules.versions import RuleSet

# A task holds its portion in memory: some hundred megabytes at most.
_ROWS_A_TASK = 1_000_000
# Where a record stood; together they tell it from all others of the stream.
PLACE = ("partition", "offset")
ARRIVED = ("arrival_time", *PLACE)


@dataclass(frozen=True)
class Reading:
    """The events that windows over the run's days can hold.

    ruleset: the stream's versions; group_bys: what they group by. cut: arrivals before it count (µs); earliest: the
    least event time of those that belong to the days; files: all that windows can reach.
    """

    stream: Stream
    ruleset: RuleSet
    request: Request
    group_bys: tuple[GroupBy, ...]
    cut: int
    earliest: int
    files: tuple[delta.File, ...] = ()

    @property
    def reach(self) -> int:
        """The widest window, µs."""
        return max((group_by.reach for group_by in self.group_bys), default=0)

    @property
    def rows(self) -> int:
        """How many records the files have."""
        return sum(file.rows for file in self.files)

    @property
    def since(self) -> int:
        """The least event time that counts, µs: what windows can hold, and ids that the stream could still know."""
        return self.earliest - self.reach - self.stream.allowed_lateness

    def near(self, files: Iterable[delta.File]) -> pl.LazyFrame:
        """The usable events of some of the files: the stream's fields and ARRIVED."""
        event = microseconds_of(self.stream)
        read = usable(scan_files(events_table(self.stream), files), self.cut)
        near = read.filter((event >= self.since) & (event < self.request.end))
        return near.select(*self.stream.fields, *ARRIVED)


def readings_of(config: BackfillConfig, request: Request, notes: Notes) -> list[Reading]:
    """What to read of each stream that has rules, and events that belong to the run's days."""
    ruleset = notes.ruleset(config, request)
    found = (_reading(config, request, stream, ruleset, notes) for stream in config.streams.values())
    return [reading for reading in found if reading is not None]


def _reading(
    config: BackfillConfig, request: Request, stream: Stream, ruleset: RuleSet, notes: Notes
) -> Reading | None:
    of_stream = ruleset.of_stream(stream.name)
    if not of_stream.versions:
        return None
    root, table = config.lake.root, events_table(stream)
    version = notes.versions[table.name]
    begins = date_of(request.begin - stream.max_future_skew)
    arrived = pl.col("arrival_date").is_between(begins, date_of(notes.cut))
    day = usable(scan(root, table, version).filter(arrived), notes.cut).filter(belongs(stream, request))
    earliest = day.select(microseconds_of(stream).min()).collect().item()
    if earliest is None:
        return None
    groups = tuple(group_bys(stream, of_stream, earliest, request.groups))
    found = Reading(stream, of_stream, request, groups, notes.cut, earliest)
    arrived_since = date_of(found.since - stream.max_future_skew)
    return replace(found, files=tuple(delta.files_since(root, table, arrived_since, version)))


def usable(records: pl.LazyFrame, cut: int) -> pl.LazyFrame:
    """The records that are events and had arrived by the cut (µs)."""
    return records.filter(pl.col("rejected").is_null() & (pl.col("arrival_time").dt.epoch("us") < cut))


@dataclass(frozen=True)
class Portion:
    """What one task reads: some files of the reading with this number."""

    reading: int
    files: tuple[delta.File, ...]


def portions(readings: Sequence[Reading], parallelism: int) -> list[Portion]:
    """Every reading's files, spread evenly over as many tasks as can run at once, or more where that would be much."""
    made = []
    for number, reading in enumerate(readings):
        tasks = min(max(parallelism, math.ceil(reading.rows / _ROWS_A_TASK)), len(reading.files))
        shares: list[list[delta.File]] = [[] for _ in range(tasks)]
        filled = [(0, share) for share in range(tasks)]
        for file in sorted(reading.files, key=lambda file: -file.rows):
            least, share = heapq.heappop(filled)
            shares[share].append(file)
            heapq.heappush(filled, (least + file.rows, share))
        made += [Portion(number, tuple(share)) for share in shares]
    return made
