"""An engine restored from deltas, clock, settled and horizon continues like the one that was lost (S9 to S11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.engine import Delta, Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.retention import waits_for
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import RuleSet
from tests.support.evicting import evicting_early
from tests.support.reference import muted

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_000_000 * MINUTE
FIELDS = {"id": "string", "at": "timestamp", "who": "string", "where_to": "string", "amount": "int64"}
STREAMS = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "allowed_lateness": "2m",
            "max_future_skew": "0s",
            "fields": FIELDS,
        }
    },
    "tests",
)
STREAM = STREAMS["s"]
SCHEMA = STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
Event = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _evicting_early() -> Iterator[None]:
    with evicting_early(floor=4, block=2):
        yield


def payment(name: str, at: int, arrival: int | None = None, who: str = "ann", amount: int = 1) -> Event:
    """A payment at some seconds after the start, arriving then or at others."""
    times = {"at": START + at * SECOND, "arrival_time": START + (at if arrival is None else arrival) * SECOND}
    return {"id": name, "who": who, "where_to": "m", "amount": amount, **times}


def batch(*events: Event) -> pa.Table:
    """Events as the engine takes them."""
    return pa.Table.from_pylist(list(events), SCHEMA)


def counting(
    over: str, *, at_least: int = 1, group_by: str = "who", name: str = "r", state: str = "active", **more: Any
) -> Any:
    """A rule that counts the events of a window."""
    written = {
        "id": name,
        "stream": "s",
        "state": state,
        "group_by": [group_by],
        "when": f"n >= {at_least}",
        "measures": {"n": {"count": "*", "over": over}},
        **more,
    }
    return parse_rule(written, STREAMS)


def clock(minute: float) -> int:
    """So many minutes after the start, in µs."""
    return START + int(minute * MINUTE)


def counts(alerts: pa.Table) -> dict[str, int]:
    """Of each event with an alert what was counted."""
    return {row["event_id"]: json.loads(row["measures"])["n"] for row in alerts.to_pylist()}


class Taken:
    """An engine, and what is durable of it."""

    def __init__(self, ruleset: RuleSet) -> None:
        self.ruleset = ruleset
        self.engine = Engine(STREAM, ruleset)
        self.deltas: list[Delta] = []

    def advance(self, events: pa.Table, now: int | None) -> Any:
        advance = self.engine.advance(events, now)
        self.deltas.append(advance.delta)
        return advance

    def set_rules(self, ruleset: RuleSet) -> None:
        self.ruleset = ruleset
        self.engine.set_rules(ruleset)

    def lose(self, *, merged: bool = False) -> None:
        """Lose all that is in memory. merged: the deltas had become one."""
        lost, self.engine = self.engine, Engine(STREAM, self.ruleset)
        if merged:
            self.deltas = [lost.snapshot()]
        self.engine.restore(self.deltas)
        self.engine.resume(lost.position)


def random_rule(random: Random, known: RuleSet) -> Any:
    """A new version of one of three rules, or one that is no longer evaluated."""
    name = random.choice("abc")
    state = random.choice(["active"] * 4 + ["paused", "retired"])
    if state != "active" and not known.of_rule(name):
        state = "active"
    over, group_by = random.choice(["10s", "1m", "3m", "10m", "30m"]), random.choice(["who", "where_to"])
    mute = random.choice([{}, {}, {"mute": "10s"}, {"mute": "3m"}, {"mute": "2h"}])
    within = random.choice(["10s", "1m", "10m"])
    unless = random.choice([{}, {}, {"unless": {"within": within, "where": "amount = 0"}}])
    return counting(over, at_least=random.randint(1, 3), group_by=group_by, name=name, state=state, **mute, **unless)


def random_event(random: Random, now: int, number: int) -> Event:
    """An event that arrives about now, now and then late, and sometimes under an id that was used before."""
    reused = number and random.random() < 0.15
    name = f"e{random.randrange(number)}" if reused else f"e{number}"
    arrival = now - random.choice([0, 0, 0, 1, 20, 130, 300])
    at = arrival - random.choice([0, 0, 1, 5, 30, 119, 120, 121, 300, 900, 3000])
    event = payment(name, at, arrival, random.choice("xy"), random.randint(0, 3))
    return event | {"where_to": random.choice("mn")}


@settings(max_examples=3 * settings().max_examples)
@given(st.integers(0, 1 << 32))
@example(4846)  # a row before the horizon that becomes due
def test_a_takeover_changes_nothing(seed: int) -> None:
    """Whatever was published, evicted or late before it, and no (alert id, revision) ever has two contents."""
    random = Random(seed)  # noqa: S311  no secrets are drawn here
    ruleset = RuleSet().publish(counting("1m", name="a"), START, 0)
    whole, lost = Taken(ruleset), Taken(ruleset)
    now, number, by_revision = 0, 0, dict[tuple[str, int], Any]()
    for _ in range(random.randint(3, 25)):
        now += random.choice([0, 1, 10, 60, 200, 600, 2000])
        if random.random() < 0.3:
            effective = START + (now + random.choice([-2000, -100, 0, 0, 5, 100])) * SECOND
            ruleset = ruleset.publish(random_rule(random, ruleset), effective, 0)
            whole.set_rules(ruleset)
            lost.set_rules(ruleset)
        if random.random() < 0.4:
            lost.lose(merged=random.random() < 0.5)
        made = [random_event(random, now, number + i) for i in range(random.choice([0, 1, 2, 5, 9]))]
        number += len(made)
        passed = clock(now / 60 - random.choice([0, 0, 1])) if random.random() < 0.8 else None
        settled, horizon = whole.engine.settled, whole.engine.horizon
        expected, got = whole.advance(batch(*made), passed), lost.advance(batch(*made), passed)
        assert got.alerts.equals(expected.alerts)
        assert got.late.equals(expected.late)
        assert (got.duplicates, got.failures) == (expected.duplicates, expected.failures)
        assert lost.engine.retained == whole.engine.retained
        assert whole.engine.settled >= settled
        assert whole.engine.horizon >= horizon
        rules = {version.key: version.rule for version in ruleset.versions}
        for record in expected.alerts.to_pylist():
            time = microseconds(record["event_time"])
            assert time >= settled - waits_for(rules[record["rule_id"], record["rule_version"]])
            named = record["rule_id"], record["rule_version"], record["event_id"], time, record["group"]
            assert record["alert_id"] == alert_id(*named)
            assert (record["alert_id"], record["revision"]) not in by_revision
            if record["revision"] > 1:
                before = by_revision[record["alert_id"], record["revision"] - 1]
                assert any(before[name] != record[name] for name in record if name != "revision")
            by_revision[record["alert_id"], record["revision"]] = record
        last = {identifier: record for (identifier, _), record in by_revision.items()}
        unretracted = [record for record in last.values() if record["kind"] == "alert"]
        mutes = {(v.rule.id, v.version): v.rule.mute for v in ruleset.versions if v.rule.mute}
        about = [
            ((r["rule_id"], r["rule_version"]), r["group"], microseconds(r["event_time"]), r["event_id"])
            for r in unretracted
        ]
        assert {at for at, record in enumerate(unretracted) if record["muted"]} == muted(mutes, about)


@pytest.mark.parametrize("read_before", [False, True])
def test_a_late_event_changes_nothing_that_is_settled(*, read_before: bool) -> None:
    """Also where its partition is read after another whose events arrived later."""
    engine = Engine(STREAM, RuleSet().publish(counting("20m", at_least=10), START, 0))
    for minute in range(60):
        engine.advance(batch(payment(f"e{minute}", 60 * minute)), clock(minute))
    engine.advance(batch(payment("other", 3602, who="bob")), None)
    late = payment("late", 2410, 3601 if read_before else 3603)
    advance = engine.advance(batch(late), None)
    assert advance.late.column("id").to_pylist() == ["late"]
    assert advance.alerts.num_rows == 0
    # 19 payments of every minute, the late one, and itself
    assert counts(engine.advance(batch(payment("next", 3604)), None).alerts) == {"next": 21}


def test_an_event_that_the_clock_has_passed_is_late() -> None:
    """However little time there was from its event time to its arrival: its partition was read behind the clock."""
    engine = Engine(STREAM, RuleSet().publish(counting("10m"), START, 0))
    engine.advance(batch(), clock(10))
    advance = engine.advance(batch(payment("behind", 60 * 7), payment("on-time", 60 * 8)), None)
    assert advance.late.column("id").to_pylist() == ["behind"]
    assert counts(advance.alerts) == {"on-time": 2}


def test_events_say_which_of_them_are_late() -> None:
    """A column `late` takes the place of the stream's own judgement, so that it can be replayed."""
    engine = Engine(STREAM, RuleSet().publish(counting("60m"), START, 0))
    events = batch(payment("a", 0, 1), payment("b", 60, 600), payment("c", 120, 700))
    advance = engine.advance(events.append_column("late", pa.array([True, False, None])))
    assert advance.late.column("id").to_pylist() == ["a"]
    assert counts(advance.alerts) == {"b": 2, "c": 3}


@pytest.mark.parametrize("others", [0, 30])
@pytest.mark.parametrize("crash", [False, True])
def test_an_id_may_name_another_event_once_the_first_is_before_the_horizon(*, others: int, crash: bool) -> None:
    """Until then it is a duplicate; whether the first is still in memory does not matter."""
    taken = Taken(RuleSet().publish(counting("5m"), START, 0))
    (first,) = taken.advance(batch(payment("a", 0)), clock(0)).alerts.to_pylist()
    assert taken.advance(batch(payment("a", 60)), clock(7)).duplicates == 1
    taken.advance(batch(*(payment(f"o{i}", 600, who="bob") for i in range(others))), clock(10))
    if crash:
        taken.lose()
    advance = taken.advance(batch(payment("a", 0, 601), payment("a", 602), payment("a", 603)), clock(10))
    assert advance.late.column("at").cast(pa.int64()).to_pylist() == [START]
    assert advance.duplicates == 1
    (second,) = advance.alerts.to_pylist()
    assert (second["event_id"], second["revision"], second["measures"]) == ("a", 1, '{"n":1}')
    assert second["alert_id"] != first["alert_id"]
    if crash:
        taken.lose()
    assert taken.advance(batch(payment("a", 0, 610), payment("a", 604)), clock(11)).duplicates == 2


@pytest.mark.parametrize("crash", [False, True])
def test_a_rule_that_comes_later_sees_events_from_the_horizon_on(*, crash: bool) -> None:
    """A wider window and another group-by alike, whatever is still in memory."""
    ruleset = RuleSet().publish(counting("1m", at_least=100), START, 0)
    taken = Taken(ruleset)
    for minute in range(30):
        taken.advance(batch(payment(f"e{minute}", 60 * minute)), clock(minute))
    wide = ruleset.publish(counting("25m", name="wide"), START, 0)
    taken.set_rules(wide.publish(counting("25m", name="other", group_by="where_to"), START, 0))
    if crash:
        taken.lose()
    alerts = taken.advance(batch(payment("x", 60 * 30)), None).alerts
    # 29 minutes less 2 of lateness less 1 of the window that there was
    assert [json.loads(row["measures"]) for row in alerts.to_pylist()] == [{"n": 30 - 26 + 1}] * 2
