"""The semantics (docs/semantics.md) statement by statement, against the reference evaluator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.engine import Engine, timeline
from nightjar.rules.engine.alert_columns import Described
from tests.support import histories
from tests.support.agreement import announced, differing, final, plain, wrongly_muted
from tests.support.evicting import evicting_early
from tests.support.histories import LATENESS, SETTING, STREAM, TRUTH
from tests.support.reference import OVERFLOW, evaluations, violations


@pytest.fixture(scope="module", autouse=True)
def _evicting_early() -> Iterator[None]:
    """Histories here are small: let engines look for what can go as soon as they hold a few events."""
    with evicting_early():
        yield


def records(alerts: list[pa.Table]) -> list[dict[str, Any]]:
    return [record for table in alerts for record in table.to_pylist()]


def cut(draw_cuts: list[int], table: pa.Table) -> list[pa.Table]:
    edges = [0, *sorted(c % (table.num_rows + 1) for c in draw_cuts), table.num_rows]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]


@settings(max_examples=3 * settings().max_examples)
@given(histories.rule_sets(), histories.events(lateness=True))
def test_the_truth_equals_the_reference_on_every_measure(rule_set: Any, events: Any) -> None:
    """S1 to S5: every measure of every rule at every event, whatever the events' lateness."""
    ruleset, versions = rule_set
    engine = Engine(STREAM, ruleset, batch=True)
    advance = engine.advance(histories.table(events))
    got, violated = {}, set()
    by_key = {(v.rule_id, v.version): v for v in versions}
    for result in advance.rule_results:
        version = result.compiled.version
        rows = result.rows[result.seen]
        described = Described(engine.store, result.compiled, result.values, rows, result.seen, result.allowed)
        for event_id, measures in zip(described.event_id.to_pylist(), described.measures.to_pylist(), strict=True):
            key = (version.rule.id, version.version, event_id)
            got[key] = plain(by_key[key[:2]].measures, STREAM, json.loads(measures))
        ids = engine.store.array("id", result.rows[result.violated]).to_pylist()
        violated |= {(version.rule.id, version.version, i) for i in ids}
    expected = evaluations(TRUTH, versions, events)
    assert [*differing("truth", got, {key: measures for key, (_, measures) in expected.items()})] == []
    assert violated == {key for key, (holds, _) in expected.items() if holds}
    overflown = {key for key, (_, measures) in expected.items() if OVERFLOW in measures.values()}
    failed = {(f.rule_id, f.rule_version, f.event_id) for f in advance.failures}
    assert {key for key in failed if not by_key[key[:2]].allows} == overflown
    assert advance.duplicates == len(events) - len({e["id"] for e in events})


@settings(max_examples=3 * settings().max_examples)
@given(
    histories.rule_sets(),
    histories.events(lateness=True),
    st.lists(st.integers(0, 100), max_size=6),
    st.sets(st.integers(0, 7)),
    st.booleans(),
    st.sampled_from([1, 3, 100]),
    st.integers(0, 20),
)
def test_the_streams_final_alerts_are_a_function_of_the_arrivals_alone(
    rule_set: Any, events: Any, cuts: list[int], crashes: set[int], evicting: bool, stretch: int, foreseen: int
) -> None:
    """S6 to S9 and S11: however arrivals are cut into batches, and whatever is lost in crashes and evicted.

    An engine takes in `stretch` rows of its past at once, and may expect another number of them.
    """
    ruleset, versions = rule_set
    engine = Engine(STREAM, ruleset)
    alerts, deltas, late = [], [], []
    for i, batch in enumerate(cut(cuts, histories.table(events))):
        if i in crashes:  # all in memory is lost; the deltas are not
            lost, engine = engine, Engine(STREAM, ruleset)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(timeline, "_STRETCH", stretch)
                engine.restore(deltas, foreseen)
            engine.resume(lost.position)
        clock = batch.column("arrival_time").cast(pa.int64()).to_pylist()
        advance = engine.advance(batch, clock[-1] if clock and evicting else None)
        if evicting and i % 2:
            deltas = [engine.snapshot()] if i in crashes else [*deltas, advance.delta]
        else:
            deltas.append(advance.delta)
        alerts.append(advance.alerts)
        late += advance.late.column("id").to_pylist()
    got = {}
    latest = final(records(alerts)).values()
    assert [*wrongly_muted("stream", versions, latest)] == []
    for record in latest:
        key = record["rule_id"], record["rule_version"], record["event_id"]
        version = next(v for v in versions if (v.rule_id, v.version) == key[:2])
        got[key] = plain(version.measures, STREAM, json.loads(record["measures"]))
    assert [*differing("stream", got, announced(versions, violations(SETTING, versions, events, engine.clock)))] == []
    first = {}
    for event in events:
        first.setdefault(event["id"], event)
    expected_late = {i for i, e in first.items() if e["arrival"] - e["at"] > LATENESS}
    if not evicting:
        assert sorted(late) == sorted(expected_late)
    # the engine no longer knows an evicted id as a duplicate: the event is then late, and has no effect
    repeated = {e["id"] for i, e in enumerate(events) if any(e["id"] == other["id"] for other in events[:i])}
    assert expected_late <= set(late) <= expected_late | repeated


@settings(max_examples=2 * settings().max_examples)
@given(histories.rule_sets(), histories.events(lateness=False), st.lists(st.integers(0, 100), max_size=6))
def test_where_nothing_is_late_the_stream_ends_at_the_truth(rule_set: Any, events: Any, cuts: list[int]) -> None:
    """S9 on the bare engine: ids, versions and, but for `revisions: verdict`, the very text of the values."""
    ruleset, versions = rule_set
    stream, truth = Engine(STREAM, ruleset), Engine(STREAM, ruleset, batch=True)
    alerts = [stream.advance(batch).alerts for batch in cut(cuts, histories.table(events))]
    alerts.append(stream.advance(histories.table([]), max((event["at"] for event in events), default=None)).alerts)
    expected = {}
    for result in truth.advance(histories.table(events)).rule_results:
        rows = result.rows[result.violated]
        described = Described(truth.store, result.compiled, result.values, rows, result.violated, result.allowed)
        version = result.compiled.version
        times = truth.store.times[rows].tolist()
        contents = zip(described.measures.to_pylist(), described.text().to_pylist(), strict=True)
        named = zip(described.event_id.to_pylist(), times, described.group.to_pylist(), strict=True)
        for event, words in zip(named, contents, strict=True):
            expected[alert_id(version.rule.id, version.version, *event)] = words
    got = final(records(alerts))
    by_verdict = {(v.rule_id, v.version) for v in versions if v.by_verdict}
    exact = {key for key, r in got.items() if (r["rule_id"], r["rule_version"]) not in by_verdict}
    assert got.keys() == expected.keys()
    assert {key: (got[key]["measures"], got[key]["text"]) for key in exact} == {key: expected[key] for key in exact}


@given(histories.rule_sets(), histories.events(lateness=True), st.randoms())
def test_rows_of_a_batch_come_in_any_order(rule_set: Any, events: Any, random: Any) -> None:
    """A batch says its arrival order in columns, not by the order of its rows."""
    ruleset, _ = rule_set
    batch = histories.table(events).append_column("partition", pa.array([0] * len(events), pa.int32()))
    batch = batch.append_column("offset", pa.array(range(len(events)), pa.int64()))
    shuffled = list(range(len(events)))
    random.shuffle(shuffled)
    one = Engine(STREAM, ruleset).advance(batch)
    other = Engine(STREAM, ruleset).advance(batch.take(pa.array(shuffled, pa.int64())))
    assert one.alerts.equals(other.alerts)
    assert one.late.equals(other.late)
    assert one.delta.events.equals(other.delta.events)
