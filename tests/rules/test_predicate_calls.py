"""Functions that are called by a name: what they give, and which arguments they take."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.derived import derived_field
from nightjar.rules.errors import DeclarationError, PredicateError
from nightjar.rules.predicates import FUNCTIONS, check_predicate, compile_value, distances, elementary
from nightjar.rules.predicates.calls import SIGNATURES
from nightjar.rules.predicates.nodes import Op
from nightjar.rules.predicates.parsing import CALLS
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType, decimal

COLUMNS: dict[str, FieldType] = {
    "n": INT64,
    "amount": decimal(9, 2),
    "d": DOUBLE,
    "s": STRING,
    "p": STRING,
    "t": TIMESTAMP,
    "u": TIMESTAMP,
    "b": BOOLEAN,
}
_PHYSICAL = {"d": pl.Float64, "s": pl.String, "p": pl.String, "b": pl.Boolean}


def value(text: str, **fields: Any) -> Any:
    """The physical value of an expression at one row; fields that are not given are NULL."""
    expression = compile_value(text, COLUMNS).expression
    row = {name: pl.Series([fields.get(name)], dtype=_PHYSICAL.get(name, pl.Int64)) for name in COLUMNS}
    return pl.DataFrame(row).select_seq(expression.alias("found"))["found"].item()


def refusal(text: str) -> PredicateError:
    """The one problem of a condition."""
    with pytest.raises(PredicateError) as refused:
        check_predicate(text, COLUMNS)
    assert len(refused.value.problems) == 1
    return refused.value


def test_every_called_function_is_known_to_parser_and_analysis() -> None:
    assert set(SIGNATURES) == CALLS
    assert CALLS < FUNCTIONS


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_example_in_a_refusal_is_right(name: str) -> None:
    """What an error recommends is accepted, over fields of the types that it takes."""
    declared = {
        "customer_id": STRING,
        "terminal_id": STRING,
        "email": STRING,
        "phone": STRING,
        "card": STRING,
        "device": STRING,
        "amount": decimal(9, 2),
        "fee": decimal(9, 2),
        "risk": DOUBLE,
        "ip": STRING,
        **dict.fromkeys(("lat", "lon", "shop_lat", "shop_lon"), DOUBLE),
        **dict.fromkeys(("opened_at", "event_time"), TIMESTAMP),
    }
    check_predicate(f"{SIGNATURES[name].written} IS NULL", declared)


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("SUBSTRING(s, 1, 6)", {"s": "4111111111111111"}, "411111"),
        ("SUBSTRING(s, LENGTH(s) - 3)", {"s": "4111111111111234"}, "1234"),
        ("SUBSTRING(s, 2, 2)", {"s": "äöü"}, "öü"),
        ("SUBSTRING(s, 0, 2)", {"s": "abc"}, "a"),
        ("SUBSTRING(s, -1)", {"s": "abc"}, "abc"),
        ("SUBSTRING(s, 3, 9)", {"s": "abc"}, "c"),
        ("SUBSTRING(s, 4)", {"s": "abc"}, ""),
        ("SUBSTRING(s, 2, -1)", {"s": "abc"}, ""),
        ("SUBSTRING(s, n, n)", {"s": "abc"}, None),
        ("SUBSTRING(s, n, n)", {"s": "abc", "n": 2**63 - 1}, ""),
        ("CONCAT(s, '-', p)", {"s": "a", "p": "b"}, "a-b"),
        ("CONCAT(s, '-', p)", {"s": "a"}, None),
        ("TRIM(s)", {"s": "  a b\t "}, "a b\t"),
        ("STARTS_WITH(s, '+49')", {"s": "+4930"}, True),
        ("STARTS_WITH(s, p)", {"s": "+4930", "p": "+48"}, False),
        ("STARTS_WITH(s, p)", {"s": "+4930"}, None),
        ("ENDS_WITH(s, '%')", {"s": "ab"}, False),
        ("ends_with(s, '.ru')", {"s": "mail.ru"}, True),
        ("SQRT(n)", {"n": 9}, 3.0),
        ("SQRT(n)", {"n": -1}, None),
        ("LN(d)", {"d": 1.0}, 0.0),
        ("LN(n)", {"n": 0}, None),
        ("EXP(n)", {"n": 0}, 1.0),
        ("EXP(n)", {"n": 710}, None),
        ("EXP(n)", {"n": -746}, 0.0),
        ("POWER(amount, 2)", {"amount": 150}, 2.25),
        ("POWER(n, 0.5)", {"n": -4}, None),
        ("POWER(n, -1)", {"n": 0}, None),
        ("POWER(n, 0)", {"n": 0}, 1.0),
        ("POWER(n, 34)", {"n": 3}, float(3**34)),
        ("POWER(d, 1.5)", {"d": float(262143**2)}, float(262143**3)),
        ("ROUND(amount)", {"amount": 250}, 3),
        ("ROUND(amount)", {"amount": -250}, -3),
        ("ROUND(amount, 1)", {"amount": 1995}, 200),
        ("ROUND(amount, 2)", {"amount": 1995}, 1995),
        ("ROUND(n, -2)", {"n": 250}, 300),
        ("ROUND(d)", {"d": 0.49999999999999994}, 0.0),
        ("ROUND(d)", {"d": -2.5}, -3.0),
        ("ROUND(d, 2)", {"d": 2.675}, 2.67),
        ("ROUND(d, 3)", {"d": 0.0625}, 0.063),
        ("FLOOR(amount)", {"amount": -150}, -2),
        ("CEIL(amount)", {"amount": -150}, -1),
        ("CEIL(amount)", {"amount": 101}, 2),
        ("FLOOR(d)", {"d": -0.5}, -1.0),
        ("GREATEST(amount, n)", {"amount": 150, "n": 2}, 200),
        ("LEAST(amount, n, 1)", {"amount": 150, "n": 2}, 100),
        ("LEAST(amount, n, 1)", {"amount": 150}, None),
        ("GREATEST(s, 'b')", {"s": "a"}, "b"),
        ("DISTANCE_KM(52.52, 13.405, 48.8566, 2.3522)", {}, 877_465),
        ("DISTANCE_KM(0, 0, 0, 180)", {}, 20_015_114),
        ("DISTANCE_KM(90, n, -90, n)", {"n": 17}, 20_015_114),
        ("DISTANCE_KM(10, 350, 10, -10)", {}, 0),
        ("DISTANCE_KM(d, 0, 0, 0)", {"d": 90.5}, None),
        ("DISTANCE_KM(0, d, 0, 0)", {"d": 361.0}, None),
        ("DISTANCE_KM(d, 0, 0, 0)", {}, None),
        ("SECONDS_BETWEEN(t, u)", {"t": 1_000_000, "u": 2_500_000}, 1_500_000),
        ("SECONDS_BETWEEN(u, t)", {"t": 1_000_000, "u": 2_500_000}, -1_500_000),
        ("SECONDS_BETWEEN(u, t)", {"t": 1_000_000}, None),
        ("NULLIF(amount, 0)", {"amount": 0}, None),
        ("NULLIF(amount, n)", {"amount": 150}, 150),
    ],
)
def test_a_function_gives(text: str, row: dict[str, Any], expected: Any) -> None:
    assert value(text, **row) == expected


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("SUBSTRING(s) = 'a'", "SUBSTRING takes 2 or 3 arguments and this has 1", "SUBSTRING(card, 1, 6)"),
        ("substring() = 'a'", "SUBSTRING takes 2 or 3 arguments and this has 0", "SUBSTRING(card, 1, 6)"),
        ("TRIM(s, 'x') = 'a'", "TRIM takes 1 argument and this has 2", "TRIM(device)"),
        ("CONCAT() = 'a'", "CONCAT takes 1 or more arguments and this has 0", "CONCAT("),
        ("STARTS_WITH(s, n)", "a string is needed and this is an exact number", "of that type"),
        ("CONCAT(s, NULL) = 'a'", "a string is needed and this is NULL", "of that type"),
        ("SUBSTRING(s, d) = 'a'", "an integer is needed and this is a double", "Count characters"),
        ("SUBSTRING(s, amount) = 'a'", "an exact number with digits after the point", "Count characters"),
        ("SUBSTRING(s, 1, 'a') = 'a'", "an integer is needed and this is a string", "Count characters"),
        ("CONCAT(s, s, s, s, s, s, s, s, s) = 'a'", "may have 18432 characters, more than 16384", "SUBSTRING"),
        ("SQRT(s) > 1", "a number is needed and this is a string", "of that type"),
        ("LN(t) > 1", "a number is needed and this is a timestamp", "EXTRACT(EPOCH FROM t)"),
        ("POWER(d) > 1", "POWER takes 2 arguments and this has 1", "POWER(amount, 2)"),
        ("ROUND(d, n) > 1", "how many digits after the point are kept", "an integer from -18 to 18"),
        ("ROUND(d, 1.5) > 1", "how many digits after the point are kept", "an integer from -18 to 18"),
        ("ROUND(d, 19) > 1", "how many digits after the point are kept", "an integer from -18 to 18"),
        ("DISTANCE_KM(d, d, d) > 1", "DISTANCE_KM takes 4 arguments and this has 3", "DISTANCE_KM(lat, lon"),
        ("DISTANCE_KM(d, d, d, s) > 1", "a number is needed and this is a string", "of that type"),
        ("SECONDS_BETWEEN(t, d) > 1", "a timestamp is needed and this is a double", "the earlier one first"),
        ("SECONDS_BETWEEN(t, '2020-01-01') > 1", "a timestamp is needed and this is a string", "two timestamps"),
        ("GREATEST(d) > 1", "GREATEST takes 2 or more arguments and this has 1", "GREATEST(amount, fee)"),
        ("GREATEST(d, s) > 1", "a double and a string cannot be compared", "without quotes"),
        ("GREATEST(d, NULL) > 1", "needs values that have an order and this is NULL", "numbers, strings or"),
        ("LEAST(b, b)", "needs values that have an order and this is a boolean", "numbers, strings or"),
        ("NULLIF(d, 's') > 1", "a double and a string cannot be compared", "without quotes"),
        ("NULLIF(d, NULL) > 1", "= with NULL is never true", "IS NULL"),
        ("TRIM(s > 'a') = 'a'", "a condition is an operand here", "parentheses"),
        ("CONCAT(*) = 'a'", "* stands for no value", "Name the field"),
        ("SUBSTR(s, 1) = 'a'", "function SUBSTR is not allowed", "Write SUBSTRING("),
        ("CEILING(d) > 1", "function CEILING is not allowed", "Write CEIL("),
        ("REGEXP_MATCHES(s, 'a')", "function REGEXP_MATCHES is not allowed", "Write REGEXP_LIKE("),
        ("s RLIKE 'a'", "RLIKE is not allowed", "Write REGEXP_LIKE("),
        ("s || 'a' = 'b'", "|| is not allowed", "CONCAT(one, other)"),
    ],
)
def test_a_mistake_in_a_call_is_reported_with_its_remedy(text: str, what: str, remedy: str) -> None:
    (problem,) = refusal(text).problems
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    "text",
    [
        "TRIM(BOTH 'x' FROM s) = 'a'",
        "CONCAT(s ORDER BY p) = 'a'",
        "CONCAT(DISTINCT s) = 'a'",
        "CONCAT(s AS p) = 'a'",
        "CONCAT(s p) = 'a'",
        "CONCAT(s LIMIT 1) = 'a'",
        "CONCAT(s => 'a') = 'a'",
        "SUBSTRING(s FROM 2) = 'a'",
        "FLOOR(d TO n) > 1",
        "LN(d IGNORE NULLS) > 1",
    ],
)
def test_what_dialects_allow_within_a_call_is_refused(text: str) -> None:
    assert refusal(text)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("ROUND(amount, 1)", decimal(9, 1)),
        ("FLOOR(amount)", INT64),
        ("CEIL(n)", INT64),
        ("ROUND(d, 1)", DOUBLE),
        ("GREATEST(amount, n)", None),
        ("NULLIF(amount, n)", decimal(9, 2)),
        ("POWER(n, 2)", DOUBLE),
        ("DISTANCE_KM(d, d, d, d)", decimal(8, 3)),
        ("SECONDS_BETWEEN(t, u)", decimal(18, 6)),
    ],
)
def test_a_derived_field_has_the_type_of_the_function(text: str, of: FieldType | None) -> None:
    """Exact numbers stay exact; None: none is wide enough for an int64 with two more digits."""
    if of is None:
        with pytest.raises(DeclarationError, match="may need 21 digits"):
            derived_field(text, COLUMNS)
    else:
        assert derived_field(text, COLUMNS)[0] == of


def test_a_function_is_the_same_where_long_doubles_are_no_longer_than_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that always matters all values come from decimal digits."""
    numbers = pl.Series([1.0, 2.0, 0.1, 1e-300, 700.0, 1 + 2**-52, 34.0, 3.0])
    args = {op: [numbers] * (2 if op is Op.POWER else 1) for op in (Op.LN, Op.EXP, Op.POWER)}
    found = {op: elementary.elementary(op)(columns).to_list() for op, columns in args.items()}
    monkeypatch.setattr(elementary, "_ERROR", np.longdouble(2.0**-40))
    assert {op: elementary.elementary(op)(columns).to_list() for op, columns in args.items()} == found


_LATITUDES, _LONGITUDES = st.floats(-90, 90), st.floats(-360, 360)


@settings(deadline=None)
@given(st.lists(st.tuples(_LATITUDES, _LONGITUDES, _LATITUDES, _LONGITUDES), min_size=1, max_size=3))
def test_a_distance_is_the_same_by_doubles_and_by_many_digits(places: list[tuple[float, ...]]) -> None:
    """All are decided with 60 digits where the error of doubles always matters."""
    given_columns = [pl.Series(each, dtype=pl.Float64) for each in zip(*places, strict=True)]
    found = distances.distances(given_columns).to_list()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "_UNCERTAIN", 1.0)
        assert distances.distances(given_columns).to_list() == found


@given(st.integers(0, 2_000_000), st.sampled_from([-1e-9, 0.0, 1e-9]))
def test_a_distance_near_half_a_metre_is_rounded_as_it_is(metres: int, off: float) -> None:
    """Along a meridian the distance is the difference of latitudes times a constant, whose half metres are known."""
    degrees = (metres + 0.5 + off) / float(distances.RADIUS) * 180 / math.pi
    exact = Fraction(degrees) * Fraction("3.14159265358979323846264338327950288") / 180 * Fraction(distances.RADIUS)
    expected = math.floor(exact + Fraction(1, 2))
    assert value(f"DISTANCE_KM(0, 7, {degrees!r}, 7)") == expected


def test_strings_that_are_joined_may_be_parts_of_fields() -> None:
    """The bound is on what can come out, whatever the fields are."""
    check_predicate(f"CONCAT({', '.join(['SUBSTRING(s, 1, 100)'] * 20)}) = 'a'", COLUMNS)
    assert "characters" in refusal(f"CONCAT({', '.join(['UPPER(s)'] * 3)}) = 'a'").what
