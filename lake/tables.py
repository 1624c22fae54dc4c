"""Every table of the lake: its columns, what a row is, and what it is partitioned by.

A schema stands here once; who writes a table and who reads it both take it from here. JSON columns are text. Times are
UTC with microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from contracts.alerts import ALERT
from contracts.job_progress import PROGRESS as OFFSETS
from contracts.late_events import LATE_EVENT
from contracts.quarantine import QUARANTINED
from contracts.record_type import RecordType
from contracts.rule_status import RULE_STATUS as ANSWER
from rules.alert_schema import ALERT_SCHEMA
from rules.streams import Stream
from rules.types import FieldType, Kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Where a record stood in Kafka, and when it came.
COORDINATES = {"partition": "int", "offset": "bigint", "arrival_time": "timestamp", "arrival_date": "date"}

_SPARK_TYPES = {
    Kind.STRING: "string", Kind.INT64: "bigint", Kind.DOUBLE: "double", Kind.BOOLEAN: "boolean",
    Kind.TIMESTAMP: "timestamp",
}  # fmt: skip
_ARROW_TYPES = {
    "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """columns: name to Spark's type; partitioned_by: columns whose values are folders."""

    name: str
    columns: dict[str, str] = field(repr=False)
    partitioned_by: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """The columns as Spark takes a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())

    @property
    def schema(self) -> StructType:
        """The columns as Spark's own type."""
        from pyspark.sql.types import StructType

        return cast("StructType", StructType.fromDDL(self.ddl))

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow's types."""
        return pa.schema([(name, _arrow_type(kind)) for name, kind in self.columns.items()])


def _arrow_type(kind: str) -> pa.DataType:
    return _ARROW_TYPES[kind] if kind in _ARROW_TYPES else FieldType.parse(kind).arrow  # a decimal is written alike


def spark_type(kind: FieldType) -> str:
    """A declared field's type, as Spark writes it."""
    return f"decimal({kind.precision},{kind.scale})" if kind.kind is Kind.DECIMAL else _SPARK_TYPES[kind.kind]


def events_table(stream: Stream) -> Table:
    """Every record of the stream's topic, duplicates too: so that offsets without a gap mean that nothing was lost.

    rejected: the reason code of a record that is no event, whose fields are NULL and whose bytes are in `original`.
    """
    fields = {name: spark_type(kind) for name, kind in stream.fields.items()}
    unusable = {"rejected": "string", "detail": "string", "original": "binary"}
    return Table(f"events_{stream.name}", {**fields, "sent_at": "bigint", **unusable, **COORDINATES}, ("arrival_date",))


# A record of these topics that cannot be read has NULL everywhere but in `original`, its bytes.
_UNREADABLE = {"original": "binary", **COORDINATES}
# What a column is called whose name in the record is another: the row's own coordinates have it.
RENAMED = {"partition": "record_partition", "offset": "record_offset", "original": "record"}


def _columns_of(record: RecordType, *without: str) -> dict[str, str]:
    members = {name: member for name, member in record.members.items() if name not in without}
    read = {RENAMED.get(name, name): spark_type(FieldType(member.kind)) for name, member in members.items()}
    return {**read, **_UNREADABLE}


ALERTS = Table("alerts", _columns_of(ALERT), ("arrival_date",))
# record_partition and record_offset: where the late record stood on its stream's topic.
LATE_EVENTS = Table("late_events", _columns_of(LATE_EVENT, "arrival_time"), ("arrival_date",))
QUARANTINE = Table("quarantine", _columns_of(QUARANTINED, "arrival_time", "size"), ("arrival_date",))
# The answers to rule messages: folded in the order of offsets (rules.rulebook) they say which rules there are. rule
# is the JSON of the rule that was accepted.
RULE_STATUS = Table("rule_status", _columns_of(ANSWER, "event_id"))
# Rule messages as they were published, for whoever looks into what happened.
RULES = Table("rules", {"value": "binary", **COORDINATES})
# How far the stream had come: consumed is JSON, topic to partition to the offset after the last record of a batch;
# began the same, to the offset of the first record that its state can hold.
PROGRESS = Table("job_progress", _columns_of(OFFSETS), ("arrival_date",))

_CONTENT = {name: ALERTS.columns[name] for name in ALERT_SCHEMA.names if name not in ("revision", "kind")}
# The truth as far as it is known: what holds, by event date.
VIOLATIONS = Table("violations", {**_CONTENT, "event_date": "date"}, ("event_date",))
# One row for each alert that the stream or the backfill has within a run's scope; see backfill/reconciliation.py.
RECONCILIATION = Table(
    "reconciliation",
    {
        "day": "date", "alert_id": "string", "rule_id": "string", "rule_version": "bigint", "stream": "string",
        "group": "string", "event_id": "string", "event_time": "timestamp", "outcome": "string", "cause": "string",
        "stream_revision": "bigint", "stream_measures": "string", "measures": "string",
    },
    ("day",),
)  # fmt: skip
CORRECTIONS = Table(
    "corrections",
    {"day": "date", "run_id": "string", "revision": "bigint", "kind": "string", "cause": "string", **_CONTENT},
    ("day",),
)
# A completed run of the archive. until: every record that arrived before it, by the broker's time stamps, is in the
# lake; rows: JSON, records by table.
ARCHIVES = Table("archives", {"finished_at": "timestamp", "until": "timestamp", "rows": "string"})
# A run's manifest: versions, rules, counts and seconds are JSON objects; failure: of a failed run why it failed, of a
# finished one which alerts were held back.
RUNS = Table(
    "runs",
    {
        "run_id": "string", "day": "date", "state": "string", "started_at": "timestamp", "finished_at": "timestamp",
        "cut": "timestamp", "only_rules": "string", "only_groups": "string", "versions": "string", "rules": "string",
        "counts": "string", "seconds": "string", "failure": "string",
    },
)  # fmt: skip
