"""Ids whose 64-bit hashes are equal are different ids: FNV-1a is no secret, and anybody can make such a pair."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations

import pyarrow as pa

from checks.fuzz.hostile_events import COLLIDING
from nightjar.rules.engine import Engine
from nightjar.rules.engine.kernels.texts import hash_bytes
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.truth import Truth
from nightjar.rules.types import TIMESTAMP
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
COUNTING = {
    "id": "count",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 1",
    "measures": {"n": {"count": "*", "over": "1h"}},
}


def events(ids: tuple[str, ...]) -> pa.Table:
    """Payments of one customer, all at one time."""
    one = {"event_time": AT, "customer_id": "c", "terminal_id": "m", "amount": Decimal(1), "arrival_time": AT}
    schema = STREAM.schema.append(pa.field("arrival_time", TIMESTAMP.arrow))
    return pa.Table.from_pylist([{**one, STREAM.event_id: identity} for identity in ids], schema)


def test_equal_hashes_are_distinguished_and_ordered_by_their_bytes() -> None:
    """None is a duplicate of another, and the order of arrival changes nothing."""
    ids = [*COLLIDING, *(f"{identity}-1" for identity in COLLIDING)]
    pairs = [{hash_bytes(pa.py_buffer(each.encode()), 0, len(each)) for each in pair} for pair in (ids[:2], ids[2:])]
    assert [len(pair) for pair in pairs] == [1, 1]
    ruleset = RuleSet.of([parse_rule(COUNTING, STREAMS)], 0)
    found = []
    for order in permutations(ids):
        engine, last = Engine(STREAM, ruleset), {}
        for identity in order:
            for alert in engine.advance(events((identity,))).alerts.to_pylist():
                last[alert["event_id"]] = json.loads(alert["measures"])["n"]
        truth = Truth(STREAM, ruleset, events(order)).violations().to_pylist()
        assert last == {row["event_id"]: json.loads(row["measures"])["n"] for row in truth}
        assert engine.advance(events(order)).duplicates == len(ids)
        found.append(last)
    assert all(each == found[0] for each in found)
    assert found[0][COLLIDING[0]] + 1 == found[0][COLLIDING[1]]
