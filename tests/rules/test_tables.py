"""Tables (S22): an event sees the rows as they were at its own time, as far as changes of them were known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import Engine
from nightjar.rules.engine.table_rows import EVERY, Change, TableRows
from nightjar.rules.errors import EvaluationError, NightjarError
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.tables import TableType
from nightjar.rules.thresholds import threshold_of
from nightjar.rules.truth import Truth
from nightjar.rules.types import INT64, STRING, FieldType, Kind
from nightjar.rules.versions import RuleSet
from nightjar.rules.violation_checks import recheck

DECLARED = {
    "logins": {
        "event_id": "login_id",
        "event_time": "event_time",
        "entities": ["customer_id"],
        "allowed_lateness": "1h",
        "fields": {
            "login_id": "string",
            "event_time": "timestamp",
            "customer_id": "string",
            "ip": "string",
            "port": "int64",
            "number": "int64",
        },
    }
}
VALUES = {
    "country": "string",
    "risk": "int64",
    "most": "decimal(12,2)",
    "share": "double",
    "seen": "timestamp",
    "known": "boolean",
}
TABLES = {
    "blocked_ips": {},
    "odd_ports": {"key": "int64"},
    "hosts": {"values": VALUES},
    "odd": {"key": "int64", "values": {"risk": "int64"}},
}
STREAMS = streams_from_mapping(DECLARED, "test", tables=TABLES)
STREAM = STREAMS["logins"]
KEYS = ("a", "b", "c")

changes = st.lists(
    st.tuples(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), st.booleans(), st.integers(0, 20)), max_size=30
)
questions = st.lists(st.tuples(st.sampled_from((*KEYS, "d")), st.integers(-1, 21), st.integers(0, 31)), min_size=1)


def change(position: int, keys: Any, is_set: bool = True, valid_from: int = 0, table: str = "blocked_ips") -> Change:
    return Change(position, position, table, keys, is_set, valid_from)


@given(changes, questions, st.integers(1, 8))
def test_an_event_sees_the_last_change_valid_at_its_time_among_those_known(
    made: list[tuple[list[str], bool, int]], asked: list[tuple[str, int, int]], at_once: int
) -> None:
    """S22.2: of the changes that are valid by then the one that is valid from the latest time, then the last one."""
    rows = TableRows({"blocked_ips": STRING})
    every = [change(position, *of) for position, of in enumerate(made)]
    for first in range(0, len(every), at_once):
        rows.add(every[first : first + at_once], min(first + at_once, len(every)))
        rows.holds("blocked_ips", pa.array(["a"]), np.array([0]), np.array([EVERY]))  # merges parts
    keys, times, known = zip(*asked, strict=True)
    found = rows.holds("blocked_ips", pa.array(keys), np.array(times), np.array(known))
    for (key, time, limit), held in zip(asked, found.tolist(), strict=True):
        seen = [c for c in every if key in c.keys and c.valid_from <= time and c.position < limit]
        last = max(seen, key=lambda c: (c.valid_from, c.position), default=None)
        assert bool(held) == (last is not None and last.is_set)


def rule(when: str, **more: Any) -> RuleSet:
    written = {"id": "listed", "stream": "logins", "group_by": ["customer_id"], "when": when, **more}
    return RuleSet.of([parse_rule(written, STREAMS)], 0)


def logins(*rows: tuple[int, str | None]) -> pa.Table:
    """Events at these seconds, from these addresses, which arrive when they happen."""
    events = [
        {"login_id": f"e{at}", "event_time": at * 10**6, "customer_id": "ann", "ip": ip, "port": at, "number": at - 1}
        for at, ip in rows
    ]
    arrived = [{**event, "arrival_time": event["event_time"]} for event in events]
    return pa.Table.from_pylist(arrived, STREAM.schema.append(pa.field("arrival_time", STREAM.schema.field(1).type)))


def table_rows(*made: Change) -> TableRows:
    rows = TableRows(STREAM.tables)
    rows.add(made, len(made))
    return rows


def alerted(engine: Engine, events: pa.Table, known: int | None = None) -> list[tuple[str, str, int]]:
    """event, kind and revision of what an advance announces."""
    names = ("event_id", "kind", "revision")
    return [tuple(row[name] for name in names) for row in engine.advance(events, known=known).alerts.to_pylist()]  # type: ignore[misc]


def test_a_condition_asks_whether_a_value_is_in_a_table() -> None:
    """IN, NOT IN, with other conditions; NULL is neither in nor outside (S2.2)."""
    rows = table_rows(change(0, ["10.0.0.1"], valid_from=0), change(1, [3], table="odd_ports"))
    events = logins((1, "10.0.0.1"), (2, "10.0.0.2"), (3, None))
    for when, expected in {
        "ip IN blocked_ips": ["e1"],
        "ip NOT IN blocked_ips": ["e2"],
        "NOT ip IN blocked_ips": ["e2"],
        "port IN odd_ports": ["e3"],
        "ip IN blocked_ips OR port IN odd_ports": ["e1", "e3"],
        "CASE WHEN ip IN blocked_ips THEN 1 ELSE 0 END = 0": ["e2", "e3"],
        "ip IN ('10.0.0.2') AND ip NOT IN blocked_ips": ["e2"],
    }.items():
        engine = Engine(STREAM, rule(when), tables=rows)
        assert [event for event, *_ in alerted(engine, events, known=2)] == expected, when


def test_an_event_of_a_window_is_judged_by_its_own_time() -> None:
    """S22.3: an address that is listed from 2 s to 4 s counts where it came then, whatever the list has later."""
    rows = table_rows(change(0, ["x"], valid_from=2_000_000), change(1, ["x"], is_set=False, valid_from=4_000_000))
    found = Engine(
        STREAM,
        rule("n >= 1", measures={"n": {"count": "*", "over": "1h", "where": "ip IN blocked_ips"}}),
        batch=True,
        tables=rows,
    ).advance(logins((1, "x"), (2, "x"), (3, "x"), (4, "x")))
    (result,) = found.rule_results
    assert result.values["n"].values.tolist() == [0, 1, 2, 2]


def test_a_change_that_comes_later_changes_nothing_that_was_evaluated() -> None:
    """S22.4: neither at once, nor where the event is evaluated again, nor after a restart."""
    rows = TableRows(STREAM.tables)
    ruleset = rule("listed >= 1", measures={"listed": {"count": "*", "over": "1h", "where": "ip IN blocked_ips"}})
    engine = Engine(STREAM, ruleset, tables=rows)
    first = engine.advance(logins((10, "x")), known=0)
    rows.add([change(0, ["x"], valid_from=0)], 1)
    assert alerted(engine, logins((9, "y")), known=1) == []
    lost, engine = engine, Engine(STREAM, ruleset, tables=rows)
    engine.restore([first.delta])
    engine.resume(lost.position)
    assert alerted(engine, logins((8, "y")), known=1) == []
    assert alerted(engine, logins((11, "x")), known=1) == [("e11", "alert", 1)]


def test_the_gate_rechecks_violations_by_the_rows() -> None:
    """S22.5: `condition_true` asks the table as the truth did."""
    rows, events = table_rows(change(0, ["x"], valid_from=2_000_000)), logins((1, "x"), (2, "x"), (3, None))
    ruleset = rule("ip IN blocked_ips", where="port < 9")
    found = Truth(STREAM, ruleset, events, tables=rows).violations()
    assert found.column("event_id").to_pylist() == ["e2"]
    checked = recheck(found, events, STREAM, ruleset, rows)
    assert checked.column("condition_true").to_pylist() == [True]
    assert recheck(found, events, STREAM, ruleset, TableRows(STREAM.tables)).column("condition_true").to_pylist() == [
        False
    ]


def test_without_a_position_an_event_sees_what_had_arrived_when_it_did() -> None:
    """S22.4: as history that is primed does, and a replay of the night."""
    rows = table_rows(Change(0, 5_000_000, "blocked_ips", ["x"], is_set=True, valid_from=0))
    engine = Engine(STREAM, rule("ip IN blocked_ips"), tables=rows)
    assert alerted(engine, logins((4, "x"), (5, "x"), (6, "x"))) == [("e5", "alert", 1), ("e6", "alert", 1)]


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("ip IN blocked_ip", "IN takes a list in parentheses, or a table", "Did you mean blocked_ips?"),
        ("port IN blocked_ips", "IN blocked_ips asks about a field of the event", "alone before it"),
        ("LOWER(ip) IN blocked_ips", "IN blocked_ips asks about a field of the event", "alone before it"),
        ("n IN odd_ports", "IN odd_ports asks about a field of the event", "alone before it"),
        ("port + port IN odd_ports", "a table is asked about a field of the event", "alone before it"),
        ("blocked_ips = 'x'", "unknown name 'blocked_ips'", "Known are"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_remedy(text: str, what: str, remedy: str) -> None:
    with pytest.raises(NightjarError) as refusal:
        rule(text, measures={"n": {"count": "*", "over": "1h"}})
    assert what in str(refusal.value)
    assert remedy in str(refusal.value)
    assert "ip IN blocked_ips," not in str(refusal.value)


def test_a_threshold_beside_a_table_is_found() -> None:
    """As backtests ask for it."""
    ruleset = rule("ip NOT IN blocked_ips AND n > 3", measures={"n": {"count": "*", "over": "1h"}})
    found = threshold_of(ruleset.versions[0].rule, STREAM, "n")
    assert (found.operator, found.without) == (">", "ip NOT IN blocked_ips AND n IS NOT NULL")


def test_a_resolution_does_not_go_with_tables() -> None:
    """S22.6."""
    measure = {"count": "*", "over": "1d", "resolution": "1h", "where": "ip IN blocked_ips"}
    with pytest.raises(NightjarError, match="does not go with tables"):
        rule("n > 1", measures={"n": measure})


@pytest.mark.parametrize("when", ["ip IN blocked_ips", "hosts.risk > 1"])
def test_rules_that_ask_are_not_evaluated_without_rows(when: str) -> None:
    with pytest.raises(EvaluationError, match="its rows are not given"):
        Engine(STREAM, rule(when, lookup={"hosts": "ip"})).advance(logins((1, "x")))


HOST = {"country": "DE", "risk": 3, "most": "10.50", "share": 0.5, "seen": "1970-01-01T00:00:02Z", "known": True}


def hosts(*made: tuple[str, Any, int], table: str = "hosts") -> TableRows:
    """Rows with these keys and values (None: removed) from these seconds on."""
    return table_rows(
        *(
            Change(at, at, table, [key], values is not None, begins * 10**6, values=[values] if values else [])
            for at, (key, values, begins) in enumerate(made)
        )
    )


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("hosts.country = 'DE'", ["e1"]),
        ("hosts.country <> 'DE'", ["e3"]),
        ("hosts.country IN ('FR', 'DE') AND NOT hosts.country = customer_id", ["e1", "e3"]),
        ("hosts.country IS NULL", ["e2", "e4", "e5"]),
        ("LOWER(hosts.country) LIKE 'd%'", ["e1"]),
        ("hosts.risk >= 3", ["e1"]),
        ("COALESCE(hosts.risk, 9) + port > 12", ["e4", "e5"]),
        ("hosts.most * 2 = 21", ["e1"]),
        ("hosts.share < 1", ["e1"]),
        ("hosts.seen > event_time", ["e1"]),
        ("hosts.known", ["e1"]),
        ("hosts.risk >= 3 OR ip IN hosts AND hosts.risk IS NULL", ["e1", "e3"]),
    ],
)
def test_a_condition_compares_what_a_table_has_for_a_field(when: str, expected: list[str]) -> None:
    """S22.9: by every type; NULL where the table lacks the key or the value, where the row was removed, and of NULL."""
    rows = hosts(("a", HOST, 0), ("b", {"country": "FR"}, 0), ("c", HOST, 0), ("c", None, 2))
    events = logins((1, "a"), (2, "x"), (3, "b"), (4, None), (5, "c"))
    found = alerted(Engine(STREAM, rule(when, lookup={"hosts": "ip"}), tables=rows), events)
    assert [event for event, *_ in found] == expected


def test_rules_look_up_one_table_by_different_fields() -> None:
    """Conditions with the same text are different ones then, also those that look at other measures."""
    measures = {
        "n": {"count": "*", "over": "1h", "where": "odd.risk = 1"},
        "first": {"count": "*", "over": "1h", "where": "odd.risk = 1 AND n = 1"},
    }
    written = [
        {"id": f"by-{field}", "stream": "logins", "group_by": ["customer_id"], "when": "first = 1 AND odd.risk = 1"}
        | {"lookup": {"odd": field}, "measures": measures}
        for field in ("port", "number")
    ]
    rows = table_rows(Change(0, 0, "odd", [1], is_set=True, valid_from=0, values=[{"risk": 1}]))
    events = logins((1, "x"), (2, "x"))
    ruleset = RuleSet.of([parse_rule(each, STREAMS) for each in written], 0)
    alerts = Engine(STREAM, ruleset, tables=rows).advance(events).alerts
    # `number` is one less than the port
    assert sorted(zip(*(alerts.column(name).to_pylist() for name in ("rule_id", "event_id")), strict=True)) == [
        ("by-number", "e2"),
        ("by-port", "e1"),
    ]


def test_other_values_that_come_later_change_nothing_that_was_evaluated() -> None:
    """S22.4, also after a restart; the gate rechecks by all of them (S22.5)."""
    rows = hosts(("x", {"risk": 1}, 0))
    ruleset = rule(
        "risky >= 1",
        measures={"risky": {"count": "*", "over": "1h", "where": "hosts.risk > 1"}},
        lookup={"hosts": "ip"},
    )
    engine = Engine(STREAM, ruleset, tables=rows)
    first = engine.advance(logins((10, "x")), known=1)
    rows.add([Change(1, 1, "hosts", ["x"], is_set=True, valid_from=0, values=[{"risk": 2}])], 2)
    lost, engine = engine, Engine(STREAM, ruleset, tables=rows)
    engine.restore([first.delta])
    engine.resume(lost.position)
    assert alerted(engine, logins((9, "y")), known=2) == []
    assert alerted(engine, logins((11, "x")), known=2) == [("e11", "alert", 1)]
    events, looked_up = logins((1, "x"), (2, None)), rule("hosts.risk = 2", lookup={"hosts": "ip"})
    found = Truth(STREAM, looked_up, events, tables=rows).violations()
    assert found.column("event_id").to_pylist() == ["e1"]
    assert recheck(found, events, STREAM, looked_up, rows).column("condition_true").to_pylist() == [True]
    older = hosts(("x", {"risk": 1}, 0))
    assert recheck(found, events, STREAM, looked_up, older).column("condition_true").to_pylist() == [False]
    assert recheck(found, events, STREAM, looked_up, None).column("condition_true").to_pylist() == [False]


@pytest.mark.parametrize(
    ("more", "what", "remedy"),
    [
        ({"when": "hosts.contry = 'DE'"}, "table hosts has no value 'contry'", "Did you mean country?"),
        ({"lookup": {}}, "the rule does not look up table hosts", "lookup: {hosts: FIELD}"),
        ({"when": "odd.risk = 1"}, "the rule does not look up table odd", "lookup: {odd: FIELD}"),
        ({"when": "blocked_ips.risk = 1"}, "table blocked_ips has keys only", "IN blocked_ips"),
        ({"lookup": {"host": "ip"}}, "there is no table 'host'", "Did you mean hosts?"),
        ({"lookup": {"blocked_ips": "ip"}}, "table blocked_ips has keys only", "ip IN blocked_ips"),
        ({"lookup": {"hosts": "addr"}}, "stream logins has no field 'addr'", "Fields are"),
        (
            {"lookup": {"hosts": "port"}},
            "a key of table hosts is string, and port is int64",
            "login_id, customer_id, ip",
        ),
        ({"lookup": {"hosts": ["ip"]}}, "lookup.hosts: is", "{cards: card_id}"),
        ({"lookup": "ip"}, "lookup: is 'ip'", "{cards: card_id}"),
        ({"when": "hosts.risk = 'x'"}, "cannot be compared", "quotes"),
        ({"measures": {"n": {"sum": "hosts.risk", "over": "1h"}}}, "has no field 'hosts.risk'", "Fields are"),
        (
            {"measures": {"n": {"count": "*", "over": "1d", "resolution": "1h", "where": "hosts.risk > 1"}}},
            "does not go with tables",
            "Leave resolution out",
        ),
    ],
)
def test_what_cannot_be_looked_up_is_refused_with_the_remedy(more: dict[str, Any], what: str, remedy: str) -> None:
    with pytest.raises(NightjarError) as refusal:
        rule(**{"when": "hosts.risk > 1", "lookup": {"hosts": "ip"}} | more)
    assert what in str(refusal.value)
    assert remedy in str(refusal.value)


@pytest.mark.parametrize("tables", [{}, {"hosts": STRING}, {"hosts": TableType(Kind.INT64, values=(("risk", INT64),))}])
def test_a_rule_whose_table_is_declared_otherwise_now_is_not_evaluated(tables: dict[str, FieldType]) -> None:
    """It is reported, as one whose field is gone."""
    stream, ruleset = replace(STREAM, tables=tables), rule("hosts.risk > 1", lookup={"hosts": "ip"})
    engine = Engine(stream, ruleset, tables=TableRows(tables))
    assert "lookup.hosts: there is no table 'hosts' with values" in engine.unfit["listed", 1]
    assert alerted(engine, logins((1, "x"))) == []


def test_a_threshold_beside_a_lookup_is_found() -> None:
    """What a table has is none itself, and a measure may have the name of a value."""
    measures = {"risk": {"count": "*", "over": "1h", "where": "hosts.risk > 1"}}
    ruleset = rule("hosts.risk > 1 AND risk > 3", measures=measures, lookup={"hosts": "ip"})
    found = threshold_of(ruleset.versions[0].rule, STREAM, "risk")
    assert (found.operator, found.without) == (">", "hosts.risk > 1 AND risk IS NOT NULL")
    with pytest.raises(NightjarError, match="is not compared with a constant"):
        threshold_of(ruleset.versions[0].rule, STREAM, "hosts.risk")


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ({"Blocked": {}}, "cannot be the name of a table"),
        ({"blocked": {"keys": "string"}}, "is not a key of a table"),
        ({"blocked": {"key": "double"}}, "cannot be a key"),
        ({"blocked": {"approved_from": "2026-01-05"}}, "is not a point in time"),
        ({"blocked": {"approved_from": 1}}, "is not a point in time"),
        ({"blocked": {"key": "text"}}, "is not a type"),
        ({"blocked": "string"}, "is not a table"),
        ({"cards": {"values": ["country"]}}, "tables.cards.values: .* is not a table"),
        ({"cards": {"values": {"country": "text"}}}, "tables.cards.values.country: .* is not a type"),
        ({"cards": {"values": {"reason": "string"}}}, "'reason' cannot be the name of a value"),
        ({"cards": {"values": {"and": "string"}}}, "'and' cannot be the name of a value"),
        ({"cards": {"values": {f"v{at}": "int64" for at in range(33)}}}, "more than 32"),
        ([], "is not a table"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(tables: Any, what: str) -> None:
    with pytest.raises(NightjarError, match=what):
        streams_from_mapping(DECLARED, "test", tables=tables)


def test_changes_beyond_the_bounds_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """S22.7: with every change of their record, on every host alike."""
    monkeypatch.setattr("nightjar.rules.engine.table_rows.MAX_CHANGES", 2)
    rows = TableRows({"ports": INT64})
    rows.add([change(0, [1], table="ports"), change(1, [2, 3], table="ports"), change(2, [4], table="ports")], 3)
    assert rows.keys_at("ports", 0).to_pylist() == ["1", "4"]
    assert rows.left_out == 2
    monkeypatch.setattr("nightjar.rules.engine.table_rows.MAX_KEY_BYTES", 100)  # each of six values counts 8
    rows = hosts(("a", {"country": "DE", "risk": 1}, 0), ("b", {}, 0), ("c", {"country": "DE"}, 0))
    assert rows.keys_at("hosts", 0).to_pylist() == ["a", "b"]
