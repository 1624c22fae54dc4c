"""Small lakes of known rows, made without Spark."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from nightjar.backfill.config import BackfillConfig
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.lake.config import LakeConfig
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ARCHIVES, RECONCILIATION, RULE_STATUS, RUNS, Table, events_table
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from tests.support.answers import answered

STREAM = load_streams()["transactions"]

_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "decimal(12,2)": pa.decimal128(12, 2),
}


def config_of(root: Path, **changed: Any) -> BackfillConfig:
    """The configuration of a lake of one stream, with its tables, in which there is nothing."""
    config = BackfillConfig(LakeConfig(root, {STREAM.name: STREAM}), "broker", **changed)
    for table in (events_table(STREAM), RUNS, ARCHIVES, RECONCILIATION):
        add(config, table, [])
    return config


def add(config: BackfillConfig, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows, as one commit; what a row does not name is NULL."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in table.columns.items()])
    content = pa.Table.from_pylist([{name: row.get(name) for name in table.columns} for row in rows], schema)
    place = config.lake.root / table.name
    write_deltalake(place, content, mode="append", partition_by=list(table.partitioned_by) or None)


def add_event(config: BackfillConfig, happened: datetime, arrived: datetime) -> None:
    """An event of the stream."""
    row = {"transaction_id": "t", "event_time": happened, "arrival_time": arrived, "arrival_date": arrived.date()}
    add(config, events_table(STREAM), [row])


def publish(config: BackfillConfig, *rules: dict[str, Any]) -> None:
    """Archive answers to rules, which were accepted on the 4th."""
    metadata = {"original": None, "arrival_time": at(4), "partition": 0}
    rows = [
        JsonReader(RULE_STATUS).row(answer.value) | metadata | {"offset": answer.offset, "effective": at(4)}
        for answer in answered({STREAM.name: STREAM}, *rules)
    ]
    add(config, RULE_STATUS, rows)


def add_run(config: BackfillConfig, day: date, ended: datetime, **changed: Any) -> None:
    """A manifest: of a finished run of the whole day, unless changed."""
    manifest = RunManifest(f"run-{ended:%dT%H%M}", day, RunState.FINISHED, microseconds(ended), microseconds(ended))
    add(config, RUNS, [manifest.row() | changed])


def at(day: int, hour: int = 12, minute: int = 0) -> datetime:
    """A time of January 2026."""
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)
