"""A derived field has the value that exact arithmetic gives for its expression, in every event alike."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nightjar.rules.derived import derived_field, with_derived
from nightjar.rules.errors import NightjarError
from nightjar.rules.events import recorded_table
from nightjar.rules.predicates.nodes import Family
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import Kind
from tests.rules.test_predicate_rows import EXPRESSIONS, hostile_rows, value_of
from tests.support.exact_evaluator import evaluated
from tests.support.sql_conditions import COLUMNS

ROWS = hostile_rows(120)
PLAIN: dict[str, Any] = {name: str(kind) for name, kind in COLUMNS.items()}


def stream_with(sql: str) -> Stream:
    fields = {"id": "string", "at": "timestamp", **PLAIN, "derived": {"sql": sql}}
    declared = {"event_id": "id", "event_time": "at", "entities": ["name"], "fields": fields}
    return streams_from_mapping({"s": declared}, "tests")["s"]


def events(rows: list[dict[str, Any]], stream: Stream) -> pa.Table:
    """Physical values by column, as events."""

    def value(name: str, held: Any) -> Any:
        kind = COLUMNS[name]
        return Decimal(held).scaleb(-kind.scale) if kind.kind is Kind.DECIMAL and held is not None else held

    made = [{"id": "e", "at": 0, **{name: value(name, row[name]) for name in COLUMNS}} for row in rows]
    return recorded_table(made, stream)


def fits(sql: str) -> bool:
    try:
        derived_field(sql, COLUMNS)
    except NightjarError:
        return False
    return True


FITTING = [sql for sql in EXPRESSIONS if fits(sql)]


def test_most_expressions_can_be_fields() -> None:
    assert len(FITTING) > 0.8 * len(EXPRESSIONS)


@pytest.mark.parametrize("sql", FITTING)
def test_the_value_is_exact_and_the_row_s_own(sql: str) -> None:
    stream, node = stream_with(sql), value_of(sql)
    together = with_derived(events(ROWS, stream), stream).column("derived")
    assert together.type == stream.fields["derived"].arrow
    apart = [with_derived(events([row], stream), stream).column("derived")[0].as_py() for row in ROWS[::7]]
    found = together.to_pylist()
    assert repr(found[::7]) == repr(apart)
    if node.type.family is Family.TIMESTAMP:
        found = [None if instant is None else microseconds(instant) for instant in found]
    for row, value in zip(ROWS, found, strict=True):
        expected = evaluated(node, row)
        if node.type.family is Family.EXACT and expected is not None:
            expected = Decimal(expected).scaleb(-node.type.scale)
        if node.type.family is Family.DOUBLE and expected is not None and not math.isfinite(expected):
            expected = None
        assert value == expected, row


def test_no_events_have_no_values() -> None:
    stream = stream_with("LOWER(name)")
    assert with_derived(events([], stream), stream).schema.names == list(stream.fields)


def test_a_text_that_is_too_long_for_a_field_is_null() -> None:
    stream = stream_with("UPPER(name)")
    rows = [{**ROWS[0], "name": "ß" * 2000}, {**ROWS[0], "name": "ß" * 1000}]
    assert with_derived(events(rows, stream), stream).column("derived").to_pylist() == [None, "SS" * 1000]
