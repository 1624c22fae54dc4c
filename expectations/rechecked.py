"""A run's violations with what rules.recheck says of each: the frame that the violations' suite looks at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from expectations.suites import VIOLATIONS
from rules.recheck import RECHECKED, recheck
from rules.streams import Stream
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAID = [name for name in VIOLATIONS if name not in RECHECKED.names]
_DDL = ", ".join(f"`{name}` {kind}" for name, kind in VIOLATIONS.items())
# An event's fields beside a violation's columns, whose names they may share.
_FIELD = "field {}"


def rechecked(
    violations: DataFrame, events: Mapping[str, DataFrame], streams: Mapping[str, Stream], ruleset: RuleSet
) -> DataFrame:
    """The violations with RECHECKED's columns; NULL there where a violation's stream is none of `streams`.

    violations: staged ones. events: by stream, its usable records (duplicates too) with arrival_time, partition and
    offset, among them those that the violations are about. ruleset: every version that the run knew.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    said = violations.select(*(f"`{name}`" for name in _SAID))
    parts = [
        _of_stream(said.where(F.col("stream") == name), events[name], stream, ruleset)
        for name, stream in streams.items()
    ]
    others = said.where(~F.coalesce(F.col("stream").isin(*streams), F.lit(False)))  # noqa: FBT003  a column of it
    unknown = [F.lit(None).cast(VIOLATIONS[name]).alias(name) for name in RECHECKED.names]
    return reduce(lambda one, other: one.unionByName(other), parts, others.select("*", *unknown))


def _of_stream(said: DataFrame, events: DataFrame, stream: Stream, ruleset: RuleSet) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    event_id = f"`{stream.event_id}`"
    wanted = said.select(F.col("event_id").alias("$wanted")).distinct()
    copies = events.join(wanted, F.col(event_id) == F.col("`$wanted`"), "left_semi")
    order = Window.partitionBy(event_id).orderBy("arrival_time", "partition", "offset")
    first = copies.withColumn("$place", F.row_number().over(order)).where("`$place` = 1")
    fields = first.select(*(F.col(f"`{name}`").alias(_FIELD.format(name)) for name in stream.fields))
    about = F.col("event_id") == F.col(f"`{_FIELD.format(stream.event_id)}`")
    return said.join(fields, about, "left").mapInArrow(_Recheck(stream, ruleset), _DDL)


@dataclass(frozen=True)
class _Recheck:
    """What `mapInArrow` runs: violations with their events' fields (NULL where there is none) to VIOLATIONS."""

    stream: Stream
    ruleset: RuleSet

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            said = table.select(_SAID)
            fields = {
                name: table.column(_FIELD.format(name)).cast(kind.arrow) for name, kind in self.stream.fields.items()
            }
            there = pa.table(fields).filter(pc.is_valid(fields[self.stream.event_id]))
            once = there.take(_firsts(there.column(self.stream.event_id)))
            answers = recheck(said, once, self.stream, self.ruleset)
            for name in RECHECKED.names:
                said = said.append_column(name, answers.column(name))
            yield from said.select(list(VIOLATIONS)).combine_chunks().to_batches()


def _firsts(ids: pa.ChunkedArray) -> pa.Array:
    """A place of each id: an event may be violated by several rules."""
    rows = pa.table({"id": ids, "row": pa.array(range(len(ids)), pa.int64())})
    return rows.group_by("id", use_threads=False).aggregate([("row", "min")]).column("row_min").combine_chunks()
