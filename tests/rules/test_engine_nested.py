"""Measures whose `where` looks at other measures (S18.3): long windows, and rules that come and go.

Random histories and the case files draw and show the rest.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from nightjar.rules.engine import Engine
from nightjar.rules.engine.alert_columns import Described
from nightjar.rules.model import parse_rule
from nightjar.rules.retention import widest
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.versions import RuleSet, RuleVersion

SECOND = 1_000_000
DECLARED = {
    "event_id": "id",
    "event_time": "at",
    "entities": ["who"],
    "allowed_lateness": "1h",
    "fields": {"id": "string", "at": "timestamp", "who": "string", "device": "string"},
}
STREAMS = streams_from_mapping({"logins": DECLARED}, "tests")
STREAM = STREAMS["logins"]
SCHEMA = STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
RULE = {
    "id": "known-devices",
    "stream": "logins",
    "group_by": ["who"],
    "measures": {
        "again": {"count": "*", "over": "10h", "where": "seen > 1 AND device <> 'shared'"},
        "seen": {"count": "*", "over": "1h", "per": ["device"]},
    },
    "when": "again > 0",
}


def rules(*written: dict[str, Any]) -> RuleSet:
    found = RuleSet()
    for each in written:
        found = found.publish(parse_rule(each, STREAMS), 0, 0)
    return found


def batch(*logins: tuple[int, str], arrival: int) -> pa.Table:
    """Logins of Ann at some seconds on some device, arriving then."""
    rows = [
        {"id": f"{at}-{device}", "at": at * SECOND, "who": "ann", "device": device, "arrival_time": arrival * SECOND}
        for at, device in logins
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def latest(tables: list[pa.Table]) -> dict[str, Any]:
    """The measures of each event with an alert that stands, by its id."""
    records = {each["event_id"]: each for table in tables for each in table.to_pylist()}
    return {name: json.loads(each["measures"]) for name, each in records.items() if each["kind"] == "alert"}


def truth(ruleset: RuleSet, *tables: pa.Table) -> dict[str, Any]:
    """The same of an evaluation of all events at once."""
    engine = Engine(STREAM, ruleset, batch=True)
    found = {}
    for result in engine.advance(pa.concat_tables(tables)).rule_results:
        described = Described(
            engine.store, result.compiled, result.values, result.rows[result.violated], result.violated
        )
        measures = map(json.loads, described.measures.to_pylist())
        found |= dict(zip(described.event_id.to_pylist(), measures, strict=True))
    return found


def test_what_is_carried_of_a_long_window_follows_when_an_earlier_event_counts_otherwise() -> None:
    """One of ten thousand events in the window becomes the second of its device; later windows know."""
    ruleset = rules(RULE)
    first = batch(*((at, f"d{at}") for at in range(9000)), arrival=9000)
    steady = [batch((at, f"d{at}"), (at, "d8950"), arrival=at) for at in (9001, 9002)]
    earlier = batch((8940, "d8990"), arrival=9003)
    last = batch((9004, "d9004"), (9005, "shared"), (9006, "shared"), arrival=9006)
    engine = Engine(STREAM, ruleset)
    tables = [first, *steady, earlier, last]
    found = latest([engine.advance(each).alerts for each in tables])
    assert found == truth(ruleset, *tables)
    assert found["9004-d9004"] == {"again": 3, "seen": 1}
    assert found["9006-shared"] == {"again": 3, "seen": 2}


def test_a_rule_that_is_published_later_knows_what_measures_were_at_the_events_before() -> None:
    """Also where another rule with such a condition was there, and once that one has gone."""
    other = {
        **RULE,
        "id": "other",
        "measures": {**RULE["measures"], "again": {"max": "at", "over": "9h", "where": "seen > 2"}},
    }
    other["when"] = "again IS NOT NULL"
    tables = [batch((at, f"d{at % 3}"), arrival=at) for at in range(1, 12)]
    engine = Engine(STREAM, rules(other))
    deltas = [engine.advance(each) for each in tables[:6]]
    engine.set_rules(rules(other, RULE))
    deltas.append(engine.advance(tables[6]))
    engine.set_rules(rules(RULE))
    deltas.append(engine.advance(tables[7]))
    restored = Engine(STREAM, rules(RULE))
    restored.restore(each.delta for each in deltas)
    restored.resume(engine.position)
    expected = truth(rules(RULE), *tables)
    for each in tables[8:]:
        alerts = latest([engine.advance(each).alerts])
        assert alerts == latest([restored.advance(each).alerts])
        assert alerts == {name: expected[name] for name in alerts}
        assert alerts


def test_events_that_come_while_a_rule_is_paused_count_when_it_goes_on() -> None:
    """The rule on the same group-by keeps their rows; nothing marks them meanwhile."""
    plain = {**RULE, "id": "plain", "measures": {"seen": RULE["measures"]["seen"]}, "when": "seen > 100"}
    tables = [batch((at, "d"), arrival=at) for at in range(1, 10)]
    engine = Engine(STREAM, rules(plain, RULE))
    engine.advance(tables[0])
    engine.set_rules(rules(plain, {**RULE, "state": "paused"}))
    for each in tables[1:8]:
        assert not engine.advance(each).alerts.num_rows
    engine.set_rules(rules(plain, RULE))
    found = latest([engine.advance(tables[8]).alerts])
    assert found == {"9-d": {"again": 8, "seen": 9}}


def test_the_windows_of_both_are_retained() -> None:
    """S18.4: an event of the outer window depends on those of the inner window before it."""
    assert widest(RuleVersion(parse_rule(RULE, STREAMS), 1, 0)) == 11 * 3600 * SECOND
    episode = {**RULE["measures"], "again": {"count": "*", "episode": "10h", "where": "seen > 1"}}
    assert widest(RuleVersion(parse_rule({**RULE, "measures": episode}, STREAMS), 1, 0)) == 41 * 3600 * SECOND
