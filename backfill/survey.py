"""Before a day is evaluated: which groups its events touch, and which records repeat an event id.

Both need all events of a kind in one place: those of a group, and those of an id. The answers are small, and staged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from backfill.reading import ARRIVED, PLACE, Portion, Reading
from backfill.scope import GROUP, HI, LO, GroupBy, belongs, touched_groups, touched_spans
from backfill.staging import EXCHANGED, TOUCHED_GROUPS, groups_folder, repeated_folder, stage
from lake.exchange import exchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKET = "run.bucket"
_COUNTED = "found bigint"
_TOUCHED = {"stream": pl.String, "group_by": pl.String, "group": pl.String, "lo": pl.Int64, "hi": pl.Int64}


@dataclass(frozen=True)
class Heap:
    """What is looked at together: the ids of a reading (group_by is None), or its groups of one group-by."""

    reading: Reading
    group_by: GroupBy | None

    def place(self, folder: Path) -> Path:
        """Where what is found is staged."""
        stream = self.reading.stream
        if self.group_by is None:
            return repeated_folder(folder, stream)
        return groups_folder(folder, stream, self.reading.group_bys.index(self.group_by))

    def found(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What there is to find in some whole ids, or groups."""
        if self.group_by is None:
            return repeated(rows, self.reading.stream.event_id)
        return touched_groups(rows, self.reading.stream, self.group_by, self.reading.request)


@dataclass(frozen=True)
class Surveyor:
    """What the survey's tasks do. folder: the run's staged one; cut: how many buckets a heap has."""

    readings: Sequence[Reading]
    portions: Sequence[Portion]
    folder: Path
    cut: int

    @cached_property
    def heaps(self) -> list[Heap]:
        """All there are."""
        return [Heap(reading, group_by) for reading in self.readings for group_by in (None, *reading.group_bys)]

    @property
    def tasks(self) -> int:
        """One a portion."""
        return len(self.portions)

    @property
    def receivers(self) -> int:
        """One for a bucket of each heap: what is left of most is little."""
        return self.cut

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The ids and the touched spans of a portion of the files."""
        portion = self.portions[task]
        reading = self.readings[portion.reading]
        stream, request = reading.stream, reading.request
        needed = {stream.event_id, stream.event_time, *ARRIVED, *request.groups}
        needed.update(*(group_by.fields for group_by in reading.group_bys))
        near = reading.near(portion.files).select(*needed).collect()
        day = near.lazy().filter(belongs(stream, request))
        for number, heap in enumerate(self.heaps):
            if heap.reading is not reading:
                continue
            if heap.group_by is None:
                rows, by = near.select(stream.event_id, *ARRIVED), (stream.event_id,)
            else:
                rows, by = touched_spans(day, stream, heap.group_by, request).collect(), heap.group_by.fields
            for bucket, part in _parted(rows, by, self.cut):
                yield number * self.cut + bucket, part.to_arrow(compat_level=pl.CompatLevel.oldest())

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Stage what is found in a bucket; a row of _COUNTED."""
        heap = self.heaps[bucket // self.cut]
        found = heap.found(pl.DataFrame(rows))
        stage(found.to_arrow(compat_level=pl.CompatLevel.oldest()), heap.place(self.folder) / f"{bucket}.parquet")
        return pa.table({"found": [found.height]})


def survey(session: SparkSession, readings: Sequence[Reading], portions: Sequence[Portion], folder: Path) -> int:
    """Stage the records that repeat an id, the touched groups of each group-by, and all of these as TOUCHED_GROUPS;
    how many groups there are."""
    surveyor = Surveyor(readings, portions, folder, session.sparkContext.defaultParallelism)
    for heap in surveyor.heaps:
        shutil.rmtree(heap.place(folder), ignore_errors=True)  # of an attempt before
    exchange(session, surveyor, _COUNTED, folder / EXCHANGED)
    touched = [pl.DataFrame(schema=_TOUCHED)]
    for heap in surveyor.heaps:
        if heap.group_by is not None:
            names = {"stream": pl.lit(heap.reading.stream.name), "group_by": pl.lit(heap.group_by.name)}
            groups = pl.scan_parquet(heap.place(folder) / "*.parquet")
            touched.append(groups.select(**names, group=GROUP, lo=LO, hi=HI).collect())
    named = pl.concat(touched)
    stage(named.to_arrow(compat_level=pl.CompatLevel.oldest()), folder / TOUCHED_GROUPS / "all.parquet")
    return named.height


def repeated(records: pl.DataFrame, event_id: str) -> pl.DataFrame:
    """The PLACE of each record that is not the first to arrive of its event id (law 4).

    The engine drops duplicates itself, but sees only the groups it is given: of an id whose copies name different
    groups the later ones are dropped here.
    """
    several = records.filter(pl.col(event_id).is_duplicated()).sort(*ARRIVED)
    return several.filter(~pl.col(event_id).is_first_distinct()).select(PLACE)


def _parted(rows: pl.DataFrame, by: tuple[str, ...], buckets: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows by bucket, those with equal `by` in one; at least one part, so that a heap is always received."""
    if not by or not rows.height:
        yield 0, rows
        return
    key = pl.struct(by) if len(by) > 1 else pl.col(*by)
    numbered = rows.with_columns((key.hash() % buckets).alias(_BUCKET))
    parts = numbered.partition_by(_BUCKET, as_dict=True, include_key=False)
    yield from ((bucket, part) for (bucket,), part in parts.items())
