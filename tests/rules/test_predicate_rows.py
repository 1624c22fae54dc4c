"""The value of an expression is a function of its row alone, and the one that exact arithmetic gives.

Every operation is evaluated on frames of 1, 2, 7 and 1,000 rows, as Polars plans it, on Polars' columns and on NumPy's,
and compared bit by bit with plain Python (`tests/support/exact_evaluator.py`).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightjar.rules.predicates import compile_predicate, truths
from nightjar.rules.predicates.analysis import analyse
from nightjar.rules.predicates.comparisons import Columns, _is_numeric, _numbers
from nightjar.rules.predicates.compilation import _build
from nightjar.rules.predicates.doubles import to_double
from nightjar.rules.predicates.eager import _eager, _is_plain
from nightjar.rules.predicates.nodes import Node, Op
from nightjar.rules.predicates.parsing import parse
from nightjar.rules.predicates.source import Source
from tests.support.exact_evaluator import bits, evaluated
from tests.support.sql_conditions import COLUMNS, EXTREMES, WITH_CALLS, Row, compiled, physical

SIZES = [1, 2, 7, 1000]
# At least one expression for each operation, with columns and constants on either side.
EXPRESSIONS = [
    "small / 10",
    "small / 49",
    "number / 3",
    "1 / small",
    "amount / 0.3",
    "0.1 / ratio",
    "ratio / 7",
    "ratio / ratio",
    "amount / ratio",
    "large / amount",
    "CAST(amount AS DOUBLE) / CAST(large AS DOUBLE)",
    "amount / (1 / small)",
    "amount / CASE WHEN flag THEN 3 ELSE 3 END",
    "COALESCE(ratio / 10, 3) / COALESCE(NULL, 10)",
    "7 / 10",
    "CAST(amount AS DOUBLE)",
    "CAST(large AS DOUBLE)",
    "CAST(number AS DOUBLE)",
    "CAST(large * large AS DOUBLE)",
    "CAST(large * amount * 0.00000000001 AS DOUBLE)",
    "CAST(amount * 1.000001 AS DOUBLE)",
    "amount + ratio",
    "amount - ratio",
    "ratio * 0.1",
    "amount * 1.1",
    "large * amount",
    "number - small",
    "- ratio",
    "- number",
    "ABS(ratio - 0.1)",
    "ABS(number)",
    "ABS(small) % 7",
    "large % 0.07",
    "number % small",
    "7 % small",
    "amount % amount",
    "COALESCE(amount, number)",
    "CASE WHEN flag THEN amount WHEN small > 0 THEN ratio END",
    "LENGTH(name)",
    "LENGTH(place)",
    "LOWER(name)",
    "UPPER(name)",
    "LOWER(place)",
    "UPPER(place)",
    "SUBSTRING(name, 2)",
    "SUBSTRING(name, small)",
    "SUBSTRING(place, number, 2)",
    "SUBSTRING(place, -1, small)",
    "SUBSTRING('aß😀d', small, 2)",
    "SUBSTRING(place, number - 5, number)",
    "SUBSTRING('abcdef', 2, 3)",
    "CONCAT(name, '-', place)",
    "CONCAT(name)",
    "CONCAT('a', ' b')",
    "CONCAT(name, CASE WHEN flag THEN 'x' END)",
    "TRIM(CONCAT('  ', place, ' '))",
    "TRIM(' ')",
    "TRIM(CONCAT(name, '\N{NO-BREAK SPACE} '))",
    "STARTS_WITH(place, 'a')",
    "STARTS_WITH(name, place)",
    "STARTS_WITH('aΣb', place)",
    "STARTS_WITH(place, '')",
    "ENDS_WITH(place, 'a')",
    "ENDS_WITH(name, place)",
    "ENDS_WITH('a\nb', place)",
    "ENDS_WITH('ab', 'b')",
    *(
        f"{name}({part})"
        for name in ("SQRT", "LN", "EXP")
        for part in ("ratio", "amount", "number", "2", "ratio * ratio")
    ),
    *(
        f"REGEXP_LIKE({of}, '{pattern}')"
        for of, pattern in (
            ("place", "a"),
            ("place", "^a.b$"),
            ("place", r"^[^\w.]$"),
            ("name", r"(?i)^(fail|é)|\bß"),
            ("name", r"\s$|^.{40}$"),
            ("'aXb'", "x"),
            ("CONCAT(name, place)", r"(?:a[^a]){1,2}?\W*"),
        )
    ),
    "IP_IN(name, '10.0.0.0/8', '2001:db8::/32')",
    "IP_IN(CONCAT('10.0.0.', SUBSTRING('0123456', small, 1)), '10.0.0.2/31')",
    "IP_IN('10.1.2.3', '10.0.0.0/8')",
    "DISTANCE_KM(52.52, 13.405, 48.8566, 2.3522)",
    "DISTANCE_KM(ratio, small, 0, small * 10)",
    "DISTANCE_KM(small, small * 100, ratio, amount)",
    "DISTANCE_KM(small * 0.0000001, 0, 0, LENGTH(name) * 0.0000001)",
    "DISTANCE_KM(small, ratio, -small, ratio - 180)",
    "DISTANCE_KM(90, ratio, small * 45, amount)",
    "SECONDS_BETWEEN(seen, TIMESTAMP '2018-04-01 12:30:00')",
    "SECONDS_BETWEEN(TIMESTAMP '0001-01-01', seen)",
    "SECONDS_BETWEEN(seen, seen) / 60",
    "EXP(-ratio)",
    "EXP(small * 0.7)",
    "LN(1 + ratio / 1e15)",
    "POWER(ratio, small)",
    "POWER(amount, 2)",
    "POWER(amount, 0.5)",
    "POWER(small, ratio)",
    "POWER(1.0000001, number)",
    "POWER(ratio, -1)",
    "POWER(3, LENGTH(name))",
    "POWER(2, 10)",
    "POWER(0, small)",
    *(f"ROUND({part})" for part in ("ratio", "amount", "number", "2.5", "large * large", "-2.5e-1 * 10")),
    *(f"ROUND(ratio, {digits})" for digits in (1, 2, 15, 18, -1, -18)),
    *(f"ROUND(amount / 8, {digits})" for digits in (1, 2)),
    *(f"ROUND(large, {digits})" for digits in (3, 1, 4, 0, -1, -14, -18)),
    *(f"ROUND(number, {digits})" for digits in (-1, -18, 0)),
    "ROUND(large * amount * 0.01, 5)",
    *(
        f"{name}({part})"
        for name in ("FLOOR", "CEIL")
        for part in ("ratio", "amount", "number", "large * large", "-0.5")
    ),
    "FLOOR(ratio * 10)",
    *(f"{name}(amount, large, 1)" for name in ("GREATEST", "LEAST")),
    *(f"{name}(ratio, 0.1)" for name in ("GREATEST", "LEAST")),
    *(f"{name}(ratio, amount, small)" for name in ("GREATEST", "LEAST")),
    *(f"{name}((ratio * 10) / (ratio * 10), ratio)" for name in ("GREATEST", "LEAST")),
    *(f"{name}(large * large, number)" for name in ("GREATEST", "LEAST")),
    *(f"{name}('a', name, place)" for name in ("GREATEST", "LEAST")),
    *(f"{name}(seen, TIMESTAMP '2018-04-01 12:30:00')" for name in ("GREATEST", "LEAST")),
    "GREATEST(1, 2.5)",
    "NULLIF(small, 1)",
    "NULLIF(amount, 0.001)",
    "NULLIF(ratio, 0)",
    "amount / NULLIF(small, 7)",
    "NULLIF(name, '')",
    "EXTRACT(EPOCH FROM seen)",
    *(f"EXTRACT({part} FROM seen)" for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")),
    *(f"EXTRACT({part} FROM seen)" for part in ("DAYOFWEEK", "ISODOW", "DAYOFYEAR")),
    "EXTRACT(EPOCH FROM seen) / 60",
    *(f"HOUR(seen AT TIME ZONE '{zone}')" for zone in ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC")),
    *(f"{part}(seen AT TIME ZONE 'Pacific/Apia')" for part in ("YEAR", "WEEK", "DAYOFWEEK", "DAYOFYEAR", "MINUTE")),
    "HOUR(seen AT TIME ZONE name)",
    "DAYOFWEEK(seen AT TIME ZONE COALESCE(NULLIF(name, ''), 'America/New_York'))",
    "HOUR(TIMESTAMP '2018-04-01 12:30:00' AT TIME ZONE name)",
    "YEAR(seen AT TIME ZONE CASE WHEN flag THEN 'Pacific/Apia' ELSE 'UTC' END)",
    "HOUR(seen AT TIME ZONE CONCAT('Europe/', 'Berlin'))",
    "flag",
    "NOT flag",
    "flag AND small > 0",
    "flag OR small > 0",
    "seen IS NULL",
    "small IN (1, 2, 3)",
    "small = 1",
    "ratio IN (0.1, 0.3, 0)",
    "ratio / 10 IN (0.1, 0.3)",
    "name IN ('a', 'FAIL')",
    "amount <> 0.1",
    "ratio < 0.1",
    "ratio <= 0.1",
    "ratio > 0.1",
    "ratio >= 0.1",
    "seen > TIMESTAMP '2018-04-01 12:30:00'",
    "name < 'a'",
    "name <= place",
    "place LIKE 'a%'",
    "place LIKE '%a'",
    "place LIKE '%a%'",
    "place LIKE 'a_%b'",
    "place LIKE 'a'",
    "place LIKE '%'",
    "place LIKE '_'",
    "place LIKE ''",
    "place LIKE '%.%a'",
]
# Values at which something has been wrong, or could be.
HOSTILE: dict[str, list[Any]] = {
    "amount": [None, 0, 1, -1, 3, 10, 30, 1999, 999_999_999, -999_999_999, 5, 7, 33],
    "large": [None, 0, 1, -1, 3, 10**18 - 1, -(10**18) + 1, 2**53 + 1, 2**53 - 1, 90_071_992_547_409_931, 30_000],
    "number": [None, 0, 1, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 49, 10, 2**62 + 3, -(2**53) - 1],
    "small": [None, 0, 1, 2, 3, 6, 7, 9, 49, 98, -3, -7, 1000],
    "ratio": [None, 0.0, 0.1, 0.3, 3.0, 19.99, 5e-324, 1.7e308, -1.7e308, 2.2250738585072014e-308, 1 / 3, -7.0, 1e22],
    "name": [
        *("", "FAIL", None, "\u0391\u03a3", "\u0391\u03a3 \u0391", "İ", "ß", "ŉ", "a%b", "ä\n", "ﬁ", "𐐀", "x" * 40),
        *("10.1.2.3", "2001:DB8::1", "Asia/Tokyo", "Europe/Berlin", "europe/berlin"),
    ],
    "place": ["", "a", None, "aΣb", "a\nb", "_", "%", "é", ".a", "ba", "a.ba", "\\", "aXb"],
    "flag": [True, False, None],
    "seen": [
        0,
        -1,
        None,
        1,
        -62_135_596_800_000_000,
        253_402_300_799_999_999,
        -86_400_000_000,
        -86_400_000_001,
        1_522_585_800_000_000,
        951_782_400_000_000,
        1_577_836_799_999_999,
    ],
}


def hostile_rows(count: int) -> list[Row]:
    """So many rows, in which values meet in many combinations: the columns' lists differ in length."""
    cycles = {name: itertools.cycle([*values, *values[:at]]) for at, (name, values) in enumerate(HOSTILE.items())}
    return [{name: next(values) for name, values in cycles.items()} for _ in range(count)]


def value_of(text: str) -> Node:
    """The typed tree of an expression of any type."""
    source = Source(f"({text}) IS NULL", "")
    root = analyse(parse(source, COLUMNS), source, COLUMNS)
    assert root is not None
    return root.args[0]


def by_hosts(node: Node, rows: list[Row]) -> dict[str, list[Any]]:
    """The values at the rows in each of the ways in which an expression is evaluated, by the way."""
    frame = physical(rows)
    columns = Columns({column.name: column for column in frame})
    planned = frame.select_seq(_build(node).alias("found"))["found"]
    found: dict[str, list[Any]] = {"planned": planned.to_list()}
    if _is_plain(node):
        found["columns"] = _eager(node)(columns).to_list()
    if _is_numeric(node):
        with np.errstate(all="ignore"):
            values, valid = _numbers(node)(columns)
        there = [True] * len(values) if valid is None else np.broadcast_to(valid, values.shape).tolist()
        found["NumPy"] = [value if known else None for value, known in zip(values.tolist(), there, strict=True)]
    return {way: values * (len(rows) if len(values) == 1 else 1) for way, values in found.items()}


def test_each_operation_is_among_the_expressions() -> None:
    """No operation can be added without being evaluated here."""

    def operations(node: Node) -> set[Op]:
        return {node.op}.union(*map(operations, node.args))

    assert set().union(*(operations(value_of(text)) for text in EXPRESSIONS)) == set(Op)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_value_is_the_same_however_many_rows_are_evaluated_together(text: str) -> None:
    """Equal bits in frames of each size and in each way, and those that exact arithmetic gives."""
    node, rows = value_of(text), hostile_rows(max(SIZES))
    expected = [bits(evaluated(node, row), node) for row in rows]
    for size in SIZES:
        for at in range(0, min(len(rows), 40 * size), size):
            for way, found in by_hosts(node, rows[at : at + size]).items():
                got = [bits(value, node) for value in found]
                assert got == expected[at : at + size], (way, size, at)


@settings(max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WITH_CALLS, EXTREMES, st.sampled_from(SIZES))
def test_a_condition_holds_at_a_row_whatever_rows_are_beside_it(text: str, given_rows: list[Row], size: int) -> None:
    """What a predicate says of a row is what it says of the row alone, and what plain Python says."""
    predicate, root = compiled(text)
    rows = list(itertools.islice(itertools.cycle(given_rows), size)) if given_rows else []
    (together,) = truths([predicate], {column.name: column for column in physical(rows)}, len(rows))
    alone = [
        truths([predicate], {column.name: column for column in physical([row])}, 1)[0].item() for row in given_rows
    ]
    exact = [int(evaluated(root, row) is True) for row in given_rows]
    assert alone == exact
    assert together.tolist() == list(itertools.islice(itertools.cycle(exact), len(rows)))


@pytest.mark.parametrize(
    "text",
    [
        "number > 3 * number",
        "number * small >= number",
        "- number < number - small",
        "ABS(number) + ABS(number) > large",
        "ABS(number * 3) * 0 = small - small",
        "(number + 1) * small <> number",
        "number - small <= amount",
        "large * small > number",
        "9223372036854775807 + small > number",
        "9223372036854775808 > number - small",
    ],
)
def test_a_comparison_is_exact_beyond_64_bits_and_below(text: str) -> None:
    """Rows of small values are compared in 64 bits, and beside a large one in 128."""
    predicate, root = compiled(text)
    rows = hostile_rows(max(SIZES))
    expected = [int(evaluated(root, row) is True) for row in rows]
    for size in SIZES:
        for at in range(0, min(len(rows), 200 * size), size):
            some = rows[at : at + size]
            (found,) = truths([predicate], {column.name: column for column in physical(some)}, len(some))
            assert found.tolist() == expected[at : at + size], (size, at)


@pytest.mark.parametrize("scale", [1, 2, 18, 22, 23, 38])
def test_a_decimal_becomes_the_nearest_double(scale: int) -> None:
    """Also where its digits, or the power of ten, are more than a double holds."""
    digits = [0, 1, -1, 3, 10**16 + 1, 2**53 + 1, -(2**53) - 1, 10**scale, 10**38 - 1, 1 - 10**38, 123_456_789 * 10**11]
    found = to_double(pl.Series([*digits, None], dtype=pl.Int128), scale).to_list()
    assert found == [*(each / 10**scale for each in digits), None]


def test_a_quotient_of_infinite_doubles_is_compared_as_sql_compares_nan() -> None:
    """inf / inf is a NaN: equal to itself and above all others, in a frame of one row and of two."""
    node = value_of("(ratio * 10) / (ratio * 10)")
    row = {**hostile_rows(1)[0], "ratio": 1.7e308}
    for values in by_hosts(node, [row, row]).values():
        assert all(map(math.isnan, values))
    predicate = compile_predicate("(ratio * 10) / (ratio * 10) > 1", COLUMNS)
    for rows in (1, 2):
        columns = {column.name: column for column in physical([row] * rows)}
        assert truths([predicate], columns, rows)[0].tolist() == [1] * rows
