"""The stage that evaluates a day: the very engine that the stream runs, bucket by bucket of the touched groups.

How it works: everything is read at versions that are noted first, so that what a run did can be done again. Results go
to the run's staged folder and to nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.config import BackfillConfig, Request
from backfill.scope import TOUCHED, GroupBy, Naming, belongs, events_of, group_bys, touched_keys
from backfill.staging import EVALUATED, KEYS, TOUCHED_GROUPS, Notes
from lake import delta
from lake.events import date_of, from_spark, microseconds_of
from lake.records import rewritten
from lake.tables import VIOLATIONS, events_table
from rules.streams import Stream
from rules.truth import VIOLATION_SCHEMA, Truth
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A bucket is one engine in one Python worker: some hundred megabytes at most.
_ROWS_A_BUCKET = 400_000
# More hashes of repeated ids than this are joined instead of listed in a filter.
_LISTED = 2000
_EVALUATED = {name: kind for name, kind in VIOLATIONS.columns.items() if name != "event_date"}
EVALUATED_DDL = ", ".join(f"`{name}` {kind}" for name, kind in {**_EVALUATED, "failed": "string"}.items())


@dataclass(frozen=True)
class BucketEvaluator:
    """What `mapInArrow` runs: one bucket of one group-by's groups to the violations at their target events.

    A row with `failed` is none: it names the measure whose exact value left its type at that event.
    """

    stream: Stream
    ruleset: RuleSet
    group_by: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A Spark partition, which is a bucket."""
        if read := list(batches):
            yield from self.evaluated(pa.Table.from_batches(read)).combine_chunks().to_batches()

    def evaluated(self, table: pa.Table) -> pa.Table:
        """Events (the stream's fields, arrival_time, partition, offset, target) to EVALUATED_DDL."""
        truth = Truth(self.stream, self.ruleset, from_spark(table, self.stream), frozenset({self.group_by}))
        ids = table.column(self.stream.event_id)
        targets = ids.filter(table.column("target")).combine_chunks().cast(pa.string())
        found = truth.violations(targets)
        groups = found.column("group").combine_chunks().dictionary_encode()
        texts = pa.array([rewritten(text) for text in groups.dictionary.to_pylist()], pa.string())
        place = found.schema.get_field_index("group")
        found = found.set_column(place, "group", texts.take(groups.indices))
        found = found.append_column("failed", pa.nulls(found.num_rows, pa.string()))
        wanted = set(targets.to_pylist()) if truth.failures else set()
        failures = [
            {
                "rule_id": f.rule_id,
                "rule_version": f.rule_version,
                "stream": self.stream.name,
                "event_id": f.event_id,
                "failed": f.measure,
            }
            for f in truth.failures
            if f.event_id in wanted
        ]
        schema = VIOLATION_SCHEMA.append(pa.field("failed", pa.string()))
        return pa.concat_tables([found, pa.Table.from_pylist(failures, schema)])


def evaluate(session: SparkSession, config: BackfillConfig, request: Request, notes: Notes) -> dict[str, Any]:
    """Stage the day's violations and failures (EVALUATED) and touched groups (TOUCHED_GROUPS); their counts."""
    folder = request.staged(config.lake)
    ruleset = notes.ruleset(config, request)
    found: list[DataFrame] = []
    named: list[DataFrame] = []
    for stream in config.streams.values():
        of_stream = ruleset.of_stream(stream.name)
        if not of_stream.versions:
            continue
        read = load(session, config, request, stream, notes)
        if read is None:
            continue
        loaded, day = read
        wanted = group_bys(stream, of_stream, loaded.earliest, request.groups)
        loaded = loaded.with_repeated(max((group_by.reach for group_by in wanted), default=0))
        for number, group_by in enumerate(wanted):
            place = str(folder / KEYS / f"{stream.name}-{number}")
            touched_keys(day, stream, group_by, request).write.mode("overwrite").parquet(place)
            keys = session.read.parquet(place)
            named.append(keys.mapInArrow(Naming(stream, group_by), TOUCHED))
            buckets = _buckets(config, loaded, group_by, notes)
            found.append(_evaluated(loaded, keys, of_stream, group_by, buckets))
    _union(session, found, EVALUATED_DDL).write.mode("overwrite").parquet(str(folder / EVALUATED))
    _union(session, named, TOUCHED).write.mode("overwrite").parquet(str(folder / TOUCHED_GROUPS))
    rows = pl.scan_parquet(folder / EVALUATED / "*.parquet").select(pl.len(), pl.col("failed").count()).collect()
    groups = pl.scan_parquet(folder / TOUCHED_GROUPS / "*.parquet").select(pl.len()).collect().item()
    failures = rows.item(0, "failed")
    return {"violations": rows.item(0, "len") - failures, "failures": failures, "groups": groups}


@dataclass(frozen=True)
class Load:
    """What a run reads of one stream. usable: the events that had arrived by its cut; earliest: the least event time
    (µs) of those that belong to its days; until: where these end (µs)."""

    stream: Stream
    usable: DataFrame
    earliest: int
    until: int
    repeated: DataFrame | list[int] = field(default_factory=list)

    def events(self, keys: DataFrame, group_by: GroupBy) -> DataFrame:
        """The events to see of the groups of `keys`, duplicates too (see scope.events_of)."""
        return events_of(self._near(group_by.reach), keys, self.stream, group_by)

    def first_events(self, keys: DataFrame, group_by: GroupBy) -> DataFrame:
        """The same without later arrivals of an id."""
        near = self._near(group_by.reach)
        return events_of(first_arrivals(near, self.repeated, self.stream), keys, self.stream, group_by)

    def since(self, reach: int) -> int:
        """The least arrival (µs) of an event that a window of `reach` (µs) can hold."""
        return self.earliest - reach - self.stream.max_future_skew

    def with_repeated(self, reach: int) -> Load:
        """The same, having looked for repeated ids among all that windows of `reach` hold."""
        return replace(self, repeated=repeated_hashes(self._near(reach), self.stream))

    def _near(self, reach: int) -> DataFrame:
        stream = self.stream
        arrivals = self.usable.where(F.col("arrival_date") >= date_of(self.since(reach)))
        event = F.expr(microseconds_of(stream))
        return arrivals.select(*stream.fields, "arrival_time", "partition", "offset").where(
            (event >= self.earliest - reach) & (event < self.until)
        )


def load(
    session: SparkSession, config: BackfillConfig, request: Request, stream: Stream, notes: Notes
) -> tuple[Load, DataFrame] | None:
    """What to read of the stream, and the events that belong to the day; None where there are none."""
    table = events_table(stream)
    records = delta.read(session, config.lake.root, table, notes.versions[table.name])
    by_then = F.expr("unix_micros(arrival_time)") < notes.cut
    usable = records.where((F.col("arrival_date") <= date_of(notes.cut)) & by_then & F.col("rejected").isNull())
    begins = request.begin - stream.max_future_skew
    day = usable.where((F.col("arrival_date") >= date_of(begins)) & belongs(stream, request))
    earliest = day.agg(F.min(F.expr(microseconds_of(stream)))).collect()[0][0]
    return None if earliest is None else (Load(stream, usable, earliest, request.end), day)


def _evaluated(found: Load, keys: DataFrame, ruleset: RuleSet, group_by: GroupBy, buckets: int) -> DataFrame:
    events, fields = found.first_events(keys, group_by), [F.col(f"`{name}`") for name in group_by.fields]
    # a group's events meet in one partition; grouping them would sort them too, which the engine does better
    bucketed = events.repartition(buckets, *fields) if fields else events.repartition(1)
    return bucketed.mapInArrow(BucketEvaluator(found.stream, ruleset, group_by.fields), EVALUATED_DDL)


def _buckets(config: BackfillConfig, found: Load, group_by: GroupBy, notes: Notes) -> int:
    table = events_table(found.stream)
    since = date_of(found.since(group_by.reach))
    rows = delta.rows_since(config.lake.root, table, since, notes.versions[table.name])
    return max(int(found.usable.sparkSession.sparkContext.defaultParallelism), math.ceil(rows / _ROWS_A_BUCKET))


def repeated_hashes(events: DataFrame, stream: Stream) -> DataFrame | list[int]:
    """The hashes of event ids that occur more than once: as a list where they are few, which they mostly are."""
    hashes = events.groupBy(_hash_of_id(stream).alias("hash")).count().where("count > 1").select("hash")
    listed = [row["hash"] for row in hashes.limit(_LISTED + 1).collect()]
    return listed if len(listed) <= _LISTED else hashes


def first_arrivals(events: DataFrame, repeated: DataFrame | list[int], stream: Stream) -> DataFrame:
    """Of several records with one event id, the first to arrive (law 4).

    The engine drops duplicates itself, but sees only the groups it is given: an id whose copies name different groups
    is dropped here. Only what shares a repeated hash has to be put in order for it.
    """
    from pyspark.sql import Window

    hashed = _hash_of_id(stream)
    if isinstance(repeated, list):
        if not repeated:
            return events
        once, several = events.where(~hashed.isin(repeated)), events.where(hashed.isin(repeated))
    else:
        marked = events.withColumn("hash", hashed)
        once = marked.join(repeated, "hash", "left_anti").drop("hash")
        several = marked.join(repeated, "hash", "left_semi").drop("hash")
    order = Window.partitionBy(f"`{stream.event_id}`").orderBy("arrival_time", "partition", "offset")
    first = several.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return once.unionByName(first)


def _hash_of_id(stream: Stream) -> Column:
    return F.xxhash64(f"`{stream.event_id}`")


def _union(session: SparkSession, parts: Iterable[DataFrame], ddl: str) -> DataFrame:
    whole = session.createDataFrame([], ddl)
    for part in parts:
        whole = whole.unionByName(part)
    return whole
