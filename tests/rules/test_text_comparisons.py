"""Comparisons of texts, which the engine makes by the codes of its string tables."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.predicates import compile_predicate, truths
from nightjar.rules.streams import load_streams
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
TERMINALS = ["a", "b", None, "", "a", "é", None, "B"]


def events(ids: list[str], terminals: list[str | None], at: datetime = AT) -> pa.Table:
    """Payments of one customer, a second apart, that arrive at once."""
    rows: list[dict[str, Any]] = []
    for number, (name, terminal) in enumerate(zip(ids, terminals, strict=True)):
        time = at + timedelta(seconds=number)
        row = {"transaction_id": name, "event_time": time, "customer_id": "c", "amount": Decimal(1)}
        rows.append(row | {"terminal_id": terminal, "arrival_time": time})
    return pa.Table.from_pylist(rows, STREAM.schema.append(pa.field("arrival_time", INSTANT)))


def alerting(engine: Engine, table: pa.Table) -> list[str]:
    """The events with an alert."""
    found: list[str] = engine.advance(table).alerts.column("event_id").to_pylist()
    return found


def engine_of(**rule: Any) -> Engine:
    written = {"id": "r", "stream": "transactions", "group_by": ["customer_id"], **rule}
    return Engine(STREAM, RuleSet.of([parse_rule(written, STREAMS)], 0))


@pytest.mark.parametrize("where", [False, True])
@pytest.mark.parametrize("text", ["a", "", "é", "nowhere", "B"])
@pytest.mark.parametrize("condition", ["terminal_id = '{}'", "terminal_id <> '{}'", "'{}' = terminal_id"])
def test_they_are_equal_or_not(condition: str, text: str, where: bool) -> None:
    """Also with NULL, and with a text that no event has had yet."""
    written = condition.format(text)
    rule = {"where": written, "when": "amount > 0"} if where else {"when": written}
    ids = [f"e{number}" for number in range(len(TERMINALS))]
    equal = "<>" not in condition
    known = [(name, terminal) for name, terminal in zip(ids, TERMINALS, strict=True) if terminal is not None]
    expected = [name for name, terminal in known if (terminal == text) == equal]
    (held,) = truths([compile_predicate(written, STREAM.fields)], {"terminal_id": pl.Series(TERMINALS)}, len(ids))
    assert [name for name, holds in zip(ids, held.tolist(), strict=True) if holds] == expected
    assert alerting(engine_of(**rule), events(ids, TERMINALS)) == expected
    apart = engine_of(**rule)
    single = (events([name], [terminal]) for name, terminal in zip(ids, TERMINALS, strict=True))
    assert [found for table in single for found in alerting(apart, table)] == expected


def test_a_measure_of_texts() -> None:
    """The last terminal before this one."""
    measures = {"before": {"last": "terminal_id", "over": "1h", "excluding_current": True}}
    table = events(["e0", "e1", "e2", "e3"], ["a", "b", "a", "c"])
    assert alerting(engine_of(measures=measures, when="before = 'a'"), table) == ["e1", "e3"]
    assert alerting(engine_of(measures=measures, when="before <> 'a'"), table) == ["e2"]


def test_an_id_that_is_used_again_is_the_same_text() -> None:
    """Event ids have several codes once one has been admitted again, after the horizon has passed it."""
    measures = {"first": {"first": "transaction_id", "over": "1h"}}
    for rule in (
        {"where": "transaction_id = 'e'", "when": "amount > 0"},
        {"measures": measures, "when": "first = 'e'"},
    ):
        engine = engine_of(**rule)
        assert alerting(engine, events(["e"], ["a"])) == ["e"]
        engine.advance(events([], []), clock=int((AT + timedelta(days=9)).timestamp() * 1_000_000))
        assert alerting(engine, events(["e", "f"], ["a", "b"], AT + timedelta(days=10)))[:1] == ["e"]
