"""Predicates against an independent evaluator: DuckDB reads the same text over the logical values of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import compile_predicate, truths
from nightjar.rules.predicates.compilation import compile_node
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import FieldType, Kind
from tests.support.sql_conditions import COLUMNS, EXTREMES, PREDICATES, ROWS, Row, compiled, physical

# DuckDB raises where a result leaves the type of its operands, so it is given wider ones; not the widest, as there its
# COALESCE and CASE would give up digits after the point.
DUCKDB_TYPES = {
    Kind.DECIMAL: "DECIMAL(28,{scale})",
    Kind.INT64: "DECIMAL(28,0)",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMP",
}


@pytest.fixture(scope="module")
def evaluated_by_duckdb() -> Callable[[str, list[Row]], list[bool]]:
    """The truth of a predicate for each row as DuckDB has it, NULL as false."""
    connection = duckdb.connect()
    # nightjar's division and remainder by zero are NULL
    connection.execute("SET error_on_division_by_zero = false; SET ieee_floating_point_ops = false")
    declared = ", ".join(f"{name} {DUCKDB_TYPES[kind.kind].format(scale=kind.scale)}" for name, kind in COLUMNS.items())
    connection.execute(f"CREATE TABLE events (nr INTEGER, {declared})")
    insert = f"INSERT INTO events VALUES (?{', ?' * len(COLUMNS)})"  # noqa: S608

    def evaluate(text: str, given_rows: list[Row]) -> list[bool]:
        connection.execute("DELETE FROM events")
        logical = [
            [at, *(_logical(row[name], kind) for name, kind in COLUMNS.items())] for at, row in enumerate(given_rows)
        ]
        connection.executemany(insert, logical)
        found = connection.execute(f"SELECT coalesce(({text}), false) FROM events ORDER BY nr").fetchall()  # noqa: S608
        return [bool(truth) for (truth,) in found]

    return evaluate


def _logical(value: Any, kind: FieldType) -> Any:
    if value is None:
        return None
    if kind.kind is Kind.DECIMAL:
        return Decimal(value).scaleb(-kind.scale)
    if kind.kind is Kind.TIMESTAMP:
        return from_microseconds(value).replace(tzinfo=None)
    return value


@settings(
    max_examples=2 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(PREDICATES, ROWS)
def test_any_well_typed_predicate_agrees_with_duckdb(
    evaluated_by_duckdb: Callable[[str, list[Row]], list[bool]], text: str, given_rows: list[Row]
) -> None:
    """A predicate means over the engine's columns what its text means over the values they stand for."""
    try:
        predicate = compile_predicate(text, COLUMNS)
    except PredicateError as refusal:
        # more than 38 digits, or too deep: refused on purpose, and nothing else may be
        assume("38 digits" not in refusal.what and "deeper" not in refusal.what and "NULL is left" not in refusal.what)
        raise
    try:
        expected = evaluated_by_duckdb(text, given_rows)
    except (duckdb.OutOfRangeException, duckdb.ConversionException):
        reject()
    columns = {column.name: column for column in physical(given_rows)}
    (found,) = truths([predicate], columns, len(given_rows))
    assert found.tolist() == expected


@settings(max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PREDICATES, EXTREMES)
def test_what_runs_at_once_on_columns_is_what_polars_makes_of_the_expression(text: str, given_rows: list[Row]) -> None:
    """Whichever conditions of a predicate are planned, it holds at the same rows."""
    predicate, root = compiled(text)
    planned = replace(predicate, plain=(), rest=compile_node(root), rest_columns=predicate.columns)
    columns = {column.name: column for column in physical(given_rows)}
    at_once, by_plan = truths([predicate, planned], columns, len(given_rows))
    assert at_once.tolist() == by_plan.tolist()


def test_the_week_begins_on_sunday_as_in_spark() -> None:
    """DAYOFWEEK, where DuckDB counts from 0 and Spark from 1, is Spark's: Sunday is 1."""
    sunday = datetime(2018, 4, 1, tzinfo=UTC)
    days = [int((sunday.timestamp() + day * 86_400) * 1_000_000) for day in range(-7, 7)]
    columns = {"seen": pl.Series([*days, -1], dtype=pl.Int64)}
    predicates = [compile_predicate(f"DAYOFWEEK(seen) = {day}", COLUMNS) for day in range(1, 8)]
    found = [row.tolist() for row in truths(predicates, columns, len(days) + 1)]
    assert [sum(row[at] * day for day, row in enumerate(found, 1)) for at in range(14)] == [*range(1, 8), *range(1, 8)]
    assert found[3][14], "the last microsecond of 1969 was a Wednesday"
