"""The timelines' arena grows by what is needed, whatever the sizes of batches and groups."""

import numpy as np
import pyarrow as pa
import pytest

from rules.engine import Engine
from rules.model import parse_rule
from rules.streams import load_streams
from rules.versions import RuleSet

STREAMS = load_streams()
RULE = {
    "id": "r",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1d"}},
    "when": "n > 1000000",
}


def payments(first: int, rows: int, groups: int, seed: int) -> pa.Table:
    """Payments one second apart, shuffled in time, of so many customers."""
    rng = np.random.default_rng(seed)
    times = pa.array((first + rng.permutation(rows)) * 1_000_000).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "transaction_id": pa.array([str(first + i) for i in range(rows)]),
            "event_time": times,
            "customer_id": pa.array([str(g) for g in rng.integers(0, groups, rows)]),
            "terminal_id": pa.nulls(rows, pa.string()),
            "amount": pa.nulls(rows, pa.decimal128(12, 2)),
            "arrival_time": times,
        }
    )


@pytest.mark.parametrize("groups", [1, 3, 40, 64, 1000])
@pytest.mark.parametrize("sizes", [[100], [63, 64, 65], [300], [1, 255, 256, 257], [1500, 1, 1500], [20] * 60], ids=str)
def test_batches_of_any_size_find_room(sizes: list[int], groups: int) -> None:
    """Once, a first batch that wanted a little more than the arena had made it ask for the same room for ever."""
    engine = Engine(STREAMS["transactions"], RuleSet.of([parse_rule(RULE, STREAMS)], 0), batch=True)
    first, expected, found = 0, {}, {}
    seen: list[tuple[str, str, int]] = []
    for size in sizes:
        batch = payments(first, size, groups, seed=first)
        first += size
        for result in engine.advance(batch).evaluated:
            ids = engine.store.array("transaction_id", result.rows).to_pylist()
            found |= dict(zip(ids, result.values["n"].values.tolist(), strict=True))
        columns = (batch.column(name).to_pylist() for name in ("event_time", "transaction_id", "customer_id"))
        seen += zip(*columns, strict=True)
    counts: dict[int, int] = {}
    for _, name, group in sorted(seen):
        counts[group] = counts.get(group, 0) + 1
        expected[name] = counts[group]
    assert found == expected
