"""Measures a large table: what its rows take in memory, and what asking it costs an event.

    python -m checks.bench.tables [--rows 1000000] [--events 200000]

The rows are addresses that came in records of a thousand, as `nightjar table import` sends them; half of the events ask
for an address that the table has. Times are those of the processor. The control is a Python set of the same keys; of a
table with values, whose rows have a country, a limit and a risk, a Python dict of tuples.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checks.bench.figures import emit
from checks.bench.memory import resident
from nightjar.contracts.table_changes import MAX_KEYS
from nightjar.rules.engine.table_rows import EVERY, Change, TableRows
from nightjar.rules.tables import Asked, TableType
from nightjar.rules.types import INT64, STRING, Kind, decimal

TABLE = "blocked_ips"
VALUED = TableType(Kind.STRING, values=(("country", STRING), ("most", decimal(12, 2)), ("risk", INT64)))
_SEED = 7
# Goals: megabytes a million rows, and µs an event.
_MEMORY, _WITH_VALUES, _TIME = 100, 150, 1.0


def address(number: int) -> str:
    """One of the addresses of 10.0.0.0/8 and beyond."""
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def filled(keys: list[str]) -> TableRows:
    """A table of these keys."""
    rows = TableRows({TABLE: STRING})
    rows.add([Change(0, 0, TABLE, keys, is_set=True, valid_from=0)], 1)
    return rows


def filled_with_values(count: int) -> TableRows:
    """A table of so many rows with values."""
    rows = TableRows({TABLE: VALUED})
    for position, at in enumerate(range(0, count, MAX_KEYS)):
        numbers = range(at, min(at + MAX_KEYS, count))
        keys, values = [address(2 * number) for number in numbers], [values_of(number) for number in numbers]
        rows.add([Change(position, position, TABLE, keys, is_set=True, valid_from=0, values=values)], position + 1)
    return rows


def values_of(number: int) -> dict[str, Any]:
    """The values of a row, as a record has them."""
    return {"country": f"C{number % 200}", "most": f"{number % 10_000}.00", "risk": number % 10}


def look_up(rows: TableRows, keys: pa.Array) -> int:
    """The sum of a value of the keys."""
    every = np.full(len(keys), EVERY)
    found = rows.column(Asked("ip", TABLE, "most"), keys, np.ones(len(keys), np.int64), every)
    return int(pc.sum(found).as_py() or 0)


def measure_values(count: int, asked: pa.Array) -> bool:
    """Report a table with values; whether the goals are met."""
    look_up(filled_with_values(1), pa.array(["x"]))
    before = resident()
    rows = filled_with_values(count)
    look_up(rows, asked.slice(0, 1))
    megabytes, before = (resident() - before) / 1e6, resident()
    control = {address(2 * number): (*values_of(number).values(),) for number in range(count)}
    of_control, began = (resident() - before) / 1e6, time.process_time()
    total = look_up(rows, asked)
    per_event, began = (time.process_time() - began) / len(asked) * 1e6, time.process_time()
    found = (control.get(key) for key in asked.to_pylist())
    if total != sum(int(row[1].replace(".", "")) for row in found if row is not None):
        raise SystemExit("the table and the dict differ")
    per_control = (time.process_time() - began) / len(asked) * 1e6
    name, least = f"table of {count:,} rows with values", _WITH_VALUES * max(count, 1_000_000) / 1e6
    met = emit(name, "MB", [megabytes], "a Python dict", [of_control], goal=None, at_most=least)
    asking = f"{name}, asked"
    return emit(asking, "µs an event", [per_event], "a Python dict", [per_control], goal=None, at_most=_TIME) and met


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
    met &= measure_values(options.rows, asked)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
