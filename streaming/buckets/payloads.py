"""The rows that the packer sends to the buckets: the few rows of a micro-batch inside Spark.

Streams differ in their columns, but all rows of a shuffle have the same: a bucket gets its events as one Arrow stream
per slice of a partition, never one by one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import pyarrow as pa

# A row of the packer: its bucket, its kind and its payload.
PACKED_SCHEMA = "bucket int, kind string, payload binary"


class PayloadKind(StrEnum):
    """The kinds of packed rows."""

    EVENTS = "events"  # a table of `events_schema`
    RULE = "rule"  # JSON: offset, arrival (µs), value (text) of an answer on rule-status
    CLOCK = "clock"  # a record of contracts.clock
    TABLES = "tables"  # the position up to which changes of tables are known, as text
    SKIPPED = "skipped"  # how many records of nightjar's own topics were skipped
    QUARANTINE = "quarantine"  # a table of output_records.RECORDS for the quarantine topic, forwarded as it is


# Tables are Arrow streams where they pass from process to process.
Payload: TypeAlias = pa.Table | bytes


def encoded(payload: Payload) -> bytes:
    """The payload as it passes to another process."""
    return payload if isinstance(payload, bytes) else to_ipc(payload)


def decoded(payload: Payload) -> pa.Table:
    """The table of a payload that is one, wherever it comes from."""
    return from_ipc(payload) if isinstance(payload, bytes) else payload


def to_ipc(table: pa.Table) -> bytes:
    """A table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(payload: bytes) -> pa.Table:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()
