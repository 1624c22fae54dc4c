"""Tables of other libraries as Arrow tables, with only the columns that a stream declares."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from nightjar.files.errors import EventsError, first_line
from nightjar.files.event_files import columns_of
from nightjar.rules.streams import Stream

_EVENTS = "events"  # what they are called in errors


def arrow_table(events: Any, stream: Stream) -> pa.Table:
    """A table of Arrow, Polars, pandas, Spark (whose rows are collected), or whatever exports Arrow.

    Raises:
        EventsError: it is not a table, lacks a column, or has a column that Arrow cannot hold.
    """
    try:
        return _arrow(events, stream)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as failure:
        raise EventsError(f"cannot be read: {first_line(failure)}", where=_EVENTS, remedy="Check the table") from None


def _arrow(events: Any, stream: Stream) -> pa.Table:
    if isinstance(events, pl.LazyFrame):
        events = events.select(columns_of(events.collect_schema().names(), stream)).collect()
    if isinstance(events, pl.DataFrame):
        return events.select(columns_of(events.columns, stream)).to_arrow(compat_level=pl.CompatLevel.oldest())
    if isinstance(events, pa.Table):
        return events
    if hasattr(events, "toArrow"):  # Spark's
        table: pa.Table = events.select(*columns_of(events.columns, stream)).toArrow()
        return table
    if hasattr(events, "to_records"):
        return _of_pandas(events, stream)
    if hasattr(events, "__arrow_c_stream__") and not isinstance(events, pl.Series):  # DuckDB's and others'
        return pa.table(events)
    raise EventsError(
        f"are a {type(events).__name__}",
        where=_EVENTS,
        remedy="Give a table of Arrow, Polars, pandas or Spark, or the path of a file",
    )


def _of_pandas(frame: Any, stream: Stream) -> pa.Table:
    """NaN, None and NaT are NULL."""
    columns = {}
    for name in columns_of([str(column) for column in frame.columns], stream):
        values = frame[name]
        if values.dtype == object:
            _refuse_mixed_zones(values, name)
        try:
            columns[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
            why = "a value that is not shown" if name in stream.sensitive else first_line(failure)
            raise EventsError(
                f"cannot be read: {why}", where=f"{_EVENTS}: {name} ({values.dtype})", remedy="Give values of one type"
            ) from None
    return pa.table(columns)


def _refuse_mixed_zones(values: Any, name: str) -> None:
    """Arrow would take the zone of the first time for that of all."""
    times = (value for value in values.dropna() if isinstance(value, datetime))
    if len({time.tzinfo is None for time in times}) > 1:
        raise EventsError(
            "has times with and without a zone", where=f"{_EVENTS}: {name}", remedy="Write all of them in one way"
        )
