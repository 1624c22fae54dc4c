"""A batch may hold more text than Arrow can put into one array (2 GiB); here the limit is a few bytes."""

from decimal import Decimal

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine, columns, strings
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
WRITTEN = {
    "id": "r",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 1",
    "measures": {"n": {"count": "*", "over": "1d"}},
}
RULES = RuleSet.of([parse_rule(WRITTEN, STREAMS)], 0)


def payments(rows: int) -> pa.Table:
    """Payments a second apart in two chunks, half of them twice; the last is late."""
    schema = STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
    made = [
        {
            "transaction_id": f"t{at % (rows // 2)}",
            "event_time": 1_000_000 * at,
            "customer_id": "ann" * (at % 5),
            "terminal_id": None if at % 3 else "m",
            "amount": Decimal(at),
            "arrival_time": 1_000_000 * at * (1000 if at == rows // 2 - 1 else 1),
        }
        for at in range(rows)
    ]
    half = rows // 3
    return pa.concat_tables([pa.Table.from_pylist(part, schema) for part in (made[:half], made[half:])])


def test_nothing_is_lost_however_much_text_a_batch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events, alerts, late events, deltas and snapshots are as for a batch that fits."""
    table = payments(60)
    fits = Engine(STREAM, RULES)
    expected = fits.advance(table)
    monkeypatch.setattr(columns, "_LARGEST_TEXT", 70)
    monkeypatch.setattr(strings, "_AT_ONCE", 50)
    engine = Engine(STREAM, RULES)
    got = engine.advance(table)
    assert engine.rows == 30
    assert (got.duplicates, got.alerts, got.late) == (expected.duplicates, expected.alerts, expected.late)
    assert got.delta.events.num_rows == 30
    assert got.delta.events.equals(expected.delta.events)
    assert engine.snapshot().events.equals(fits.snapshot().events)
    restored = Engine(STREAM, RULES)
    restored.restore([got.delta])
    assert restored.snapshot().events.equals(fits.snapshot().events)
    truth = Truth(STREAM, RULES, table)
    assert (truth.events, truth.duplicates, truth.rows()) == (60, 30, 30)
