"""Counts the rows that violate the expectations of a suite; Great Expectations then validates the counts.

How it works: rows are read in parts, each in one pass and in any process. In each part the rows that violate an
expectation are counted (`counted`). Rows that must be compared are reduced to their keys (`keys`); equal keys are
brought together, and violations are counted there (`compared`). The sum of all counts is the result (`summed`).

What it does not do: raise if rows lack a column. An expectation that cannot be counted gets a `problem`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from nightjar.expectations.suites import ROWS, Expectation, Suite

EXAMPLES = 5
_LONGEST = 200  # characters of a shown value
_CONTENT = "$content"

# For a part of a suite's rows and an expectation: the number of rows and of violating rows, examples of the latter
# (JSON, a list of objects), and the reason if they could not be counted.
COUNTS = pa.schema(
    [
        ("suite", pa.string()),
        ("expectation", pa.string()),
        ("rows", pa.int64()),
        ("breaking", pa.int64()),
        ("examples", pa.string()),
        ("problem", pa.string()),
    ]
)

_TYPES = {
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "double": "double",
    "date32[day]": "date",
    "binary": "binary",
    "large_binary": "binary",
    "binary_view": "binary",
}
_POLARS_TYPES: dict[str, pl.DataType] = {
    "string": pl.String(),
    "bigint": pl.Int64(),
    "int": pl.Int32(),
    "boolean": pl.Boolean(),
    "double": pl.Float64(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
    "binary": pl.Binary(),
}


@dataclass(frozen=True)
class Measured:
    """The number of rows that violate an expectation (None: unknown, with the reason in `problem`), with examples.

    Of equal keys the number is that of the keys, and examples are the keys, or after `detailed` rows that have them.
    """

    expectation: str
    observed: int | None
    examples: tuple[Mapping[str, str | None], ...] = ()
    problem: str = ""


def kinds(schema: pa.Schema) -> dict[str, str]:
    """A table's columns: name to Spark's type, as suites declare it."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(of: pa.DataType) -> str:
    if pa.types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    return "timestamp" if pa.types.is_timestamp(of) and of.tz else _TYPES.get(str(of), str(of))


def polars_schema(columns: Mapping[str, str]) -> dict[str, pl.DataType]:
    """The same columns as Polars' types."""
    return {name: _polars_type(kind) for name, kind in columns.items()}


def _polars_type(kind: str) -> pl.DataType:
    if kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pl.Decimal(int(precision), int(scale))
    return _POLARS_TYPES[kind]


def measured(suite: Suite, rows: pl.DataFrame) -> list[Measured]:
    """Count the violations of a suite whose rows are all in this process."""
    parts = [counted(suite, rows)]
    for expectation in suite.expectations:
        if expectation.key:
            parts.append(compared_or_why(suite, expectation, rows))
    schema = rows.head(0).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return detailed(suite, summed(suite, kinds(schema), pa.concat_tables(parts)), lambda: [rows])


def compared_or_why(suite: Suite, expectation: Expectation, rows: pl.DataFrame) -> pa.Table:
    """`compared` for these rows alone; a problem if they lack a column."""
    try:
        found = keys(expectation, rows)
    except pl.exceptions.PolarsError as problem:
        return unknown(suite, expectation, rows.height, problem)
    return compared(suite, expectation, found)


def counted(suite: Suite, rows: pl.DataFrame) -> pa.Table:
    """COUNTS of a part of the rows, for the expectations on single rows."""
    found = []
    for expectation in suite.expectations:
        if expectation.breaking:
            try:
                found.append(_breaking(suite, expectation, rows))
            except pl.exceptions.PolarsError as problem:
                found.append(unknown(suite, expectation, rows.height, problem))
    return pa.concat_tables([COUNTS.empty_table(), *found])


def _breaking(suite: Suite, expectation: Expectation, rows: pl.DataFrame) -> pa.Table:
    breaking = rows.select(pl.sql_expr(expectation.breaking).alias("breaking")).to_series()
    number = int(breaking.sum())
    some = rows.filter(breaking).head(EXAMPLES) if number else rows.head(0)
    return _counts(suite, expectation, rows.height, number, some.select(n for n in suite.shown if n in some.columns))


def keys(expectation: Expectation, rows: pl.DataFrame) -> pl.DataFrame:
    """What to compare of a part of the rows: the key's columns and, if content is compared, its hash.

    Raises:
        PolarsError: the rows lack a column.
    """
    if expectation.where:
        rows = rows.filter(pl.sql_expr(expectation.where))
    if not expectation.content:
        return rows.select(expectation.key)
    return rows.select(*expectation.key, pl.struct(*expectation.content).hash().alias(_CONTENT))


def compared(suite: Suite, expectation: Expectation, found: pl.DataFrame) -> pa.Table:
    """COUNTS of the `keys` of rows; all rows with the same key must be included."""
    key = list(expectation.key)
    several = found.filter((pl.struct(key) if len(key) > 1 else pl.col(key)).is_duplicated())
    content = pl.col(_CONTENT).n_unique() if expectation.content else pl.len()
    groups = several.group_by(key).agg(pl.len().alias(ROWS), content.alias(_CONTENT)).filter(pl.col(_CONTENT) > 1)
    some = groups.sort(key).head(EXAMPLES).drop(_CONTENT)
    return _counts(suite, expectation, found.height, groups.height, some)


def unknown(suite: Suite, expectation: Expectation, rows: int, problem: Exception) -> pa.Table:
    """COUNTS of an expectation that could not be counted."""
    row = {"suite": suite.name, "expectation": expectation.name, "rows": rows, "problem": _first_line(problem)}
    return pa.Table.from_pylist([row], COUNTS)


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).strip().splitlines()), "")[:500] or type(problem).__name__


def _counts(suite: Suite, expectation: Expectation, rows: int, breaking: int, some: pl.DataFrame) -> pa.Table:
    row = {
        "suite": suite.name,
        "expectation": expectation.name,
        "rows": rows,
        "breaking": breaking,
        "examples": json.dumps(_examples(suite, some)),
    }
    return pa.Table.from_pylist([row], COUNTS)


def _examples(suite: Suite, some: pl.DataFrame) -> list[dict[str, str | None]]:
    shown = (suite.example(row) for row in some.iter_rows(named=True))
    return [{name: shown_value(value) for name, value in row.items()} for row in shown]


def shown_value(value: Any) -> str | None:
    """A value as an example shows it."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value.microsecond:06}" if value.microsecond else "")
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return (text.lower() if isinstance(value, bool) else text)[:_LONGEST]


def summed(suite: Suite, columns: Mapping[str, str], counts: pa.Table) -> list[Measured]:
    """Sum the counts of all parts, in the order of the suite: first the check of its columns, then its expectations."""
    wrong = [
        {"column": name, "declared": kind, "found": columns.get(name)}
        for name, kind in suite.columns.items()
        if columns.get(name) != kind
    ]
    found = [Measured(COLUMNS, len(wrong), tuple(wrong[:EXAMPLES]))]
    parts: dict[str, list[dict[str, Any]]] = {}
    for part in counts.to_pylist():
        if part["suite"] == suite.name:
            parts.setdefault(part["expectation"], []).append(part)
    return found + [_summed(expectation, parts.get(expectation.name, [])) for expectation in suite.expectations]


# The first expectation of every suite.
COLUMNS = "columns"


def _summed(expectation: Expectation, parts: Sequence[Mapping[str, Any]]) -> Measured:
    problem = next((part["problem"] for part in parts if part["problem"]), "")
    if problem:
        return Measured(expectation.name, None, problem=problem)
    observed = expectation.observed(sum(part["rows"] for part in parts), sum(part["breaking"] for part in parts))
    examples = (row for part in parts for row in json.loads(part["examples"])) if observed else ()
    # If a number of rows is expected, no single row violates it.
    examples = () if expectation.exactly is not None else examples
    return Measured(expectation.name, observed, tuple(examples)[:EXAMPLES])


def detailed(suite: Suite, found: Sequence[Measured], rows: Callable[[], Iterable[pl.DataFrame]]) -> list[Measured]:
    """The same, with rows as examples where equal keys are: the key alone does not tell what is there several times.

    rows: reads the suite's rows, in parts; called only if keys are equal. A key whose rows are not found, because its
    value was masked or cut, stays as it is.
    """
    compared_by = {expectation.name: expectation for expectation in suite.expectations if expectation.key}
    return [
        replace(each, examples=tuple(_rows_of(suite, compared_by[each.expectation], each.examples, rows())))
        if each.examples and each.expectation in compared_by
        else each
        for each in found
    ]


def _rows_of(
    suite: Suite, expectation: Expectation, keys: Sequence[Mapping[str, str | None]], rows: Iterable[pl.DataFrame]
) -> list[Mapping[str, str | None]]:
    """For each key two of its rows, after the key's columns; the key itself if it has none."""
    by, wanted = list(expectation.key), pl.DataFrame(keys, schema=dict.fromkeys(expectation.key, pl.String))
    columns = list(dict.fromkeys((*by, *suite.shown)))
    texts = [pl.col(name).cast(pl.String) for name in by]
    parts = [
        (part.filter(pl.sql_expr(expectation.where)) if expectation.where else part)
        .select(name for name in columns if name in part.columns)
        .join(wanted, left_on=texts, right_on=by, how="semi", nulls_equal=True)
        for part in rows
    ]
    found = pl.concat(parts).group_by(by, maintain_order=True).head(2) if parts else pl.DataFrame()
    shown = _examples(suite, found.sort(by, maintain_order=True)) if found.height else []
    known = {tuple(row[name] for name in by) for row in shown}
    return [*shown, *(key for key in keys if tuple(key[name] for name in by) not in known)]
