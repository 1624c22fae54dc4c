"""The records that the job publishes, as the columns of Spark's sink, without a Python object per record.

Values are JSON; an alert has a header `sent_at` (µs, as text) if its event had one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nightjar.contracts.alerts import ALERT
from nightjar.contracts.columns import alert_columns, late_columns, overflowing, texts
from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.json_text import json_text
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.rules.engine import NO_ROW
from nightjar.rules.engine.columns import FEW, table_of
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.streams import Stream

# The schema of Spark's sink: the columns of `RECORDS` as Spark types.
OUTPUT_SCHEMA = "topic string, key string, value string, headers array<struct<key: string, value: binary>>"
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
RECORDS = pa.schema(
    [("topic", pa.string()), ("key", pa.string()), ("value", pa.string()), ("headers", pa.list_(_HEADER))]
)

_NO_SENT_AT = pa.nulls(0, pa.string())

# Maximum rows of a batch, and bytes of their values: a few megabytes.
ROWS_A_BATCH = 4000
CHARACTERS_A_BATCH = 4_000_000


def json_records(topic: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> pa.Table:
    """Records (key, value) as RECORDS; for small numbers of them."""
    pairs = [(key, json_text(value)) for key, value in records]
    return _records(topic, *(pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1)))


def alert_records(
    topic: str, alerts: pa.Table, sent_at: pa.Array, emitted_at: int, overflow: NDArray[np.bool_] | None = None
) -> pa.Table:
    """Alerts (the engine's) as RECORDS.

    sent_at: of their events, as `sent_at_of`; emitted_at: µs since 1970; overflow: which are marked so.
    """
    if not alerts.num_rows:
        return RECORDS.empty_table()
    columns = alert_columns(alerts, emitted_at)
    values = texts(ALERT, columns, alerts.num_rows)
    if overflow is not None and overflow.any():
        values = pc.if_else(pa.array(overflow), overflowing(values), values)
    return _records(topic, columns["alert_id"], values, sent_at)


def late_records(topic: str, late: pa.Table, stream: Stream) -> pa.Table:
    """Late events (the engine's, with `partition` and `offset`) as RECORDS: their fields, arrival and coordinates."""
    if not late.num_rows:
        return RECORDS.empty_table()
    columns = late_columns(late, stream)
    return _records(topic, columns["event_id"], texts(LATE_EVENT, columns, late.num_rows))


def batches_of(records: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    """Large numbers of records, split into batches of the maximum size."""
    held: list[tuple[str, Mapping[str, Any]]] = []
    characters = 0
    for key, value in records:
        size = sum(len(member) for member in value.values() if isinstance(member, str))
        if len(held) == ROWS_A_BATCH or (held and characters + size > CHARACTERS_A_BATCH):
            yield held
            held, characters = [], 0
        held.append((key, value))
        characters += size
    if held:
        yield held


def _records(topic: str, keys: pa.Array, values: pa.Array, sent_at: pa.Array | None = None) -> pa.Table:
    """sent_at: text, NULL for a record without the header."""
    rows = len(keys)
    sent_at = pa.nulls(rows, pa.string()) if sent_at is None else sent_at
    if rows <= FEW:
        found = [[] if each is None else [(SENT_AT, each.encode())] for each in sent_at.to_pylist()]
        headers = pa.array(found, RECORDS.field("headers").type)
    else:
        headers = _headers(sent_at)
    return table_of({"topic": pa.repeat(topic, rows), "key": keys, "value": values, "headers": headers}, RECORDS)


def _headers(sent_at: pa.Array) -> pa.Array:
    brought = sent_at.drop_null().cast(pa.binary())
    header = pa.StructArray.from_arrays([pa.repeat(SENT_AT, len(brought)), brought], fields=list(_HEADER))
    ends = np.cumsum(sent_at.is_valid().to_numpy(zero_copy_only=False), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(np.append(np.int32(0), ends)), header)


def sent_at_of(events: pa.Table, rows: Int64Array) -> pa.Array:
    """The `sent_at` (µs, as text) of the events in these rows of a batch; NULL for NO_ROW, or if an event had none."""
    if not len(rows):
        return _NO_SENT_AT
    brought = events.column(SENT_AT)
    if brought.null_count == len(brought):
        return pa.nulls(len(rows), pa.string())
    if len(rows) <= FEW:
        found = [None if row == NO_ROW else brought[row].as_py() for row in rows.tolist()]
        return pa.array([None if each is None else str(each) for each in found], pa.string())
    return brought.combine_chunks().take(pa.array(rows, mask=rows == NO_ROW)).cast(pa.string())
