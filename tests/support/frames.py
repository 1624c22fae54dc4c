"""Tables that every expectation holds of, small enough to see what one changed value breaks."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from nightjar.lake.tables import RECONCILIATION, events_table
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.truth import VIOLATION_SCHEMA, Truth
from nightjar.rules.versions import RuleSet

DAY = date(2026, 1, 5)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
STREAMS = load_streams()
STREAM = STREAMS["transactions"]
EVENTS = events_table(STREAM)
RULES = RuleSet.of(
    [
        parse_rule(
            {
                "id": "spent",
                "stream": "transactions",
                "group_by": ["customer_id"],
                "measures": {"spent": {"sum": "amount", "over": "1h"}},
                "when": "spent > 25",
            },
            STREAMS,
        )
    ],
    0,
)


def event(number: int, **changed: Any) -> dict[str, Any]:
    """The record at one offset of one of two partitions; every fifth is unusable."""
    at = NOON + timedelta(minutes=number)
    row = dict.fromkeys(EVENTS.columns) | {
        "partition": number % 2,
        "offset": 100 + number // 2,
        "arrival_time": at,
        "arrival_date": DAY,
    }
    if number % 20 == 19:
        row |= {"rejected": "not_json", "detail": "no JSON", "original": b"{"}
    else:
        row |= {
            "transaction_id": f"t{number}",
            "event_time": at - timedelta(seconds=5),
            "customer_id": f"c{number % 3}",
            "terminal_id": "m",
            "amount": Decimal(number),
        }
    return row | changed


def events(changed: dict[int, dict[str, Any]] | None = None, *, wider: bool = False) -> pl.DataFrame:
    """40 records of one day; changed: the number of a row to new values of some columns. wider: an amount may have four
    digits after the point."""
    rows = [event(number, **(changed or {}).get(number, {})) for number in range(40)]
    schema = EVENTS.arrow
    if wider:
        schema = schema.set(schema.get_field_index("amount"), pa.field("amount", pa.decimal128(20, 4)))
    return pl.DataFrame(pa.Table.from_pylist(rows, schema))


def violations(changed: dict[int, dict[str, Any]] | None = None) -> pa.Table:
    """What the rule concludes about the clean events."""
    rows = [{**row, **(changed or {}).get(i, {})} for i, row in enumerate(truth().to_pylist())]
    return pa.Table.from_pylist(rows, VIOLATION_SCHEMA)


def outcomes(changed: dict[int, dict[str, Any]] | None = None) -> pl.DataFrame:
    """Three matched, two missed, two retracted and a revised one: 6 violations, 6 alerts."""
    of_alerts = ["matched"] * 3 + ["missed"] * 2 + ["retracted"] * 2 + ["revised"]
    rows = [
        {
            "day": DAY,
            "alert_id": f"a{i}",
            "rule_id": "r",
            "rule_version": 1,
            "stream": "transactions",
            "group": "{}",
            "event_id": f"t{i}",
            "event_time": NOON,
            "outcome": outcome,
            "cause": None if outcome == "matched" else "late_event",
            **(changed or {}).get(i, {}),
        }
        for i, outcome in enumerate(of_alerts)
    ]
    return pl.DataFrame(pa.Table.from_pylist(rows, RECONCILIATION.arrow))


def truth() -> pa.Table:
    """The violations of the clean events."""
    usable = [row for row in map(event, range(40)) if row["rejected"] is None]
    fields = [{name: row[name] for name in STREAM.fields} for row in usable]
    return Truth(STREAM, RULES, pa.Table.from_pylist(fields, STREAM.schema)).violations()
