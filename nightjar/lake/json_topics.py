"""Parses records of nightjar's own JSON topics into table rows, inside Python workers.

Anybody may write to a topic: an invalid record becomes a row of NULLs with its bytes in `original`, so readers of the
table need not validate it again. The contracts (contracts/) define what is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nightjar.contracts.alerts import ALERT
from nightjar.contracts.job_progress import PROGRESS as OFFSETS
from nightjar.contracts.labels import LABEL
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.contracts.restrictions import RESTRICTION
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.contracts.snoozes import SNOOZE
from nightjar.lake.tables import (
    ALERTS,
    COORDINATES,
    LABELS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RENAMED,
    RESTRICTIONS,
    RULE_STATUS,
    SNOOZES,
    Table,
)

# Column -> name of the member in the record, where they differ.
_MEMBERS = {column: name for name, column in RENAMED.items()}


@dataclass(frozen=True)
class JsonReader:
    """The function that `mapInArrow` applies: Kafka records (value and coordinates) to rows of a table."""

    table: Table

    @property
    def names(self) -> list[str]:
        """The columns that come from the record itself."""
        return [name for name in self.table.columns if name not in COORDINATES and name != "original"]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of value and COORDINATES to batches of the table's columns."""
        kinds = self.table.arrow
        for batch in batches:
            rows = [self.row(value) for value in batch.column("value").to_pylist()]
            read = {name: pa.array([row.get(name) for row in rows], kinds.field(name).type) for name in self.names}
            read["original"] = pa.array([row.get("original") for row in rows], pa.binary())
            read |= {name: batch.column(name) for name in COORDINATES}
            yield pa.RecordBatch.from_arrays([read[name] for name in self.table.columns], list(self.table.columns))

    def reads(self, value: bytes | None) -> bool:
        """Whether a record's value is valid for the table, and not stored in `original` alone."""
        return "original" not in self.row(value)

    def row(self, value: bytes | None) -> dict[str, Any]:
        """The table's columns from a record's value; only `original` if the value is not valid."""
        record = _RECORDS[self.table.name]
        row = record.row(value, [_MEMBERS.get(name, name) for name in self.names])
        return {"original": value or b""} if row is None else {RENAMED.get(name, name): row[name] for name in row}


_RECORDS = {
    ALERTS.name: ALERT,
    LATE_EVENTS.name: LATE_EVENT,
    QUARANTINE.name: QUARANTINED,
    RULE_STATUS.name: ANSWER,
    PROGRESS.name: OFFSETS,
    RESTRICTIONS.name: RESTRICTION,
    LABELS.name: LABEL,
    SNOOZES.name: SNOOZE,
}
