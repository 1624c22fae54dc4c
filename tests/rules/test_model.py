"""Rules as people write them: what is read, what is refused, and with which words."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.checking import check_rule
from nightjar.rules.documents import MAX_BYTES
from nightjar.rules.errors import Problem, RuleError
from nightjar.rules.functions import Function, result_type
from nightjar.rules.model import (
    MAX_MEASURES,
    Measure,
    Rule,
    load_rules,
    measure_types,
    parse_rule,
    rule_to_mapping,
)
from nightjar.rules.streams import load_streams, streams_from_mapping
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType, Kind, decimal

STREAMS = load_streams()
VELOCITY = """
id: card-velocity
stream: transactions
group_by: [customer_id]
where: "amount > 0"
measures:
  spent:     {sum: amount, over: 1h}
  usual:     {avg: amount, over: 30d, excluding_current: true}
  terminals: {count_distinct: terminal_id, over: 10m, where: "amount >= 50"}
  since_big: {count: "*", over: 1d, per: [terminal_id], since: "amount > 1000"}
when: "spent > 500 AND spent > 4 * usual AND terminals >= 3 AND since_big > 1"
severity: high
description: "{customer_id} spent {spent}"
"""


def written(**changes: Any) -> dict[str, Any]:
    """A small good rule with these keys changed; None takes one away."""
    rule = {
        "id": "r",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "measures": {"spent": {"sum": "amount", "over": "1h"}},
        "when": "spent > 500",
        **changes,
    }
    return {key: value for key, value in rule.items() if value is not None}


def problems_of(rule: Any) -> list[Problem]:
    """What is wrong with a rule."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(rule, STREAMS)
    return refusal.value.problems


def test_a_rule_is_read_from_yaml() -> None:
    """The example of the design is a rule, with its windows in microseconds and the defaults filled in."""
    rule = parse_rule(VELOCITY, STREAMS)
    assert rule.measures["spent"] == Measure.model_validate({"sum": "amount", "over": "1h"})
    assert rule.measures["usual"].excluding_current
    assert rule.measures["terminals"].where == "amount >= 50"
    since_big = rule.measures["since_big"]
    assert (since_big.function, since_big.field, since_big.over) == (Function.COUNT, None, 86_400_000_000)
    assert (since_big.per, since_big.since) == (("terminal_id",), "amount > 1000")
    assert (rule.state, rule.severity, rule.effective) == ("active", "high", None)


def test_yaml_json_and_the_written_form_are_the_same_rule() -> None:
    """A rule survives being written as a mapping, as JSON, as YAML, and dumped by pydantic."""
    rule = parse_rule(VELOCITY, STREAMS)
    mapping = rule_to_mapping(rule)
    assert mapping["measures"]["spent"] == {"sum": "amount", "over": "1h"}
    for form in (mapping, json.dumps(mapping), json.dumps(mapping).encode(), yaml.safe_dump(mapping)):
        assert parse_rule(form, STREAMS) == rule
    assert Rule.model_validate(rule.model_dump()) == rule
    assert Rule.model_validate_json(rule.model_dump_json()) == rule


def test_a_previous_value_is_shown_as_it_was_written() -> None:
    """It is the last one but that of the current event, and is not written out as such."""
    (measure,) = parse_rule(
        written(measures={"m": {"previous": "terminal_id", "over": "1d"}}, when="TRUE"), STREAMS
    ).measures.values()
    assert measure.excluding_current
    assert measure.model_dump() == {"previous": "terminal_id", "over": "1d"}


FIELDS = ["transaction_id", "event_time", "customer_id", "terminal_id", "amount"]
CHAIN = ["amount > 1", "amount > 2"]
TAKES: dict[str, list[Any]] = {
    "sum": ["amount"],
    "avg": ["amount"],
    "stddev": ["amount"],
    "min": ["amount", "event_time"],
    "max": ["amount", "event_time"],
    "count": [*FIELDS, "*"],
    "count_distinct": FIELDS,
    "first": FIELDS,
    "last": FIELDS,
    "previous": FIELDS,
    "median": ["amount"],
    "percentile": ["amount"],
    "mode": FIELDS,
    "values": FIELDS,
    "sequence": [CHAIN],
}
CONDITIONS = st.sampled_from(["amount > 1", "customer_id = 'c' OR amount IS NULL"])


def _optional(draw: Callable[[Any], Any], measure: dict[str, Any]) -> dict[str, Any]:
    options = {
        "where": CONDITIONS,
        "since": CONDITIONS,
        "per": st.just(["terminal_id"]),
        "excluding_start": st.just(value=True),
    }
    others = ({"delay": "1ms"}, {"delay": "0.5h"}, {"excluding_current": True})
    one = draw(st.sampled_from(({}, *([] if {"previous", "sequence"} & measure.keys() else others))))
    return measure | one | {name: draw(values) for name, values in options.items() if draw(st.booleans())}


@st.composite
def rules(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Good rules in the written form."""
    measures = {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "spent", "count", "last"]), unique=True, max_size=4)):
        function = draw(st.sampled_from(sorted(TAKES)))
        over = f"{draw(st.integers(1, 399))}{draw(st.sampled_from(['ms', 's', 'm', 'h', 'd']))}"
        field = draw(st.sampled_from(TAKES[function]))
        p = draw(st.integers(1000, 99_999)) / 1000
        measures[name] = _optional(
            draw, {function: {"of": field, "p": p} if function == "percentile" else field, "over": over}
        )
        if "since" not in measures[name] and draw(st.booleans()):
            measures[name] |= {"episode": "90s", "until": draw(CONDITIONS)}
            for option in ("over", "delay", "excluding_start"):
                measures[name].pop(option, None)
    group_by = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=3))
    rule = {"id": "r.1", "stream": "transactions", "group_by": group_by, "measures": measures, "when": "amount > 1"}
    if draw(st.booleans()):
        rule |= {
            "reset_after_alert": draw(st.booleans()),
            "state": draw(st.sampled_from(["active", "shadow", "paused", "retired"])),
            "severity": "low",
        }
        rule |= {"effective": draw(st.datetimes().map(lambda at: at.replace(tzinfo=UTC).isoformat())), "where": "TRUE"}
    return rule


@given(rules())
def test_every_rule_reads_back_from_its_written_form(mapping: dict[str, Any]) -> None:
    """Writing a rule and reading it again changes nothing."""
    rule = parse_rule(mapping, STREAMS)
    assert parse_rule(rule_to_mapping(rule), STREAMS) == rule
    assert parse_rule(yaml.safe_dump(rule_to_mapping(rule)), STREAMS) == rule


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("2018-04-01T12:00:00Z", datetime(2018, 4, 1, 12, tzinfo=UTC)),
        ("2018-04-01 14:00:00+02:00", datetime(2018, 4, 1, 12, tzinfo=UTC)),
        ("2018-04-01", datetime(2018, 4, 1, tzinfo=UTC)),
    ],
)
def test_an_effective_time_without_a_zone_is_utc(given_as: str, expected: datetime) -> None:
    """YAML's own timestamps and text mean the same point in time."""
    quoted = written(effective=given_as)
    assert parse_rule(quoted, STREAMS).effective == expected
    assert parse_rule(yaml.safe_dump(quoted).replace(f"'{given_as}'", given_as), STREAMS).effective == expected


@pytest.mark.parametrize(
    ("changes", "place", "what", "remedy"),
    [
        ({"id": "Card"}, "id", "is 'Card'", "Lower-case letters"),
        ({"id": 5}, "id", "is 5, not text", "Put it in quotes"),
        ({"id": "a\n"}, "id", "is 'a\\n'", "Lower-case"),
        ({"id": None}, "id", "is missing", "Lower-case"),
        ({"stream": "transaction"}, "stream", "no stream 'transaction'", "Did you mean transactions?"),
        ({"state": "on"}, "state", "is 'on'", "'active', 'shadow', 'paused' or 'retired'"),
        ({"severity": "urgent"}, "severity", "is 'urgent'", "'low', 'medium', 'high' or 'critical'"),
        ({"group_by": "customer_id"}, "group_by", "is 'customer_id'", "[customer_id]"),
        ({"group_by": ["custmer_id"]}, "group_by", "has no field 'custmer_id'", "Did you mean customer_id?"),
        ({"group_by": ["customer_id"] * 2}, "group_by", "names a field twice", "once"),
        ({"group_by": None}, "group_by", "is missing", "[] is the whole stream"),
        ({"when": None}, "when", "is missing", "Write a condition"),
        ({"when": True}, "when", "is True", "Write a condition"),
        ({"when": "spnt > 5"}, "when", "unknown name 'spnt'", "Did you mean spent?"),
        ({"when": "spent"}, "when", "a condition is needed", "Compare it"),
        ({"where": "spent > 5"}, "where", "'spent' is a measure", "Use measures in when"),
        ({"where": "amount > 'x'"}, "where", "cannot be compared", "without quotes"),
        ({"effective": "soon"}, "effective", "'soon' is not a point in time", "2018-04-01T12:00:00Z"),
        ({"wher": "TRUE"}, "wher", "is not a key of a rule", "Did you mean where?"),
        ({"mute": "25h"}, "mute", "25h cannot mute", "longer than 0 and at most 1d"),
        ({"mute": "0s"}, "mute", "0s cannot mute", "longer than 0 and at most 1d"),
        ({"action": {"restrict": "block"}}, "action.for", "is missing", "for: 24h"),
        ({"action": {"restrict": "Block it", "for": "1h"}}, "action.restrict", "is 'Block it'", "block_customer"),
        (
            {"action": {"restrict": "block", "for": "0s"}},
            "action.for",
            "0s is not a valid time to restrict for",
            "at most 400d",
        ),
        ({"action": {"restrict": "block", "for": "1h", "if": 1}}, "action.if", "not a key of an action", "for: 24h"),
        ({"action": "block"}, "action", "is 'block'", "block_customer"),
        ({"action": {"restrict": "block", "for": "1h"}, "group_by": []}, "group_by", "has no group", "Name the fields"),
        ({"revisions": "none"}, "revisions", "is 'none'", "'values' or 'verdict'"),
        ({"reset_after_alert": "yes"}, "reset_after_alert", "is 'yes'", "true or false"),
        ({"unless": {"within": "2d", "where": "TRUE"}}, "unless.within", "2d is not a valid time", "at most 1d"),
        ({"unless": {"within": "1h"}}, "unless.where", "is missing", "within: 15m"),
        ({"unless": {"within": "1h", "where": "TRUE", "in": 1}}, "unless.in", "is not a key of unless", "within: 15m"),
        ({"unless": {"within": "1h", "where": "colour = 1"}}, "unless.where", "colour", ""),
        (
            {"unless": {"within": "1h", "where": "TRUE"}, "reset_after_alert": True},
            "reset_after_alert",
            "does not go with unless",
            "Leave one",
        ),
        (
            {
                "unless": {"within": "1h", "where": "TRUE"},
                "measures": {
                    "spent": {"sum": "amount", "over": "1h"},
                    "often": {"count": "*", "over": "1h", "where": "spent > 5"},
                },
            },
            "measures.often.where",
            "looks at 'spent', which does not go with unless",
            "Leave one",
        ),
        ({"measures": []}, "measures", "is not a mapping", "{sum: amount, over: 1h}"),
        ({"measures": {"spent": {"sum": "amount", "over": None}}}, "measures.spent", "over is empty", "over: 1h"),
        (
            {"measures": {f"m{at}": {"count": "*", "over": "1h"} for at in range(MAX_MEASURES + 1)}, "when": "TRUE"},
            "measures",
            "has 65 measures, more than 64",
            "Split",
        ),
    ],
)
def test_a_mistake_names_its_place_and_the_remedy(changes: dict[str, Any], place: str, what: str, remedy: str) -> None:
    """A problem says where it is, what was found and what would be right."""
    (problem,) = problems_of(written(**changes))
    assert problem.place == place
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("measure", "place", "what", "remedy"),
    [
        (5, "measures.m", "5 is not a measure", "{sum: amount, over: 1h}"),
        ({"over": "1h"}, "measures.m", "has no function", "exactly one of count, sum"),
        ({"sum": "amount", "avg": "amount", "over": "1h"}, "measures.m", "several functions: sum, avg", "exactly one"),
        ({"sum": "amount"}, "measures.m.over", "is missing", "over: 1h"),
        ({"sum": "amount", "over": 3600}, "measures.m.over", "3600 is not a duration", "units ms, s, m, h, d"),
        ({"sum": "amount", "over": "0s"}, "measures.m.over", "0s is not a valid window", "at most 400d"),
        ({"sum": "amount", "over": "401d"}, "measures.m.over", "401d is not a valid window", "at most 400d"),
        ({"sum": "amonut", "over": "1h"}, "measures.m.sum", "has no field 'amonut'", "Did you mean amount?"),
        ({"sum": "customer_id", "over": "1h"}, "measures.m.sum", "cannot take customer_id: string", "takes are amount"),
        ({"max": "customer_id", "over": "1h"}, "measures.m.max", "cannot take customer_id", "event_time, amount"),
        (
            {"avg": "event_time", "over": "1h"},
            "measures.m.avg",
            "cannot take event_time: timestamp",
            "takes are amount",
        ),
        ({"sum": "*", "over": "1h"}, "measures.m", "sum of * has no meaning", "only count takes *"),
        ({"sum": ["amount"], "over": "1h"}, "measures.m", "sum of ['amount']", "Name a field"),
        ({"median": "customer_id", "over": "1h"}, "measures.m.median", "cannot take customer_id", "takes are amount"),
        ({"percentile": "amount", "over": "1h"}, "measures.m", "does not say which", "percentile: {of: amount, p: 95}"),
        ({"percentile": {"of": "amount"}, "over": "1h"}, "measures.m", "percentile has no p", "{of: amount, p: 95}"),
        ({"percentile": {"p": 95}, "over": "1h"}, "measures.m", "percentile has no of", "{of: amount, p: 95}"),
        (
            {"percentile": {"of": "amount", "p": 95, "q": 1}, "over": "1h"},
            "measures.m",
            "has no key 'q'",
            "Write of and p",
        ),
        ({"percentile": {"of": "amount", "p": "95"}, "over": "1h"}, "measures.m", "is '95'", "Write a number"),
        ({"percentile": {"of": "amount", "p": True}, "over": "1h"}, "measures.m", "is True", "Write a number"),
        ({"percentile": {"of": "amount", "p": 0.95}, "over": "1h"}, "measures.m", "is 0.95, less than", "write p: 95"),
        ({"percentile": {"of": "amount", "p": 100}, "over": "1h"}, "measures.m", "p of percentile is 100", "less than"),
        ({"percentile": {"of": "amount", "p": -5}, "over": "1h"}, "measures.m", "p of percentile is -5", "at least 1"),
        ({"percentile": {"of": "amount", "p": 99.9999}, "over": "1h"}, "measures.m", "99.9999", "at most three digits"),
        (
            {"percentile": {"of": "amonut", "p": 9}, "over": "1h"},
            "measures.m.percentile",
            "no field 'amonut'",
            "amount?",
        ),
        (
            {"percentile": {"of": "*", "p": 95}, "over": "1h"},
            "measures.m",
            "percentile of * has no meaning",
            "only count",
        ),
        ({"count": "*", "share": 5, "over": "1h"}, "measures.m", "share is not an option", "Write it as in"),
        (
            {"median": "amount", "over": "1h", "resolution": "1m"},
            "measures.m.resolution",
            "does not go with median, which needs every event",
            "It is for count",
        ),
        ({"sequence": "amount > 1", "over": "1h"}, "measures.m", "sequence of 'amount > 1'", "2 to 8 conditions"),
        ({"sequence": ["amount > 1"], "over": "1h"}, "measures.m", "sequence has 1 steps", "2 to 8 conditions"),
        ({"sequence": CHAIN, "steps": CHAIN, "over": "1h"}, "measures.m", "steps is not an option", "Write it as in"),
        ({"sequence": [*CHAIN, "x > 1"], "over": "1h"}, "measures.m.sequence", "unknown name 'x'", "Known are"),
        (
            {"sequence": CHAIN, "over": "1h", "excluding_current": True},
            "measures.m.excluding_current",
            "last step is the current event",
            "Leave it out",
        ),
        ({"sequence": CHAIN, "over": "1h", "delay": "1m"}, "measures.m.delay", "last step", "Leave it out"),
        ({"sequence": CHAIN, "over": "1h", "resolution": "1m"}, "measures.m.resolution", "needs every", "It is for"),
        ({"count": "*", "over": "1h", "per": ["ip"]}, "measures.m.per", "has no field 'ip'", "Fields are"),
        ({"count": "*", "over": "1h", "per": "terminal_id"}, "measures.m.per", "is 'terminal_id'", "[ip]"),
        ({"count": "*", "over": "1h", "where": "foo(1)"}, "measures.m.where", "function FOO", "Allowed functions"),
        (
            {"count": "*", "over": "1h", "since": "m > 1"},
            "measures.m.since",
            "'m' is a measure",
            "Use measures in when",
        ),
        ({"count": "*", "over": "1h", "excluding_current": 1}, "measures.m.excluding_current", "is 1", "true or false"),
        ({"previous": "amount", "over": "1h", "delay": "1h"}, "measures.m", "not go with delay", "Write last"),
        (
            {"previous": "amount", "over": "1h", "excluding_current": False},
            "measures.m",
            "previous never has the current event",
            "Leave excluding_current out",
        ),
        ({"count": "*", "over": "1h", "episode": "10m"}, "measures.m.episode", "beside over", "has one of them"),
        ({"count": "*", "episode": "101d"}, "measures.m.episode", "101d is not a valid episode", "at most 100d"),
        ({"count": "*", "episode": 5}, "measures.m.episode", "5 is not a duration", "units ms, s, m, h, d"),
        ({"count": "*", "over": "1h", "until": "amount > 1"}, "measures.m.until", "to an episode", "episode: 10m"),
        ({"count": "*", "episode": "1h", "since": "amount > 1"}, "measures.m.since", "not go with", "Write until"),
        ({"count": "*", "episode": "1h", "until": "amonut > 1"}, "measures.m.until", "amonut", "amount"),
        ({"count": "*", "over": "1h", "delay": "0s"}, "measures.m.delay", "0s is not a valid delay", "more than 0"),
        ({"count": "*", "over": "1h", "delay": "400d"}, "measures.m.delay", "400d is not a", "with over at most 400d"),
        ({"count": "*", "over": "1h", "delay": 7}, "measures.m.delay", "7 is not a duration", "units ms, s, m, h, d"),
        ({"count": "*", "over": "1h", "delay": [7]}, "measures.m.delay", "[7] is not a duration", "units ms"),
        ({"count": "*", "episode": "1h", "delay": "7d"}, "measures.m.delay", "a window with over", "leave delay out"),
        (
            {"count": "*", "over": "1h", "delay": "7d", "excluding_current": True},
            "measures.m.excluding_current",
            "has no meaning with delay",
            "Leave one",
        ),
        (
            {"count": "*", "over": "1h", "delay": "7d", "resolution": "1m"},
            "measures.m.resolution",
            "not go with delay",
            "Leave one of them out",
        ),
        (
            {"count": "*", "over": "1h", "excluding_start": True, "resolution": "1m"},
            "measures.m.resolution",
            "not go with excluding_start",
            "Leave one of them out",
        ),
        (
            {"count": "*", "episode": "1h", "excluding_start": True},
            "measures.m.excluding_start",
            "a window with over",
            "Leave it out",
        ),
        ({"count": "*", "over": "1h", "excluding_start": 1}, "measures.m.excluding_start", "is 1", "true or false"),
        ({"count": "*", "calendar": "year"}, "measures.m.calendar", "is 'year'", "'day', 'week' or 'month'"),
        ({"count": "*", "calendar": None}, "measures.m", "calendar is empty", "calendar: day"),
        ({"count": "*", "over": "1d", "calendar": "day"}, "measures.m.calendar", "beside over", "has one of them"),
        ({"count": "*", "calendar": "day", "episode": "1h"}, "measures.m.episode", "beside calendar", "one of them"),
        ({"count": "*", "over": "1d", "zone": "UTC"}, "measures.m.zone", "belongs to a calendar", "calendar: day"),
        ({"count": "*", "calendar": "day", "zone": "Bonn"}, "measures.m.zone", "no zone 'Bonn'", "Europe/Berlin"),
        ({"count": "*", "calendar": "day", "zone": 2}, "measures.m.zone", "is 2", "Name a zone"),
        ({"count": "*", "calendar": "day", "delay": "7d"}, "measures.m.delay", "a window with over", "leave delay out"),
        (
            {"count": "*", "calendar": "month", "resolution": "1h"},
            "measures.m.resolution",
            "not go with a calendar",
            "Leave one of them out",
        ),
        ({"count": "*", "session": "30m"}, "measures.m.over", "is missing", "over: 1h"),
        ({"count": "*", "over": "1h", "session": "1h"}, "measures.m.session", "1h is not a valid", "less than over"),
        (
            {"count": "*", "over": "1h", "session": 30},
            "measures.m.session",
            "30 is not a duration",
            "units ms, s, m, h",
        ),
        ({"count": "*", "episode": "1h", "session": "1m"}, "measures.m.session", "a window with over", "over: 12h"),
        ({"count": "*", "calendar": "day", "session": "1m"}, "measures.m.session", "a window with over", "over: 12h"),
        (
            {"count": "*", "over": "1h", "session": "1m", "delay": "1h"},
            "measures.m.session",
            "does not go with delay",
            "Leave one of them out",
        ),
        (
            {"count": "*", "over": "1h", "session": "1m", "resolution": "1s"},
            "measures.m.resolution",
            "does not go with a session",
            "Leave one of them out",
        ),
        ({"count": "*", "over": "1h", "resolutoin": "1m"}, "measures.m.resolutoin", "not an option", "resolution?"),
        ({"count": "*", "over": "1h", "resolution": "2h"}, "measures.m.resolution", "2h is not a valid", "at least 1s"),
        ({"count": "*", "over": "1h", "resolution": "9ms"}, "measures.m.resolution", "9ms is not a", "at least 1s"),
        ({"count": "*", "over": "1h", "resolution": 5}, "measures.m.resolution", "5 is not a duration", "units ms, s"),
        ({"count": "*", "episode": "1h", "resolution": "1m"}, "measures.m.resolution", "an episode", "Leave one of"),
        (
            {"count": "*", "over": "1h", "per": ["terminal_id"], "resolution": "1m"},
            "measures.m.resolution",
            "does not go with per",
            "Leave one of them out",
        ),
        (
            {"count": "*", "over": "1h", "since": "amount > 1", "resolution": "1m"},
            "measures.m.resolution",
            "does not go with since",
            "Leave one of them out",
        ),
        (
            {"count_distinct": "terminal_id", "over": "1h", "resolution": "1m"},
            "measures.m.resolution",
            "does not go with count_distinct, which needs every event",
            "It is for count, sum, avg, min, max, stddev",
        ),
    ],
)
def test_a_mistake_in_a_measure_names_the_measure(measure: Any, place: str, what: str, remedy: str) -> None:
    """Options of later versions of nightjar are unknown here, and refused like any other word."""
    (problem,) = problems_of(written(measures={"m": measure}, when="TRUE"))
    assert problem.place == place
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("measures", "place", "what", "remedy"),
    [
        ({"m": "m + 1"}, "measures.m", "depends on itself: m → m", "from fields and other measures"),
        ({"m": "a - 1", "a": "2 * m"}, "measures.m", "depends on itself: m → a → m", "from fields"),
        ({"m": "NULL"}, "measures.m", "is always NULL", "Name a field or a measure"),
        ({"m": "amount", "c": "b / m"}, "measures.c", "unknown name 'b'", "Known are m"),
        ({"m": "a = 'x'", "a": {"values": "terminal_id", "over": "1h"}}, "measures.m", "list of values", "count_dist"),
        ({"m": "a = 'x'", "a": {"count": "*", "over": "1h"}}, "measures.m", "cannot be compared", "without quotes"),
        ({"m": "amount * 0.12345678901234567"}, "measures.m", "19 digits after the point", "ROUND"),
        ({"m": "a / 2", "a": {"sum": "amonut", "over": "1h"}}, "measures.a.sum", "no field", "mean amount?"),
        ({"m": 0.5}, "measures.m", "0.5 is not a measure", "an expression in quotes"),
    ],
)
def test_a_mistake_in_a_computed_measure(measures: Any, place: str, what: str, remedy: str) -> None:
    """S18.1: with its place; what only follows from another problem is not reported."""
    (problem,) = problems_of(written(measures=measures, when="m IS NOT NULL"))
    assert problem.place == place
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"m": {"where": "m > 1"}}, "looks at the measure itself", "Name other measures"),
        ({"n": {"where": "other = 1"}}, "'n', which looks at measures itself; one level", "compares fields only"),
        ({"n": "1 + 1"}, "'n', which is computed", "Write its expression here"),
        ({"n": {"values": "terminal_id"}}, "'n', a list of values", "count_distinct"),
        ({"n": {"count": "*", "resolution": "1m"}}, "'n', which does not go with a resolution", "out of both"),
        ({"m": {"where": "n = 1", "resolution": "1m"}}, "'n', which does not go with a resolution", "out of both"),
        ({"m": {"where": "n = 'x'"}}, "cannot be compared", "without quotes"),
        ({"m": {"where": "n = 1 AND amonut > 2"}}, "unknown name 'amonut'", "mean amount?"),
    ],
)
def test_a_mistake_in_a_condition_over_measures(changes: dict[str, Any], what: str, remedy: str) -> None:
    """S18.4: with the place of the measure that looks at others."""
    measures: dict[str, Any] = {"m": {"where": "n = 1"}, "n": {"count": "*"}, "other": {"count": "*"}, **changes}
    for name, measure in measures.items():
        if isinstance(measure, dict):
            measures[name] = {**({} if "values" in measure else {"count": "*"}), "over": "1h", **measure}
    (problem,) = problems_of(written(measures=measures, when="TRUE"))
    assert problem.place == "measures.m.where"
    assert what in problem.message
    assert remedy in problem.remedy


def test_a_rule_that_starts_again_has_no_condition_over_measures() -> None:
    """S18.4: what a measure is at an earlier event would depend on the alerts before that."""
    measures = {"m": {"count": "*", "over": "1h", "where": "n = 1"}, "n": {"count": "*", "over": "1h"}}
    (problem,) = problems_of(written(measures=measures, when="TRUE", reset_after_alert=True))
    assert problem.place == "measures.m.where"
    assert "reset_after_alert" in problem.message


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("n / 2", DOUBLE),
        ("n + n", INT64),
        ("spent - amount", FieldType(Kind.DECIMAL, 19, 2)),
        ("ROUND(amount, 1)", decimal(12, 1)),
        ("twice > 3", BOOLEAN),
        ("CASE WHEN n > 3 THEN 'many' ELSE customer_id END", STRING),
        ("event_time", TIMESTAMP),
    ],
)
def test_the_type_of_a_computed_measure_follows_from_its_expression(sql: str, kind: FieldType) -> None:
    """S18.2: 64 bits, also where the expression may reach beyond."""
    measures = {"m": sql, "twice": "2 * n", "n": {"count": "*", "over": "1h"}, "spent": {"sum": "amount", "over": "1h"}}
    rule = parse_rule(written(measures=measures, when="TRUE"), STREAMS)
    assert measure_types(rule, STREAMS["transactions"])["m"] == kind
    assert parse_rule(rule_to_mapping(rule), STREAMS) == rule


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"group_by": ["transaction_id"]}, "which has one event", "Leave resolution out"),
        ({"reset_after_alert": True}, "does not go with reset_after_alert", "Leave one of them out"),
    ],
)
def test_a_resolution_is_of_what_folds(changes: dict[str, Any], what: str, remedy: str) -> None:
    """S14.2: groups of single events, and rules that start again within a step, have none."""
    measure = {"sum": "amount", "over": "90d", "resolution": "1m"}
    (problem,) = problems_of(written(measures={"m": measure}, when="TRUE", **changes))
    assert problem.place == "measures.m.resolution"
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(("function", "problems"), [("sum", 1), ("avg", 1), ("stddev", 1), ("max", 0), ("count", 0)])
def test_sums_of_doubles_have_no_resolution(function: str, problems: int) -> None:
    """S14.2: their exact sums are large; their least and greatest are not."""
    fields = {"id": "string", "at": "timestamp", "place": "string", "heat": "double"}
    declared = {"event_id": "id", "event_time": "at", "entities": ["place"], "fields": fields}
    rule = written(stream="readings", group_by=["place"], when="TRUE")
    rule["measures"] = {"m": {function: "heat", "over": "1d", "resolution": "1h"}}
    found = check_rule(Rule, rule, streams_from_mapping({"readings": declared}, "tests"))[1]
    assert ["of a double" in problem.message for problem in found] == [True] * problems


@pytest.mark.parametrize(
    ("name", "what"),
    [("amount", "has a field of that name"), ("and", "cannot be the name"), ("a b", "cannot be"), (5, "cannot be")],
)
def test_a_measure_has_a_name_of_its_own(name: Any, what: str) -> None:
    """No measure hides a field or a word of SQL."""
    problems = problems_of(written(measures={name: {"count": "*", "over": "1h"}}, when="TRUE"))
    assert [what in problem.message for problem in problems] == [True]


def test_everything_wrong_is_said_at_once() -> None:
    """An author mends a rule in one go: all problems are listed, an unknown key first, then in the order of keys."""
    rule = written(
        id="Card",
        group_by=["ip"],
        measures={"a": {"sum": "amonut", "over": "1h"}, "b": {"count": "*", "over": "1"}},
        when="a > 'x'",
        severity="urgent",
        extra=1,
    )
    assert [problem.place for problem in problems_of(rule)] == [
        "extra",
        "id",
        "group_by",
        "measures.b.over",
        "measures.a.sum",
        "severity",
    ]


def test_the_message_is_for_a_person() -> None:
    """The text of the error lists the problems, with carets under the place in a predicate."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(written(where="amount >", when="spnt > 5"), STREAMS)
    text = str(refusal.value)
    assert text.startswith("rule r: 2 problems\n")
    assert "  - when: unknown name 'spnt'. Did you mean spent?" in text
    assert "spnt > 5\n      ^^^^" in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds 0 documents"),
        ("5", "is not a mapping"),
        ("- id: x", "is not a mapping"),
        ("id: 1\n---\nid: 2", "holds 2 documents"),
        ("a: [", "is not YAML or JSON"),
        ("measures: {n: {count: *, over: 1h}}", "is not YAML or JSON"),
        ("a: &x [1]\nb: *x", "a reference (*x) is not allowed"),
        ("&a [*a]", "a reference (*a) is not allowed"),
        ("id: a\nid: b", "key 'id' is repeated"),
        ('{"id": "a", "id": "b"}', "key 'id' is repeated"),
        ("!!python/object/apply:os.system ['true']", "a tag (tag:yaml.org,2002:python/object/apply:os.system)"),
        ("[" * 100_000, "nested too deep"),
        ("{a: " * 100, "nested too deep"),
        ("x" * (MAX_BYTES + 1), f"more than {MAX_BYTES}"),
        (b"\xff", "is not UTF-8"),
        ("\x00", "is not YAML or JSON"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_cleanly(text: str | bytes, what: str) -> None:
    """No text makes more than an error: tags, references, repeated keys and depth are refused."""
    (problem,) = problems_of(text)
    assert what in problem.message


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("when: \"REGEXP_LIKE(a, '\\d')\"", "Write a backslash in double quotes twice, or use single quotes"),
        ("description: {amount} spent", "Put predicates, and texts that begin with a brace, in quotes"),
        ("description: spent: {amount}", "Put predicates in quotes"),
    ],
)
def test_what_yaml_takes_otherwise_has_a_remedy(text: str, remedy: str) -> None:
    """Of the mistakes that texts of rules lead to."""
    (problem,) = problems_of(text)
    assert problem.remedy.startswith(remedy)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["id", "stream", "group_by", "measures", "when", "where", "state", "severity", "description", "effective"]


@given(st.dictionaries(st.sampled_from(KEYS), PLAIN), st.dictionaries(st.text(max_size=3), PLAIN), PLAIN)
def test_no_data_does_more_than_be_refused(keys: dict[str, Any], measures: dict[Any, Any], measure: Any) -> None:
    """Whatever stands where in a rule, the answer is a RuleError with a text, or the rule."""
    for rule in (
        written(**keys),
        written(measures=measures),
        written(measures={"spent": {"sum": measure, "over": measure, "where": measure, "per": measure}}),
    ):
        try:
            parse_rule(rule, STREAMS)
        except RuleError as refusal:
            str(refusal).encode("utf-8", "backslashreplace")


def test_result_types() -> None:
    """Counts are integers, averages doubles, decimal sums keep their scale, the rest keeps the field's type."""
    assert result_type(Function.COUNT, None) == INT64
    assert result_type(Function.COUNT_DISTINCT, STRING) == INT64
    assert result_type(Function.SUM, decimal(12, 2)) == FieldType(Kind.DECIMAL, 19, 2)
    assert result_type(Function.SUM, INT64) == INT64
    assert result_type(Function.AVG, decimal(12, 2)) == DOUBLE
    assert result_type(Function.STDDEV, INT64) == DOUBLE
    assert result_type(Function.MIN, TIMESTAMP) == TIMESTAMP
    assert result_type(Function.LAST, BOOLEAN) == BOOLEAN


@pytest.mark.parametrize("form", ["one", "list", "rules", "documents", "json"])
def test_a_file_holds_rules_in_any_of_its_forms(tmp_path: Path, form: str) -> None:
    """One rule, a list, `rules: [...]`, several YAML documents, or JSON."""
    two = [written(id="a"), written(id="b")]
    content = {
        "one": yaml.safe_dump(two[0]),
        "list": yaml.safe_dump(two),
        "rules": yaml.safe_dump({"rules": two}),
        "documents": yaml.safe_dump_all(two),
        "json": json.dumps(two),
    }[form]
    path = tmp_path / "rules.yaml"
    path.write_text(content)
    assert [rule.id for rule in load_rules(path, STREAMS)] == (["a"] if form == "one" else ["a", "b"])


def test_a_files_problems_name_the_rule(tmp_path: Path) -> None:
    """Every rule of a file is checked, and a place begins with the rule's id or number."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump([written(id="a", when="x"), 5, written(id="b"), written(id="b")]))
    with pytest.raises(RuleError) as refusal:
        load_rules(path, STREAMS)
    assert [problem.place for problem in refusal.value.problems] == ["rule a, when", "rule number 2", "rule b, id"]
    assert str(refusal.value).startswith(f"{path}: 3 problems")


@pytest.mark.parametrize(
    ("content", "what"), [("", "holds no rule"), ("rules: []", "holds no rule"), (None, "cannot be read")]
)
def test_a_file_without_rules_is_an_error(tmp_path: Path, content: str | None, what: str) -> None:
    """An empty or absent file is not silently no rules."""
    path = tmp_path / "rules.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RuleError, match=what):
        load_rules(path, STREAMS)
