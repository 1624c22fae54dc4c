"""What a screen passes over holds nowhere, and it passes over most of what does not."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.predicates import Columns, Screen, compile_predicate, truths
from nightjar.rules.types import FieldType, Kind

COLUMNS = {
    "number": FieldType(Kind.INT64),
    "ratio": FieldType(Kind.DOUBLE),
    "amount": FieldType(Kind.DECIMAL, 12, 2),
    "name": FieldType(Kind.STRING),
}
DTYPES = {"number": pl.Int64, "ratio": pl.Float64, "amount": pl.Int64, "name": pl.String}
SMALL = st.integers(-3, 3)
VALUES = {"number": SMALL, "ratio": SMALL.map(lambda n: n / 2), "amount": SMALL.map(lambda n: 50 * n)}
ROWS = st.fixed_dictionaries({name: st.none() | VALUES.get(name, st.sampled_from(["a", "b"])) for name in COLUMNS})
NUMBERS = SMALL.map(str) | SMALL.map(lambda n: str(n / 2))
COMPARED = st.sampled_from(["number", "ratio", "amount", "number + 1", "amount * 2"])
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
PARTS = st.one_of(
    st.builds("{} {} {}".format, COMPARED, OPERATORS, NUMBERS),
    st.builds("{} {} {}".format, NUMBERS, OPERATORS, COMPARED),
    st.sampled_from(["name = 'a'", "number IS NULL", "name LIKE 'a%'", "1 < 0"]),
)
CONDITIONS = st.lists(PARTS, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([" AND ", " OR "]).map(lambda joint: joint.join(parts))
)


@given(st.lists(CONDITIONS, min_size=1, max_size=30), st.lists(ROWS, max_size=6))
def test_a_condition_that_holds_somewhere_is_never_passed_over(
    conditions: list[str], rows: list[dict[str, object]]
) -> None:
    """Whatever the columns hold, NULLs in all rows and no rows at all included."""
    predicates = [compile_predicate(text, COLUMNS) for text in conditions]
    columns = {name: pl.Series(name, [row[name] for row in rows], dtype=DTYPES[name]) for name in COLUMNS}
    possible = Screen([predicate.bounds for predicate in predicates]).possible(Columns(columns))
    held = np.array([found.any() for found in truths(predicates, columns, len(rows))])
    assert not (held & ~possible).any()


def test_conditions_beyond_all_values_are_passed_over() -> None:
    """One is left of those that compare with a constant; a constant may stand on either side."""
    texts = [f"number > {n}" for n in range(10)] + ["9 < number", "number = 7", "5 <= number AND name = 'a'"]
    columns = Columns({"number": pl.Series([3, None, 5]), "name": pl.Series(["a", "b", None])})
    predicates = [compile_predicate(text, COLUMNS) for text in texts]
    possible = Screen([predicate.bounds for predicate in predicates]).possible(columns)
    assert [texts[at] for at in np.flatnonzero(possible)] == [*texts[:5], "5 <= number AND name = 'a'"]
