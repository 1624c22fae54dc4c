"""Random streams, whose rules change while their events come: everybody says the same of them.

`checks/soak/truth.py` does this for thousands of histories; single statements of the semantics are tested in
test_engine_semantics.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightjar.cases import check, read_case
from nightjar.cases.simulate import simulate
from nightjar.rules.engine import timeline
from tests.support.agreement import Agreement
from tests.support.random_cases import History, case_file, histories
from tests.support.rules_in_sql import connect

# A history is much to draw, and takes its time on a busy machine.
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as opened:
        yield opened


@settings(suppress_health_check=LARGE)
@given(histories(), st.sampled_from((3, timeline._STRETCH)))
def test_stream_batch_reference_and_sql_say_the_same(
    connection: duckdb.DuckDBPyConnection, history: History, stretch: int
) -> None:
    """Every measure at every event, and every alert in the end; also where the first batch is a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_STRETCH", stretch)
        assert Agreement(history, connection).differences == []


@settings(max_examples=settings().max_examples // 4, suppress_health_check=LARGE)
@given(histories())
def test_a_history_written_as_a_case_file_agrees_with_the_reference(history: History) -> None:
    """So that what is found can be played, and kept."""
    case = read_case(case_file(history, ["why it was written"]), "case.yaml")
    assert [difference.as_dict() for difference in check(case.expect, simulate(case))] == []
