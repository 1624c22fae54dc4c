"""Measures how fast the engine processes events of one hot key, by the number of events in the window.

    python -m checks.bench.windows [--held 1000 10000 100000 500000] [--repeats 3]

Five rules with ten measures over windows of an hour; all events have the same key, and every new event replaces an old
one in the window. Batches have the size of those of a job with a backlog. The control is the smallest window.

Then a rule with one percentile, and one with one mode, over the widest window, in such batches and in small ones: the
control is a sum.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa

from checks.bench.engine import HOUR, RULES, run
from checks.bench.figures import emit, log_progress
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

BATCH, BATCHES = 50_000, 3
SMALL, SMALL_BATCHES = 200, 300
ONE = {
    "a sum": {"sum": "amount", "over": "1h"},
    "a percentile": {"percentile": {"of": "amount", "p": 95}, "over": "1h"},
    "a mode": {"mode": "terminal_id", "over": "1h"},
}


def of_one_key(held: int, events: int, seed: int) -> pa.Table:
    """This many events of one customer, evenly spaced, with `held` of them per hour."""
    rng = np.random.default_rng(seed)
    stamps = pa.array(1_600_000_000_000_000 + np.arange(events) * HOUR // held).cast(pa.timestamp("us", "UTC"))
    words = np.zeros((events, 2), np.int64)
    words[:, 0] = rng.integers(100, 20_000, events)
    return pa.table(
        {
            "transaction_id": pa.array([f"{i:x}" for i in rng.integers(0, 1 << 62, events)]),
            "event_time": stamps,
            "customer_id": pa.array(["c"] * events),
            "terminal_id": pa.array([f"m{t}" for t in rng.integers(0, 10_000, events)]),
            "amount": pa.Array.from_buffers(pa.decimal128(12, 2), events, [None, pa.py_buffer(words)]),
            "arrival_time": stamps,
        }
    )


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--held", type=int, nargs="+", default=[1000, 10_000, 100_000, 500_000])
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    streams = load_streams()
    rules = [parse_rule({"stream": "transactions", "group_by": ["customer_id"], **rule}, streams) for rule in RULES]
    ruleset = RuleSet.of(rules, 0)
    tables = {held: of_one_key(held, held + BATCHES * BATCH, held) for held in options.held}
    for table in tables.values():  # compiled
        run(ruleset, table.slice(0, 2000), 500)
    found: dict[int, list[float]] = {held: [] for held in options.held}
    for number in range(options.repeats):
        for held, table in tables.items():
            found[held].append(1e6 * run(ruleset, table, BATCH, held) / (BATCHES * BATCH))
            log_progress(f"turn {number + 1}: {held:,} held: {1e6 / found[held][-1]:,.0f} events/s")
    least = min(options.held)
    names = {held: f"{held:,} events of a key held" for held in options.held}
    met = [emit(names[held], "us/event", found[held], names[least], found[least], goal=2) for held in options.held[1:]]
    met += beside_a_sum(max(options.held), tables[max(options.held)], options.repeats)
    raise SystemExit(0 if all(met) else 1)


def beside_a_sum(held: int, table: pa.Table, repeats: int) -> list[bool]:
    """Measure single measures over a window of `held` events, in turns; returns which met their goals."""
    streams = load_streams()
    rules = {
        name: {"id": "one", "stream": "transactions", "group_by": ["customer_id"], "measures": {"m": measure}}
        for name, measure in ONE.items()
    }
    rulesets = {n: RuleSet.of([parse_rule({**rule, "when": "m IS NULL"}, streams)], 0) for n, rule in rules.items()}
    found: dict[tuple[str, int], list[float]] = {(name, size): [] for name in ONE for size in (BATCH, SMALL)}
    for number in range(repeats):
        for (name, size), times in found.items():
            events = held + (BATCHES * BATCH if size == BATCH else SMALL_BATCHES * SMALL)
            batches = (events - held) / size
            times.append(1000 * run(rulesets[name], table.slice(0, events), size, held) / batches)
            log_progress(f"turn {number + 1}: {name} over {held:,} events: {times[-1]:.2f} ms a batch of {size:,}")
    return [
        emit(
            f"{name} over {held:,} events, batches of {size:,}",
            "ms/batch",
            times,
            "a sum",
            found["a sum", size],
            goal=3,
        )
        for (name, size), times in found.items()
        if name != "a sum"
    ]


if __name__ == "__main__":
    main()
