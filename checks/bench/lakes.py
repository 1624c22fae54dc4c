"""Fills lakes as the archive would, for the benchmarks of the backfill."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.contracts.rule_status import fold
from nightjar.lake import delta
from nightjar.lake.archive import make_tables
from nightjar.lake.config import LakeConfig
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import RULE_STATUS, events_table
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import Stream, load_streams
from nightjar.streaming.driver.answering import answer_to

DAY = date(2026, 1, 5)
STREAM = load_streams()["transactions"]
_TABLE = events_table(STREAM)
# As many as an archive every 15 minutes writes.
_FILES = 96


def fill_day(config: LakeConfig, events: int, day: date = DAY, *, first: int = 0, files: int = _FILES) -> None:
    """Write the payments of one day, about twenty per customer. first: the number of the first one; files: that are
    made."""
    make_tables(config)
    rng, begin = np.random.default_rng(7), int(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1e6)
    bounds = np.linspace(first, first + events, files + 1).astype(int).tolist()
    for number, (start, end) in enumerate(pairwise(bounds)):
        at = np.arange(start, end)
        arrived = begin + (at - first) * int(86_400e6 / events)
        columns = {
            "transaction_id": pl.Series(at).cast(pl.String),
            "event_time": pl.Series(arrived - rng.integers(0, 60_000_000, len(at))).cast(pl.Datetime("us", "UTC")),
            "customer_id": "c" + pl.Series(rng.integers(0, events // 20 + 1, len(at))).cast(pl.String),
            "terminal_id": "t" + pl.Series(rng.integers(0, 20_000, len(at))).cast(pl.String),
            "amount": (pl.Series(rng.integers(100, 100_000, len(at))) / 100).cast(pl.Decimal(12, 2)),
            "sent_at": pl.Series(arrived),
            "partition": pl.Series(at % 2).cast(pl.Int32),
            "offset": pl.Series(at // 2),
            "arrival_time": pl.Series(arrived).cast(pl.Datetime("us", "UTC")),
        }
        rows = pl.DataFrame(columns).with_columns(
            pl.lit(day).alias("arrival_date"), *(pl.lit(None, kind).alias(name) for name, kind in _lacking(columns))
        )
        table = rows.select(list(_TABLE.columns)).to_arrow(compat_level=pl.CompatLevel.oldest())
        delta.add(config.root, _TABLE, table.cast(_TABLE.arrow), f"bench-{day}", number)


def _lacking(columns: Mapping[str, pl.Series]) -> list[tuple[str, pl.DataType]]:
    schema = pl.DataFrame(_TABLE.arrow.empty_table()).schema
    return [(name, kind) for name, kind in schema.items() if name not in columns and name != "arrival_date"]


def answers_to(streams: Mapping[str, Stream], messages: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """The answers to these rule messages, each effective from the year 2000 on."""
    book, values = RuleBook(streams), list[bytes]()
    for number, message in enumerate(messages):
        text = json.dumps({**message, "effective": "2000-01-01T00:00:00Z"}).encode()
        _, answer = answer_to(Record(number, 0, text), f"rules-0-{number}", book, book.shuffle_keys, 0)
        values.append(json.dumps(answer).encode())
        fold(book, Record(number, 0, values[-1]))
    return values


def publish_rules(config: LakeConfig, messages: Iterable[Mapping[str, Any]]) -> None:
    """Write the answers to these rule messages."""
    start, values = datetime(2000, 1, 1, tzinfo=UTC), answers_to(config.streams, messages)
    columns = {
        "value": values,
        "partition": [0] * len(values),
        "offset": range(len(values)),
        "arrival_time": [start] * len(values),
        "arrival_date": [start.date()] * len(values),
    }
    kinds = {name: RULE_STATUS.arrow.field(name).type for name in columns if name != "value"}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kinds.get(name, pa.binary())) for name, column in columns.items()], list(columns)
    )
    rows = pa.Table.from_batches(JsonReader(RULE_STATUS)(iter([batch])))
    delta.add(config.root, RULE_STATUS, rows.cast(RULE_STATUS.arrow), "bench", 0)
