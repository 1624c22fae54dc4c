"""Lists of values: how many, how long, in which order (S2.4)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine
from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.histories import SECOND, STREAM, STREAMS, table


def event(second: int, **fields: Any) -> dict[str, Any]:
    """The event of that second; what is not given is NULL."""
    values = dict.fromkeys(STREAM.fields)
    at = second * SECOND
    return {**values, "id": f"e{second:03d}", "at": at, "arrival": at, "who": "x", **fields}


def rule(measures: dict[str, Any], when: str = "TRUE", description: str = "") -> RuleSet:
    """One rule by `who`."""
    written = {"id": "r", "stream": STREAM.name, "group_by": ["who"], "measures": measures, "when": when}
    return RuleSet().publish(parse_rule({**written, "description": description}, STREAMS), 0, 0)


def lists(events: list[dict[str, Any]], **measures: Any) -> list[dict[str, Any]]:
    """The measures at every event."""
    found = Truth(STREAM, rule(measures), table(events)).table(every=True)
    return [json.loads(text) for text in found.column("measures").to_pylist()]


def test_a_long_value_is_cut() -> None:
    """It has 99 characters and an ellipsis; one of a hundred is whole."""
    whole, long = "ü" * 100, "é" * 101
    found = lists([event(1, place=whole), event(2, place=long)], m={"values": "place", "over": "1m"})
    assert found[-1]["m"] == f"{whole}, {'é' * 99}…"


@pytest.mark.parametrize("different", [9, 10, 11, 12, 200])
def test_ten_are_listed_and_the_others_counted(different: int) -> None:
    """Each value once, whatever comes again."""
    events = [event(n, number=n % different) for n in range(2 * different)]
    shown = ", ".join(str(n) for n in range(min(different, 10)))
    more = f" and {different - 10} more" if different > 10 else ""
    assert lists(events, m={"values": "number", "over": "1h"})[-1]["m"] == shown + more


def test_every_kind_is_shown_as_in_the_alert() -> None:
    """Decimals with all their digits, timestamps in UTC."""
    when = datetime(2026, 4, 1, 12, tzinfo=UTC)
    seen = int(when.timestamp()) * SECOND
    events = [event(1, amount=7, flag=False, seen=seen), event(2, amount=None, flag=True, seen=seen)]
    names = ("amount", "flag", "seen")
    found = lists(events, **{f"all_{name}": {"values": name, "over": "1m"} for name in names})
    assert found[-1] == {
        "all_amount": "7.00",
        "all_flag": "false, true",
        "all_seen": "2026-04-01T12:00:00.000000Z",
    }


def test_a_late_event_is_listed_by_what_arrives_after_it() -> None:
    """And by no event that had arrived before, even if that is evaluated again (S8.4)."""
    engine = Engine(STREAM, rule({"m": {"values": "place", "over": "1h"}}, description="{m}"))
    first = [event(100, place="a"), event(110, place="c")]
    late = [{**event(90, place="late"), "arrival": 112 * SECOND}]
    between = [{**event(105, place="b"), "arrival": 113 * SECOND}]
    for events in (first, late, between):
        advance = engine.advance(table(events))
    texts = dict(
        zip(advance.alerts.column("event_id").to_pylist(), advance.alerts.column("text").to_pylist(), strict=True)
    )
    assert texts == {"e105": "late, a, b", "e110": "a, b, c"}


def test_a_text_shows_the_whole_list() -> None:
    """Other values have 200 characters there."""
    events = [event(n, place=f"{n}" * 60) for n in range(1, 9)]
    found = Truth(STREAM, rule({"m": {"values": "place", "over": "1h"}}, description="<{m}>"), table(events))
    assert found.violations().column("text").to_pylist()[-1] == f"<{', '.join(f'{n}' * 60 for n in range(1, 9))}>"


def test_when_refuses_a_list() -> None:
    """With what to write instead; doubles are no values to list."""
    with pytest.raises(RuleError) as refusal:
        rule({"m": {"values": "place", "over": "1m"}}, when="m = 'a'")
    (problem,) = refusal.value.problems
    assert (problem.place, problem.remedy) == ("when", "Compare a count_distinct of the same field")
    with pytest.raises(RuleError) as refusal:
        rule({"m": {"values": "ratio", "over": "1m"}})
    assert refusal.value.problems[0].place == "measures.m.values"


def test_arrow_types_do_not_matter_where_nothing_is_listed() -> None:
    """A list over nothing is NULL, also where every list is."""
    found = lists([event(1), event(2)], m={"values": "place", "over": "1m"}, n={"values": "seen", "over": "1m"})
    assert found == [{"m": None, "n": None}] * 2
    assert pa.types.is_string(Truth(STREAM, rule({}), table([])).table().column("measures").type)
