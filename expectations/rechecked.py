"""A run's violations with what rules.recheck says of each: the frame that the violations' suite looks at.

How it works: the violations and the events they are about come to the driver, which has the rules at hand; workers
would take longer to start than this takes. A day's alerts fit there, as they must for the reconciliation.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_ARRIVAL = ("arrival_time", "partition", "offset")


def rechecked(
    violations: DataFrame, events: Mapping[str, DataFrame], streams: Mapping[str, Stream], ruleset: RuleSet
) -> DataFrame:
    """The violations with RECHECKED's columns; NULL there where a violation's stream is none of `streams`.

    violations: staged ones. events: by stream, its usable records (duplicates too) with arrival_time, partition and
    offset, among them those that the violations are about. ruleset: every version that the run knew.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses
    from pyspark.sql.types import StructType

    said = violations.select(*(f"`{name}`" for name in _SAID)).toArrow()
    of_streams = pc.is_in(said.column("stream"), value_set=pa.array(list(streams), pa.string()))
    parts = [said.filter(pc.invert(of_streams))]
    for name in pc.unique(said.filter(of_streams).column("stream")).to_pylist():
        own = said.filter(pc.equal(said.column("stream"), name))
        about = violations.where(F.col("stream") == name).select(F.col("event_id").alias("$wanted"))
        answers = recheck(own, _first_arrivals(events[name], about, streams[name]), streams[name], ruleset)
        parts.append(pa.table([*own.columns, *answers.columns], [*own.column_names, *answers.column_names]))
    whole = pa.concat_tables(parts, promote_options="default")
    for name in set(RECHECKED.names) - set(whole.column_names):
        whole = whole.append_column(name, pa.nulls(whole.num_rows, RECHECKED.field(name).type))
    schema = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in VIOLATIONS.items()))
    return violations.sparkSession.createDataFrame(whole.select(list(VIOLATIONS)), schema)


def _first_arrivals(events: DataFrame, about: DataFrame, stream: Stream) -> pa.Table:
    """The stream's fields of the events whose ids are wanted; of several records with one id, the first to arrive."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    wanted = F.col(f"`{stream.event_id}`") == F.col("`$wanted`")
    copies = events.join(F.broadcast(about), wanted, "left_semi")
    table = copies.select(*(f"`{name}`" for name in (*stream.fields, *_ARRIVAL))).toArrow()
    table = table.sort_by([(name, "ascending") for name in _ARRIVAL])
    places = pa.table({"id": table.column(stream.event_id), "place": pa.array(range(table.num_rows), pa.int64())})
    first = table.take(places.group_by("id", use_threads=False).aggregate([("place", "min")]).column("place_min"))
    return pa.table({name: first.column(name).cast(kind.arrow) for name, kind in stream.fields.items()})
