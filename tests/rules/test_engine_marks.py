"""Every row is marked by every predicate, however many there are and whenever they came."""

from decimal import Decimal

import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine, predicate_bitmaps
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
# Marks are kept in words of 8 bits: these take seventeen.
THRESHOLDS = range(130)


def rule(threshold: int) -> Rule:
    """Counts a customer's payments of more than so many cents."""
    measures = {"n": {"count": "*", "over": "1d"}, "first": {"first": "amount", "over": "1d"}}
    written = {"id": f"over-{threshold}", "stream": "transactions", "group_by": ["customer_id"], "measures": measures}
    return parse_rule(written | {"where": f"amount > {threshold / 100}", "when": "n > 1000"}, STREAMS)


def payments(cents: list[int | None], second: int) -> pa.Table:
    """One customer's payments, a second apart."""
    times = pa.array([(second + i) * 1_000_000 for i in range(len(cents))]).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "transaction_id": [str(second + i) for i in range(len(cents))],
            "event_time": times,
            "customer_id": ["c"] * len(cents),
            "terminal_id": pa.nulls(len(cents), pa.string()),
            "amount": pa.array([None if c is None else Decimal(c) / 100 for c in cents], pa.decimal128(12, 2)),
            "arrival_time": times,
        }
    )


def counts(engine: Engine, batch: pa.Table) -> dict[str, int]:
    """Each rule's count at the batch's last event."""
    return {r.compiled.rule.id: int(r.values["n"].values[-1]) for r in engine.advance(batch).rule_results}


def test_many_predicates_and_those_that_come_later_count_the_same_rows() -> None:
    """Rows that came before a rule count for it too, beside the marks of the rules that stay."""
    before, after = [5, 70, None, 129, 200, 64], [63, 65, 128, None, 1, 300]
    engine = Engine(STREAMS["transactions"], RuleSet.of([rule(t) for t in THRESHOLDS[::2]], 0))
    found = counts(engine, payments(before, 0))
    assert found == {f"over-{t}": sum(c > t for c in before if c is not None) for t in THRESHOLDS[::2]}
    engine.set_rules(RuleSet.of([rule(t) for t in reversed(THRESHOLDS)], 0))
    found = counts(engine, payments(after, 10))
    assert found == {f"over-{t}": sum(c > t for c in before + after if c is not None) for t in THRESHOLDS}


def test_rules_that_come_and_go_take_each_others_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule leaves behind is nothing to the next, and a rule that stays keeps its marks."""
    monkeypatch.setattr(predicate_bitmaps, "_STRETCH", 4)
    cents = [5, 70, None, 129, 200, 64, 1, 0, 128, 127]
    engine = Engine(STREAMS["transactions"], RuleSet())
    seen: list[int | None] = []
    for turn, chosen in enumerate([THRESHOLDS[:70], THRESHOLDS[60:], THRESHOLDS[::3], THRESHOLDS, THRESHOLDS[5:6]]):
        engine.set_rules(RuleSet.of([rule(t) for t in chosen], 0))
        seen += cents
        found = counts(engine, payments(cents, 100 * turn))
        assert found == {f"over-{t}": sum(c > t for c in seen if c is not None) for t in chosen}
    assert engine._masks.words.shape[1] <= 40
