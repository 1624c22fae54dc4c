"""Times as the clocks of a zone show them, by the time zone database within Polars: it is the same on each machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,62}", re.ASCII)


# As many names as there are, and some that are none: these take 0.1 ms.
@lru_cache(maxsize=10_000)
def is_zone(name: str) -> bool:
    """Whether the database has a zone of this name."""
    try:
        return _NAME.fullmatch(name) is not None and bool(pl.select(shown(pl.lit(0, pl.Int64), name)).height)
    except pl.exceptions.PolarsError:
        return False


def shown(instant: pl.Expr, zone: str) -> pl.Expr:
    """Microseconds from 1970 to the time that clocks show at an instant (µs since 1970 UTC), within the years 1 to
    9999."""
    local = instant.cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    return local.dt.replace_time_zone(None).cast(pl.Int64).clip(MIN_TIMESTAMP, MAX_TIMESTAMP)


def shown_in(given: Sequence[pl.Series]) -> pl.Series:
    """The same for a column of instants, each in the zone that a column of names has beside it, as Int64.

    NULL where one of them is, or the name is that of no zone. A column may have a single row instead, which stands for
    all.
    """
    rows = next((len(column) for column in given if len(column) != 1), 1)
    instants, names = (column if len(column) == rows else column.new_from_index(0, rows) for column in given)
    known = [name for name in names.unique() if name is not None and is_zone(name)]
    found = np.zeros(rows, np.int64)
    there = instants.is_not_null().to_numpy() & names.is_in(known).fill_null(value=False).to_numpy()
    if known:
        numbers = names.replace_strict(known, range(len(known)), default=len(known), return_dtype=pl.Int64).to_numpy()
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], range(len(known) + 1)).tolist()
        by_zone = instants.fill_null(0).gather(order)
        for name, start, end in zip(known, ends, ends[1:], strict=False):
            own = by_zone.slice(start, end - start).cast(pl.Datetime("us", name))
            found[order[start:end]] = own.dt.replace_time_zone(None).to_physical().to_numpy()
    column = pl.Series(found.clip(MIN_TIMESTAMP, MAX_TIMESTAMP))
    return column if there.all() else column.zip_with(pl.Series(there), pl.Series([None], dtype=pl.Int64))
