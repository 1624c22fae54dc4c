"""Measures a large table: what its rows take in memory, and what asking it costs an event.

    python -m checks.bench.tables [--rows 1000000] [--events 200000]

The rows are addresses that came in records of a thousand, as `nightjar table import` sends them; half of the events ask
for an address that the table has. Times are those of the processor. The control is a Python set of the same keys.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from checks.bench.figures import emit
from checks.bench.memory import resident
from nightjar.contracts.table_changes import MAX_KEYS
from nightjar.rules.engine.table_rows import EVERY, Change, TableRows
from nightjar.rules.types import STRING

TABLE = "blocked_ips"
_SEED = 7
# Goals: megabytes a million rows, and µs an event.
_MEMORY, _TIME = 100, 1.0


def address(number: int) -> str:
    """One of the addresses of 10.0.0.0/8 and beyond."""
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def filled(keys: list[str]) -> TableRows:
    """A table of these keys."""
    rows = TableRows({TABLE: STRING})
    rows.add([Change(0, 0, TABLE, keys, is_set=True, valid_from=0)], 1)
    return rows


def ask(rows: TableRows, keys: pa.Array) -> int:
    """How many of the keys the table has."""
    every = np.full(len(keys), EVERY)
    return int(rows.holds(TABLE, keys, np.ones(len(keys), np.int64), every).sum())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=200_000)
    options = parser.parse_args()
    ask(filled(["x"]), pa.array(["x"]))  # compiled, imported
    numbers = np.random.default_rng(_SEED).integers(0, 2 * options.rows, options.events).tolist()
    asked = pa.array([*map(address, numbers)])
    before = resident()
    rows = TableRows({TABLE: STRING})
    for position, at in enumerate(range(0, options.rows, MAX_KEYS)):
        keys = [address(2 * number) for number in range(at, min(at + MAX_KEYS, options.rows))]
        rows.add([Change(position, position, TABLE, keys, is_set=True, valid_from=0)], position + 1)
    ask(rows, asked.slice(0, 1))
    megabytes, before = (resident() - before) / 1e6, resident()
    control = {address(2 * number) for number in range(options.rows)}
    of_control = (resident() - before) / 1e6
    began = time.process_time()
    held = ask(rows, asked)
    per_event, began = (time.process_time() - began) / options.events * 1e6, time.process_time()
    if held != sum(key in control for key in asked.to_pylist()):
        raise SystemExit("the table and the set differ")
    per_control = (time.process_time() - began) / options.events * 1e6
    name = f"table of {options.rows:,} rows"
    least = _MEMORY * max(options.rows, 1_000_000) / 1e6
    met = emit(name, "MB", [megabytes], "a Python set", [of_control], goal=None, at_most=least)
    met &= emit(f"{name}, asked", "µs an event", [per_event], "a Python set", [per_control], goal=None, at_most=_TIME)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
