"""Aggregates of the same rows are found together, and none takes what another asked for."""

from itertools import combinations
from statistics import mean, stdev

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.versions import RuleSet
from tests.support.histories import STREAM, STREAMS

FUNCTIONS = {"count": len, "sum": sum, "avg": mean, "stddev": stdev, "min": min, "max": max}


@pytest.mark.parametrize("field", ["number", "ratio"])
@pytest.mark.parametrize("asked", [*combinations(FUNCTIONS, 3)], ids=str)
def test_each_aggregate_of_one_field_and_window_gives_its_own_answer(field: str, asked: tuple[str, ...]) -> None:
    """Integers and doubles go different ways; a count of either goes one way."""
    given = [5, 1, 6]
    written = {"id": "r", "stream": "things", "group_by": ["who"], "when": "count > 100"}
    measures = {name: {name: field, "over": "1h"} for name in {*asked, "count"}}
    engine = Engine(STREAM, RuleSet.of([parse_rule(written | {"measures": measures}, STREAMS)], 0))
    columns = {name: pa.nulls(len(given), kind.arrow) for name, kind in STREAM.fields.items()}
    times = pa.array([1_000_000 * at for at in range(len(given))]).cast(pa.timestamp("us", "UTC"))
    columns |= {"id": pa.array(["a", "b", "c"]), "who": pa.array(["w"] * 3), "at": times, "arrival_time": times}
    columns[field] = pa.array(given, STREAM.fields[field].arrow)
    (result,) = engine.advance(pa.table(columns)).rule_results
    assert {name: result.values[name].values[-1] for name in asked} == {
        name: pytest.approx(FUNCTIONS[name](given)) for name in asked
    }
