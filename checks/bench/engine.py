"""Measures the engine's speed on one core, compared with the minimal NumPy work on the same data.

    python -m checks.bench.engine [--events 1000000] [--repeats 3]

Five rules with ten measures of mixed kinds over one hour, grouped by 10,000 customers. The control sorts the same
events by (group, time, id), gathers four columns and sums them. Compilation happens before the turns and is reported
separately.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Callable

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa

from checks.bench.figures import emit, log_progress, timed
from nightjar.rules.engine import Engine
from nightjar.rules.engine.carried import load_kernels
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.versions import RuleSet

HOUR = 3_600_000_000
GROUPS = 10_000
BATCH = 200
LARGE_BATCH = 20_000
RULES: list[dict[str, object]] = [
    {
        "id": "velocity",
        "measures": {"n": {"count": "*", "over": "1h"}, "spent": {"sum": "amount", "over": "1h"}},
        "when": "n > 1000000 AND spent > 500",
    },
    {
        "id": "unusual",
        "where": "amount > 0",
        "measures": {
            "usual": {"avg": "amount", "over": "1h", "excluding_current": True},
            "spread": {"stddev": "amount", "over": "1h", "excluding_current": True},
        },
        "when": "amount > usual + 1000 * spread AND usual > 1000000",
    },
    {
        "id": "range",
        "measures": {"least": {"min": "amount", "over": "1h"}, "most": {"max": "amount", "over": "1h"}},
        "when": "most - least > 1000000",
    },
    {
        "id": "roaming",
        "measures": {
            "terminals": {"count_distinct": "terminal_id", "over": "1h"},
            "large": {"count": "*", "over": "1h", "where": "amount >= 50"},
        },
        "when": "terminals > 100000 AND large > 3",
    },
    {
        "id": "moved",
        "measures": {
            "before": {"last": "terminal_id", "over": "1h", "excluding_current": True},
            "spent_large": {"sum": "amount", "over": "1h", "where": "amount >= 50"},
        },
        "when": "spent_large > 100000000 AND before <> terminal_id",
    },
]


def history(events: int, *, hot: bool, seed: int) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Events in order of time, a million per four hours; hot: half of them are one customer's, all in one window."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, HOUR if hot else 4 * HOUR, events)) + 1_600_000_000_000_000
    customers = rng.integers(1, GROUPS, events)
    if hot:
        customers[rng.random(events) < 0.5] = 0
    cents = rng.integers(100, 20_000, events)
    terminals = rng.integers(0, 10_000, events)
    ids = rng.integers(0, 1 << 62, events)  # unrelated to the order of time, like real ids
    words = np.empty((events, 2), np.int64)
    words[:, 0], words[:, 1] = cents, 0
    stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "transaction_id": pa.array([f"{i:x}" for i in ids]),
            "event_time": stamps,
            "customer_id": pa.array([f"c{c}" for c in customers]),
            "terminal_id": pa.array([f"m{t}" for t in terminals]),
            "amount": pa.Array.from_buffers(pa.decimal128(12, 2), events, [None, pa.py_buffer(words)]),
            "arrival_time": stamps,
        }
    )
    return table, {"group": customers, "time": times, "id": ids, "amount": cents, "terminal": terminals}


def numpy_alone(columns: dict[str, np.ndarray]) -> None:
    """Run the control."""
    order = np.lexsort((columns["id"], columns["time"], columns["group"]))
    for name in ("time", "id", "amount", "terminal"):
        np.cumsum(columns[name][order])


def run(
    ruleset: RuleSet,
    table: pa.Table,
    size: int,
    start: int = 0,
    *,
    stream: Stream | None = None,
    to_the_end: bool = False,
    tables: TableRows | None = None,
    convert: Callable[[pa.Table], pa.Table] | None = None,
) -> float:
    """Seconds to advance an engine over the table in batches of `size`, after a first batch of `start` events.

    stream: of the events; None: the shipped `transactions`. to_the_end: whether the clock of each batch, also the
    first, is the arrival of its last event and not of its first. tables: the rows of those that rules may ask.
    convert: makes the stream's events of those of the table, in the time that is measured.
    """
    engine = Engine(load_streams()["transactions"] if stream is None else stream, ruleset, tables=tables)
    clocks = table.column("arrival_time").cast(pa.int64()).to_numpy()
    converted = convert or (lambda events: events)
    if start:
        engine.advance(converted(table.slice(0, start)), int(clocks[start - 1]) if to_the_end else None)
    batches = [
        (table.slice(at, size), int(clocks[min(at + size, table.num_rows) - 1] if to_the_end else clocks[at]))
        for at in range(start, table.num_rows, size)
    ]

    def work() -> None:
        for batch, clock in batches:
            advance = engine.advance(converted(batch), clock)
            # made on request: what the job asks for
            _ = advance.delta, advance.late if len(advance.rows.late) else None

    return timed(work)


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    streams = load_streams()
    rules = [parse_rule({"stream": "transactions", "group_by": ["customer_id"], **rule}, streams) for rule in RULES]
    ruleset = RuleSet.of(rules, 0)
    log_progress("generating the events")
    uniform, columns = history(options.events, hot=False, seed=1)
    hot, _ = history(options.events + 4 * LARGE_BATCH, hot=True, seed=2)
    load_kernels()
    gc.freeze()  # as in the job's Python processes
    compiled = timed(lambda: (run(ruleset, uniform.slice(0, 2000), 500), run(ruleset, hot.slice(0, 2000), 500)))
    print(json.dumps({"name": "first calls: compiled, or read from the disk", "value": compiled, "unit": "s"}))
    bulk, batches, control, large, hot_large, small, hot_small = ([] for _ in range(7))
    tail = options.events
    for turn in range(options.repeats):
        log_progress(f"turn {turn + 1} of {options.repeats}")
        control.append(timed(lambda: numpy_alone(columns)))
        bulk.append(run(ruleset, uniform, options.events))
        batches.append(run(ruleset, uniform, BATCH))
        first = options.events - 4 * LARGE_BATCH
        large.append(run(ruleset, uniform, LARGE_BATCH, first))
        hot_large.append(run(ruleset, hot, LARGE_BATCH, tail))
        small.append(run(ruleset, uniform.slice(0, first + 100 * BATCH), BATCH, first))
        hot_small.append(run(ruleset, hot.slice(0, tail + 100 * BATCH), BATCH, tail))
    met = emit("bulk", "s", bulk, "numpy sort, gather, cumsum", control, goal=4)
    met &= emit("batches of 200", "s", batches, "numpy sort, gather, cumsum", control, goal=10)
    met &= emit("half on one key, batches of 20000", "s", hot_large, "uniform keys", large, goal=2)
    met &= emit("half on one key, batches of 200", "s", hot_small, "uniform keys", small, goal=3)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
