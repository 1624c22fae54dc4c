"""Checks that the engine and an independent computation agree on every measure of every event.

    python -m checks.soak.agree [EVENTS] [--generated 100000]

EVENTS is a Parquet file of card payments: transaction_id, event_time, customer_id, terminal_id, and `amount`
(decimal) or `amount_cents` (integer); without it, that many payments are simulated. Ten rules with windows from
10 minutes to 30 days are evaluated by `nightjar evaluate --measures`, and independently by DuckDB's window functions:
events are numbered in the order of S1.1, and a frame is a number of preceding events.
Prints one JSON line per rule: rows, violations, differences.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from checks.bench.figures import log_progress, timed
from checks.bench.payments import generated, hashes
from nightjar.rules.durations import parse_duration

# ruff: noqa: S608  the queries are made of what stands in this file
# Both sides have the same exact sums, but divide and take roots in a different order.
TOLERANCE = 1e-12
STREAM = """
[streams.transactions]
event_id = "transaction_id"
event_time = "event_time"
entities = ["customer_id", "terminal_id"]
[streams.transactions.fields]
transaction_id = "string"
event_time = "timestamp"
customer_id = "string"
terminal_id = "string"
"""


@dataclass(frozen=True)
class Measure:
    """A measure; its predicates, and its field if it is the amount, are defined once for both sides."""

    function: str
    field: str
    over: str
    where: str = ""
    per: str = ""
    excluding: bool = False
    since: str = ""


@dataclass(frozen=True)
class Case:
    """A rule. AMOUNT is the amount's column, `{5}` five units of money in what it counts."""

    name: str
    group_by: str
    measures: dict[str, Measure]
    when: str
    where: str = ""


CASES = [
    Case(
        "count-10m",
        "customer_id",
        {
            "n": Measure("count", "*", "10m"),
            "large": Measure("count", "*", "1h", where="AMOUNT >= {100}"),
        },
        "n >= 3 OR large >= 2",
    ),
    Case(
        "sum-1d",
        "customer_id",
        {
            "spent": Measure("sum", "AMOUNT", "1d"),
            "before": Measure("sum", "AMOUNT", "1d", excluding=True),
        },
        "spent > {400} AND before > {200}",
    ),
    Case(
        "avg-30d",
        "customer_id",
        {
            "usual": Measure("avg", "AMOUNT", "30d", excluding=True),
            "n": Measure("count", "*", "30d", excluding=True),
        },
        "n >= 5 AND AMOUNT > 3 * usual",
    ),
    Case(
        "range-7d",
        "customer_id",
        {
            "least": Measure("min", "AMOUNT", "7d"),
            "most": Measure("max", "AMOUNT", "7d", excluding=True),
        },
        "AMOUNT > most AND least < {5}",
        where="AMOUNT > {2}",
    ),
    Case(
        "spread-30d",
        "customer_id",
        {
            "mean": Measure("avg", "AMOUNT", "30d"),
            "spread": Measure("stddev", "AMOUNT", "30d"),
        },
        "AMOUNT > mean + 3 * spread",
    ),
    Case(
        "terminals-1d",
        "customer_id",
        {
            "terminals": Measure("count_distinct", "terminal_id", "1d"),
            "month": Measure("count_distinct", "terminal_id", "30d", where="AMOUNT >= {50}"),
        },
        "terminals >= 6 OR month >= 40",
    ),
    Case(
        "moved-3d",
        "customer_id",
        {
            "before": Measure("last", "terminal_id", "3d", excluding=True),
            "oldest": Measure("first", "terminal_id", "3d"),
        },
        "before <> terminal_id AND oldest = terminal_id",
    ),
    Case(
        "here-30d",
        "customer_id",
        {
            "here": Measure("count", "*", "30d", per="terminal_id", excluding=True),
            "paid_here": Measure("sum", "AMOUNT", "14d", per="terminal_id"),
        },
        "here >= 8 OR paid_here > {900}",
    ),
    Case(
        "terminal-30d",
        "terminal_id",
        {
            "customers": Measure("count_distinct", "customer_id", "30d"),
            "taken": Measure("sum", "AMOUNT", "7d"),
            "most": Measure("max", "AMOUNT", "30d", excluding=True),
        },
        "taken > {1500} OR AMOUNT > most AND customers > 20",
    ),
    Case(
        "since-12h",
        "terminal_id",
        {
            "small": Measure("count", "*", "12h", where="AMOUNT < {20}", since="AMOUNT >= {100}"),
            "spread": Measure("stddev", "AMOUNT", "2d", where="AMOUNT < {150}"),
        },
        "small >= 2 OR spread > {60}",
    ),
]


@dataclass(frozen=True)
class Dialect:
    """The rules in the units of one file. amount: its column."""

    amount: str

    @property
    def whole(self) -> bool:
        """Whether amounts are whole numbers of cents."""
        return self.amount == "amount_cents"

    def text(self, predicate: str) -> str:
        """A predicate in the file's units."""
        parts = predicate.replace("AMOUNT", self.amount).replace("}", "{").split("{")
        unit = 100 if self.whole else 1
        return "".join(str(int(part) * unit) if at % 2 else part for at, part in enumerate(parts))

    def rule(self, case: Case) -> dict[str, object]:
        """The rule for nightjar."""
        where = {"where": self.text(case.where)} if case.where else {}
        measures = {name: self.measure(measure) for name, measure in case.measures.items()}
        made = {"id": case.name, "stream": "transactions", "group_by": [case.group_by], "measures": measures}
        return {**made, **where, "when": self.text(case.when)}

    def measure(self, measure: Measure) -> dict[str, object]:
        """One of its measures."""
        made: dict[str, object] = {measure.function: self.text(measure.field), "over": measure.over}
        for option in ("where", "since"):
            if getattr(measure, option):
                made[option] = self.text(getattr(measure, option))
        if measure.per:
            made["per"] = [measure.per]
        if measure.excluding:
            made["excluding_current"] = True
        return made

    def query(self, case: Case) -> str:
        """The rule for DuckDB: transaction_id, a column a measure, violated."""
        seen = f"SELECT * FROM events WHERE {self.text(case.where) or 'TRUE'}"
        parts = [self.found(name, measure, case.group_by) for name, measure in case.measures.items()]
        joins = " ".join(f"JOIN {name}_found USING (transaction_id)" for name in case.measures)
        columns = ", ".join(case.measures)
        return (
            f"WITH seen AS ({seen}), {', '.join(parts)}"
            f" SELECT transaction_id, {columns}, coalesce({self.text(case.when)}, FALSE) AS violated FROM seen {joins}"
        )

    def found(self, name: str, measure: Measure, group_by: str) -> str:
        """Two common table expressions: how many rows back each frame begins, and the measure over it."""
        by = f"PARTITION BY {', '.join(filter(None, (group_by, measure.per)))}"
        over = parse_duration(measure.over)
        least = f"min(place) OVER ({by} ORDER BY event_time RANGE BETWEEN {over} PRECEDING AND CURRENT ROW)"
        if measure.since:
            earlier = f"OVER ({by} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
            reset = f"max(place) FILTER (WHERE {self.text(measure.since)}) {earlier}"
            least = f"greatest({least}, 1 + coalesce({reset}, 0))"
        last = "1 PRECEDING" if measure.excluding else "CURRENT ROW"
        window = (
            f"FILTER (WHERE {self.text(measure.where) or 'TRUE'})"
            f" OVER ({by} ORDER BY place ROWS BETWEEN back PRECEDING AND {last})"
        )
        return (
            f"{name}_back AS (SELECT *, place - {least} AS back FROM (SELECT *, row_number() OVER"
            f" ({by} ORDER BY event_time, hash, transaction_id) AS place FROM seen)),"
            f" {name}_found AS (SELECT transaction_id, {self.aggregate(measure, window)} AS {name} FROM {name}_back)"
        )

    def aggregate(self, measure: Measure, window: str) -> str:
        """A measure over a window, doubles from exact sums."""
        x = self.text(measure.field)
        match measure.function:
            case "sum":
                return f"coalesce(sum({x}) {window}, 0)"
            case "avg":
                return f"CAST(sum({x}) {window} AS DOUBLE) / nullif(count(*) {window}, 0)"
            case "stddev":
                unit = 1 if self.whole else 100
                n, cents = f"count(*) {window}", f"CAST({x} * {unit} AS HUGEINT)"
                squares, total = f"sum({cents} * {cents}) {window}", f"sum({cents}) {window}"
                spread = f"CAST({n} * {squares} - {total} * {total} AS DOUBLE) / CAST({n} * ({n} - 1) AS DOUBLE)"
                return f"CASE WHEN {n} >= 2 THEN sqrt({spread}) / {unit} END"
            case "count_distinct":
                return f"count(DISTINCT {x}) {window}"
            case "first" | "last":
                return f"{'arg_min' if measure.function == 'first' else 'arg_max'}({x}, place) {window}"
        return f"{measure.function}({x}) {window}"


def events_of(path: Path, amount: str) -> pa.Table:
    """The events as DuckDB gets them: ids as text, event_time in µs, the amount as it is, and the hash of the id."""
    table = pq.read_table(path)
    columns = {name: table[name].cast(pa.string()) for name in ("transaction_id", "customer_id", "terminal_id")}
    columns["event_time"] = table["event_time"].cast(pa.timestamp("us", table["event_time"].type.tz)).cast(pa.int64())
    columns[amount] = table[amount].cast(pa.int64()) if amount == "amount_cents" else table[amount]
    columns["hash"] = pa.array(hashes(columns["transaction_id"].to_pylist()))
    return pa.table(columns)


def differing(case: Case, dialect: Dialect) -> str:
    """The query that counts rows, violations, and rows that differ in a measure or the verdict, or lack on a side."""
    wrong = ["e.violated IS DISTINCT FROM g.violated"]
    for name, measure in case.measures.items():
        text = f"(g.measures ->> '{name}')"
        if measure.function in ("avg", "stddev"):
            number, scale = f"CAST({text} AS DOUBLE)", f"greatest(abs(e.{name}), 1)"
            wrong.append(
                f"coalesce(abs(e.{name} - {number}) > {TOLERANCE} * {scale}, (e.{name} IS NULL) <> ({text} IS NULL))"
            )
        else:
            wrong.append(f"CAST(e.{name} AS VARCHAR) IS DISTINCT FROM {text}")
    return (
        "SELECT count(*), count(*) FILTER (WHERE e.violated), count(*) FILTER"
        f" (WHERE e.transaction_id IS NULL OR g.event_id IS NULL OR {' OR '.join(wrong)})"
        f" FROM ({dialect.query(case)}) AS e FULL JOIN (SELECT * FROM got WHERE rule_id = '{case.name}') AS g"
        " ON e.transaction_id = g.event_id"
    )


def main() -> None:
    """Evaluate, compare, and print; exit with 1 if anything differs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("events", type=Path, nargs="?")
    arguments.add_argument("--generated", type=int, default=100_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        path = options.events or generated(place, options.generated)
        dialect = Dialect("amount_cents" if "amount_cents" in pq.read_schema(path).names else "amount")
        declared = '"int64"' if dialect.whole else '"decimal(12,2)"'
        (place / "streams.toml").write_text(f"{STREAM}{dialect.amount} = {declared}\n")
        (place / "rules.yaml").write_text(yaml.safe_dump([dialect.rule(case) for case in CASES]))
        command = [
            str(Path(sys.executable).with_name("nightjar")),
            "evaluate",
            "--stream",
            "transactions",
            "--measures",
            "--rules",
            str(place / "rules.yaml"),
            "--streams",
            str(place / "streams.toml"),
            "--events",
            str(path),
            "--out",
            str(place / "out.parquet"),
        ]
        seconds = timed(lambda: subprocess.run(command, check=True, stdout=sys.stderr))
        got = duckdb.connect()
        got.register("events", events_of(path, dialect.amount))
        got.execute(f"CREATE VIEW got AS FROM read_parquet('{place / 'out.parquet'}')")
        differences = 0
        for case in CASES:
            log_progress(f"computing {case.name} independently")
            row = got.execute(differing(case, dialect)).fetchone()
            assert row is not None
            print(
                json.dumps({"rule": case.name, "rows": row[0], "violations": row[1], "differences": row[2]}), flush=True
            )
            differences += row[2]
    print(json.dumps({"name": "nightjar evaluate --measures, ten rules", "value": round(seconds, 1), "unit": "s"}))
    raise SystemExit(1 if differences else 0)


if __name__ == "__main__":
    main()
