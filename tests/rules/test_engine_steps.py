"""Measures with a resolution (S14): rows that pass the horizon fold into steps, and count as they did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.engine import Delta, Engine
from nightjar.rules.engine.ledger import NO_ANNOUNCEMENTS
from nightjar.rules.engine.past import Past, PastFolder
from nightjar.rules.engine.plan import compile_plan
from nightjar.rules.engine.store import LATE, LONG_AGO, SEQ
from nightjar.rules.model import parse_rule
from nightjar.rules.timestamps import iso_text, microseconds
from nightjar.rules.versions import RuleSet
from nightjar.streaming.state import statelog
from tests.support.evicting import evicting_early
from tests.support.histories import declared, table
from tests.support.oracle import Oracle
from tests.support.random_predicates import ALWAYS
from tests.support.random_runs import Batch
from tests.support.reference import Measure, Version

SECOND = MICROSECONDS["s"]
START = 1_000_000_000 * SECOND
STREAM = declared(("who", "number"), event_id="id", event_time="at", allowed_lateness="10s", max_future_skew="0s")
Event = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _evicting_early() -> Iterator[None]:
    with evicting_early(floor=4, block=2):
        yield


def rule(measures: dict[str, dict[str, str]], state: str = "active", name: str = "r") -> Any:
    """A rule that every event violates, so that every value is announced."""
    written = {"id": name, "stream": "things", "group_by": ["who"], "state": state, "when": "TRUE"}
    return parse_rule({**written, "measures": measures}, {STREAM.name: STREAM})


def version_of(written: Any, number: int, effective: int) -> Version:
    """The same for the reference."""
    measures = {
        name: Measure(m.function.value, m.field, m.over or 0, resolution=m.resolution or 0)
        for name, m in written.measures.items()
    }
    active, retired = written.state == "active", written.state == "retired"
    return Version(written.id, number, effective, ("who",), measures, ALWAYS, active=active, retired=retired)


def event(name: str, at: int, arrival: int | None = None, *, who: str = "x", number: int = 1) -> Event:
    """An event at some seconds after the start, arriving then or at others."""
    arrived = START + (at if arrival is None else arrival) * SECOND
    return {"id": name, "at": START + at * SECOND, "who": who, "number": number, "arrival": arrived}


class Kept:
    """An engine and what is durable of it."""

    def __init__(self, ruleset: RuleSet) -> None:
        self.ruleset, self.engine, self.deltas = ruleset, Engine(STREAM, ruleset), list[Delta]()

    def publish(self, *published: Any, effective: int = 0) -> None:
        for each in published:
            self.ruleset = self.ruleset.publish(each, START + effective * SECOND, 0)
        self.engine.set_rules(self.ruleset)

    def advance(self, events: list[Event], clock: int | None) -> list[dict[str, Any]]:
        advance = self.engine.advance(table(events, STREAM), None if clock is None else START + clock * SECOND)
        self.deltas.append(statelog.read(statelog.write(advance.delta)))
        return [_record(row) for row in advance.alerts.to_pylist()]

    def lose(self, *, merged: bool) -> None:
        """Lose all that is in memory. merged: the deltas had become one."""
        lost, self.engine = self.engine, Engine(STREAM, self.ruleset)
        if merged and self.deltas:
            self.deltas = [statelog.concat(self.deltas, "at", lost.position)]
        self.engine.restore(self.deltas)
        self.engine.resume(lost.position)


def _record(row: dict[str, Any]) -> dict[str, Any]:
    written = {"event_time": iso_text(microseconds(row["event_time"])), "group": json.loads(row["group"])}
    return {**row, **written, "measures": json.loads(row["measures"])}


def values(alerts: list[dict[str, Any]]) -> dict[str, Any]:
    """The first measure of each alert, by its event."""
    return {alert["event_id"]: next(iter(alert["measures"].values())) for alert in alerts}


COUNTED = {"n": {"count": "*", "over": "10m", "resolution": "20s"}}


def test_rows_fold_into_one_per_step_and_group() -> None:
    """S14.3: a hundred events of two groups in five minutes become thirty rows of steps and the raw ones."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    for n in range(100):
        kept.advance([event(f"e{n}", 3 * n, who="xy"[n % 2])], 3 * n)
    assert kept.engine.rows < 20
    rows = kept.engine.snapshot().folds
    assert 25 < sum(folded.num_rows for folded in rows.values()) <= 30
    assert values(kept.advance([event("last", 300)], 300)) == {"last": 51}


def test_a_fold_is_durable_with_the_delta_of_its_batch() -> None:
    """S14.3: what events are folded into leaves with the batch that the horizon passes them in."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    kept.advance([event("e1", 0)], 0)
    assert not kept.deltas[-1].folds
    kept.advance([event("e2", 100)], 100)
    assert [folded.column("step").to_pylist() for folded in kept.deltas[-1].folds.values()] == [[START]]
    kept.lose(merged=True)
    assert kept.engine.rows == 1
    assert values(kept.advance([event("e3", 101)], 101)) == {"e3": 3}


@pytest.mark.parametrize("lost", [False, True])
def test_an_event_from_before_the_horizon_does_not_stop_it_after_a_restart(*, lost: bool) -> None:
    """S8.2: what is restored holds it for a while, and folds up to where the engine that has let it go does."""
    wide = {"m": {"sum": "number", "over": "40s"}}
    kept = Kept(RuleSet.of([rule(wide, name="wide")], 0))
    kept.advance([event("l", 0, 100), *(event(f"e{n}", n, 100) for n in range(92, 100))], 100)
    assert kept.engine.horizon == START + 50 * SECOND
    kept.publish(rule(COUNTED), rule(wide, "retired", name="wide"))
    if lost:
        kept.lose(merged=False)
    kept.advance([], 100)
    assert kept.engine.horizon == START + 80 * SECOND


@pytest.mark.parametrize("lost", [False, True])
def test_a_late_event_folds_once_all_that_may_not_count_it_are_settled(*, lost: bool) -> None:
    """S14.3, S8.4: l arrived late and after e2, whose count is revised when l is long past, and does not have it."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    kept.advance([event("e1", 99), event("e2", 120)], 120)
    kept.advance([event("l", 101, 121)], 129)
    assert kept.engine.horizon == START + 101 * SECOND
    if lost:
        kept.lose(merged=True)
    assert values(kept.advance([event("e3", 119, 129)], 129)) == {"e2": 3, "e3": 3}
    assert values(kept.advance([event("e4", 400)], 400)) == {"e4": 5}
    assert kept.engine.horizon == START + 380 * SECOND


def test_an_event_later_than_twice_the_allowed_lateness_does_not_count() -> None:
    """S14.4: whether its id was seen before is not known for long; windows of events count it while they hold it."""
    kept = Kept(RuleSet.of([rule({**COUNTED, "m": {"count": "*", "over": "10m"}})], 0))
    kept.advance([event("e1", 100), event("l1", 80, 100), event("l2", 79, 100)], 100)
    (alert,) = kept.advance([event("e2", 101)], 101)
    assert alert["measures"] == {"n": 3, "m": 4}


@pytest.mark.parametrize("lost", [False, True])
def test_a_wider_window_begins_with_the_steps_that_are_left(*, lost: bool) -> None:
    """S14.3: steps that no rule could need are gone, even where memory still holds them."""
    kept = Kept(RuleSet.of([rule({"n": {"count": "*", "over": "1m", "resolution": "20s"}})], 0))
    for n in range(30):
        kept.advance([event(f"e{n}", 20 * n)], 20 * n)
    kept.publish(rule(COUNTED), effective=590)
    if lost:
        kept.lose(merged=False)
    # the clock is at 580, 570 is settled, and 490 begins the last step that a window of a minute may reach
    assert values(kept.advance([event("e30", 600)], 600)) == {"e30": 7}


@pytest.mark.parametrize("lost", [False, True])
def test_another_measure_begins_with_the_events_that_are_left(*, lost: bool) -> None:
    """S14.3: what had been folded before does not say what it asks for."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    for n in range(30):
        kept.advance([event(f"e{n}", 20 * n)], 20 * n)
    kept.publish(rule({"s": {"sum": "number", "over": "10m", "resolution": "20s"}}, name="other"))
    if lost:
        kept.lose(merged=False)
    # 560 is the horizon: twice the allowed lateness before the clock
    alerts = {alert["rule_id"]: alert["measures"] for alert in kept.advance([event("e30", 600)], 600)}
    assert alerts == {"r": {"n": 31}, "other": {"s": 3}}


def test_events_that_come_back_are_not_counted_twice() -> None:
    """S14.3, S8.6: where history is given back to the engine all the same, what was folded begins again with it."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    made = [event(f"e{n}", 20 * n) for n in range(30)]
    for each in made:
        kept.advance([each], (each["at"] - START) // SECOND)
    kept.publish(rule({"m": {"count": "*", "over": "10m"}}, name="wide"), effective=590)
    gone = [each for each in made if each["at"] < kept.engine.horizon]
    events = table(gone, STREAM).append_column(SEQ, pa.array(range(-len(gone), 0), pa.int64()))
    events = events.append_column(LATE, pa.repeat(pa.scalar(value=False), len(gone)))
    assert len(gone) == 28
    kept.engine.prime(Delta(events, NO_ANNOUNCEMENTS), table([], STREAM), kept.engine.needed_since)
    assert [alert["measures"] for alert in kept.advance([event("e30", 600)], 600)] == [{"n": 31}, {"m": 31}]


@pytest.mark.parametrize("lost", [False, True])
def test_steps_of_the_past_count_as_if_they_had_been_folded_here(*, lost: bool) -> None:
    """S14.3, S8.6: of a fold that began late, and of one that is whole; the past is folded in many parts."""
    kept = Kept(RuleSet.of([rule(COUNTED)], 0))
    made = [event(f"e{n}", 4 * n, who="xy"[n % 2], number=n) for n in range(150)]
    for each in made:
        kept.advance([each], (each["at"] - START) // SECOND)
    kept.publish(rule({"s": {"sum": "number", "over": "10m", "resolution": "20s"}}, name="other"))
    folds = {fold: fold.name for group in compile_plan(STREAM, kept.ruleset, None).groups for fold in group.folds}
    lacking = [fold for fold, name in folds.items() if kept.engine.position.held[name][0] > START]
    assert len(lacking) < len(folds)
    begun = kept.engine.folded
    gone = [each for each in made if each["at"] < begun]
    folder = PastFolder(STREAM, lacking, 2 * STREAM.allowed_lateness)
    for each in gone:
        folder.add(table([each], STREAM), {fold: np.ones(1, bool) for fold in lacking})
    past = Past("a", {fold.name: (LONG_AGO, begun) for fold in lacking}, folder.folded(), begun)
    nothing = kept.engine.snapshot().events.slice(0, 0)
    since = kept.engine.needed_since
    kept.deltas.append(kept.engine.prime(Delta(nothing, NO_ANNOUNCEMENTS), table([], STREAM), since, past))
    if lost:
        kept.lose(merged=True)
    alerts = {alert["rule_id"]: alert["measures"] for alert in kept.advance([event("last", 600, number=0)], 600)}
    assert alerts == {"r": {"n": 76}, "other": {"s": sum(range(0, 150, 2))}}


OVERS, RESOLUTIONS = ("20s", "1m", "5m", "20m"), ("1s", "7s", "20s")


def random_rule(random: Random, name: str) -> Any:
    """A rule of a few measures, most of them with a resolution, that others may share."""
    measures: dict[str, dict[str, str]] = {}
    for n in range(random.randint(1, 3)):
        over = random.choice(OVERS)
        function = random.choice([{"count": "*"}, {"sum": "number"}, {"avg": "number"}, {"max": "number"}])
        some = {"resolution": random.choice(RESOLUTIONS)} if over != "20s" or random.random() < 0.5 else {}
        measures[f"m{n}"] = {**function, "over": over, **some}
    return rule(measures, random.choice(["active"] * 4 + ["paused", "retired"]), name)


@settings(max_examples=3 * settings().max_examples)
@given(st.integers(0, 1 << 32))
def test_what_is_folded_counts_as_it_did(seed: int) -> None:
    """S8 and S14, whatever is late, published meanwhile or lost: after every batch against the oracle."""
    random = Random(seed)  # noqa: S311  no secrets are drawn here
    kept, oracle = Kept(RuleSet()), Oracle(STREAM, lambda _version: True)
    versions: list[Version] = []
    now = offset = clock = 0
    for number in range(random.randint(5, 40)):
        now += random.choice([0, 1, 5, 10, 30, 100])
        if not versions or random.random() < 0.15:
            made = random_rule(random, random.choice("ab"))
            published = kept.ruleset
            kept.publish(made, effective=now)
            if kept.ruleset is not published and len(kept.ruleset.versions) > len(published.versions):
                newest = kept.ruleset.versions[-1]
                versions.append(version_of(newest.rule, newest.version, newest.effective))
        if random.random() < 0.3:
            kept.lose(merged=random.random() < 0.5)
        events = []
        for _ in range(random.choice([0, 1, 2, 4])):
            late = random.choice([0, 0, 0, 1, 5, 10, 11, 15, 20, 21, 40])
            name = f"e{random.randrange(offset)}" if offset and random.random() < 0.1 else f"e{offset}"
            came = event(name, now - late, now, who=random.choice("xy"), number=random.randint(-2, 3))
            events.append({**came, "partition": 0, "offset": offset})
            offset += 1
        clock = max(clock, now - random.choice([0, 0, 3]))
        passed = clock if random.random() < 0.8 else None
        alerts = kept.advance(events, passed)
        at = None if passed is None else START + passed * SECOND
        batch = Batch(START + now * SECOND, [], events, at, again=False)
        assert [*oracle.complaints(batch, versions, STREAM.allowed_lateness, alerts, None)] == [], number


def test_folds_are_written_and_read() -> None:
    """Their columns, types and names; without them a delta is as it was in earlier releases."""
    folded = {'[1000, "who"]': pa.table({"0": ["x"], "step": [5], "abc.0.0.0": [2]})}
    nothing = Engine(STREAM, RuleSet()).snapshot()
    read = statelog.read(statelog.write(Delta(nothing.events, nothing.announcements, folded)))
    assert {key: found.to_pylist() for key, found in read.folds.items()} == {
        key: found.to_pylist() for key, found in folded.items()
    }
    assert statelog.read(statelog.write(nothing)).folds == {}
