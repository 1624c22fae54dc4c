"""Random histories and runs have every construct, so that none is compared by nobody."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from nightjar.rules.functions import Function
from nightjar.rules.measures import Measure
from nightjar.rules.model import Rule
from nightjar.rules.predicates.calls import SIGNATURES
from tests.support.drawn_constructs import constructs
from tests.support.random_cases import History, histories
from tests.support.random_runs import Run, runs

# A seed's examples are like each other.
SEEDS, EXAMPLES = 5, 20
# What rules are labelled with, or decides nothing: it is in no comparison of what rules find.
LABELS = {"id", "stream", "action", "shadow_of", "author", "reason"}
# Of a measure as it is held, which is written otherwise.
HELD = {"function", "field", "share", "steps"}
# Whose values are compared in tests/rules alone, and what is another form of one that is drawn.
ELSEWHERE = {"DISTANCE_KM", "SECONDS_BETWEEN", "EXP", "LN", "POWER", "ENDS_WITH"}
RULES = {*Rule.model_fields} - LABELS
MEASURES = {f"measure.{name}" for name in {*Measure.model_fields} - HELD | {*Function}}
CALLS = {f"{name}()" for name in SIGNATURES.keys() - ELSEWHERE | {"ABS", "COALESCE", "LENGTH", "UPPER"}}
BOTH = {
    *("a computed measure", "a measure of measures", "a resolution", "calendar day", "calendar month", "calendar week"),
    *("count over alerts", "sum over alerts", "count_distinct over alerts"),
    *("state active", "state shadow", "state paused", "state retired"),
    *("control pause", "control resume", "control retire", "control shadow"),
    *("a list", "a value", "values of rows", "rows set", "rows removed", "a change dated back", "a change dated ahead"),
    *("a late event", "an early event", "an event again", "two events of an id", "an order of equal times"),
}
OF_RUNS = {
    *(
        "a union",
        "priming in a union",
        "a second stream",
        "a batch again",
        "other settings",
        "approvals",
        "control approve",
        "control decline",
    ),
    *("priming", "priming with a table", "a shuffle key that is made", "a shuffle key that is made, with a table"),
}


def drawn(strategy: st.SearchStrategy[History | Run], number: int) -> list[set[str]]:
    """The constructs of each of a seed's examples, the same ones each time."""
    found: list[set[str]] = []

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def draw(each: History | Run) -> None:
        found.append(constructs(each))

    draw()
    return found


@pytest.mark.parametrize(
    ("strategy", "own"), [(histories(), {"a crash"}), (runs(), OF_RUNS)], ids=["histories", "runs"]
)
def test_every_construct_is_drawn(strategy: st.SearchStrategy[History | Run], own: set[str]) -> None:
    """What a rule, a measure or a condition may have by the product's own lists, and what else comes of it."""
    found = set[str]().union(*(each for number in range(SEEDS) for each in drawn(strategy, number)))
    assert (RULES | MEASURES | BOTH | own) - found == set()
    # each of the many calls need not be in both
    assert len(CALLS - found) <= 3, CALLS - found
