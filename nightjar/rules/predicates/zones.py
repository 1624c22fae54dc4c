"""Times as the clocks of a zone show them, by the time zone database within Polars: it is the same on each machine."""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,62}", re.ASCII)


@lru_cache(maxsize=1000)
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
