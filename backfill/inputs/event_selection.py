"""The events of a stream that a run reads: which files, and which of their rows count."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from nightjar.backfill.config import DAY, RunRequest
from nightjar.backfill.division import file_splits
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.scope import GroupBy, asked_for, belongs, group_bys, merged, microseconds_of, within
from nightjar.backfill.lateness import Allowed
from nightjar.lake import delta
from nightjar.lake.events import date_of
from nightjar.lake.scanning import scan, scan_files
from nightjar.lake.table_rows import LakeTables
from nightjar.lake.tables import events_table
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP
from nightjar.rules.versions import RuleSet

# A bucket is one engine, or one table of ids, in one Python worker: some hundred megabytes at most.
_ROWS_A_BUCKET = 500_000
# A record's coordinates, unique within the stream.
PLACE = ("partition", "offset")
ARRIVED = ("arrival_time", *PLACE)

# Event times from and to, µs, both included.
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class EventSelection:
    """The events that windows over the run's days can hold."""

    stream: Stream
    ruleset: RuleSet
    """The stream's versions."""
    request: RunRequest
    group_bys: tuple[GroupBy, ...]
    """What these group by, and what those did that they took the place of."""
    cut: int
    """Arrivals before it count (µs)."""
    clock: int
    """What had happened before it has arrived by then (µs): it is known what has not followed until then."""
    judged: tuple[tuple[int, int], ...]
    """Event times (µs, both included) of the events that belong to the days and of pending alerts: disjoint spans."""
    allowed: Allowed
    """How late events could be about then."""
    files: tuple[delta.File, ...] = ()
    """All that windows can reach."""
    tables: LakeTables | None = None
    """None: no table is declared."""

    @property
    def reach(self) -> int:
        """The widest window, µs."""
        return max((group_by.reach for group_by in self.group_bys), default=0)

    @property
    def waiting(self) -> int:
        """The longest time for which a rule waits for what follows an event, µs."""
        return max((group_by.waiting for group_by in self.group_bys), default=0)

    @property
    def rows(self) -> int:
        """How many records the files have."""
        return sum(file.rows for file in self.files)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The event times (µs, both included) that count: what windows over the judged ones can hold, and what the
        windows of others can hold of these; and around them ids that the stream could still know."""
        known = self.stream.allowed_lateness + self.stream.max_future_skew
        end = self.request.end - 1
        judged = (group_by.judged(*span) for group_by in self.group_bys or (GroupBy((), 0),) for span in self.judged)
        return merged((lo - self.reach - known, min(hi, end) + self.waiting + known) for lo, hi in judged)

    @property
    def since(self) -> int:
        """The least event time that counts, µs."""
        return min((lo for lo, _ in self.spans), default=MAX_TIMESTAMP)

    def near(self, files: Collection[delta.File]) -> pl.LazyFrame:
        """The usable events of some of the files: the stream's fields and ARRIVED."""
        read = usable(scan_files(events_table(self.stream), files), self.cut)
        near = read.filter(within(microseconds_of(self.stream), self.spans))
        return near.select(*self.stream.fields, *ARRIVED)


def judged_times(run: RunInputs, pending: pl.DataFrame) -> dict[str, Spans]:
    """The event times (µs, both included) of the events that belong to the run's days, and of pending alerts, by the
    name of each stream that has rules and such events.

    pending: rows of `reconciliation` that are to be judged again.
    """
    found: dict[str, Spans] = {}
    for stream in run.config.streams.values():
        if run.rules.asked_for.of_stream(stream.name).versions:
            again = pending.filter(pl.col("stream") == stream.name).get_column("event_time").dt.epoch("us")
            judged = merged([*_of_days(run, stream), *((at, at) for at in again)])
            if judged:
                found[stream.name] = judged
    return found


def selections_of(run: RunInputs, judged: Mapping[str, Spans]) -> list[EventSelection]:
    """What to read of each stream. judged: see judged_times."""
    return [_selection(run, run.config.streams[name], spans) for name, spans in judged.items()]


def events_of_days(run: RunInputs, stream: Stream) -> pl.LazyFrame:
    """The usable events that belong to the run's days and groups, duplicates included: the table's columns."""
    request, cut, table = run.request, run.notes.cut, events_table(stream)
    begins = date_of(request.begin - stream.max_future_skew)
    arrived = pl.col("arrival_date").is_between(begins, date_of(cut))
    records = scan(run.root, table, run.version(table)).filter(arrived)
    belonging = belongs(stream, request, run.notes.allowed_of(stream))
    return asked_for(usable(records, cut).filter(belonging), request)


def _of_days(run: RunInputs, stream: Stream) -> Spans:
    """The event times (µs, both included) of the events that belong to the run's days."""
    day = events_of_days(run, stream)
    event = microseconds_of(stream)
    dates = day.group_by(event.floordiv(DAY).alias("date")).agg(event.min().alias("lo"), event.max().alias("hi"))
    return merged(dates.select("lo", "hi").collect(engine="streaming").rows())


def _selection(run: RunInputs, stream: Stream, judged: Spans) -> EventSelection:
    rules, notes, skew, table = run.rules, run.notes, stream.max_future_skew, events_table(stream)
    ruleset, since, until = rules.asked_for.of_stream(stream.name), judged[0][0], judged[-1][1]
    groups = tuple(group_bys(ruleset.versions, rules.published, since, until, run.request.groups, skew))
    found = EventSelection(
        stream, ruleset, run.request, groups, notes.cut, notes.clock, tuple(judged), notes.allowed_of(stream)
    )
    arrived = date_of(found.since - skew)
    files = delta.files_within(
        run.root, table, run.version(table), instant=stream.event_time, spans=found.spans, arrived=arrived
    )
    return replace(found, files=tuple(files), tables=run.tables)


def usable(records: pl.LazyFrame, cut: int) -> pl.LazyFrame:
    """The records that are events and had arrived by the cut (µs)."""
    return records.filter(pl.col("rejected").is_null() & (pl.col("arrival_time").dt.epoch("us") < cut))


def groupings(selections: Sequence[EventSelection]) -> list[tuple[EventSelection, int]]:
    """Every group-by of every selection, as its number there. Their order gives buckets their numbers."""
    return [(selection, number) for selection in selections for number in range(len(selection.group_bys))]


def buckets_of(selections: Sequence[EventSelection], parallelism: int) -> int:
    """Into how many buckets the groups of each group-by, and the ids of each stream, are divided."""
    rows = max((selection.rows for selection in selections), default=0)
    return max(parallelism, math.ceil(rows / _ROWS_A_BUCKET))


@dataclass(frozen=True)
class EventSplit:
    """What one task reads: some files of the selection with this number."""

    selection: int
    files: tuple[delta.File, ...]


def event_splits(selections: Sequence[EventSelection], parallelism: int) -> list[EventSplit]:
    """Every selection's files, split for tasks."""
    return [
        EventSplit(number, tuple(files))
        for number, selection in enumerate(selections)
        for files in file_splits(selection.files, parallelism)
    ]
