"""The timelines' arena grows by what is needed, whatever the sizes of batches and groups."""

import numpy as np
import pyarrow as pa
import pytest

from nightjar.rules.engine import Engine, timeline
from nightjar.rules.engine.kernels import segments
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

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


@pytest.mark.parametrize("by", [1, 15, 17, 400, 1500])
@pytest.mark.parametrize("stretch", [7, 100, 1499])
@pytest.mark.parametrize("groups", [1, 3, 200])
def test_many_rows_at_once_are_placed_however_far_out_of_order(
    groups: int, stretch: int, by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of them at a time: those a few places back one by one, the others by merging."""
    monkeypatch.setattr(timeline, "_STRETCH", stretch)
    rows = 1500
    batch = payments(0, rows, groups, seed=by)
    seconds = batch.column("event_time").cast(pa.int64()).to_numpy() // 1_000_000
    later = np.random.default_rng(by).integers(0, by, rows)
    arrival = pa.array((seconds + later) * 1_000_000).cast(pa.timestamp("us", "UTC"))
    arrived = batch.set_column(batch.column_names.index("arrival_time"), "arrival_time", arrival)
    rules = RuleSet.of([parse_rule(RULE, STREAMS)], 0)
    found, expected = ({}, {})
    for made, table in ((found, arrived), (expected, batch)):
        engine = Engine(STREAMS["transactions"], rules, batch=True)
        for result in engine.advance(table).rule_results:
            ids = engine.store.array("transaction_id", result.rows).to_pylist()
            made |= dict(zip(ids, result.values["n"].values.tolist(), strict=True))
    assert len(found) == rows
    assert found == expected


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
        for result in engine.advance(batch).rule_results:
            ids = engine.store.array("transaction_id", result.rows).to_pylist()
            found |= dict(zip(ids, result.values["n"].values.tolist(), strict=True))
        columns = (batch.column(name).to_pylist() for name in ("event_time", "transaction_id", "customer_id"))
        seen += zip(*columns, strict=True)
    counts: dict[int, int] = {}
    for _, name, group in sorted(seen):
        counts[group] = counts.get(group, 0) + 1
        expected[name] = counts[group]
    assert found == expected


def test_a_segment_that_grows_takes_the_place_that_another_has_left() -> None:
    """Else the arena would have to be brought together more often, which takes long."""
    arena = [np.zeros(64, np.int32), np.zeros(64, np.int64), *(np.zeros((64, 1), t) for t in ("u1", "i4", "i8"))]
    spans, holes = np.zeros((2, 4), np.int32), np.full(segments.CLASSES, -1, np.int32)
    spans[:, segments.SCRATCH] = -1
    times, nothing = np.arange(64), np.zeros(64, np.int32)
    used = stored = 0
    for group, rows in [(0, 8), (0, 4), (1, 8)]:
        fresh = [np.full((rows, 1), 1 + group, facts.dtype) for facts in arena[2:]]
        used, *_ = segments.insert(
            np.full(rows, group, np.int32),
            stored,
            *fresh,
            times,
            (np.empty(0, np.int64), np.empty(0, np.uint8)),
            nothing,
            nothing.view(np.uint8),
            0,
            spans,
            *arena,
            used,
            64,
            holes,
        )
        stored += rows
    assert spans[:, [segments.START, segments.END, segments.ROOM]].tolist() == [[10, 22, 14], [0, 8, 10]]
    assert used == 24
    assert arena[0][:8].tolist() == [*range(12, 20)]
    assert arena[0][10:22].tolist() == [*range(12)]
    assert [arena[4][at, 0] for at in (7, 10, 21)] == [2, 1, 1]
