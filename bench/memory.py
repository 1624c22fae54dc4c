"""What a retained event costs the engine in memory, ids included, and how many a machine holds.

    python -m bench.memory [--events 2000000]

One group-by, four columns beside the time (two of them texts), an engine that keeps everything. The process's resident
memory is read before and after, and once more after as many events again have pushed the first ones out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import psutil
import pyarrow as pa

from bench.engine import HOUR, RULES, history
from bench.figures import say
from rules.engine import Engine
from rules.model import parse_rule
from rules.streams import load_streams
from rules.versions import RuleSet

BATCH = 50_000
MACHINE = 24 << 30


def resident() -> int:
    """Bytes of this process."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    return psutil.Process().memory_info().rss


def main() -> None:
    """Measure and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=2_000_000)
    options = arguments.parse_args()
    streams = load_streams()
    rules = [parse_rule({"stream": "transactions", "group_by": ["customer_id"], **rule}, streams) for rule in RULES]
    engine = Engine(streams["transactions"], RuleSet.of(rules, 0))
    engine.advance(history(BATCH, hot=False, seed=9)[0].slice(0, 1000))  # compiled, imported
    before, at, marks = resident(), 0, []
    for round_ in range(3):
        made = 0
        while made < options.events:
            batch = history(BATCH, hot=False, seed=100 + at)[0]
            # history() spreads its events over four hours; here each batch is a slice of one hour
            begin = 1_600_000_000_000_000 + at * HOUR // (options.events // BATCH)
            times = pa.array((batch.column("event_time").cast(pa.int64()).to_numpy() - 1_600_000_000_000_000) // 4)
            times = pa.array(times.to_numpy() // (options.events // BATCH) + begin).cast(pa.timestamp("us", "UTC"))
            batch = batch.set_column(1, "event_time", times).set_column(5, "arrival_time", times)
            engine.advance(batch, int(times[-1].value))
            made, at = made + BATCH, at + 1
        held = sum(engine.retained.values())
        marks.append((resident() - before, held))
        say(f"round {round_ + 1}: {held:,} rows held, {(resident() - before) / held:.0f} bytes each")
    for name, (used, held) in zip(("windows full", "an hour later", "two hours later"), marks, strict=True):
        figure = {"name": f"bytes a retained event, {name}", "value": round(used / held, 1), "unit": "bytes"}
        print(json.dumps({**figure, "rows": held, "in 24 GiB": round(MACHINE / (used / held)), "goal": 64}), flush=True)


if __name__ == "__main__":
    main()
