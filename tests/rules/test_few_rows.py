"""A few rows are written one by one, many by their columns: with the same text (engine/columns.py: FEW)."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.contracts.alerts import ALERT
from nightjar.contracts.columns import alert_columns, texts
from nightjar.rules.alert_schema import ALERT_SCHEMA
from nightjar.rules.engine import Engine
from nightjar.rules.engine.alert_columns import json_objects, jsonable
from nightjar.rules.engine.columns import FEW
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.types import INSTANT, FieldType
from nightjar.rules.versions import RuleSet

MANY = FEW + 1
_TEXTS = st.text(max_size=20)
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  with a zone
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXTS,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "decimal(18,8)": st.decimals(-(10**10) + 1, 10**10 - 1, places=8, allow_nan=False),
    "timestamp": _TIMES,
}
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), min_size=1, max_size=6)


def columns_of(rows: list[tuple[Any, ...]]) -> dict[str, pa.Array]:
    """The values as columns of a batch, as they are written."""
    kinds = {name: FieldType.parse(name) for name in VALUES}
    arrays = (pa.array([row[at] for row in rows], kind.arrow) for at, kind in enumerate(kinds.values()))
    return {name: jsonable(array, kinds[name]) for name, array in zip(VALUES, arrays, strict=True)}


@given(ROWS)
def test_objects_of_any_values(rows: list[tuple[Any, ...]]) -> None:
    """NULLs, the longest numbers, doubles of any exponent, and any characters."""
    few = json_objects(columns_of(rows), len(rows)).to_pylist()
    many = [rows[at % len(rows)] for at in range(MANY)]
    assert json_objects(columns_of(many), MANY).to_pylist()[: len(rows)] == few


ALERTS = st.lists(
    st.fixed_dictionaries(
        dict.fromkeys(ALERT_SCHEMA.names, _TEXTS)
        | {"revision": st.integers(1, 2**63 - 1), "rule_version": st.integers(1, 9), "muted": st.booleans()}
        | {"event_time": _TIMES, "group": st.just('{"a":1e+20}'), "measures": st.just('{"n":0.10}')}
    ),
    min_size=1,
    max_size=4,
)


@given(ALERTS)
def test_records_of_alerts(alerts: list[dict[str, Any]]) -> None:
    """JSON that a column holds stays as it is."""
    written = []
    for rows in (alerts, [alerts[at % len(alerts)] for at in range(MANY)]):
        columns = alert_columns(pa.Table.from_pylist(rows, ALERT_SCHEMA), 1_700_000_000_000_000)
        written.append(texts(ALERT, columns, len(rows)))
    few, many = written
    assert few.type == many.type
    assert many.to_pylist()[: len(alerts)] == few.to_pylist()


FIELDS: dict[str, Any] = {name.split("(")[0]: {"type": name, "optional": True} for name in VALUES}
FIELDS["hidden"] = {"type": "string", "sensitive": True, "optional": True}
STREAM: Stream = streams_from_mapping(
    {
        "things": {
            "topic": "things",
            "event_id": "id",
            "event_time": "at",
            "entities": ["entity"],
            "allowed_lateness": "10m",
            "max_future_skew": "1m",
            "fields": {"id": "string", "at": "timestamp", "entity": "string"} | FIELDS,
        }
    },
    "tests",
)["things"]
RULE = {
    "id": "every",
    "stream": "things",
    "group_by": ["entity", "double"],
    "measures": {"n": {"count": "*", "over": "1h"}, "seen": {"values": "string", "over": "1h"}},
    "when": "n >= 1",
    "description": "{n} {seen} {hidden} {string} {int64} {boolean} {double} {decimal} {timestamp} {} {unknown",
}


@given(ROWS)
@pytest.mark.parametrize("description", [RULE["description"], "always the same", "{double}"])
def test_alerts_of_a_batch(description: str, rows: list[tuple[Any, ...]]) -> None:
    """Events that come together have the alerts that they have one by one: text, group, measures and id."""
    schema = pa.schema([*STREAM.schema, ("arrival_time", INSTANT)])
    rules = RuleSet.of([parse_rule(RULE | {"description": description}, {"things": STREAM})], 0)
    events = [
        {"id": f"e{at}", "at": 1_000_000 * at, "arrival_time": 1_000_000 * at, "entity": str(at), "hidden": "secret"}
        | dict(zip(FIELDS, rows[at % len(rows)], strict=False))
        for at in range(MANY)
    ]
    table = pa.Table.from_pylist(events, schema)
    together, apart = Engine(STREAM, rules), Engine(STREAM, rules)
    expected = together.advance(table)
    found = [apart.advance(table.slice(at, 1)) for at in range(len(rows))]
    alerting = sum(row[3] is not None for row in rows)  # events without the group's double have no group
    assert expected.alerts.num_rows > FEW or alerting < len(rows)
    for name, whole in (("alerts", expected.alerts), ("announcements", expected.announcements)):
        one_by_one = pa.concat_tables([getattr(each, name) for each in found])
        assert one_by_one.num_rows == alerting
        assert one_by_one.equals(whole.slice(0, alerting))
    assert "secret" not in "".join(expected.alerts.column("text").to_pylist())


def test_a_long_value_is_whole_in_json_and_a_small_decimal_has_no_exponent() -> None:
    """As many rows have them."""
    few = json_objects({"a": pa.array(["é" * 300])}, 1)
    assert few.to_pylist() == [f'{{"a":"{"é" * 300}"}}']
    small = jsonable(pa.array([Decimal("0.00000001")], pa.decimal128(18, 8)), FieldType.parse("decimal(18,8)"))
    assert small.to_pylist() == ["0.00000001"]
