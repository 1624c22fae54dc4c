"""The stage that evaluates a day: the very engine that the stream runs, bucket by bucket of the touched groups.

How it works: everything is read at versions that are noted first, so that what a run did can be done again. Results go
to the run's staged folder and to nowhere else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.config import BackfillConfig, Request
from backfill.scope import TOUCHED, GroupBy, Naming, belongs, events_of, group_bys, touched_keys
from backfill.staging import EVALUATED, FAILED, KEYS, TOUCHED_GROUPS, Notes
from lake import delta
from lake.events import from_spark, microseconds_of
from lake.records import canonical
from lake.tables import VIOLATIONS, events_table
from rules.streams import Stream
from rules.truth import VIOLATION_SCHEMA, Truth
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A bucket is one engine in one Python worker: some hundred megabytes at most.
_ROWS_A_BUCKET = 400_000
_EVALUATED = {name: kind for name, kind in VIOLATIONS.columns.items() if name != "event_date"}
EVALUATED_DDL = ", ".join(f"`{name}` {kind}" for name, kind in {**_EVALUATED, "failed": "string"}.items())


@dataclass(frozen=True)
class BucketEvaluator:
    """What `applyInArrow` runs: one bucket of one group-by's groups to the violations at their target events.

    A row with `failed` is none: it names the measure whose exact value left its type at that event.
    """

    stream: Stream
    ruleset: RuleSet
    group_by: tuple[str, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """Events (the stream's fields, arrival_time, partition, offset, target) to EVALUATED_DDL."""
        truth = Truth(self.stream, self.ruleset, from_spark(table, self.stream), frozenset({self.group_by}))
        ids = table.column(self.stream.event_id)
        targets = ids.filter(table.column("target")).combine_chunks().cast(pa.string())
        found = truth.violations()
        found = found.filter(pc.is_in(found.column("event_id"), value_set=targets))
        for place, name in enumerate(found.column_names):
            if name in ("group", "measures"):
                texts = [canonical(json.loads(text)) for text in found.column(name).to_pylist()]
                found = found.set_column(place, name, pa.array(texts, pa.string()))
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
    """Stage the day's violations (EVALUATED), failures (FAILED) and touched groups (TOUCHED_GROUPS); their counts."""
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
        for number, group_by in enumerate(group_bys(stream, of_stream, loaded.earliest, request.groups)):
            place = str(folder / KEYS / f"{stream.name}-{number}")
            touched_keys(day, stream, group_by, request).write.mode("overwrite").parquet(place)
            keys = session.read.parquet(place)
            named.append(keys.mapInArrow(Naming(stream, group_by), TOUCHED))
            found.append(_evaluated(loaded, keys, of_stream, group_by))
    _write(_union(session, found, EVALUATED_DDL), folder)
    _union(session, named, TOUCHED).write.mode("overwrite").parquet(str(folder / TOUCHED_GROUPS))
    staged = {"violations": EVALUATED, "failures": FAILED, "groups": TOUCHED_GROUPS}
    return {name: session.read.parquet(str(folder / place)).count() for name, place in staged.items()}


@dataclass(frozen=True)
class Load:
    """What a run reads of one stream. usable: the events that had arrived by its cut; earliest: the least event time
    (µs) of those that belong to its day."""

    stream: Stream
    usable: DataFrame
    earliest: int
    until: int

    def events(self, keys: DataFrame, group_by: GroupBy) -> DataFrame:
        """The events to see of the groups of `keys`, duplicates too (see scope.events_of)."""
        return events_of(self._near(group_by), keys, self.stream, group_by)

    def first_events(self, keys: DataFrame, group_by: GroupBy) -> tuple[DataFrame, int]:
        """The same without later arrivals of an id, and how many records were looked at for it."""
        near = self._near(group_by)
        return events_of(first_arrivals(near, self.stream), keys, self.stream, group_by), near.count()

    def _near(self, group_by: GroupBy) -> DataFrame:
        stream, since = self.stream, self.earliest - group_by.reach
        arrivals = self.usable.where(F.col("arrival_date") >= _date(since - stream.max_future_skew))
        event = F.expr(microseconds_of(stream))
        return arrivals.select(*stream.fields, "arrival_time", "partition", "offset").where(
            (event >= since) & (event < self.until)
        )


def load(
    session: SparkSession, config: BackfillConfig, request: Request, stream: Stream, notes: Notes
) -> tuple[Load, DataFrame] | None:
    """What to read of the stream, and the events that belong to the day; None where there are none."""
    table = events_table(stream)
    records = delta.read(session, config.lake.root, table, notes.versions[table.name])
    by_then = F.expr("unix_micros(arrival_time)") < notes.cut
    usable = records.where((F.col("arrival_date") <= _date(notes.cut)) & by_then & F.col("rejected").isNull())
    begins = request.begin - stream.max_future_skew
    day = usable.where((F.col("arrival_date") >= _date(begins)) & belongs(stream, request))
    earliest = day.agg(F.min(F.expr(microseconds_of(stream)))).collect()[0][0]
    return None if earliest is None else (Load(stream, usable, earliest, request.end), day)


def _evaluated(found: Load, keys: DataFrame, ruleset: RuleSet, group_by: GroupBy) -> DataFrame:
    events, looked_at = found.first_events(keys, group_by)
    buckets = max(_cores(keys), math.ceil(looked_at / _ROWS_A_BUCKET))
    fields = [F.col(f"`{name}`") for name in group_by.fields]
    bucket = F.pmod(F.xxhash64(*fields), F.lit(buckets)) if fields else F.lit(0)
    evaluator = BucketEvaluator(found.stream, ruleset, group_by.fields)
    bucketed = events.withColumn("bucket", bucket).groupBy("bucket")
    # a plain function of one argument: Spark counts the arguments, and takes `self` for the key
    return bucketed.applyInArrow(lambda table: evaluator(table), EVALUATED_DDL)  # noqa: PLW0108


def first_arrivals(events: DataFrame, stream: Stream) -> DataFrame:
    """Of several records with one event id, the first to arrive (law 4).

    The engine drops duplicates itself, but sees only the groups it is given: an id whose copies name different groups
    is dropped here. Such are few, so they are looked for by hash, and only what shares one is put in order.
    """
    name = f"`{stream.event_id}`"
    hashed = F.xxhash64(name)
    twice = events.groupBy(hashed.alias("hash")).count().where("count > 1").select("hash")
    # hashes are few and mostly none: to know them now makes the plan of what follows a plain filter
    repeated = [row["hash"] for row in twice.limit(_LISTED + 1).collect()]
    if not repeated:
        return events
    if len(repeated) <= _LISTED:
        is_repeated = hashed.isin(repeated)
        once, several = events.where(~is_repeated), events.where(is_repeated)
    else:
        marked = events.withColumn("hash", hashed)
        once = marked.join(twice, "hash", "left_anti").drop("hash")
        several = marked.join(twice, "hash", "left_semi").drop("hash")
    from pyspark.sql import Window

    order = Window.partitionBy(name).orderBy("arrival_time", "partition", "offset")
    first = several.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return once.unionByName(first)


# More hashes than this are joined instead of listed in a filter.
_LISTED = 2000


def _write(rows: DataFrame, folder: Path) -> None:
    """Violations to one place and failures to another, evaluated once."""
    rows.persist()
    try:
        for place, wanted in ((EVALUATED, F.col("failed").isNull()), (FAILED, F.col("failed").isNotNull())):
            rows.where(wanted).write.mode("overwrite").parquet(str(folder / place))
    finally:
        rows.unpersist()


def _union(session: SparkSession, parts: Iterable[DataFrame], ddl: str) -> DataFrame:
    whole = session.createDataFrame([], ddl)
    for part in parts:
        whole = whole.unionByName(part)
    return whole


def _cores(frame: DataFrame) -> int:
    return int(frame.sparkSession.sparkContext.defaultParallelism)


def _date(instant: int) -> object:
    return F.to_date(F.timestamp_micros(F.lit(instant)))
