"""Count the rows that the gate checks, in Spark tasks: a pass over the day's records, and one over the staged rows.

How it works: a task reads its share of the files, counts rows that break expectations on single rows, and forwards what
must be compared: keys, by their hash; and to each violation's bucket its event, for the recheck. The results are
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import polars as pl
import pyarrow as pa

from nightjar.backfill.division import file_splits
from nightjar.backfill.inputs.event_selection import usable
from nightjar.backfill.inputs.scope import BUCKET, microseconds_of, within
from nightjar.expectations import measured
from nightjar.expectations.suites import Expectation, Suite
from nightjar.expectations.violation_checks import ARRIVAL, rechecked
from nightjar.lake import delta
from nightjar.lake.arrow_shuffle import Partitioned
from nightjar.lake.scanning import file_rows, scan_files
from nightjar.lake.table_rows import LakeTables, rows_of
from nightjar.lake.tables import events_table
from nightjar.rules.streams import Stream
from nightjar.rules.truth import VIOLATION_SCHEMA
from nightjar.rules.versions import RuleSet

_NO_VIOLATIONS = pl.DataFrame(VIOLATION_SCHEMA.empty_table()).lazy()


@dataclass(frozen=True)
class SuiteSplit:
    """What one task reads: files with rows of the suite of this number. day: the arrival date of the records that the
    suite checks; None: a stream's records that only violations refer to."""

    suite: int
    files: tuple[delta.File, ...]
    day: date | None = None


@dataclass(frozen=True)
class Checks(Partitioned):
    """The work. suites, and of a stream's records the stream."""

    suites: Sequence[Suite]
    splits: Sequence[SuiteSplit]
    partitions: int

    @cached_property
    def comparisons(self) -> list[tuple[int, Expectation]]:
        """The expectations that compare rows, and the suite of each."""
        return [(at, each) for at, suite in enumerate(self.suites) for each in suite.expectations if each.key]

    @property
    def first_other(self) -> int:
        """The number of the first bucket that is neither of counts nor of a comparison."""
        return 1 + len(self.comparisons) * self.partitions

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The counts of a split, and its rows to compare; nothing if it has no rows (a day without alerts)."""
        split = self.splits[task]
        if split.files:
            yield from self.looked_at(split.suite, self.read(split))
        else:
            yield 0, measured.COUNTS.empty_table()

    def read(self, split: SuiteSplit) -> pl.DataFrame:
        """The rows of a split that has files."""
        return pl.concat([file_rows(file).collect() for file in split.files])

    def looked_at(self, number: int, rows: pl.DataFrame) -> Iterator[tuple[int, pa.Table]]:
        """What is forwarded of some rows of the suite with this number."""
        counts = [measured.counted(self.suites[number], rows)]
        yield from self.compared(number, rows, counts)
        yield 0, pa.concat_tables(counts)

    def compared(self, number: int, rows: pl.DataFrame, counts: list[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """What is compared of some rows; a missing column goes to the counts."""
        for place, (at, expectation) in enumerate(self.comparisons):
            if at != number:
                continue
            try:
                keys = measured.keys(expectation, rows)
            except pl.exceptions.PolarsError as problem:
                counts.append(measured.unknown(self.suites[at], expectation, rows.height, problem))
                continue
            key = pl.struct(expectation.key) if len(expectation.key) > 1 else pl.col(*expectation.key)
            for partition, part in self.partitioned(keys, key):
                yield 1 + place * self.partitions + partition, part

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """COUNTS of the rows received in a bucket."""
        if bucket == 0:
            return rows
        at, expectation = self.comparisons[(bucket - 1) // self.partitions]
        return measured.compared(self.suites[at], expectation, pl.DataFrame(rows))


@dataclass(frozen=True)
class EvaluationChecks(Checks):
    """The same for the day's events and the staged violations."""

    streams: Sequence[Stream]
    """Of the first suites, in their order; the last suite is that of the violations."""
    ruleset: RuleSet
    cut: int
    """Arrivals before it count (µs)."""
    spans: Sequence[tuple[int, int]]
    """Event times (µs) that the run has judged."""
    staged: Sequence[delta.File]
    """The files of violations."""
    tables: LakeTables | None = None
    """None: no table is declared."""

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """Also the events of violations."""
        split = self.splits[task]
        records = self.read(split)
        if split.suite >= len(self.streams):  # violations are counted once they are rechecked
            yield from self.compared(split.suite, records, [])
            return
        if split.day is not None:
            yield from self.looked_at(split.suite, records)
        first = task == 0 or self.splits[task - 1].suite != split.suite
        for bucket, rows in self._events(split.suite, records, every_bucket=first):
            yield bucket, rows.to_arrow(compat_level=pl.CompatLevel.oldest())

    def read(self, split: SuiteSplit) -> pl.DataFrame:
        """The split's rows."""
        if split.suite >= len(self.streams):
            return pl.concat([_NO_VIOLATIONS, *(_violations(file) for file in split.files)]).collect()
        stream = self.streams[split.suite]
        table = events_table(stream)
        records = scan_files(table, split.files)
        if split.day is None:
            return records.select(*stream.fields, *ARRIVAL, "rejected").collect()
        return records.with_columns(pl.lit(split.day).alias("arrival_date")).select(*table.columns).collect()

    def _events(self, number: int, records: pl.DataFrame, *, every_bucket: bool) -> Iterator[tuple[int, pl.DataFrame]]:
        """The events among the records that violations are about, by the bucket of these; with every_bucket at least an
        empty table for each, so that all are received."""
        stream = self.streams[number]
        near = usable(records.lazy(), self.cut).filter(within(microseconds_of(stream), self.spans))
        wanted = [
            _violations(file)
            .filter(pl.col("stream") == stream.name)
            .select(pl.col("event_id").alias(stream.event_id), pl.lit(bucket).alias(BUCKET))
            for bucket, file in enumerate(self.staged)
        ]
        if not wanted:
            return
        events = near.select(*stream.fields, *ARRIVAL)
        found = events.join(pl.concat(wanted).unique(), on=stream.event_id).collect()
        parts = {bucket: part for (bucket,), part in found.partition_by(BUCKET, as_dict=True).items()}
        if every_bucket:
            parts = dict.fromkeys(range(len(self.staged)), found.clear()) | parts
        for bucket, part in parts.items():
            yield self.first_other + bucket * len(self.streams) + number, part.drop(BUCKET)

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Also COUNTS of the violations in a bucket, rechecked on their events."""
        if bucket < self.first_other:
            return super().receive(bucket, rows)
        place, number = divmod(bucket - self.first_other, len(self.streams))
        stream = self.streams[number]
        own = pl.col("stream") == stream.name
        if number == 0:  # one of them checks the rows that belong to none
            own |= ~pl.col("stream").is_in([each.name for each in self.streams])
        violations = _violations(self.staged[place]).filter(own).collect()
        table = violations.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(VIOLATION_SCHEMA)
        found = rechecked(table, {stream.name: rows}, {stream.name: stream}, self.ruleset, rows_of(self.tables))
        return measured.counted(self.suites[-1], pl.DataFrame(found))


def _violations(file: delta.File) -> pl.LazyFrame:
    """The violations that a bucket has staged."""
    return file_rows(file).filter(pl.col("failed").is_null()).select(VIOLATION_SCHEMA.names)


def splits_of(suite: int, files: Sequence[delta.File], parallelism: int, day: date | None = None) -> list[SuiteSplit]:
    """The files split for tasks; one split at least, which may have none."""
    return [SuiteSplit(suite, tuple(some), day) for some in file_splits(files, parallelism)]
