"""Measures the engine's cost by number of rules: ten, a hundred, a thousand, with and without shared windows.

    python -m checks.bench.many_rules [--counts 10 100 1000] [--repeats 3]

Batches have 1,000 events, one second of the stream; windows hold one minute. shared: rules differ only in the limit in
their `when`; own: each has its own condition and window. The control is the smallest number of rules.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa

from checks.bench.engine import history, run
from checks.bench.figures import emit, log_progress
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

BATCH = 1000
BATCHES = 20
FULL = 60 * BATCH


def mappings(count: int, *, shared: bool) -> list[dict[str, object]]:
    """This many rules by customer, as mappings."""
    rules: list[dict[str, object]] = []
    for number in range(count):
        measures: dict[str, object] = {"n": {"count": "*", "over": "10m"}, "spent": {"sum": "amount", "over": "10m"}}
        if not shared:
            where = f"amount > {number % 150 + number / 1000:.2f}"
            measures = {"n": {"count": "*", "over": f"{300 + number}s", "where": where}}
        rules.append(
            {
                "id": f"rule-{number}",
                "stream": "transactions",
                "group_by": ["customer_id"],
                "measures": measures,
                "when": f"n > {100_000 + number}" + (f" AND spent > {1_000_000 + number}" if shared else ""),
            }
        )
    return rules


def ruleset(count: int, *, shared: bool) -> RuleSet:
    """The same, parsed."""
    streams = load_streams()
    return RuleSet.of([parse_rule(rule, streams) for rule in mappings(count, shared=shared)], 0)


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--counts", type=int, nargs="+", default=[10, 100, 1000])
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    events: pa.Table = history(FULL + BATCHES * BATCH, hot=False, seed=3)[0]
    met = True
    for shared in (True, False):
        kind = "sharing windows and conditions" if shared else "each with its own"
        sets = {}
        for count in options.counts:
            began = time.perf_counter()
            sets[count] = ruleset(count, shared=shared)
            took = time.perf_counter() - began
            print(json.dumps({"name": f"{count} rules read, {kind}", "value": round(took, 3), "unit": "s"}), flush=True)
        run(sets[min(sets)], events.slice(0, 2 * BATCH), BATCH)  # loads or compiles the kernels
        found: dict[int, list[float]] = {count: [] for count in sets}
        for number in range(options.repeats):
            for count, rules in sets.items():
                found[count].append(1000 * run(rules, events, BATCH, FULL) / BATCHES)
                log_progress(f"turn {number + 1}: {count} rules, {kind}: {found[count][-1]:.1f} ms a batch")
        least = min(sets)
        for count in [count for count in sets if count != least]:
            name, control = f"batch of {BATCH}, {count} rules, {kind}", f"{least} rules"
            goal = 3.0 if shared else count / least
            met &= emit(name, "ms", found[count], control, found[least], goal=goal)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
