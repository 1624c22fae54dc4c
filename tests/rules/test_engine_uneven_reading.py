"""Partitions of a topic that are read unevenly: batches then bring what had arrived before what is held."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import Engine, memory
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

SECOND = 1_000_000
STREAMS = load_streams()
STREAM = STREAMS["transactions"]
LATENESS = STREAM.allowed_lateness
MEASURES: list[dict[str, Any]] = [
    {"count": "*", "over": "30m"},
    {"count": "*", "over": "2h", "since": "amount >= 8"},
    {"count_distinct": "amount", "over": "2h", "per": ["customer_id"], "excluding_current": True},
]


def rule(field: str, number: int) -> dict[str, Any]:
    """A rule over groups of a field, with one of the MEASURES."""
    measures = {"n": MEASURES[number], "spent": {"sum": "amount", "over": "1h"}}
    named = {"id": f"{field}-{number}", "stream": "transactions", "group_by": [field]}
    return {**named, "measures": measures, "when": "n >= 2"}


WRITTEN = [rule(field, number) for field in ("customer_id", "terminal_id") for number in range(len(MEASURES))]
RULES = RuleSet.of([parse_rule(written, STREAMS) for written in WRITTEN], 0)


def drawn(random: Random, count: int) -> pa.Table:
    """Events in the order of arrival, no two of which arrive at once; every fourth is late."""
    arrival, rows = 10**15, []
    for number in range(count):
        arrival += random.randint(1, 400) * SECOND
        lateness = random.randint(0, LATENESS)
        if random.random() < 0.25:
            lateness = LATENESS + random.randint(1, 3600 * SECOND)
        rows.append(
            {
                "transaction_id": f"e{number}",
                "event_time": arrival - lateness,
                "arrival_time": arrival,
                "customer_id": random.choice("ab"),
                "terminal_id": random.choice("mn"),
                "amount": Decimal(random.randint(1, 9)),
            }
        )
    return pa.Table.from_pylist(rows, STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC"))))


def reported(batches: list[pa.Table], random: Random | None = None) -> dict[str, Any]:
    """The measures of the final alerts. random: when to lose everything in memory."""
    engine, deltas, last = Engine(STREAM, RULES), [], {}
    for batch in batches:
        if random is not None and random.random() < 0.3:
            lost, engine = engine, Engine(STREAM, RULES)
            engine.restore(random.sample(deltas, len(deltas)))
            engine.resume(lost.position)
            deltas = [engine.snapshot()]
        advance = engine.advance(batch)
        deltas.append(advance.delta)
        for alert in advance.alerts.to_pylist():
            assert alert["revision"] == 1 + (last[alert["alert_id"]]["revision"] if alert["alert_id"] in last else 0)
            last[alert["alert_id"]] = alert
    return {key: json.loads(alert["measures"]) for key, alert in last.items() if alert["kind"] == "alert"}


@given(st.integers(0, 1 << 32), st.sampled_from((memory.BLOCK, 4)))
def test_final_alerts_do_not_depend_on_how_evenly_partitions_are_read(seed: int, block: int) -> None:
    """S8: a late event counts for what arrived after it, and for nothing else, whichever is read first.

    block: of how many rows a store knows when they arrived.
    """
    random = Random(seed)  # noqa: S311  no secrets are drawn here
    events = drawn(random, 40)
    of_partition = pa.array([random.randint(0, 1) for _ in range(events.num_rows)])
    left = [events.filter(pc.equal(of_partition, number)) for number in (0, 1)]
    batches = []
    while any(part.num_rows for part in left):
        number, count = random.randint(0, 1), random.randint(0, 8)
        batches.append(left[number].slice(0, count))
        left[number] = left[number].slice(count)
    expected = reported([events])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK", block)
        assert reported(batches, random) == expected
