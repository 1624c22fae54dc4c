"""What passes between a real-time task (nightjar/jvm/EngineBridge.java) and the engine process, over a Unix socket.

From a task, little-endian: first the batch's number (8 bytes), the number of its tasks (4), the attempt (4), and
whether keys and headers come (4 each, 0 or 1). Then frames, each after its length (4): number of records (4), partition
(4), bytes of all values (4), length of the topic (2), topic, and of all records the offsets, arrivals and `sent_at` (8
each, µs; NONE: no `sent_at`), lengths of the values (4; -1: NULL), values; then, if keys or headers come, of each
record its key after its length (4; -1: NULL) and the number of its headers (4), each its name and value after their
lengths. A frame without records ends the task's part.

To a task, big-endian: a record is its length (4), then topic, key, value and `sent_at` (text), each after its length
(4; -1: NULL). A length of 0 says that the batch is stored, and the task may end.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.formats.records import HEADER_LIST
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.rulebook import Record
from nightjar.rules.types import INSTANT

_HELLO = struct.Struct("<qiiii")
_HEAD = struct.Struct("<iiih")
_LENGTH = struct.Struct("<i")
_NONE = -(1 << 63)

# Ends a task.
STORED = struct.pack(">i", 0)

# What the packer reads.
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("value", pa.binary()),
        (SENT_AT, pa.int64()),
    ]
)


@dataclass(frozen=True)
class Records:
    """Records of one partition, in order."""

    topic: str
    partition: int
    offsets: Int64Array
    columns: tuple[pa.Array, ...]
    """The columns of SCHEMA after the offset."""
    size: int
    """Bytes."""
    beside: Mapping[str, pa.Array] = field(default_factory=dict)
    """The columns key and headers, if they come."""

    def split(self, end: int) -> tuple[Records | None, Records | None]:
        """Those before this offset, and the others; None if there are none."""
        at = int(np.searchsorted(self.offsets, end))
        return self._slice(0, at), self._slice(at, len(self.offsets))

    def _slice(self, first: int, end: int) -> Records | None:
        if first == end:
            return None
        columns = tuple(column[first:end] for column in self.columns)
        size = self.size * (end - first) // len(self.offsets)
        beside = {name: column[first:end] for name, column in self.beside.items()}
        return Records(self.topic, self.partition, self.offsets[first:end], columns, size, beside)


def as_records(topic: str, records: Sequence[Record]) -> Records:
    """Records of a topic with one partition."""
    columns = (
        pa.array([each.arrival for each in records], INSTANT),
        pa.array([each.value for each in records], pa.binary()),
        pa.nulls(len(records), pa.int64()),
    )
    offsets = np.array([each.offset for each in records], np.int64)
    return Records(topic, 0, offsets, columns, sum(len(each.value) for each in records))


def table(parts: Sequence[Records]) -> pa.Table:
    """Records as the packer reads them: SCHEMA, and what comes beside values."""
    beside = {name: column.type for part in parts for name, column in part.beside.items()}
    schema = pa.schema([*SCHEMA, *beside.items()])
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.repeat(part.topic, len(part.offsets)),
                pa.repeat(pa.scalar(part.partition, pa.int32()), len(part.offsets)),
                pa.array(part.offsets),
                *part.columns,
                *(part.beside.get(name, pa.nulls(len(part.offsets), kind)) for name, kind in beside.items()),
            ],
            schema=schema,
        )
        for part in parts
    ]
    return pa.Table.from_batches(batches, schema).combine_chunks()


@dataclass(frozen=True)
class Hello:
    """The first that a task says."""

    batch: int
    tasks: int
    attempt: int
    has_keys: int
    has_headers: int


class TaskConnection:
    """The connection of a task, and what it has said of its input."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.hello: Hello | None = None
        self.has_ended = False
        self.place: tuple[str, int] | None = None
        """The topic and partition of the records that have come."""
        self._held = bytearray()

    def receive(self, into: bytearray) -> Records | None:
        """What has come, at most as much as `into` has room for; None: no whole frame with records.

        Raises:
            EOFError: the task has closed the connection.
        """
        received = self.socket.recv_into(into)
        if not received:
            raise EOFError
        self._held += memoryview(into)[:received]
        if self.hello is None and len(self._held) >= _HELLO.size:
            self.hello = Hello(*_HELLO.unpack_from(self._held))
            del self._held[: _HELLO.size]
        found = self._records(self.hello) if self.hello else None
        if found is not None:
            self.place = found.topic, found.partition
        return found

    def _records(self, hello: Hello) -> Records | None:
        """Those of all frames that have come whole, together: a frame may be of one record."""
        frames, at = list[memoryview](), 0
        held = memoryview(self._held)
        while len(held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, at)
            begin, end = at + _LENGTH.size, at + _LENGTH.size + length
            if end > len(held):
                break
            at = end
            if _HEAD.unpack_from(held, begin)[0]:
                frames.append(held[begin:end])
            else:
                self.has_ended = True
        if at:
            self._held = self._held[at:]
        return _decoded(frames, hello) if frames else None


def _decoded(frames: Sequence[memoryview], hello: Hello) -> Records:
    """The records of frames of one partition."""
    count, columns = 0, tuple(list[memoryview]() for _ in range(6))
    for frame in frames:
        some, partition, size, length = _HEAD.unpack_from(frame)
        count += some
        at = _HEAD.size + length
        topic = frame[_HEAD.size : at]
        for column, width in zip(columns, (8 * some, 8 * some, 8 * some, 4 * some, size, len(frame)), strict=True):
            column.append(frame[at : at + width])
            at += width
    offsets, arrivals, sent_at = (np.frombuffer(b"".join(column), "<i8") for column in columns[:3])
    lengths = np.frombuffer(b"".join(columns[3]), "<i4")
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    is_null = lengths < 0
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes()) if is_null.any() else None
    values = (
        pa.array(arrivals).view(INSTANT),
        pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(columns[4]))]),
        pa.array(sent_at, mask=sent_at == _NONE),
    )
    beside = _beside(b"".join(columns[5]), count, hello) if hello.has_keys or hello.has_headers else {}
    return Records(str(topic, "utf-8"), partition, offsets, values, sum(map(len, frames)), beside)


def _beside(written: bytes, count: int, hello: Hello) -> dict[str, pa.Array]:
    """The keys and the headers of records."""
    reader = _Reader(written)
    keys, headers = [], []
    for _ in range(count):
        if hello.has_keys:
            keys.append(reader.bytes())
        if hello.has_headers:
            headers.append([reader.header() for _ in range(reader.length())])
    found = {"key": pa.array(keys, pa.binary())} if hello.has_keys else {}
    return {**found, "headers": pa.array(headers, HEADER_LIST)} if hello.has_headers else found


class _Reader:
    """Reads what stands beside values."""

    def __init__(self, written: bytes) -> None:
        self._written, self._at = written, 0

    def length(self) -> int:
        (length,) = _LENGTH.unpack_from(self._written, self._at)
        self._at += _LENGTH.size
        return int(length)

    def bytes(self) -> bytes | None:
        length = self.length()
        if length < 0:
            return None
        self._at += length
        return self._written[self._at - length : self._at]

    def header(self) -> dict[str, object]:
        return {"key": (self.bytes() or b"").decode(errors="replace"), "value": self.bytes()}


class Reply(NamedTuple):
    """A record to publish."""

    topic: str
    key: bytes | None
    value: bytes | None
    sent_at: bytes | None
    """The value of the header of this name."""


def replies(tables: Iterable[pa.Table]) -> Iterator[Reply]:
    """Records (output_records.RECORDS) one by one."""
    for each in tables:
        topics, keys, values, headers = (each.column(name).to_pylist() for name in each.column_names)
        for topic, key, value, of in zip(topics, keys, values, headers, strict=True):
            yield Reply(topic, _text(key), _text(value), of[0]["value"] if of else None)


def encoded(found: Iterable[Reply]) -> bytes:
    """Records for a task."""
    written = bytearray()
    for each in found:
        members = b"".join(map(_member, (each.topic.encode(), each.key, each.value, each.sent_at)))
        written += struct.pack(">i", len(members)) + members
    return bytes(written)


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _member(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
