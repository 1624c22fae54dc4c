"""Small lakes without Spark: tables of events as the archive writes them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.staging import Notes
from nightjar.lake.config import LakeConfig
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import RULE_STATUS, Table, events_table
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from tests.support.answers import answered

STREAM = load_streams()["transactions"]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
AT_NOON = int(NOON.timestamp()) * 1_000_000
MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000


SCHEMA = pa.schema(
    [
        *STREAM.schema,
        ("sent_at", pa.int64()),
        ("rejected", pa.string()),
        ("detail", pa.string()),
        ("original", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("arrival_time", pa.timestamp("us", "UTC")),
        ("arrival_date", pa.date32()),
    ]
)
# Of three days that end with that noon's.
REQUEST = RunRequest("x", NOON.date(), days=3)


def payment(name: str, at: datetime, arrives: datetime | None = None, **changed: Any) -> dict[str, Any]:
    """A record of the table of transactions."""
    arrival = at if arrives is None else arrives
    return {
        "transaction_id": name,
        "event_time": at,
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": Decimal(1),
        "sent_at": None,
        "rejected": None,
        "detail": None,
        "original": None,
        "partition": 0,
        "offset": 0,
        "arrival_time": arrival,
        "arrival_date": arrival.date(),
        **changed,
    }


def add(root: Path, *records: dict[str, Any]) -> None:
    """Add records to the table of transactions: one file for each date of arrival."""
    rows = pa.Table.from_pylist(list(records), SCHEMA)
    write_deltalake(str(root / events_table(STREAM).name), rows, mode="append", partition_by=["arrival_date"])


_KINDS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def fill(root: Path, table: Table, *rows: dict[str, Any]) -> None:
    """Add rows to another table; what they lack is NULL."""
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in table.columns.items()])
    whole = pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)
    write_deltalake(str(root / table.name), whole, mode="append", partition_by=list(table.partitioned_by))


def config_of(root: Path, arrival: Literal["broker", "producer"] = "broker") -> BackfillConfig:
    """A lake of transactions."""
    return BackfillConfig(LakeConfig(root, {"transactions": STREAM}), arrival)


def notes_of(root: Path, cut: int, *rules: str, published: int = AT_NOON - 90 * DAY) -> Notes:
    """Notes of a run that reads the lake as it is. rules: messages; published: their arrival, µs."""
    name = events_table(STREAM).name
    version = DeltaTable(str(root / name)).version()
    answers = answered({"transactions": STREAM}, *(rule.encode() for rule in rules), at=published)
    return Notes(cut, 0, {name: version}, [(each.offset, each.arrival, each.value.decode()) for each in answers])


def publish(root: Path, *rules: dict[str, Any], at: datetime) -> None:
    """Add the answers to rule messages to their table."""
    read = JsonReader(RULE_STATUS)
    answers = answered({"transactions": STREAM}, *rules, at=microseconds(at))
    fill(
        root,
        RULE_STATUS,
        *(read.row(each.value) | {"partition": 0, "offset": each.offset, "arrival_time": at} for each in answers),
    )


def days(count: float) -> timedelta:
    """For short."""
    return timedelta(days=count)
