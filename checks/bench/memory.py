"""Measures the engine's memory per retained event including its id, and how many events fit on a machine.

    python -m checks.bench.memory [--events 1000000 4000000] [--group-bys 1 2]

Events have four columns besides the time, two of them text. One group-by is by customer, the second by terminal, with
the same number of rules and columns. The process's resident memory is read before and after windows are full, and twice
more after the same number of events has replaced the first ones. Every engine has its own process. Memory that the
allocator has free is returned before each reading and reported on a line of its own, because it depends on batches and
not on the retained events.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import subprocess
import sys

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import psutil
import pyarrow as pa

from checks.bench.engine import HOUR, RULES, history
from checks.bench.figures import log_progress
from nightjar.rules.engine import Engine
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

BATCH = 50_000
MACHINE = 24 << 30
START = 1_600_000_000_000_000
GOAL = 64
GROUP_BYS = ["customer_id", "terminal_id"]


def resident(*, trimmed: bool = True) -> int:
    """Resident memory of this process in bytes; trimmed: after glibc's malloc_trim returned free memory."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if trimmed:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    return psutil.Process().memory_info().rss


def rules(group_bys: int) -> list[Rule]:
    """The rules of `engine` by customer (measuring terminals), and the same by terminal (measuring customers)."""
    streams = load_streams()
    found = []
    for own, other in (GROUP_BYS, GROUP_BYS[::-1])[:group_bys]:
        for rule in RULES:
            swapped = json.loads(json.dumps(rule).replace("terminal_id", other))
            named = {"id": f"{rule['id']}-{own}", "stream": "transactions", "group_by": [own]}
            found.append(parse_rule({**swapped, **named}, streams))
    return found


def batch(at: int, batches: int) -> pa.Table:
    """Batch `at` of a stream with this many batches per hour."""
    events = history(BATCH, hot=False, seed=100 + at)[0]
    # history() spreads a million events over four hours; here each batch is a slice of one hour
    offsets = (events.column("event_time").cast(pa.int64()).to_numpy() - START) // (4 * batches)
    times = pa.array(offsets + START + at * HOUR // batches).cast(pa.timestamp("us", "UTC"))
    return events.set_column(1, "event_time", times).set_column(5, "arrival_time", times)


def measure(events: int, group_bys: int) -> None:
    """Print the figures of one engine."""
    stream, ruleset = load_streams()["transactions"], RuleSet.of(rules(group_bys), 0)
    Engine(stream, ruleset).advance(batch(0, 1).slice(0, 1000))  # compiled, imported
    before, batches = resident(), -(-events // BATCH)
    engine = Engine(stream, ruleset)
    for hour, name in enumerate(("windows full", "an hour later", "two hours later")):
        for at in range(hour * batches, (hour + 1) * batches):
            arrived = batch(at, batches)
            engine.advance(arrived, int(arrived.column("arrival_time")[-1].value))
        del arrived
        kept = resident(trimmed=False)
        held, used = min(engine.retained.values()), resident() - before
        kept -= used + before
        by = "group-by" if group_bys == 1 else "group-bys"
        log_progress(f"{name}: {held:,} events held with {group_bys} {by}, {used / held:.0f} bytes each")
        free = {"name": f"free memory the allocator keeps, {group_bys} {by}, {name}", "value": round(kept / 1e6, 1)}
        print(json.dumps({**free, "unit": "MB", "rows": held, "group_bys": group_bys}), flush=True)
        common = {"unit": "bytes", "rows": held, "group_bys": group_bys}
        event = {"name": f"bytes a retained event, {group_bys} {by}, {name}", "value": round(used / held, 1)}
        print(json.dumps({**event, **common, "in 24 GiB": round(MACHINE / (used / held))}), flush=True)
        each = {
            "name": f"bytes a retained event and group-by, {group_bys} {by}, {name}",
            "value": round(used / held / group_bys, 1),
        }
        # Both groupings of the rules of the other benchmarks; with one of them it bears the event's own bytes alone.
        goal = GOAL if group_bys > 1 else None
        met = None if goal is None else used / held / group_bys <= goal
        print(json.dumps({**each, **common, "goal": goal, "met": met}), flush=True)


def main() -> None:
    """Measure each combination in its own process."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, nargs="+", default=[1_000_000])
    arguments.add_argument("--group-bys", type=int, nargs="+", choices=(1, 2), default=[1, 2])
    options = arguments.parse_args()
    runs = list(itertools.product(options.events, options.group_bys))
    if len(runs) == 1:
        measure(*runs[0])
        return
    for events, group_bys in runs:
        command = [sys.executable, "-m", "checks.bench.memory", "--events", str(events), "--group-bys", str(group_bys)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
