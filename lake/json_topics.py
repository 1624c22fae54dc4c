"""The topics that hold JSON of nightjar's own: a record to a row, inside Python workers.

Anybody may write to a topic: a record that is not what it should be becomes NULLs, with its bytes in `original`, so
that whoever reads the rows need not check them again. An alert's id must follow from its other keys (S10.1): else one
record could stand in for another alert.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.tables import ALERTS, COORDINATES, LATE_EVENTS, PROGRESS, RULE_STATUS, Table
from rules.alert_ids import alert_id
from rules.canonical import canonical
from rules.publishing import Answer
from rules.timestamps import parse_timestamp

# Columns whose name in the record is another, because the row's own coordinates have it.
_RENAMED = {"record_partition": "partition", "record_offset": "offset", "record": "original"}


@dataclass(frozen=True)
class JsonReader:
    """What `mapInArrow` runs: Kafka records (value and coordinates) to rows of a table."""

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
        """Whether a record's value is what the table is of, and not a row of `original` alone."""
        return "original" not in self.row(value)

    def row(self, value: bytes | None) -> dict[str, Any]:
        """The table's columns from a record's value; only `original` where it is not what the table is of."""
        try:
            written = json.loads(value or b"")
            row = {name: self._value(name, written.get(_RENAMED.get(name, name))) for name in self.names}
            if not _CHECKS.get(self.table.name, _anything)(written, row):
                raise ValueError(f"no record of {self.table.name}")
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {"original": value or b""}
        return row

    def _value(self, name: str, value: Any) -> Any:
        return None if value is None else _READ[self.table.columns[name]](value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    text.encode()  # JSON can spell half a surrogate pair, which no column of text can hold
    return text


def _int64(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r} is no int64")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is no boolean")
    return value


def _timestamp(value: Any) -> int:
    read = parse_timestamp(value, zone_required=True)
    if read is None:
        raise ValueError(f"{value!r} is no time")
    return read


def _anything(_written: Mapping[str, Any], _row: Mapping[str, Any]) -> bool:
    return True


def _is_alert(written: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return (
        all(isinstance(written.get(name), str) for name in _ALERT_TEXTS)
        and row["event_time"] is not None
        and row["kind"] in ("alert", "retraction")
        and row["source"] in ("stream", "backfill")
        and all(row[name] is not None and row[name] >= 1 for name in ("revision", "rule_version"))
        and all(_is_flat(written.get(name)) for name in ("group", "measures"))
        and row["alert_id"] == alert_id(*(row[name] for name in _NAMING))
    )


def _is_flat(value: Any) -> bool:
    """Whether it is an object of values that a measure or a field may have."""
    return isinstance(value, dict) and all(map(_is_plain, value.values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, str)


def _is_late_event(written: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return (
        all(isinstance(written.get(name), str) for name in ("stream", "event_id"))
        and row["event_time"] is not None
        and isinstance(written.get("event"), dict)
    )


def _is_progress(written: Mapping[str, Any], _row: Mapping[str, Any]) -> bool:
    """Reports of the driver have `consumed`, those of buckets have none."""
    consumed = written.get("consumed")
    return consumed is None or (isinstance(consumed, dict) and all(map(_are_offsets, consumed.values())))


def _are_offsets(value: Any) -> bool:
    return isinstance(value, dict) and all(
        partition.isascii() and partition.isdecimal() and len(partition) < 10 and _int64(offset) >= 0
        for partition, offset in value.items()
    )


def _is_answer(written: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    reasons = written.get("reasons", [])
    return (
        row["status"] in set(Answer)
        and (row["rule_id"] is None or isinstance(written["rule_id"], str))
        and (row["rule_version"] is None or row["rule_version"] >= 1)
        and isinstance(reasons, list)
        and all(isinstance(reason, str) for reason in reasons)
    )


# What an alert's id is made of.
_NAMING = ("rule_id", "rule_version", "event_id", "event_time", "group")
_ALERT_TEXTS = ("alert_id", "rule_id", "rule_state", "stream", "event_id", "severity", "text")
_CHECKS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]] = {
    ALERTS.name: _is_alert, LATE_EVENTS.name: _is_late_event, PROGRESS.name: _is_progress, RULE_STATUS.name: _is_answer,
}  # fmt: skip
_READ: dict[str, Callable[[Any], Any]] = {
    "string": _text, "bigint": _int64, "boolean": _boolean, "timestamp": _timestamp,
}  # fmt: skip
