"""The stage that compares the stream's latest revisions with the truth, finds causes, and stages corrections.

How it works: in Spark tasks, by the buckets of the evaluation. First the records about alerts go to the bucket of their
group, where the truth is, and become outcomes. Then the events of the groups with differences follow, from which the
causes are found (see causes.py). The driver counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa
import structlog

from nightjar.backfill.division import file_splits
from nightjar.backfill.evaluate.survey import CONFLICTS, judged_spans
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.inputs.event_selection import (
    PLACE,
    EventSelection,
    EventSplit,
    event_splits,
    groupings,
    selections_of,
)
from nightjar.backfill.inputs.histories import VersionHistory
from nightjar.backfill.inputs.scope import BUCKET, GROUP, TARGET, events_of, group_by_name, in_spans, within
from nightjar.backfill.reconcile.buckets import Buckets, Count
from nightjar.backfill.reconcile.causes import CauseFinder
from nightjar.backfill.staging import groups_folder, read_judged_times, repeated_folder
from nightjar.contracts.alerts import RECORD_SCHEMA
from nightjar.lake import delta, stream_state
from nightjar.lake.arrow_shuffle import OverSplits
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import parquet, scan_files
from nightjar.lake.table_rows import rows_of
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS
from nightjar.rules.engine.store import LATE

_log = structlog.get_logger(__name__)

_COUNTED = pa.schema([("what", pa.string()), ("name", pa.string()), ("found", pa.int64())])


@dataclass(frozen=True)
class Compared:
    """What the comparison counted."""

    outcomes: Counter[str]
    """How many alerts have each."""
    causes: Counter[str]
    """How many alerts have each."""
    stream_alerts: int
    """Alerts of the stream in scope that are not retracted."""
    overflow: int
    """Those of them that are marked so."""
    corrections: int
    """How many are staged."""
    waiting: int
    """Differences left to the stream, which has not read their events yet."""
    held_back: int
    """Unexplained differences."""
    unusable: int
    """Records of the alerts topic that are not alerts."""

    def as_counts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "outcomes": dict(self.outcomes),
            "causes": dict(self.causes),
            "stream_alerts": self.stream_alerts,
            "overflow": self.overflow,
            "corrections": self.corrections,
            "left_to_the_stream": self.waiting,
            "held_back": self.held_back,
            "unusable_alerts": self.unusable,
        }


def compare(run: RunContext) -> Compared:
    """Stage OUTCOMES, CORRECTED and HELD_BACK."""
    buckets = Buckets.of(run)
    buckets.clear()
    counted = _counts(run.exchange(_comparison(run, buckets), _COUNTED))
    differing = sorted(int(name) for what, name in counted if what == "differing")
    if differing:
        counted += _counts(run.exchange(_search(run, buckets, differing), _COUNTED))
    compared = _compared(counted)
    if compared.unusable:
        _log.warning("records of the alerts topic are not alerts, and were skipped", records=compared.unusable)
    return compared


def _comparison(run: RunContext, buckets: Buckets) -> ComparisonTasks:
    spans, versions = judged_spans(run.folder), run.rules.asked_for.versions
    named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in versions]
    files = delta.files_within(run.root, ALERTS, run.version(ALERTS), instant="event_time", spans=spans)
    return ComparisonTasks(buckets, file_splits(files, run.parallelism), spans, named, run.parallelism)


def _search(run: RunContext, buckets: Buckets, differing: Sequence[int]) -> CauseTasks:
    selections = selections_of(run, read_judged_times(run.folder))
    late, progress = run.version(LATE_EVENTS), run.version(PROGRESS)
    return CauseTasks(
        buckets,
        selections,
        event_splits(selections, run.parallelism),
        differing,
        [
            delta.files_within(run.root, LATE_EVENTS, late, instant="event_time", spans=selection.spans)
            for selection in selections
        ],
        run.rules.published,
        stream_state.consumed(run.root, progress),
        stream_state.began(run.root, progress),
        stream_state.clocks(run.root, progress),
        {name: frozenset(value for _, value in of) for name, of in run.rules.reported.items()},
    )


def _counts(rows: pa.Table) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows.to_pylist():
        found[row["what"], row["name"]] += row["found"]
    return found


def _compared(counted: Mapping[tuple[str, str], int]) -> Compared:
    def of(what: str) -> Counter[str]:
        return Counter({name: found for (kind, name), found in counted.items() if kind == what})

    rest = ("stream_alerts", "overflow", "corrections", "waiting", "held_back", "unusable")
    return Compared(of("outcome"), of("cause"), **{what: of(what).total() for what in rest})


def _table(counts: Iterable[Count]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_COUNTED.names, row, strict=True)) for row in counts], _COUNTED)


@dataclass(frozen=True)
class ComparisonTasks:
    """What compares alerts with the truth."""

    buckets: Buckets
    splits: Sequence[Sequence[delta.File]]
    """The files of ALERTS that each task reads."""
    spans: Sequence[tuple[int, int]]
    """Event times (µs) that are judged."""
    versions: Sequence[tuple[str, int, str]]
    """Rule id, version and group-by of those that the run is about."""
    receivers: int
    """As many tasks as can run at once."""

    @property
    def tasks(self) -> int:
        """One a split."""
        return len(self.splits)

    @property
    def rows(self) -> int:
        """Of all files, and what they are held against."""
        return sum(file.rows for files in self.splits for file in files) + self.buckets.rows

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The records about judged alerts in a split of the files. The first task sends to each bucket: all are
        received, whether there is anything about them or not."""
        found = self._records(self.splits[task])
        parts = {bucket: part for (bucket,), part in found.partition_by("bucket", as_dict=True).items()}
        if task == 0:
            parts = dict.fromkeys(self.buckets.numbers, found.clear()) | parts
        for bucket, part in parts.items():
            yield bucket, part.select(RECORD_SCHEMA.names).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _records(self, files: Sequence[delta.File]) -> pl.DataFrame:
        event = pl.col("event_time").dt.epoch("us")
        records = (
            scan_files(ALERTS, files)
            .select(RECORD_SCHEMA.names)
            .filter(pl.col("alert_id").is_not_null() & within(event, self.spans))
        )
        versions = pl.LazyFrame(
            self.versions, {"rule_id": pl.String, "rule_version": pl.Int64, "group_by": pl.String}, orient="row"
        )
        of_rules = records.join(versions, on=["rule_id", "rule_version"]).sort("event_time")
        by = ["stream", "group_by", "group"]
        return in_spans(of_rules, event, self.buckets.groups(), by=by, begin="lo", end="hi").collect()

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Stage a bucket's outcomes; rows of _COUNTED."""
        return _table(self.buckets.judge(bucket, rows))


@dataclass(frozen=True)
class CauseTasks(OverSplits):
    """What finds causes."""

    buckets: Buckets
    selections: Sequence[EventSelection]
    splits: Sequence[EventSplit]
    differing: Sequence[int]
    """The buckets with differences."""
    late: Sequence[Sequence[delta.File]]
    """By selection, the files of LATE_EVENTS."""
    published: Mapping[tuple[str, int], VersionHistory]
    """By rule id and version."""
    consumed: Mapping[str, Mapping[int, int]]
    """By topic and partition; see stream_state."""
    began: Mapping[str, Mapping[int, int]]
    """Likewise."""
    clocks: Mapping[str, int]
    """By stream, how far the stream's clock had come, µs."""
    lateness: Mapping[str, frozenset[int]]
    """By stream `allowed_lateness`, as reported, µs."""

    @property
    def receivers(self) -> int:
        """One a bucket, which is sent to under its place in `differing`."""
        return len(self.differing)

    @cached_property
    def _groupings(self) -> list[tuple[EventSelection, int]]:
        """Of each bucket with differences the selection, and the number of the group-by in it."""
        known = {(of.stream.name, of.group_bys[number].name): (of, number) for of, number in groupings(self.selections)}
        return [known[self.buckets.grouping(bucket)] for bucket in self.differing]

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The records of the groups with differences in a split of the files, with LATE and CONFLICTS."""
        split = self.splits[task]
        selection, folder = self.selections[split.selection], self.buckets.folder
        stream = selection.stream
        near = self._flagged(split).sort(stream.event_time).collect().lazy()
        is_first = task == 0 or self.splits[task - 1].selection != split.selection
        for place, (of, number) in enumerate(self._groupings):
            if of is not selection:
                continue
            bucket = self.differing[place]
            differing = self.buckets.differing(bucket).select(pl.col("group").alias(GROUP)).unique()
            groups = parquet(groups_folder(folder, stream, number) / f"{bucket}.parquet")
            wanted = groups.join(differing, on=GROUP, how="semi").drop(GROUP, BUCKET)
            found = events_of(near, wanted, stream, selection.group_bys[number]).drop(TARGET).collect()
            if found.height or is_first:  # so that each bucket is received
                yield place, found.to_arrow(compat_level=pl.CompatLevel.oldest())

    def _flagged(self, split: EventSplit) -> pl.LazyFrame:
        selection = self.selections[split.selection]
        stream = selection.stream
        repeated = parquet(repeated_folder(self.buckets.folder, stream) / "*.parquet")
        conflicting = repeated.filter(CONFLICTS).select(stream.event_id, CONFLICTS).unique()
        flagged = selection.near(split.files).join(conflicting, on=stream.event_id, how="left")
        late = self._late(split.selection)
        # a lake of an earlier release lacks the record's coordinates
        placed, unplaced = (late.filter(pl.col("offset").is_null() == missing) for missing in (False, True))
        identity = [stream.event_id, stream.event_time]
        flagged = flagged.join(placed, on=[*identity, *PLACE], how="left")
        flagged = flagged.join(unplaced.drop(PLACE), on=identity, how="left", suffix=".unplaced")
        return flagged.with_columns(
            pl.coalesce(LATE, f"{LATE}.unplaced", False).alias(LATE),
            pl.col(CONFLICTS).fill_null(value=False),
        ).drop(f"{LATE}.unplaced")

    def _late(self, number: int) -> pl.LazyFrame:
        """What the stream reported as late, of a selection's events: their id, time and PLACE, and LATE."""
        stream, spans = self.selections[number].stream, self.selections[number].spans
        mine = (pl.col("stream") == stream.name) & within(pl.col("event_time").dt.epoch("us"), spans)
        records = scan_files(LATE_EVENTS, self.late[number]).filter(mine)
        place = {name: pl.col(f"record_{name}") for name in PLACE}
        return records.select(
            pl.col("event_id").alias(stream.event_id),
            pl.col("event_time").alias(stream.event_time),
            place["partition"].cast(pl.Int32, strict=False).alias("partition"),
            place["offset"].alias("offset"),
            pl.lit(value=True).alias(LATE),
        ).unique()

    def receive(self, place: int, rows: pa.Table) -> pa.Table:
        """Stage the outcomes of a bucket with differences; rows of _COUNTED."""
        selection, number = self._groupings[place]
        events = as_declared(rows, selection.stream)
        for name in (LATE, CONFLICTS):
            events = events.append_column(name, rows.column(name))
        finder = CauseFinder(
            selection.stream,
            selection.ruleset,
            selection.group_bys[number],
            events,
            published=self.published,
            consumed=selection.stream.by_partition(self.consumed),
            began=selection.stream.by_partition(self.began),
            clock=self.clocks.get(selection.stream.name),
            lateness=self.lateness.get(selection.stream.name, frozenset()),
            tables=rows_of(selection.tables),
        )
        return _table(self.buckets.explain(self.differing[place], finder))
