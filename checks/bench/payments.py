"""Histories of card payments for benches and soaks: files of them, their stream and rules, and changes of rules."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from nightjar.generate import Options, generate
from nightjar.rules.durations import parse_duration
from nightjar.rules.timestamps import iso_text

STREAM = "transactions"
# A lateness of hours, because a micro-batch holds hours of the history: events out of order are in later batches.
DECLARED = """
[streams.transactions]
event_id = "transaction_id"
event_time = "event_time"
entities = ["customer_id", "terminal_id"]
allowed_lateness = "12h"
[streams.transactions.fields]
transaction_id = "string"
event_time = "timestamp"
customer_id = "string"
terminal_id = "string"
amount = "decimal(12,2)"
"""
RULES = """
burst:
  group_by: [customer_id]
  measures: {n: {count: "*", over: 1h}, spent: {sum: amount, over: 1h}}
  when: "n >= 4 AND spent > 150"
  description: "{n} payments of {spent} within the hour, the last of {amount}"
day:
  group_by: [customer_id]
  measures: {spent: {sum: amount, over: 1d}, before: {sum: amount, over: 1d, excluding_current: true}}
  when: "spent > 1200 AND before > 600"
unusual:
  group_by: [customer_id]
  measures:
    usual: {avg: amount, over: 30d, excluding_current: true}
    n: {count: "*", over: 30d, excluding_current: true}
  when: "n >= 5 AND amount > 5 * usual"
range:
  group_by: [customer_id]
  where: "amount > 0.50"
  measures: {least: {min: amount, over: 7d}, most: {max: amount, over: 7d, excluding_current: true}}
  when: "amount > 2 * most AND least < 2"
spread:
  group_by: [customer_id]
  measures: {mean: {avg: amount, over: 30d}, spread: {stddev: amount, over: 30d}, n: {count: "*", over: 30d}}
  when: "n >= 6 AND amount > mean + 2 * spread"
terminals:
  group_by: [customer_id]
  measures:
    day: {count_distinct: terminal_id, over: 1d}
    large: {count_distinct: terminal_id, over: 14d, where: "amount >= 100"}
  when: "day >= 10 OR large >= 12 AND amount >= 100"
came-back:
  group_by: [customer_id]
  measures:
    here: {count: "*", over: 14d, per: [terminal_id], excluding_current: true}
    before: {last: terminal_id, over: 3d, excluding_current: true}
    oldest: {first: terminal_id, over: 3d}
  when: "before <> terminal_id AND oldest = terminal_id AND here >= 1 AND amount > 250"
takings:
  group_by: [terminal_id]
  measures: {taken: {sum: amount, over: 7d}, n: {count: "*", over: 7d}}
  when: "taken > 2000 AND n > 3"
  severity: high
record:
  group_by: [terminal_id]
  measures:
    most: {max: amount, over: 30d, excluding_current: true}
    customers: {count_distinct: customer_id, over: 30d}
  when: "customers > 6 AND amount > 3 * most"
tested:
  group_by: [terminal_id]
  measures:
    small: {count: "*", over: 12h, where: "amount < 20", since: "amount >= 100"}
    usual: {avg: amount, over: 2d}
  when: "small >= 4 AND amount < 0.1 * usual"
"""


def simulated(events: int, days: int, seed: int) -> pa.Table:
    """This many made-up payments, as the stream is declared."""
    customers = max(10, events // (2 * days))  # two payments per customer and day, as in real life
    made = generate(Options(events, days, customers, max(5, customers // 2), seed=seed, fraud=0.02))
    return made[STREAM].select(_fields())


def of_file(path: Path, days: int) -> pa.Table:
    """The payments of a file's first days, as the stream is declared; amounts as `amount` or `amount_cents`."""
    table = pq.read_table(path)
    times = table["event_time"].cast(pa.timestamp("us", "UTC"))
    ends = pc.add(pc.floor_temporal(pc.min(times), unit="day"), pa.scalar(timedelta(days=days)))
    columns = {name: table[name].cast(pa.string()) for name in ("transaction_id", "customer_id", "terminal_id")}
    columns["event_time"] = times
    if "amount_cents" in table.column_names:
        cents, hundredth = table["amount_cents"].cast(pa.decimal128(12, 0)), pa.scalar(Decimal("0.01"))
        columns["amount"] = pc.multiply(cents, hundredth)
    else:
        columns["amount"] = table["amount"]
    kept = pa.table(columns).filter(pc.less(times, ends))
    return kept.select(_fields())


def _fields() -> list[str]:
    return list(tomllib.loads(DECLARED)["streams"][STREAM]["fields"])


def rules_of(count: int, widest: int) -> list[dict[str, Any]]:
    """Rule messages; beyond the first ten, the same with windows half as long. widest: the longest window, µs.

    Windows are shortened so that the job must evict events long before the history ends.
    """
    made = [{"id": name, "stream": STREAM, "state": "active", **rule} for name, rule in yaml.safe_load(RULES).items()]
    made = [_resized(rule, lambda over: min(over, widest)) for rule in made]
    twice = made + [halved(rule) | {"id": f"{rule['id']}-half"} for rule in made]
    return twice[:count]


def halved(rule: dict[str, Any]) -> dict[str, Any]:
    """The rule over windows half as long."""
    return _resized(rule, lambda over: over // 2)


def _resized(rule: dict[str, Any], length: Callable[[int], int]) -> dict[str, Any]:
    """The rule with the length of each window (µs) changed by a function."""
    measures = {}
    for name, measure in rule["measures"].items():
        over = length(parse_duration(measure["over"]))
        measures[name] = {**measure, "over": f"{over // 60_000_000}m"}
    return {**rule, "measures": measures}


def change_of(number: int, rules: list[dict[str, Any]], effective: int) -> dict[str, Any]:
    """A change of a rule: its windows halved or, every third time, its state `shadow`."""
    rule = rules[number % len(rules)]
    if number % 3 == 2:
        return {"control": "shadow", "rule": rule["id"], "effective": iso_text(effective)}
    return halved(rule) | {"effective": iso_text(effective)}


def generated(folder: Path, events: int) -> Path:
    """A file of simulated payments, thirty days of them."""
    customers = max(10, events // 60)
    made = generate(Options(events=events, days=30, customers=customers, terminals=customers // 2, seed=1))
    pq.write_table(made["transactions"], folder / "events.parquet")
    return folder / "events.parquet"


def hashes(ids: list[str]) -> np.ndarray:
    """64-bit FNV-1a with MurmurHash3's finish of every id: the order of events at one time."""
    data = np.array([text.encode() for text in ids])
    letters = data.view(np.uint8).reshape(len(data), -1)
    lengths = np.strings.str_len(data)
    h = np.full(len(data), 0xCBF29CE484222325, np.uint64)
    for at in range(letters.shape[1]):
        h = np.where(at < lengths, (h ^ letters[:, at]) * np.uint64(0x100000001B3), h)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ (h >> np.uint64(33))) * np.uint64(factor)
    return h ^ (h >> np.uint64(33))
