"""Measures what a construct of rules costs the engine, compared with a rule that says nearly the same without it.

    python -m checks.bench.constructs [NAME ...] [--events 400000] [--rules 50] [--repeats 3]

CONSTRUCTS is a table with a line per construct: a rule, its control, and the highest ratio that is accepted. Each is
measured in turns with its control in three ways: all events in one batch; batches of 200 at the end of them; and
batches of 1000 with many rules that differ in their conditions or limits. A name chooses the lines that hold it.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa

from checks.bench.engine import BATCH, GROUPS, history, run
from checks.bench.figures import emit, log_progress
from nightjar.rules.engine.carried import load_kernels
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.unions import united
from nightjar.rules.versions import RuleSet

# Tables that rules may ask.
TABLES: dict[str, Any] = {"watched": {"key": "string"}, "customers": {"key": "string", "values": {"risk": "int64"}}}
BATCHES = 50
MANY_BATCH, MANY_BATCHES = 1000, 10
# What is replaced by the number of a rule among many, so that none shares its work with another.
NUMBER = "{n}"

Rule = dict[str, Any]


@dataclass(frozen=True)
class Construct:
    """A rule, its control, and the highest ratio of their times that meets the goal (None: there is no goal)."""

    name: str
    rule: Rule
    control: Rule
    goal: float | None = None
    beside: Rule | None = None
    """A rule that runs on both sides."""
    asks: bool = False
    """Whether the rule asks tables. The control runs where none are declared."""
    over_union: bool = False
    """Whether the rule's stream is a union, half of whose events are another stream's. The control's is not."""


def where(condition: str) -> Rule:
    """A rule that counts the events of an hour that meet a condition, which is thus evaluated at each event."""
    return counted(where=condition)


def counted(**options: object) -> Rule:
    """A rule that counts events; over an hour where the options say nothing else."""
    return measured(count="*", **options)


def measured(**measure: object) -> Rule:
    """A rule with one measure and a limit that is never met."""
    if not {"episode", "calendar"} & set(measure):
        measure = {"over": "1h", **measure}
    return {"measures": {"n": measure}, "when": "n > 1000000{n}"}


def looking_at(condition: str) -> Rule:
    """A rule that counts events with a condition, beside a measure that the condition may look at."""
    measures = {"seen": {"count": "*", "over": "1h", "per": ["terminal_id"]}}
    return {"measures": {**measures, "n": {"count": "*", "over": "1h", "where": condition}}, "when": "n > 1000000{n}"}


CONSTRUCTS = (
    Construct("REGEXP_LIKE", where("REGEXP_LIKE(terminal_id, '^m.*{n}$')"), where("terminal_id LIKE 'm%{n}'")),
    Construct("IP_IN", where("IP_IN(ip, '10.{n}.0.0/16')"), where("ip LIKE '10.{n}.%'")),
    Construct("DISTANCE_KM", where("DISTANCE_KM(lat, lon, 50, 10) > {n}"), where("lat - 50 + lon - 10 > {n}")),
    Construct("SECONDS_BETWEEN", where("SECONDS_BETWEEN(opened, event_time) > {n}"), where("opened < event_time")),
    Construct(
        "AT TIME ZONE",
        where("HOUR(event_time AT TIME ZONE 'Europe/Berlin') + {n} < 5"),
        where("HOUR(event_time) + {n} < 5"),
    ),
    Construct("episode", counted(episode="10m", where="amount > {n}"), counted(over="10m", where="amount > {n}")),
    Construct("resolution", counted(resolution="1m", where="amount > {n}"), counted(where="amount > {n}")),
    Construct("delay", counted(delay="1h", where="amount > {n}"), counted(where="amount > {n}")),
    Construct(
        "calendar",
        counted(calendar="day", zone="Europe/Berlin", where="amount > {n}"),
        counted(over="12h", where="amount > {n}"),
    ),
    Construct("session", counted(session="10m", where="amount > {n}"), counted(where="amount > {n}")),
    Construct("per", counted(per=["terminal_id"], where="amount > {n}"), counted(where="amount > {n}")),
    Construct("since", counted(since="amount > 150.{n}"), counted(where="amount <= 150.{n}")),
    Construct("reset_after_alert", counted(where="amount > {n}") | {"reset_after_alert": True}, where("amount > {n}")),
    Construct(
        "unless",
        counted() | {"when": "amount > 199.{n}", "unless": {"within": "10m", "where": "amount < 1.{n}"}},
        counted() | {"when": "amount > 199.{n}"},
    ),
    Construct(
        "computed",
        {"measures": {"n": {"count": "*", "over": "1h"}, "half": "n / 2"}, "when": "half > 1000000{n}"},
        {"measures": {"n": {"count": "*", "over": "1h"}}, "when": "n / 2 > 1000000{n}"},
    ),
    Construct("where of measures", looking_at("seen > {n}"), looking_at("amount > {n}")),
    Construct(
        "over_alerts",
        measured(count="*", over_alerts=["large"], where="amount > {n}"),
        counted(where="amount > 100 AND amount > {n}"),
        beside={"id": "large", "when": "amount > 100"},
    ),
    Construct(
        "allows",
        counted(where="amount > {n}") | {"when": "n > {n}", "allows": ["large"]},
        counted(where="amount > {n}"),
        beside={"id": "large", "when": "amount > 150"},
    ),
    Construct("IN a list", where("terminal_id IN watched AND amount > {n}"), where("amount > {n}"), asks=True),
    Construct(
        "lookup",
        where("customers.risk + {n} > 5") | {"lookup": {"customers": "customer_id"}},
        where("amount + {n} > 5"),
        asks=True,
    ),
    Construct(
        "values",
        measured(values="terminal_id") | {"when": "amount > 199.{n}"},
        measured(count_distinct="terminal_id") | {"when": "amount > 199.{n}"},
    ),
    Construct("previous", measured(previous="amount"), measured(last="amount", excluding_current=True)),
    Construct("median", measured(median="amount", where="amount > {n}"), measured(max="amount", where="amount > {n}")),
    Construct(
        "percentile",
        measured(percentile={"of": "amount", "p": 95}, where="amount > {n}"),
        measured(avg="amount", where="amount > {n}"),
    ),
    Construct(
        "mode",
        measured(mode="terminal_id", where="amount > {n}") | {"when": "amount > 199.{n}"},
        measured(count_distinct="terminal_id", where="amount > {n}") | {"when": "amount > 199.{n}"},
    ),
    Construct("union", counted(where="amount > {n}"), counted(where="amount > {n}"), over_union=True),
)


def streams_of(tables: dict[str, Any] | None = None) -> dict[str, Stream]:
    """The payments of `engine.history` with an address, a place and the time at which the account was opened.

    And refunds that have the same fields, and the union of both.
    """
    fields = dict.fromkeys(("transaction_id", "customer_id", "terminal_id", "ip"), "string")
    fields |= {"event_time": "timestamp", "opened": "timestamp", "amount": "decimal(12,2)"}
    fields |= dict.fromkeys(("lat", "lon"), "double")
    declared = {
        "event_id": "transaction_id",
        "event_time": "event_time",
        "entities": ["customer_id", "terminal_id"],
        "fields": fields,
    }
    union = {"union": ["payments", "refunds"], "entities": ["customer_id", "terminal_id"]}
    return streams_from_mapping({"payments": declared, "refunds": declared, "moves": union}, "bench", tables=tables)


def as_moves(stream: Stream) -> Callable[[pa.Table], pa.Table]:
    """What makes events of the union of a batch of payments: its second half are refunds."""

    def convert(events: pa.Table) -> pa.Table:
        half = events.num_rows // 2
        return united(zip(stream.members, (events.slice(0, half), events.slice(half)), strict=True), stream)

    return convert


def rows_of(stream: Stream) -> TableRows:
    """The rows of both tables: a tenth of the terminals, and all customers."""
    rows = TableRows(stream.tables)
    watched, customers = ([f"{letter}{n}" for n in range(0, GROUPS, step)] for letter, step in (("m", 10), ("c", 1)))
    risks = [{"risk": n % 10} for n in range(GROUPS)]
    rows.add(
        [
            Change(0, 0, "watched", watched, is_set=True, valid_from=0),
            Change(1, 0, "customers", customers, is_set=True, valid_from=0, values=risks),
        ],
        2,
    )
    return rows


def events_of(count: int) -> pa.Table:
    """The payments."""
    table, columns = history(count, hot=False, seed=1)
    rng = np.random.default_rng(2)
    parts = rng.integers(0, 256, (count, 3))
    added = {
        "ip": pa.array([f"10.{a}.{b}.{c}" for a, b, c in parts.tolist()]),
        "opened": pa.array(columns["time"] - rng.integers(0, 10**15, count)).cast(pa.timestamp("us", "UTC")),
        "lat": pa.array(rng.uniform(45, 55, count)),
        "lon": pa.array(rng.uniform(5, 15, count)),
    }
    for name, column in added.items():
        table = table.append_column(name, column)
    return table


def ruleset(rule: Rule, stream: Stream, beside: Rule | None, count: int = 1) -> RuleSet:
    """This many copies of a rule, each with its own number, and another rule."""
    common = {"stream": stream.name, "group_by": ["customer_id"]}
    made = [] if beside is None else [{**common, **beside}]
    made += [{"id": f"rule-{n}", **common, **_numbered(rule, str(n))} for n in range(1, count + 1)]
    return RuleSet.of([parse_rule(each, {stream.name: stream}) for each in made], 0)


def _numbered(value: Any, number: str) -> Any:
    if isinstance(value, dict):
        return {key: _numbered(each, number) for key, each in value.items()}
    return value.replace(NUMBER, number) if isinstance(value, str) else value


def measure(construct: Construct, events: pa.Table, rules: int, repeats: int) -> bool:
    """Measure a construct in turns with its control; returns whether its goal is met."""
    plain = streams_of()["payments"]
    of_rule = streams_of(TABLES if construct.asks else None)["moves" if construct.over_union else "payments"]
    streams = [of_rule, plain]
    sides = [*zip([construct.rule, construct.control], streams, strict=True)]
    one, many = ([ruleset(rule, of, construct.beside, count) for rule, of in sides] for count in (1, rules))
    tables = [rows_of(of_rule) if construct.asks else None, None]
    convert = [as_moves(of_rule) if construct.over_union else None, None]
    tail, many_tail = events.num_rows - BATCHES * BATCH, MANY_BATCHES * MANY_BATCH
    recent = events.slice(0, min(events.num_rows, 50_000 + many_tail))
    ways = (
        (f"{events.num_rows:,} events", "s", 1.0, one, events, events.num_rows, 0),
        (f"a batch of {BATCH}", "ms", 1000 / BATCHES, one, events, BATCH, tail),
        (f"a batch of {MANY_BATCH}, {rules} rules", "ms", 1000 / MANY_BATCHES, many, recent, MANY_BATCH, -many_tail),
    )
    waits = "unless" in construct.rule  # for the clock
    met = True
    for name, unit, scale, sets, table, size, begin in ways:
        first = begin if begin >= 0 else table.num_rows + begin
        took: list[list[float]] = [[], []]
        for turn in range(repeats + 1):  # the first warms up
            for side, rule_set in enumerate(sets):
                seconds = run(
                    rule_set,
                    table,
                    size,
                    first,
                    stream=streams[side],
                    to_the_end=waits,
                    tables=tables[side],
                    convert=convert[side],
                )
                if turn:
                    took[side].append(scale * seconds)
        met &= emit(f"{construct.name}: {name}", unit, took[0], "without it", took[1], goal=construct.goal)
    return met


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME")
    arguments.add_argument("--events", type=int, default=400_000)
    arguments.add_argument("--rules", type=int, default=50)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    wanted = [name.lower() for name in options.names]
    chosen = [each for each in CONSTRUCTS if not wanted or any(name in each.name.lower() for name in wanted)]
    if not chosen:
        arguments.error(f"no construct is named so; there are {', '.join(each.name for each in CONSTRUCTS)}")
    log_progress("generating the events")
    events = events_of(options.events)
    load_kernels()
    gc.freeze()  # as in the job's Python processes
    met = True
    for construct in chosen:
        log_progress(construct.name)
        met &= measure(construct, events, options.rules, options.repeats)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
