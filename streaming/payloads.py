"""What travels from the packer to the buckets: the few rows a micro-batch has inside Spark.

Streams have different columns and rows of one shuffle have the same: a bucket gets its events as one Arrow stream for
each slice of a partition, never one by one.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

# A row of the packer: the bucket it is for, what it is, and its payload.
PACKED_SCHEMA = "bucket int, kind string, payload binary"


class Kind(StrEnum):
    """What a packed row holds."""

    EVENTS = "events"  # an Arrow stream of `events_schema`
    RULE = "rule"  # JSON: offset, arrival (µs), value (text) of an answer on rule-status
    CLOCK = "clock"  # a record of contracts.clock
    SKIPPED = "skipped"  # how many records of nightjar's own topics were skipped
    QUARANTINE = "quarantine"  # an Arrow stream of output_records.RECORDS for the quarantine topic, which is passed on


def to_ipc(table: pa.Table) -> bytes:
    """A table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(payload: bytes) -> pa.Table:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()
