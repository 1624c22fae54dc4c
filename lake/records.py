"""The topics that hold JSON of nightjar's own: a record to a row, inside Python workers.

Anybody may write to a topic: a record that is not what it should be becomes NULLs, with its bytes in `original`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake.tables import COORDINATES, Table
from rules.timestamps import parse_timestamp

# Columns whose name in the record is another, because the row's own coordinates have it.
_RENAMED = {"record_partition": "partition", "record_offset": "offset", "record": "original"}


def canonical(value: Any) -> str:
    """One text for equal JSON values, whoever wrote them: doubles in Python's shortest form, no spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rewritten(text: str) -> str:
    """JSON text as `canonical` would have written it."""
    return canonical(json.loads(text))


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
            rows = [self._row(value) for value in batch.column("value").to_pylist()]
            read = {name: pa.array([row.get(name) for row in rows], kinds.field(name).type) for name in self.names}
            read["original"] = pa.array([row.get("original") for row in rows], pa.binary())
            read |= {name: batch.column(name) for name in COORDINATES}
            yield pa.RecordBatch.from_arrays([read[name] for name in self.table.columns], list(self.table.columns))

    def _row(self, value: bytes | None) -> dict[str, Any]:
        try:
            written = json.loads(value or b"")
            return {name: self._value(name, written.get(_RENAMED.get(name, name))) for name in self.names}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {"original": value or b""}

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


_READ: dict[str, Callable[[Any], Any]] = {
    "string": _text, "bigint": _int64, "boolean": _boolean, "timestamp": _timestamp,
}  # fmt: skip
