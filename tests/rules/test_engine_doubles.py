"""Sums, averages and deviations of doubles are right over the whole range of doubles."""

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.engine import Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.versions import RuleSet
from tests.support.histories import SECOND, STREAM, STREAMS
from tests.support.reference import OVERFLOW, root

RULE = {
    "id": "r",
    "stream": "things",
    "group_by": ["who"],
    "when": "FALSE",
    "measures": {name: {name: "ratio", "over": "1h"} for name in ("sum", "avg", "stddev")},
}
ANY = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = {name: STREAM.fields[name] for name in ("amount", "fraction")}
NEAR = ANY.flatmap(lambda x: st.lists(st.sampled_from([x, x, math.nextafter(x, 0.0)]), min_size=1, max_size=9))


def doubles(values: list[float]) -> pa.Table:
    """An event a value, a second apart."""
    columns = {name: pa.nulls(len(values), kind.arrow) for name, kind in STREAM.fields.items()}
    times = pa.array([SECOND * at for at in range(len(values))]).cast(pa.timestamp("us", "UTC"))
    columns |= {"id": pa.array([str(at) for at in range(len(values))]), "who": pa.array(["w"] * len(values))}
    return pa.table(columns | {"at": times, "arrival_time": times, "ratio": pa.array(values, pa.float64())})


def rounded(exact: Fraction) -> float:
    """The nearest double, or infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(ANY, min_size=1, max_size=9) | NEAR)
def test_doubles_of_any_size_are_measured_to_the_last_digit(values: list[float]) -> None:
    """A sum and an average are the nearest double, a deviation at most one beside it; what fails does not fit."""
    engine = Engine(STREAM, RuleSet.of([parse_rule(RULE, STREAMS)], 0), batch=True)
    advance = engine.advance(doubles(values))
    (result,) = advance.rule_results
    failed = {(failure.measure, int(failure.event_id)) for failure in advance.failures}
    for at in range(len(values)):
        exact = [Fraction(value) for value in values[: at + 1]]
        total, mean = sum(exact), sum(exact) / len(exact)
        spread = root(sum((x - mean) ** 2 for x in exact) / at) if at else None
        expected = {"sum": rounded(total), "avg": rounded(mean)}
        expected |= {} if spread is None else {"stddev": math.inf if spread is OVERFLOW else spread}
        for name, value in expected.items():
            got = float(result.values[name].values[at])
            assert ((name, at) in failed) == math.isinf(got)
            if name != "stddev" or value == 0:
                assert abs(got) == abs(value)
            elif math.isinf(value) or math.isinf(got):
                assert max(abs(value), abs(got)) >= 1.797e308
                assert min(abs(value), abs(got)) >= 1.797e308
            else:
                assert abs(got - value) <= math.ulp(value)


WHOLE = RULE | {
    "measures": {
        "avg_number": {"avg": "number", "over": "1h"},
        "avg_amount": {"avg": "amount", "over": "1h"},
        "avg_fraction": {"avg": "fraction", "over": "1h"},
    }
}
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ALIKE = INTEGERS.flatmap(lambda x: st.lists(st.sampled_from([x, x, x // 2]), min_size=1, max_size=9))


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(INTEGERS, min_size=1, max_size=9) | ALIKE)
def test_averages_of_integers_of_any_size_are_the_nearest_double(values: list[int]) -> None:
    """Of decimals too, which are integers of smaller units."""
    table = doubles([0.0] * len(values))
    columns = {name: table.column(name) for name in table.column_names} | {"number": pa.array(values, pa.int64())}
    units = {"number": (values, 1)}
    for name, kind in DECIMALS.items():
        own = [value % 10**kind.precision for value in values]
        columns[name] = pa.array([Decimal(unit).scaleb(-kind.scale) for unit in own], kind.arrow)
        units[name] = own, 10**kind.scale
    engine = Engine(STREAM, RuleSet.of([parse_rule(WHOLE, STREAMS)], 0), batch=True)
    (result,) = engine.advance(pa.table(columns)).rule_results
    for at in range(len(values)):
        for name, (own, scale) in units.items():
            mean = Fraction(sum(own[: at + 1]), (at + 1) * scale)
            assert result.values[f"avg_{name}"].values[at] == float(mean)
