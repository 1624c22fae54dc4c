"""Every case file, run by every host: the same rules and events come to the same alerts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar.cases import Case, Outcome, check, find_cases, load_case
from nightjar.simulate import simulate

CASES = find_cases([Path(__file__).with_name("cases")])
Host = Callable[[Case], Outcome]

HOSTS: dict[str, Host] = {"engine": simulate}


@pytest.fixture(params=list(HOSTS))
def host(request: pytest.FixtureRequest) -> Host:
    """Whatever runs a case and gives back what came of it."""
    return HOSTS[request.param]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_comes_out_as_it_says(host: Host, path: Path) -> None:
    """Each case expects something, and it is what comes."""
    case = load_case(path)
    assert case.expect.rows or case.expect.state
    assert [difference.as_dict() for difference in check(case.expect, host(case))] == []


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_reads_like_documentation(path: Path) -> None:
    """It has a title and a description of its own."""
    case = load_case(path)
    assert case.title != path.stem
    assert len(case.description) > 40
