"""Long windows are carried from batch to batch, and have the same values as if they were filled again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.engine import Engine, carried, measures
from nightjar.rules.engine.alert_columns import Described
from nightjar.rules.engine.kernels import carried as kernels
from nightjar.rules.engine.kernels import ranked
from nightjar.rules.functions import Function
from nightjar.rules.model import parse_rule
from nightjar.rules.versions import RuleSet
from tests.support import histories, reference
from tests.support.agreement import differing, plain
from tests.support.histories import STREAM, STREAMS

SECOND = 1_000_000
NEVER = 1 << 60
# of fields: of 32 bits and of more, doubles, strings
FUNCTIONS = [
    (function, field)
    for function in Function
    for field in ("number", "large", "ratio", "place")
    if STREAM.fields[field].kind in function.spec.takes and not function.spec.is_list
]


def ruleset(over: str, **options: Any) -> RuleSet:
    written = {
        f"{f}_{field}": {f.value: f.of(field), "over": over, **options}
        for f, field in FUNCTIONS
        if not (f.spec.is_before and "excluding_current" in options)
    }
    halves = (dict(itertools.islice(written.items(), a, None, 2)) for a in (0, 1))
    rules = [
        {"id": f"r{at}", "stream": "things", "group_by": ["who"], "measures": half, "when": f"{min(half)} IS NULL"}
        for at, half in enumerate(halves)
    ]
    return RuleSet.of([parse_rule(rule, STREAMS) for rule in rules], 0)


def table(times: list[int], numbers: list[int | None], delays: list[int] | None = None) -> pa.Table:
    """Events of one group at these seconds, whose fields follow from one number each, in order of arrival."""
    of = {
        "id": [f"e{at}" for at in range(len(times))],
        "who": ["w"] * len(times),
        "number": numbers,
        "large": [None if n is None else Decimal(n * 100_000_000) for n in numbers],
        "ratio": [None if n is None else n / 3 for n in numbers],
        "place": [None if n is None else f"p{n}" for n in numbers],
    }
    columns = {name: pa.array(of.get(name, [None] * len(times)), t.arrow) for name, t in STREAM.fields.items()}
    columns["at"] = pa.array([SECOND * t for t in times]).cast(pa.timestamp("us", "UTC"))
    arrival = list(itertools.accumulate([SECOND * max(t, 0) for t in times], max))
    arrival = [a + SECOND * d for a, d in zip(arrival, delays or [0] * len(times), strict=True)]
    return pa.table(columns | {"arrival_time": pa.array(arrival).cast(pa.timestamp("us", "UTC"))})


def values(
    rules: RuleSet, batches: list[pa.Table], long: int, ahead: int = 16, times: int = 0
) -> list[tuple[Any, ...]]:
    """Every measure at every row that is evaluated in each batch."""
    engine, found = Engine(STREAM, rules), []
    with patch.multiple(carried, LONG=long, _TIMES=times, _AHEAD=ahead):
        for batch in batches:
            clock = batch.column("arrival_time").cast(pa.int64()).to_pylist()[-1]
            for result in engine.advance(batch, clock).rule_results:
                for name, of_it in result.values.items():
                    valid = np.ones(len(result.rows)) if of_it.valid is None else of_it.valid
                    ids = engine.store.array("id", result.rows).to_pylist()
                    shown = of_it.values if "place" not in name or "count" in name else of_it.codes
                    found += [(name, i, v) for i, v, ok in zip(ids, shown.tolist(), valid.tolist(), strict=True) if ok]
    return found


@settings(max_examples=2 * settings().max_examples)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.none() | st.integers(-3, 3) | st.integers(-(10**6), 10**6), st.integers(0, 9)),
        min_size=4,
        max_size=40,
    ),
    st.integers(1, 8),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([{}, {"excluding_current": True}, {"where": "number > 0"}, {"since": "number = 0"}]),
    st.sampled_from(["3s", "8s", "30s"]),
)
def test_carried_windows_equal_filled_ones(
    events: list[tuple[int, int | None, int]], size: int, ahead: int, options: dict[str, Any], over: str
) -> None:
    """In whatever order events come, and however far the stretch is behind: bit by bit."""
    times = list(itertools.accumulate(step // 10 - (3 if step == 40 else 0) for step, _, _ in events))
    times = [max(t, 0) for t in times]
    whole = table(times, [number for _, number, _ in events])
    batches = [whole.slice(at, size) for at in range(0, len(events), size)]
    rules = ruleset(over, **options)
    assert values(rules, batches, long=1, ahead=ahead) == values(rules, batches, long=NEVER)


@pytest.mark.parametrize("numbers", [lambda at: at % 7, lambda at: at, lambda at: at * 37 % 150, lambda at: -at])
def test_a_long_window_is_filled_again_only_until_its_state_has_room(numbers: Callable[[int], int]) -> None:
    """There is room for few values and for extremes that others replace; for as many as rows it is doubled."""
    events = table([at // 8 for at in range(4000)], [*map(numbers, range(4000))])
    batches = [events.slice(0, 1100), *(events.slice(at, 10) for at in range(1100, 4000, 10))]
    filled = []
    fill = measures._answers

    def filling(*given: Any) -> int:
        filled.append(len(given[3].walk.at))
        return fill(*given)

    with patch.object(measures, "_answers", filling):
        found = values(ruleset("200s"), batches, long=1000)
    assert found == values(ruleset("200s"), batches, long=NEVER)
    assert len(filled) < 40


@pytest.mark.parametrize("function", [each for each in Function if each.spec.takes])
def test_every_function_over_a_long_window_equals_the_reference(function: Function) -> None:
    """Of each kind of field it takes, carried from batch to batch while rows enter the window and leave it."""
    over, known, size, batches = carried.LONG + 8, carried.LONG + 20, 5, 5
    numbers = [None if at % 50 == 49 else at * 37 % 101 - 50 for at in range(known + batches * size)]
    columns: dict[str, Callable[[int], Any]] = {
        "number": int,
        "large": lambda n: Decimal(n * 100_000_000),
        "ratio": lambda n: n / 3,
        "place": lambda n: f"p{n}",
        "flag": bool,
        "seen": lambda n: SECOND * n,
    }
    events = [
        dict.fromkeys(STREAM.fields)
        | {"id": f"e{at}", "at": SECOND * at, "arrival": SECOND * at, "who": "w"}
        | {name: None if n is None else of(n) for name, of in columns.items()}
        for at, n in enumerate(numbers)
    ]
    asked = {
        f"m_{name}": reference.Measure(function, name, SECOND * over, shown=histories.shown_as(STREAM.fields[name]))
        for name in columns
        if STREAM.fields[name].kind in function.spec.takes
    }
    written = {
        name: {function.value: function.of(str(measure.field)), "over": f"{over}s"} for name, measure in asked.items()
    }
    rule = {"id": "r", "stream": "things", "group_by": ["who"], "measures": written, "when": "FALSE"}
    engine = Engine(STREAM, RuleSet.of([parse_rule(rule, STREAMS)], 0))
    module = ranked if function.spec.is_ranked else kernels
    whole, answer, is_carried = histories.table(events), module.answer_runs, list[bool]()

    def answering(*given: Any) -> int:
        found = answer(*given)
        is_carried.append(not given[-1].any())
        return int(found)

    engine.advance(whole.slice(0, known), SECOND * known)
    with patch.object(module, "answer_runs", answering):
        for begin in range(known, len(events), size):
            last = begin + size - 1
            (result,) = engine.advance(whole.slice(begin, size), SECOND * last).rule_results
            described = Described(engine.store, result.compiled, result.values, result.rows, np.arange(size))
            found = plain(asked, STREAM, json.loads(str(described.measures[-1])))
            window = events[last - over : last + 1]
            expected = {name: reference.value(measure, events[last], window) for name, measure in asked.items()}
            assert [*differing("long windows", {last: found}, {last: expected})] == []
    assert bool(is_carried) is not function.spec.is_list
    assert all(is_carried[-2:]), "room has been made for a hundred values before"


def test_the_kernels_that_are_loaded_ahead_are_those_in_use() -> None:
    """Compiling others would hold up the first batch with a long window."""
    carried.load_kernels()
    events = table([at // 8 for at in range(200)], [at % 7 for at in range(200)])
    values(ruleset("20s"), [events.slice(at, 20) for at in range(0, 200, 20)], long=10)
    assert (len(kernels.plan_runs.signatures), len(kernels.answer_runs.signatures)) == (1, 1)


def test_groups_beyond_the_room_are_filled_again() -> None:
    """States are bounded, however many groups have long windows."""
    of_groups = []
    for second in range(40):
        batch = table([second] * 3, [1, 2, 3])
        ids = pa.array([f"{second}-{at}" for at in range(3)])
        of_groups.append(batch.set_column(0, "id", ids).set_column(2, "who", pa.array(["a", "b", "c"])))
    for words in (1, 1000, 10_000):
        with patch.object(carried, "_MOST_WORDS", words):
            assert values(ruleset("30s"), of_groups, long=2) == values(ruleset("30s"), of_groups, long=NEVER)


def test_an_earlier_run_of_a_group_has_its_state_where_a_later_one_needs_more_room() -> None:
    """Rows of one group may be evaluated as several runs, later ones first: a late row has a run of its own."""
    burst, sparse = [at // 300 for at in range(3000)], [200 + at for at in range(300)]
    asked = list[tuple[Any, ...]]()
    answer = measures.answer

    def asking(*given: Any) -> measures.Answers:
        asked.append(given)
        return answer(*given)

    with patch("nightjar.rules.engine.evaluation.measures.answer", asking):
        events = table(burst + sparse, [at % 7 for at in range(3300)])
        Engine(STREAM, ruleset("150s")).advance(events, SECOND * 499)
    timeline, masks, runs, aggregates = asked[0][:4]

    def counted(*places: int) -> list[list[int]]:
        """The aggregates at the rows in these places, each in a run."""
        of_them = replace(
            runs,
            first=np.arange(len(places) + 1),
            start=np.full(len(places), runs.start[0]),
            at=np.array(places),
            longest=3300,
        )
        found = answer(timeline, masks, of_them, aggregates)
        return [value.values.tolist() for value in found if value.listing is None]

    with patch.multiple(carried, LONG=100, _TIMES=0):
        timeline.asked = {}
        counted(3200)
        carrying = counted(3201, 2990)
    with patch.object(carried, "LONG", NEVER):
        assert carrying == counted(3201, 2990)
