"""Computes a stream's events per day from the Delta log alone, without reading data files."""

from __future__ import annotations

import polars as pl

from nightjar.lake import delta
from nightjar.lake.tables import events_table
from nightjar.rules.streams import Stream
from nightjar.storage.paths import AnyPath

# Enough to have seen every weekday.
DAYS = 7


def events_per_day(root: AnyPath, stream: Stream) -> int | None:
    """Records of the busiest of the stream's last DAYS arrival days; None if the lake has none."""
    if stream.members:
        of_each = [events_per_day(root, source) for source in stream.sources]
        return sum(each or 0 for each in of_each) or None
    table = events_table(stream)
    if not delta.exists(root, table):
        return None
    files = pl.DataFrame(delta.opened(root, table).get_add_actions(flatten=True))
    if files.is_empty() or "num_records" not in files.columns:
        return None
    days = files.group_by("partition.arrival_date").agg(pl.col("num_records").sum()).sort("partition.arrival_date")
    busiest = days.tail(DAYS).get_column("num_records").max()
    return busiest if isinstance(busiest, int) and busiest > 0 else None
