"""Compares a day's records of a stream with earlier ones: how many, how often a field is NULL, the mean of a number,
and new values of a text that has few.

How it works: the counts are those that the table's log has of each file; only numbers are read, for their means, and
texts. What is usual is the median of the same weekday over the last four weeks.

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
_TIMES, _POINTS, _NEW = 2, 0.05, 0.01
_MOST_VALUES = 100  # that a text has which is no name of something
_SHOWN = 5

# What a day has of something (`measure`), what is usual, and how many days that is the median of; the most frequent new
# values.
DRIFT = {
    "measure": "string",
    "field": "string",
    "today": "double",
    "usual": "double",
    "days": "bigint",
    "new_values": "string",
}

# Of some days, what `drift` asks for.
Reading = Callable[[list[date]], pl.DataFrame]


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
        _usual(
            "values",
            "of a text with few values, the share of records whose value no other day has is at most twice the usual "
            f"one and {_NEW:.0%}",
            f"today <= {_NEW} + 2 * usual",
        ),
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


def texts(stream: Stream) -> list[str]:
    """The fields whose values are compared, as far as they have few; those of a sensitive one would be shown."""
    hidden = {*stream.sensitive, stream.event_id}
    return [name for name, kind in stream.fields.items() if kind.kind is Kind.STRING and name not in hidden]


def values_of(stream: Stream, records: pl.LazyFrame, days: Sequence[date]) -> pl.DataFrame:
    """What `drift` asks for of values. records: usable ones of these days, of which the first is compared; read twice,
    as only texts that have few values that day are counted."""
    names, wanted = texts(stream), records.filter(pl.col("arrival_date").is_in(days))
    today = wanted.filter(pl.col("arrival_date") == days[0])
    several = today.select(pl.col(names).approx_n_unique()).collect(engine="streaming").row(0)
    counted = [
        wanted.group_by("arrival_date", pl.lit(name).alias("field"), pl.col(name).alias("value")).len("rows")
        for name, values in zip(names, several, strict=True)
        if values <= _MOST_VALUES
    ]
    return pl.concat([_NO_VALUES.lazy(), *counted]).collect(engine="streaming")


_NO_VALUES = pl.DataFrame(
    schema={"arrival_date": pl.Date, "field": pl.String, "value": pl.String, "rows": pl.get_index_type()}
)


def drift(stream: Stream, day: date, counts: pl.DataFrame, means: Reading, values: Reading) -> pl.DataFrame:
    """The rows of DRIFT.

    counts: `arrival_date`, `rows`, and the number of NULLs in `rejected` and each field, of some of `compared_days`.
    means: of some days, `arrival_date` and the means of `numbers`, of usable records; values: of them, and of `texts`
    that have few values, `arrival_date`, `field`, `value` and its `rows`. Both are asked only if they are compared.
    """
    return pl.DataFrame(list(_drift(stream, day, counts, means, values)), polars_schema(DRIFT), orient="row")


def _drift(
    stream: Stream, day: date, counts: pl.DataFrame, means: Reading, values: Reading
) -> Iterator[tuple[str, str, float, float | None, int, str | None]]:
    own, earlier = _split(counts.filter(pl.col("rows") > 0), day)
    before = [float(rows) for rows in earlier["rows"]]
    yield "records", "", float(own["rows"].sum()), _median(before), len(before), None
    # An unusable record has no fields.
    usable = pl.col("rejected")
    for name in stream.fields:
        share = (pl.col(name) - (pl.col("rows") - usable)) / usable
        today, usual = (part.filter(usable > 0).select(share).to_series().drop_nulls() for part in (own, earlier))
        if len(today):
            yield "nulls", name, float(today[0]), _median(usual.to_list()), len(usual), None
    if len(before) < _FEWEST or not own.height:
        return
    days = [day, *earlier["arrival_date"]]
    if numbers(stream):
        own, earlier = _split(means(days), day)
    for name in numbers(stream):
        today, usual = own[name].drop_nulls(), earlier[name].drop_nulls()
        if len(today):
            yield "mean", name, float(today[0]), _median(usual.to_list()), len(usual), None
    if texts(stream):
        yield from _new_values(day, values(days).drop_nulls("value"))


def _new_values(day: date, values: pl.DataFrame) -> Iterator[tuple[str, str, float, float | None, int, str | None]]:
    for (name,), of_field in values.sort("field").partition_by("field", as_dict=True).items():
        own, earlier = _split(of_field, day)
        if not own.height or earlier["value"].n_unique() > _MOST_VALUES:
            continue
        new = own.join(earlier, on="value", how="anti").sort("rows", "value", descending=[True, False])
        alone = pl.when(pl.len().over("value") == 1).then(pl.col("rows")).otherwise(0)
        of_days = earlier.with_columns(alone.alias("alone")).group_by("arrival_date").agg(pl.col("alone", "rows").sum())
        usual = (of_days["alone"] / of_days["rows"]).to_list()
        share = int(new["rows"].sum()) / int(own["rows"].sum())
        yield "values", str(name), share, _median(usual), len(usual), ", ".join(new["value"][:_SHOWN])


def _split(rows: pl.DataFrame, day: date) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Those of the day, and the others."""
    return rows.filter(pl.col("arrival_date") == day), rows.filter(pl.col("arrival_date") != day)


def _median(values: Sequence[float]) -> float | None:
    return pl.Series(values, dtype=pl.Float64).median() if len(values) else None  # type: ignore[return-value]  # of floats
