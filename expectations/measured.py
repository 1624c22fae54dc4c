"""What breaks the expectations of a suite, counted: what Great Expectations is then asked about.

How it works: rows are looked at in parts, each in one pass, wherever they lie. Of each part the rows that break an
expectation are counted (`counted`). Rows that must be compared are reduced to what is compared (`keys`); those of equal
keys are brought together, and those that break the expectation are counted there (`compared`). All counts together are
the answer (`summed`).

What it does not do: raise over rows that lack a column. What cannot be counted is a problem of its expectation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from expectations.suites import ROWS, Expectation, Suite

EXAMPLES = 5
_LONGEST = 200  # characters of a value that is shown
_CONTENT = "$content"

# Of a part of a suite's rows: how many there are, how many of them break the expectation, some of these (JSON, a list
# of objects), and why it could not be counted.
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
    "string": "string", "large_string": "string", "string_view": "string", "int64": "bigint", "int32": "int",
    "bool": "boolean", "double": "double", "date32[day]": "date", "binary": "binary", "large_binary": "binary",
    "binary_view": "binary",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """By how many rows an expectation is broken (None: unknown, and `problem` says why), with some of these."""

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


def measured(suite: Suite, rows: pl.DataFrame) -> list[Measured]:
    """What breaks a suite whose rows are all here."""
    parts = [counted(suite, rows)]
    for expectation in suite.expectations:
        if expectation.key:
            parts.append(compared_or_why(suite, expectation, rows))
    schema = rows.head(0).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return summed(suite, kinds(schema), pa.concat_tables(parts))


def compared_or_why(suite: Suite, expectation: Expectation, rows: pl.DataFrame) -> pa.Table:
    """`compared` of these rows alone."""
    try:
        found = keys(expectation, rows)
    except pl.exceptions.PolarsError as problem:
        return unknown(suite, expectation, rows.height, problem)
    return compared(suite, expectation, found)


def counted(suite: Suite, rows: pl.DataFrame) -> pa.Table:
    """COUNTS of a part of the rows, of the expectations that look at rows one by one."""
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
    """What is compared of a part of the rows: the key's columns and, where content is compared, one for that.

    Raises:
        PolarsError: the rows lack a column.
    """
    if expectation.where:
        rows = rows.filter(pl.sql_expr(expectation.where))
    if not expectation.content:
        return rows.select(expectation.key)
    return rows.select(*expectation.key, pl.struct(*expectation.content).hash().alias(_CONTENT))


def compared(suite: Suite, expectation: Expectation, found: pl.DataFrame) -> pa.Table:
    """COUNTS of the `keys` of rows, of which all that have one key are here."""
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
    examples = [{name: _shown(value) for name, value in row.items()} for row in some.iter_rows(named=True)]
    row = {
        "suite": suite.name, "expectation": expectation.name, "rows": rows, "breaking": breaking,
        "examples": json.dumps(examples),
    }  # fmt: skip
    return pa.Table.from_pylist([row], COUNTS)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value.microsecond:06}" if value.microsecond else "")
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return (text.lower() if isinstance(value, bool) else text)[:_LONGEST]


def summed(suite: Suite, columns: Mapping[str, str], counts: pa.Table) -> list[Measured]:
    """The counts of all parts, in the order of the suite: first the columns, as they are, then its expectations."""
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


# The expectation that every suite begins with.
COLUMNS = "columns"


def _summed(expectation: Expectation, parts: Sequence[Mapping[str, Any]]) -> Measured:
    problem = next((part["problem"] for part in parts if part["problem"]), "")
    if problem:
        return Measured(expectation.name, None, problem=problem)
    observed = expectation.observed(sum(part["rows"] for part in parts), sum(part["breaking"] for part in parts))
    examples = (row for part in parts for row in json.loads(part["examples"])) if observed else ()
    # where numbers are to be equal, no row is the one that breaks it
    examples = () if expectation.exactly is not None else examples
    return Measured(expectation.name, observed, tuple(examples)[:EXAMPLES])
