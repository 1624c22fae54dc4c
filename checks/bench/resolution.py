"""Measures what a resolution saves: memory of a long window, and the time of small batches, with and without it.

    python -m checks.bench.resolution [--groups 100] [--hours 8] [--resolutions 1m 1h]

One rule with a count, a sum, an average and a maximum over `--hours`; every group has an event a second, in batches of
20,000. Once the window is full the process's resident memory is read, and then 100 batches of 200 events are timed.
Every engine has its own process. An event has four columns besides the time, as in checks/bench/memory.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa

from checks.bench.figures import log_progress, timed
from checks.bench.memory import resident
from nightjar.rules.engine import Engine
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

SECOND = 1_000_000
START = 1_600_000_000 * SECOND
BATCH, SMALL, SMALL_BATCHES = 20_000, 200, 100


def batch(first: int, events: int, groups: int) -> pa.Table:
    """Events from the number `first` on, each group's a second apart."""
    numbers = np.arange(first, first + events)
    rng = np.random.default_rng(first)
    times = pa.array(START + numbers * SECOND // groups).cast(pa.timestamp("us", "UTC"))
    words = np.zeros((events, 2), np.int64)
    words[:, 0] = rng.integers(100, 20_000, events)
    return pa.table(
        {
            "transaction_id": pa.array([f"{i:x}" for i in rng.integers(0, 1 << 62, events)]),
            "event_time": times,
            "customer_id": pa.array([f"c{c}" for c in rng.integers(0, groups, events)]),
            "terminal_id": pa.array([f"m{t}" for t in rng.integers(0, 1000, events)]),
            "amount": pa.Array.from_buffers(pa.decimal128(12, 2), events, [None, pa.py_buffer(words)]),
            "arrival_time": times,
        }
    )


def measure(groups: int, hours: int, resolution: str | None) -> None:
    """Print the figures of one engine."""
    streams = load_streams()
    option = {} if resolution is None else {"resolution": resolution}
    functions = {"n": {"count": "*"}, "s": {"sum": "amount"}, "a": {"avg": "amount"}, "m": {"max": "amount"}}
    rule = {
        "id": "long",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "measures": {name: {**function, "over": f"{hours}h", **option} for name, function in functions.items()},
        "when": "n > 1000000000 AND s > a AND m > 0",
    }
    ruleset = RuleSet.of([parse_rule(rule, streams)], 0)
    warm = Engine(streams["transactions"], ruleset)
    for at in range(10):
        warm.advance(batch(at * 500, 500, 10), START + (at + 1) * 500 * SECOND // 10)
    del warm
    before, engine = resident(), Engine(streams["transactions"], ruleset)
    events = groups * hours * 3600

    def advance(first: int, count: int) -> None:
        engine.advance(batch(first, count, groups), START + (first + count) * SECOND // groups)

    def held() -> tuple[int, int]:
        steps = sum(table.num_rows for table in engine.snapshot().folds.values())
        return resident() - before, steps

    third = events // 3 // BATCH * BATCH
    for first in range(0, third, BATCH):
        advance(first, BATCH)
    earlier = held()  # by then the rows that are not folded yet are as many as ever
    for first in range(third, events, BATCH):
        advance(first, BATCH)
    used, steps = held()
    made = [batch(events + BATCH + at * SMALL, SMALL, groups) for at in range(SMALL_BATCHES)]
    clocks = [START + (events + BATCH + (at + 1) * SMALL) * SECOND // groups for at in range(SMALL_BATCHES)]
    seconds = timed(lambda: [engine.advance(*each) for each in zip(made, clocks, strict=True)])
    name = "without a resolution" if resolution is None else f"resolution {resolution}"
    log_progress(f"{name}: {used / 1e6:.0f} MB for {events:,} events, {steps:,} steps")
    common = {"name": name, "groups": groups, "hours": hours, "events in windows": events}
    memory = {"MB": round(used / 1e6, 1), "bytes an event": round(used / events, 2)}
    rows = {"rows": engine.rows, "steps": steps} | (
        {"bytes a step": round((used - earlier[0]) / (steps - earlier[1]), 1)} if steps else {}
    )
    print(json.dumps({**common, **memory, **rows, "ms a batch of 200": round(1000 * seconds / SMALL_BATCHES, 2)}))


def main() -> None:
    """Measure each engine in its own process."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--groups", type=int, default=100)
    arguments.add_argument("--hours", type=int, default=8)
    arguments.add_argument("--resolutions", nargs="*", default=["1m", "1h"])
    arguments.add_argument("--only", help="one of the resolutions, or none: measured in this process")
    options = arguments.parse_args()
    if options.only:
        measure(options.groups, options.hours, None if options.only == "none" else options.only)
        return
    for resolution in ("none", *options.resolutions):
        command = [sys.executable, "-m", "checks.bench.resolution", "--groups", str(options.groups)]
        subprocess.run([*command, "--hours", str(options.hours), "--only", resolution], check=True)


if __name__ == "__main__":
    main()
