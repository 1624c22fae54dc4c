"""Finds offsets of a stream's topic that are missing in the lake; if there are none, nothing was lost.

How it works: a partition's records of a day, and the last one before them, must have consecutive offsets. This is
checked with one aggregate over two days. Only partitions with gaps are sorted, by Spark, and only their missing offsets
are searched among the other days' records (if producers set arrivals, a day's records need not be consecutive). For
offsets that are still missing, Kafka itself is queried: see topic.py.

What it does not do: check offsets before the first record that was ever archived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from nightjar.expectations.measured import polars_schema
from nightjar.expectations.suites import GAPS
from nightjar.expectations.topic import Gap, ask
from nightjar.rules.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Days to search for the record before the day's first if the previous day has none, before all days are searched.
_LOOKS_BACK = 31
# Most gaps that are listed; further ones are ignored.
MOST_GAPS = 10_000


def gaps(
    lately: pl.LazyFrame,
    records: Callable[[], DataFrame],
    stream: Stream,
    day: date,
    kafka: Mapping[str, Any],
    *,
    most_asked: int = 500,
) -> pl.DataFrame:
    """The offsets missing among the day's records and just before them, as GAPS.

    lately, records: see `missing`. kafka: options of kafka-python's clients. most_asked: most gaps to look up in Kafka,
    longest first; each takes some milliseconds.
    """
    return frame(ask(missing(lately, records, stream.name, day), stream.topic, kafka, most_asked))


def frame(found: list[Gap]) -> pl.DataFrame:
    """The gaps as GAPS."""
    return pl.DataFrame([asdict(gap) for gap in found], polars_schema(GAPS))


def missing(lately: pl.LazyFrame, records: Callable[[], DataFrame], stream: str, day: date) -> list[Gap]:
    """The gaps of a day in order, at most MOST_GAPS.

    lately: partition, offset and arrival_date of the stream's records of this day and the previous one. records:
    returns the same for all its records, as a Spark DataFrame; only called if something is missing in `lately`.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    near = lately.filter(pl.col("arrival_date").is_between(day - timedelta(1), day))
    offset = pl.col("offset")
    counted = near.group_by("partition", "arrival_date").agg(
        offset.min().alias("first"), offset.max().alias("last"), pl.len().alias("rows")
    )
    rows = counted.collect(engine="streaming").to_dicts()
    spans = {row["partition"]: row for row in rows if row["arrival_date"] == day}
    yesterday = {row["partition"]: row["last"] for row in rows if row["arrival_date"] != day}
    unclear = {p: row["first"] for p, row in spans.items() if yesterday.get(p, -1) + 1 != row["first"]}
    broken = [p for p, row in spans.items() if row["rows"] != row["last"] - row["first"] + 1]
    if not unclear and not broken:
        return []
    whole = records()
    found = [
        Gap(stream, partition, last + 1, unclear[partition] - 1)
        for partition, last in _last_before(whole, day, unclear).items()
        if last + 1 < unclear[partition]
    ]
    if broken:
        today = whole.where((F.col("arrival_date") == F.lit(day)) & F.col("partition").isin(broken))
        found += _between(today.select("partition", "offset").distinct(), stream, [])
    if found:
        found = _of_other_days(whole.where(F.col("arrival_date") != F.lit(day)), stream, found)
    return sorted(found, key=lambda gap: (gap.partition, gap.first_missing))


def _last_before(records: DataFrame, day: date, firsts: Mapping[int, int]) -> dict[int, int]:
    """The last offset of each partition before its first of the day; partitions without one are omitted."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    wanted, found = {p: first for p, first in firsts.items() if first > 0}, dict[int, int]()
    for days in (_LOOKS_BACK, None):
        if not wanted:
            break
        earlier = records.where(_any([(F.col("partition") == p) & (F.col("offset") < o) for p, o in wanted.items()]))
        if days is not None:
            earlier = earlier.where(F.col("arrival_date") >= day - timedelta(days))
        found |= dict(earlier.groupBy("partition").agg(F.max("offset")).collect())
        wanted = {partition: first for partition, first in wanted.items() if partition not in found}
    return found


def _of_other_days(records: DataFrame, stream: str, found: list[Gap]) -> list[Gap]:
    """The gaps that remain once the records of other days are taken into account."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    spans: dict[int, tuple[int, int]] = {}
    for gap in found:
        first, last = spans.get(gap.partition, (gap.first_missing, gap.last_missing))
        spans[gap.partition] = (min(first, gap.first_missing), max(last, gap.last_missing))
    near = records.where(
        _any([(F.col("partition") == p) & F.col("offset").between(*ends) for p, ends in spans.items()])
    )
    session = records.sparkSession
    bounds = session.createDataFrame(
        [(gap.partition, gap.first_missing, gap.last_missing) for gap in found],
        "in_partition int, first_missing bigint, last_missing bigint",
    )
    inside = near.join(
        F.broadcast(bounds),
        (F.col("partition") == F.col("in_partition")) & F.col("offset").between(*map(F.col, bounds.columns[1:])),
    ).select("partition", "first_missing", "offset")
    ends = bounds.select(
        F.col("in_partition").alias("partition"),
        "first_missing",
        F.explode(F.array(F.col("first_missing") - 1, F.col("last_missing") + 1)).alias("offset"),
    )
    return _between(inside.unionByName(ends).distinct(), stream, ["first_missing"])


def _between(offsets: DataFrame, stream: str, within: list[str]) -> list[Gap]:
    """The gaps between consecutive offsets of each partition, and of each value of the `within` columns."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    order = Window.partitionBy("partition", *within).orderBy("offset")
    after = F.lag("offset").over(order) + 1
    placed = offsets.select("partition", after.alias("first"), (F.col("offset") - 1).alias("last"))
    rows = placed.where(F.col("first") <= F.col("last")).orderBy("partition", "first").limit(MOST_GAPS).collect()
    return [Gap(stream, row["partition"], row["first"], row["last"]) for row in rows]


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found |= condition
    return found
