"""Defines every table of the lake: its columns, the meaning of a row, and its partitioning.

Writers and readers of a table both use these schemas. JSON columns are text. Times are UTC with microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from nightjar.contracts.alerts import ALERT
from nightjar.contracts.job_progress import PROGRESS as OFFSETS
from nightjar.contracts.labels import LABEL
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.contracts.record_type import Member, RecordType
from nightjar.contracts.restrictions import RESTRICTION
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.contracts.run_manifest import RUN_MANIFEST
from nightjar.contracts.snoozes import SNOOZE
from nightjar.rules.alert_schema import ALERT_SCHEMA
from nightjar.rules.streams import Stream, UnionMember
from nightjar.rules.types import INSTANT, FieldType, Kind
from nightjar.rules.unions import source_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# A record's position in Kafka and its arrival.
COORDINATES = {"partition": "int", "offset": "bigint", "arrival_time": "timestamp", "arrival_date": "date"}

_SPARK_TYPES = {
    Kind.STRING: "string",
    Kind.INT64: "bigint",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.TIMESTAMP: "timestamp",
}
_ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": INSTANT,
}


@dataclass(frozen=True)
class Table:
    """A table's schema. columns: name to Spark's type; partitioned_by: partition columns; parts: of a union's events,
    which have no table: what they are read from."""

    name: str
    columns: dict[str, str] = field(repr=False)
    partitioned_by: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def ddl(self) -> str:
        """The columns as DDL for Spark."""
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
    """Spark's name for a declared field's type."""
    return f"decimal({kind.precision},{kind.scale})" if kind.kind is Kind.DECIMAL else _SPARK_TYPES[kind.kind]


@dataclass(frozen=True)
class Part:
    """The table of a union's member."""

    table: Table
    member: UnionMember

    def column(self, name: str) -> str:
        """The column that has the values of a column of the union, if it has any."""
        return source_of(self.member, name) or name


def events_table(stream: Stream) -> Table:
    """Every record of the stream's topic including duplicates, so that offsets without gaps prove that nothing is lost.

    rejected: the reason code of an invalid record; its fields are NULL and its bytes are in `original`. ERASED: the
    event of a forgotten person (backfill/erasure/rows.py); of it only the coordinates are left.
    """
    fields = {name: spark_type(kind) for name, kind in stream.fields.items()}
    unusable = {"rejected": "string", "detail": "string", "original": "binary"}
    columns = {**fields, "sent_at": "bigint", **unusable, **COORDINATES}
    parts = tuple(Part(events_table(member.stream), member) for member in stream.members)
    return Table(f"events_{stream.name}", columns, ("arrival_date",), parts)


# An invalid record of these topics has NULL in all columns except `original`, its bytes.
_UNREADABLE = {"original": "binary", **COORDINATES}
# Members of records that are stored under another column name, because the row's own coordinates have theirs.
RENAMED = {"partition": "record_partition", "offset": "record_offset", "original": "record"}


def _columns_of(record: RecordType, *without: str) -> dict[str, str]:
    read = _types_of({name: member for name, member in record.members.items() if name not in without})
    return {**{RENAMED.get(name, name): kind for name, kind in read.items()}, **_UNREADABLE}


def _types_of(members: Mapping[str, Member]) -> dict[str, str]:
    return {name: spark_type(FieldType(member.kind)) for name, member in members.items()}


ALERTS = Table("alerts", _columns_of(ALERT), ("arrival_date",))
RESTRICTIONS = Table("restrictions", _columns_of(RESTRICTION), ("arrival_date",))
# What alerts were; contracts.labels says which of several labels counts.
LABELS = Table("labels", _columns_of(LABEL), ("arrival_date",))
# Every record of every snooze; contracts.snoozes says which counts.
SNOOZES = Table("snoozes", _columns_of(SNOOZE), ("arrival_date",))
# record_partition and record_offset: the late record's position on its stream's topic.
LATE_EVENTS = Table("late_events", _columns_of(LATE_EVENT, "arrival_time"), ("arrival_date",))
QUARANTINE = Table("quarantine", _columns_of(QUARANTINED, "arrival_time", "size"), ("arrival_date",))
# The answers to rule messages: replayed in order of offsets (rules.rulebook) they define the rules. rule is the JSON of
# the accepted rule.
RULE_STATUS = Table("rule_status", _columns_of(ANSWER, "event_id"))
# Rule messages as they were published, for troubleshooting.
RULES = Table("rules", {"value": "binary", **COORDINATES})
# Changes of tables as they were published (contracts/table_changes.py): read in order of offsets they are the rows.
TABLES = Table("tables", {"value": "binary", **COORDINATES})
# The stream's progress: consumed is JSON, topic to partition to the offset after the last record of a batch; began
# likewise has the offset of the first record that the stream's state can have.
PROGRESS = Table("job_progress", _columns_of(OFFSETS), ("arrival_date",))

_CONTENT = {name: ALERTS.columns[name] for name in ALERT_SCHEMA.names if name not in ("revision", "kind")}
# All known violations, by event date.
VIOLATIONS = Table("violations", {**_CONTENT, "event_date": "date"}, ("event_date",))
# One row for each alert that the stream or the backfill has within a run's scope: backfill/reconcile/reconciliation.py.
RECONCILIATION = Table(
    "reconciliation",
    {
        "day": "date",
        "alert_id": "string",
        "rule_id": "string",
        "rule_version": "bigint",
        "stream": "string",
        "group": "string",
        "event_id": "string",
        "event_time": "timestamp",
        "outcome": "string",
        "cause": "string",
        "stream_revision": "bigint",
        "stream_measures": "string",
        "measures": "string",
        "stream_muted": "boolean",
        "muted": "boolean",
        "stream_overflow": "boolean",
    },
    ("day",),
)
CORRECTIONS = Table(
    "corrections",
    {
        "day": "date",
        "run_id": "string",
        "revision": "bigint",
        "kind": "string",
        "cause": "string",
        **_CONTENT,
        "overflow": "boolean",
    },
    ("day",),
)
# A completed run of the archive. until: every record that arrived before it, by the brokers' timestamps, is in the
# lake; rows: JSON, records by table; seconds: that it took, NULL where an earlier release ran.
ARCHIVES = Table("archives", {"finished_at": "timestamp", "until": "timestamp", "rows": "string", "seconds": "double"})
# One row for each event that was erased with its person: a window that held it cannot be evaluated any more. marks:
# JSON, group-by to the mark of the event's group (backfill/erasure/person.py), which many groups share.
FORGOTTEN = Table(
    "forgotten",
    {
        "stream": "string",
        "partition": "int",
        "offset": "bigint",
        "event_time": "timestamp",
        "marks": "string",
        "forgotten_at": "timestamp",
    },
)
# The manifests of the backfill's runs.
RUNS = Table("runs", _types_of(RUN_MANIFEST.members) | {"day": "date"})
