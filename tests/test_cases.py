"""Every case file, run by every host: the same rules and events come to the same alerts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar.cases import Case, Expectation, Outcome, check, find_cases, load_case
from nightjar.simulate import simulate
from tests.streaming.host import SparkHost, comparable

CASES = find_cases([Path(__file__).with_name("cases")])

Host = Callable[[Case], Outcome]
Held = Callable[[Expectation], Expectation]


@pytest.fixture(params=["engine", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.kafka])])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Host, Held]:
    """Whatever runs a case and gives back what came of it; and what of an expectation it can be held to."""
    if request.param == "engine":
        return simulate, lambda expect: expect
    spark, broker = request.getfixturevalue("spark"), request.getfixturevalue("broker")
    return SparkHost(spark, broker.settings, tmp_path), comparable


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_comes_out_as_it_says(host: tuple[Host, Held], path: Path) -> None:
    """Each case expects something, and it is what comes."""
    run, held = host
    case = load_case(path)
    assert case.expect.rows or case.expect.state
    assert [difference.as_dict() for difference in check(held(case.expect), run(case))] == []


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_reads_like_documentation(path: Path) -> None:
    """It has a title and a description of its own."""
    case = load_case(path)
    assert case.title != path.stem
    assert len(case.description) > 40
