"""Compares a day's records of a stream with earlier ones: how many, how often a field is NULL, the mean of a number.

How it works: the counts are those that the table's log has of each file; only numbers are read, for their means. What
is usual is the median of the same weekday over the last four weeks.

What it does not do: compare where fewer than two of these days have records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta

import polars as pl

from nightjar.expectations.measured import polars_schema
from nightjar.expectations.suites import Expectation, Suite, every_row
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

_WEEKS = 4
_FEWEST = 2  # days that make something usual
_NUMBERS = (Kind.DOUBLE, Kind.INT64, Kind.DECIMAL)
_TIMES, _POINTS = 2, 0.05

# What a day has of something (`measure`), what is usual, and how many days that is the median of.
DRIFT = {"measure": "string", "field": "string", "today": "double", "usual": "double", "days": "bigint"}


def drift_suite(stream: str) -> Suite:
    """Expectations on the rows of `drift`. They are warnings: a day may be unusual and right."""
    near = f"abs(today) <= {_TIMES} * abs(usual) AND {_TIMES} * abs(today) >= abs(usual)"
    expectations = (
        _usual("records", "a day has between half and twice as many records as is usual on its weekday", near),
        _usual(
            "nulls",
            f"the share of NULL in a field differs by at most {_POINTS:.0%} of the records from what is usual",
            f"abs(today - usual) <= {_POINTS}",
        ),
        _usual("mean", "the mean of a number is between half and twice what is usual", f"usual = 0 OR {near}"),
    )
    return Suite(f"drift_{stream}", DRIFT, expectations, tuple(DRIFT))


def _usual(measure: str, sentence: str, condition: str) -> Expectation:
    return every_row(
        f"{measure}_usual", sentence, f"measure <> '{measure}' OR days < {_FEWEST} OR ({condition})", "warning"
    )


def compared_days(day: date) -> list[date]:
    """The day, and those that it is compared with."""
    return [day - timedelta(weeks=weeks) for weeks in range(_WEEKS + 1)]


def numbers(stream: Stream) -> list[str]:
    """The fields whose mean is compared; that of a sensitive one would be shown."""
    return [name for name, kind in stream.fields.items() if kind.kind in _NUMBERS and name not in stream.sensitive]


def drift(stream: Stream, day: date, counts: pl.DataFrame, means: Callable[[list[date]], pl.DataFrame]) -> pl.DataFrame:
    """The rows of DRIFT.

    counts: `arrival_date`, `rows`, and the number of NULLs in `rejected` and each field, of some of `compared_days`.
    means: of some days, `arrival_date` and the means of `numbers`, of usable records; asked only if they are compared.
    """
    return pl.DataFrame(list(_drift(stream, day, counts, means)), polars_schema(DRIFT), orient="row")


def _drift(
    stream: Stream, day: date, counts: pl.DataFrame, means: Callable[[list[date]], pl.DataFrame]
) -> Iterator[tuple[str, str, float, float | None, int]]:
    own, earlier = _split(counts.filter(pl.col("rows") > 0), day)
    before = [float(rows) for rows in earlier["rows"]]
    yield "records", "", float(own["rows"].sum()), _median(before), len(before)
    # An unusable record has no fields.
    usable = pl.col("rejected")
    for name in stream.fields:
        share = (pl.col(name) - (pl.col("rows") - usable)) / usable
        today, usual = (part.filter(usable > 0).select(share).to_series().drop_nulls() for part in (own, earlier))
        if len(today):
            yield "nulls", name, float(today[0]), _median(usual.to_list()), len(usual)
    if len(before) < _FEWEST or not own.height or not numbers(stream):
        return
    own, earlier = _split(means([day, *earlier["arrival_date"]]), day)
    for name in numbers(stream):
        today, usual = own[name].drop_nulls(), earlier[name].drop_nulls()
        if len(today):
            yield "mean", name, float(today[0]), _median(usual.to_list()), len(usual)


def _split(rows: pl.DataFrame, day: date) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Those of the day, and the others."""
    return rows.filter(pl.col("arrival_date") == day), rows.filter(pl.col("arrival_date") != day)


def _median(values: Sequence[float]) -> float | None:
    return pl.Series(values, dtype=pl.Float64).median() if len(values) else None  # type: ignore[return-value]  # of floats
