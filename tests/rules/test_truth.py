"""The truth about a table of events, and its rows as text."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nightjar.rules import truth
from nightjar.rules.errors import EvaluationError
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.truth import RESULT_SCHEMA, Truth
from nightjar.rules.versions import RuleSet

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
STREAMS = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
                "id": "string",
                "at": "timestamp",
                "who": "string",
                "amount": "decimal(18,8)",
                "n": "int64",
            },
        }
    },
    "test",
)
STREAM: Stream = STREAMS["s"]


def events(*rows: tuple[str, int, str | None, str, int]) -> pa.Table:
    """Events of (id, minutes after noon, who, amount, n)."""
    made = [(i, NOON + timedelta(minutes=m), who, Decimal(amount), n) for i, m, who, amount, n in rows]
    return pa.Table.from_pylist([dict(zip(STREAM.fields, row, strict=True)) for row in made], STREAM.schema)


def rules(*written: dict[str, Any]) -> RuleSet:
    """Rules on the stream, grouped by who, from the beginning."""
    ruleset = RuleSet()
    for number, rule in enumerate(written):
        whole = {"id": f"r{number}", "stream": "s", "group_by": ["who"], "when": "TRUE", **rule}
        ruleset = ruleset.publish(parse_rule(whole, STREAMS), 0)
    return ruleset


def test_each_evaluation_is_a_row_and_violations_are_marked() -> None:
    """Rule by rule, in the order of arrival; events without a group or outside `where` are no rows."""
    table = events(("a", 0, "x", "1", 1), ("c", 2, None, "3", 9), ("b", 1, "y", "2", -1), ("d", 3, "x", "4", 2))
    made = Truth(
        STREAM, rules({"where": "n > 0", "measures": {"k": {"count": "*", "over": "1h"}}, "when": "k > 1"}), table
    )
    assert made.table(every=True).schema == RESULT_SCHEMA
    assert made.table(every=True).to_pylist() == [
        {
            "rule_id": "r0",
            "rule_version": 1,
            "event_id": event_id,
            "event_time": NOON + timedelta(minutes=minutes),
            "violated": violated,
            "group": '{"who":"x"}',
            "measures": f'{{"k":{k}}}',
        }
        for event_id, minutes, violated, k in [("a", 0, False, 1), ("d", 3, True, 2)]
    ]
    assert made.table().column("event_id").to_pylist() == ["d"]
    assert [(v.evaluated, v.violations) for v in made.verdicts] == [(2, 1)]
    assert (made.rows(), made.rows(every=True)) == (1, 2)


def test_decimals_are_text_with_all_their_digits() -> None:
    """Small ones too: never an exponent."""
    table = events(
        ("a", 0, "x", "0.00000001", 1), ("b", 1, "x", "-0.00000001", 1), ("c", 2, "x", "9999999999.99999999", 1)
    )
    measures = {"s": {"sum": "amount", "over": "1h"}, "low": {"min": "amount", "over": "1h"}}
    found = Truth(STREAM, rules({"measures": measures}), table).table()
    assert [json.loads(text) for text in found.column("measures").to_pylist()] == [
        {"s": "0.00000001", "low": "0.00000001"},
        {"s": "0.00000000", "low": "-0.00000001"},
        {"s": "9999999999.99999999", "low": "-0.00000001"},
    ]


def test_first_arrival_of_an_id_counts() -> None:
    """`arrival_time` decides which it is, and rows may be in any order."""
    table = events(("a", 1, "x", "2", 2), ("a", 0, "x", "1", 1))
    arrivals = pa.array([NOON + timedelta(hours=2), NOON + timedelta(hours=1)], pa.timestamp("us", "UTC"))
    made = Truth(STREAM, rules({"when": "n = 1"}), table.append_column("arrival_time", arrivals))
    assert (made.events, made.duplicates, made.rows()) == (2, 1, 1)
    assert Truth(STREAM, rules({"when": "n = 1"}), table).rows() == 1
    later = pa.array(arrivals.to_pylist()[::-1], pa.timestamp("us", "UTC"))
    assert Truth(STREAM, rules({"when": "n = 1"}), table.append_column("arrival_time", later)).rows() == 0


def test_each_event_sees_the_version_of_its_time() -> None:
    """Both versions have rows of their own; paused versions have none."""
    later = {"id": "r", "effective": NOON + timedelta(minutes=1), "when": "n > 1"}
    last = {"id": "r", "effective": NOON + timedelta(minutes=2), "state": "paused"}
    table = events(("a", 0, "x", "1", 1), ("b", 1, "x", "1", 1), ("c", 2, "x", "1", 5))
    made = Truth(STREAM, rules({"id": "r"}, later, last), table)
    seen = [(row["event_id"], row["rule_version"], row["violated"]) for row in made.table(every=True).to_pylist()]
    assert seen == [("a", 1, True), ("b", 2, False)]
    assert [(v.version.version, v.violations) for v in made.verdicts] == [(1, 1), (2, 0)]


def test_overflow_names_rule_measure_and_event() -> None:
    """An exact sum that 64 bits cannot hold is an error, never a wrong number."""
    table = events(("a", 0, "x", "1", 2**62), ("b", 1, "x", "1", 2**62))
    with pytest.raises(EvaluationError, match=r"rule r0: measures.big: its exact value at event b does not fit"):
        Truth(STREAM, rules({"measures": {"big": {"sum": "n", "over": "1h"}}}), table).refuse_failures()


def test_tables_are_cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are, only so many have their text in memory."""
    monkeypatch.setattr(truth, "ROWS_AT_ONCE", 2)
    table = events(*((f"e{i}", i, "x", "1", i) for i in range(5)))
    made = Truth(STREAM, rules({}, {"when": "n > 3"}), table)
    assert [part.num_rows for part in made.tables()] == [2, 2, 1, 1]
    assert made.table().column("event_id").to_pylist() == ["e0", "e1", "e2", "e3", "e4", "e4"]


def test_no_event_and_no_rule_are_no_row() -> None:
    """Nothing comes of nothing."""
    assert Truth(STREAM, rules({}), events()).table().num_rows == 0
    assert Truth(STREAM, RuleSet(), events(("a", 0, "x", "1", 1))).table(every=True).num_rows == 0


def test_violations_can_be_asked_for_at_some_events_only() -> None:
    """The same rows as of all, whatever the order of the events."""
    made = Truth(STREAM, rules({"when": "n > 0"}), events(*((f"e{at}", at, "x", "1", 1) for at in (4, 3, 0, 2, 1))))
    every = made.violations()
    assert every.num_rows == 5
    some = made.violations(np.array([1, 4]))
    assert sorted(some.column("event_id").to_pylist()) == ["e1", "e3"]
    assert some.to_pylist() == [row for row in every.to_pylist() if row["event_id"] in {"e1", "e3"}]
