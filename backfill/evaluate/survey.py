"""Before a day is evaluated, find the groups that its events touch, and the records that repeat an event id.

Both need all related events in one place: those of a group, and those of an id. The results are small, and staged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl
import pyarrow as pa

from nightjar.backfill.config import DAY
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.inputs.event_selection import ARRIVED, PLACE, EventSelection, EventSplit, groupings
from nightjar.backfill.inputs.retained import Retained
from nightjar.backfill.inputs.scope import (
    BUCKET,
    GROUP,
    HI,
    LO,
    GroupBy,
    belongs,
    merged,
    spans_of,
    touched_groups,
    touched_spans,
)
from nightjar.backfill.staging import TOUCHED_GROUPS, groups_folder, repeated_folder, stage
from nightjar.lake.arrow_shuffle import OverSplits
from nightjar.lake.scanning import parquet
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.storage.paths import AnyPath, remove_tree

# Of a record whose id is repeated: whether it is not the first.
REPEATS = "run.repeats"
# Whether an event's id also names another event.
CONFLICTS = "run.conflicts"
_CONTENT = "run.content"
_PARTITION = "run.partition"
_COUNTED = pa.schema([("groups", pa.int64()), ("beyond_retention", pa.int64())])
_TOUCHED = {
    "stream": pl.String,
    "group_by": pl.String,
    "group": pl.String,
    "lo": pl.Int64,
    "hi": pl.Int64,
    "bucket": pl.Int64,
}


@dataclass(frozen=True)
class SurveyKey:
    """What rows are joined by: the ids of a selection (group_by is None), or its groups of one group-by."""

    selection: EventSelection
    group_by: GroupBy | None

    def place(self, folder: AnyPath) -> AnyPath:
        """Where what is found is staged."""
        stream = self.selection.stream
        if self.group_by is None:
            return repeated_folder(folder, stream)
        return groups_folder(folder, stream, self.selection.group_bys.index(self.group_by))


@dataclass(frozen=True)
class SurveyTasks(OverSplits):
    """What the survey's tasks do."""

    selections: Sequence[EventSelection]
    splits: Sequence[EventSplit]
    folder: AnyPath
    """The run's staged one."""
    cut: int
    """How many buckets a key has."""
    pending: pl.DataFrame
    """Rows of `reconciliation` whose groups are to be judged again, and the group_by of each."""
    retained: Mapping[str, Retained] = field(default_factory=dict)
    """By stream; none: the lake has everything."""

    @cached_property
    def keys(self) -> list[SurveyKey]:
        """All there are: first the groups, in the order of `groupings`."""
        groups = [SurveyKey(selection, selection.group_bys[number]) for selection, number in groupings(self.selections)]
        return [*groups, *(SurveyKey(selection, None) for selection in self.selections)]

    @property
    def receivers(self) -> int:
        """One for a bucket of each key: what is left of most is little."""
        return self.cut

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The ids and the touched spans of a split of the files."""
        split = self.splits[task]
        selection = self.selections[split.selection]
        stream, request = selection.stream, selection.request
        needed = {stream.event_id, stream.event_time, *ARRIVED, *request.groups}
        needed.update(*(group_by.fields for group_by in selection.group_bys))
        near = selection.near(split.files).select(*needed, content_of(stream)).collect()
        day = near.lazy().filter(belongs(stream, request, selection.allowed))
        for number, key in enumerate(self.keys):
            if key.selection is not selection:
                continue
            by: tuple[str, ...]
            if key.group_by is None:
                rows, by = near.select(stream.event_id, *ARRIVED, _CONTENT), (stream.event_id,)
            else:
                rows, by = touched_spans(day, stream, key.group_by, request).collect(), key.group_by.fields
                if task == 0 or self.splits[task - 1].selection != split.selection:
                    rows = pl.concat([rows, self._again(stream, key.group_by)], how="vertical_relaxed")
            for bucket, part in _partitioned(rows, by, self.cut):
                yield number * self.cut + bucket, part.to_arrow(compat_level=pl.CompatLevel.oldest())

    def _again(self, stream: Stream, group_by: GroupBy) -> pl.DataFrame:
        mine = self.pending.filter((pl.col("stream") == stream.name) & (pl.col("group_by") == group_by.name))
        times = mine.get_column("event_time").dt.epoch("us").to_list()
        return spans_of(mine.get_column("group").to_list(), times, stream, group_by)

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Stage what is found in a bucket; a row of _COUNTED."""
        key, table = self.keys[bucket // self.cut], pl.DataFrame(rows)
        stream, file = key.selection.stream, f"{bucket}.parquet"
        if key.group_by is None:
            _stage(repeated(table, stream.event_id), key.place(self.folder) / file)
            return pa.table({"groups": [0], "beyond_retention": [0]})
        since = self.retained[stream.name].judged_since(key.group_by) if stream.name in self.retained else MIN_TIMESTAMP
        found = touched_groups(table, stream, key.group_by, key.selection.request, since)
        early, fields = table.filter(pl.col(LO) < since), key.group_by.fields
        gone = early.unique(fields).height if fields else min(early.height, 1)
        _stage(found.with_columns(pl.lit(bucket).alias(BUCKET)), key.place(self.folder) / file)
        names = {"stream": pl.lit(stream.name), "group_by": pl.lit(key.group_by.name), "bucket": pl.lit(bucket)}
        touched = found.select(group=GROUP, lo=LO, hi=HI, **names).select(
            pl.col(name).cast(kind) for name, kind in _TOUCHED.items()
        )
        _stage(touched, self.folder / TOUCHED_GROUPS / file)
        return pa.table({"groups": [found.get_column(GROUP).n_unique()], "beyond_retention": [gone]})


def survey(run: RunContext, tasks: SurveyTasks) -> dict[str, int]:
    """Stage the records that repeat an id, the touched groups of each group-by, and all of these as TOUCHED_GROUPS.

    Counted are `groups`, and those that have events from before what is retained (`beyond_retention`).
    """
    for place in (tasks.folder / TOUCHED_GROUPS, *(key.place(tasks.folder) for key in tasks.keys)):
        remove_tree(place)  # of an earlier attempt
    _stage(pl.DataFrame(schema=_TOUCHED), tasks.folder / TOUCHED_GROUPS / "none.parquet")
    return run.counted(tasks, _COUNTED)


def judged_spans(folder: AnyPath) -> list[tuple[int, int]]:
    """The event times (µs, both included) that a run judges in any group: some dozens of disjoint spans at most, in
    their order."""
    touched = parquet(folder / TOUCHED_GROUPS / "*.parquet")
    dates = touched.group_by(pl.col("lo").floordiv(DAY).alias("date")).agg(pl.col("lo").min(), pl.col("hi").max())
    return merged(dates.select("lo", "hi").collect(engine="streaming").rows())


def content_of(stream: Stream) -> pl.Expr:
    """A hash of an event's values, by which `repeated` compares the copies of an id."""
    return pl.struct(*stream.fields).hash().alias(_CONTENT)


def repeated(records: pl.DataFrame, event_id: str) -> pl.DataFrame:
    """The records whose event id is repeated: the id, PLACE, REPEATS and CONFLICTS (S4.3).

    records: the id, ARRIVED and `content_of`.

    The engine drops duplicates itself, but sees only the groups it is given: of an id whose copies name different
    groups the later ones are dropped by these.
    """
    several = records.filter(pl.col(event_id).is_duplicated()).sort(*ARRIVED)
    return several.select(
        event_id,
        *PLACE,
        (~pl.col(event_id).is_first_distinct()).alias(REPEATS),
        (pl.col(_CONTENT).n_unique().over(event_id) > 1).alias(CONFLICTS),
    )


def _stage(rows: pl.DataFrame, file: AnyPath) -> None:
    stage(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), file)


def _partitioned(rows: pl.DataFrame, by: tuple[str, ...], buckets: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows by bucket, those with equal `by` in one; at least one part, so that a key is always received."""
    if not by or not rows.height:
        yield 0, rows
        return
    key = pl.struct(by) if len(by) > 1 else pl.col(*by)
    numbered = rows.with_columns((key.hash() % buckets).alias(_PARTITION))
    parts = numbered.partition_by(_PARTITION, as_dict=True, include_key=False)
    yield from ((bucket, part) for (bucket,), part in parts.items())
