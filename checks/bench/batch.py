"""Measures rules over a file of events on one core, compared with DuckDB's RANGE windows.

    python -m checks.bench.batch [EVENTS] [--repeats 3] [--generated 100000]

The ten rules and the payments of checks/bench/backfill.py, without Spark: from a Parquet file to files of violations.
DuckDB gets all measures in one query, which is faster there than one for each rule. Violations are compared row by row,
including measures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import duckdb
import polars as pl
import pyarrow as pa

from checks.bench.backfill import CASES, TIES, Measure, placed, stream_of
from checks.bench.figures import emit, log_progress, timed
from checks.bench.payments import generated
from nightjar.files.evaluate import evaluate, write_truth
from nightjar.files.event_files import read_events
from nightjar.rules.durations import parse_duration
from nightjar.rules.engine.carried import load_kernels
from nightjar.rules.model import parse_rule


def by_nightjar(events: Path, out: Path) -> None:
    """Evaluate the rules, and write their violations."""
    stream = stream_of()
    rules = [
        {
            "id": name,
            "stream": stream.name,
            "group_by": [group],
            "when": when,
            "measures": {key: measure.rule for key, measure in measures.items()},
        }
        for name, group, measures, when in CASES
    ]
    parsed = [parse_rule(rule, {stream.name: stream}) for rule in rules]
    write_truth(evaluate(stream, parsed, read_events(events, stream, coded=True)), out, every=False)


def by_duckdb(events: Path, folder: Path) -> None:
    """The control: the measures of all rules in one table, then the violations of each rule in a file."""
    columns = [f"{_sql(m, group)} AS {_name(key, n)}" for n, group, key, m in _measures()]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute(f"CREATE TABLE events AS FROM read_parquet('{events}')")
        connection.execute(f"CREATE TABLE measured AS SELECT *, {', '.join(columns)} FROM events")  # noqa: S608  ours
        for number, (name, _, measures, when) in enumerate(CASES):
            values = ", ".join(f"{_name(key, number)} AS {key}" for key in measures)
            condition = re.sub(rf"\b({'|'.join(measures)})\b", rf"\1_{number}", when)
            rows = f"SELECT '{name}' AS rule_id, transaction_id AS event_id, {values} FROM measured WHERE {condition}"  # noqa: S608  ours
            connection.execute(f"COPY ({rows}) TO '{folder / name}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def _measures() -> list[tuple[int, str, str, Measure]]:
    """The number of the rule, its group-by, the name of the measure, and the measure."""
    return [(n, group, key, m) for n, (_, group, measures, _) in enumerate(CASES) for key, m in measures.items()]


def _name(key: str, number: int) -> str:
    return f"{key}_{number}"


def _sql(measure: Measure, group: str) -> str:
    back = parse_duration(measure.over) * TIES + TIES // 2
    last = "1 PRECEDING" if measure.excluding else "CURRENT ROW"
    frame = f"OVER (PARTITION BY {group} ORDER BY place RANGE BETWEEN {back} PRECEDING AND {last})"
    match measure.function:
        case "count_distinct":
            return f"count(DISTINCT {measure.field}) {frame}"
        case "sum":
            return f"coalesce(sum({measure.field}) {frame}, 0)"
        case "avg":
            return f"CAST(sum({measure.field}) {frame} AS DOUBLE) / count({measure.field}) {frame}"
    return f"{measure.function}({measure.field}) {frame}"


def differences(ours: Path, folder: Path) -> tuple[int, int]:
    """The number of violations, and of those missing on one side or with different measures."""
    found = pl.read_parquet(ours).select("rule_id", "event_id", "measures")
    violations = wrong = 0
    for name, _, measures, _ in CASES:
        kinds = pl.Struct(dict.fromkeys(measures, pl.Float64))
        mine = found.filter(pl.col("rule_id") == name).with_columns(pl.col("measures").str.json_decode(kinds))
        theirs = pl.read_parquet(folder / f"{name}.parquet").with_columns(
            pl.col(key).cast(pl.Float64) for key in measures
        )
        joined = mine.unnest("measures").join(theirs, on="event_id", how="full", suffix="_theirs", coalesce=True)
        same = [pl.col(key).eq_missing(pl.col(f"{key}_theirs")) for key in measures]
        both = pl.col("rule_id").is_not_null() & pl.col("rule_id_theirs").is_not_null()
        violations += joined.height
        wrong += joined.filter(~pl.all_horizontal(both, *same)).height
    return violations, wrong


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("events", type=Path, nargs="?")
    arguments.add_argument("--generated", type=int, default=100_000)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    pa.set_cpu_count(1)
    load_kernels()
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as folder:
        place = Path(folder)
        file, out = place / "placed.parquet", place / "violations.parquet"
        placed(options.events or generated(place, options.generated), file)
        ours: list[float] = []
        control: list[float] = []
        for turn in range(options.repeats + 1):
            took, theirs = timed(lambda: by_nightjar(file, out)), timed(lambda: by_duckdb(file, place))
            log_progress(f"turn {turn}: {took:.2f} s, DuckDB {theirs:.2f} s" + ("" if turn else ", to warm up"))
            if turn:
                ours.append(took)
                control.append(theirs)
        name = f"{len(CASES)} rules over {pl.scan_parquet(file).select(pl.len()).collect().item():,} events, one core"
        violations, wrong = differences(out, place)
    print(json.dumps({"name": f"violations, {name}", "value": violations, "differences": wrong}), flush=True)
    met = emit(name, "s", ours, "DuckDB's RANGE windows", control, goal=0.2)
    raise SystemExit(0 if met and not wrong else 1)


if __name__ == "__main__":
    main()
