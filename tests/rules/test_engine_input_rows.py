"""The engine's results name the rows of the batch as given."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import NO_ROW, Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.versions import RuleSet
from tests.support import histories
from tests.support.histories import SECOND, STREAM, STREAMS

NAMED = ["id", "at"]


def event(name: str, at: int, arrival: int, **more: Any) -> dict[str, Any]:
    """An event of x's; times in seconds."""
    fields: dict[str, Any] = dict.fromkeys(STREAM.fields)
    return {**fields, "id": name, "at": at * SECOND, "who": "x", "arrival": arrival * SECOND, **more}


def rule(**measure: Any) -> RuleSet:
    """Violated at every event."""
    written = {"id": "any", "stream": "things", "group_by": ["who"], "measures": {"m": measure}, "when": "TRUE"}
    return RuleSet.of([parse_rule(written, STREAMS)], 0)


@given(histories.rule_sets(), histories.events(lateness=True), st.integers(0, 10), st.randoms(use_true_random=False))
def test_rows_are_those_of_the_batch(rule_set: Any, events: Any, cuts: int, random: Random) -> None:
    """However its rows stand: an alert's event, the late ones, and each event that is neither new nor of no effect."""
    engine, table, came = Engine(STREAM, rule_set[0]), histories.table(events), set[tuple[Any, ...]]()
    edges = sorted({0, table.num_rows, *(random.randint(0, table.num_rows) for _ in range(cuts))})
    for first, end in itertools.pairwise(edges):
        order = random.sample(range(first, end), end - first)
        batch = table.take(pa.array(order, pa.int64()))
        advance = engine.advance(batch)
        rows = advance.rows
        assert batch.take(pa.array(rows.late)).equals(advance.late)
        assert batch.take(pa.array(rows.admitted)).column("id").equals(advance.delta.events.column("id"))
        # without a clock no event is of no effect
        assert sorted([*rows.admitted, *rows.duplicates]) == [*range(len(batch))]
        new = [tuple(each.values()) for each in batch.select(NAMED).take(pa.array(rows.admitted)).to_pylist()]
        named = advance.alerts.select(["event_id", "event_time"]).to_pylist()
        for alert, row in zip(named, rows.alerts.tolist(), strict=True):
            if row == NO_ROW:
                assert tuple(alert.values()) in came
            else:
                assert tuple(batch.slice(row, 1).select(NAMED).to_pylist()[0].values()) == tuple(alert.values())
        came.update(new)


def test_an_event_before_the_horizon_is_no_duplicate() -> None:
    """It is late each time it comes, as its id is not known; that of an event which counts is."""
    engine = Engine(STREAM, rule(count="*", over="1s"))
    engine.advance(histories.table([event("a", 100, 100)]), 100 * SECOND)
    batch = [event("b", 1, 103), event("a", 100, 104), event("b", 1, 102), event("c", 101, 101)]
    rows = engine.advance(histories.table(batch)).rows
    assert (rows.admitted.tolist(), rows.late.tolist(), rows.duplicates.tolist()) == ([3], [2, 0], [1])


def test_a_failure_names_the_row_of_its_event() -> None:
    """Of the batch that brought it; evaluated again with a later one it has none there."""
    engine, most = Engine(STREAM, rule(sum="number", over="8s")), 2**63 - 1
    first = engine.advance(histories.table([event("b", 102, 102, number=1), event("a", 101, 101, number=most)]))
    assert [(failure.event_id, failure.row) for failure in first.failures] == [("b", 0)]
    again = engine.advance(histories.table([event("c", 100, 103, number=1), event("d", 90, 104, number=1)]))
    assert {failure.event_id: failure.row for failure in again.failures} == {"a": NO_ROW, "b": NO_ROW}
    assert np.array_equal(again.rows.admitted, [0, 1])
