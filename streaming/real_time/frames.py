"""What passes between a real-time task (nightjar/jvm/EngineBridge.java) and the engine process, over a Unix socket.

From a task, little-endian: first the batch's number (8 bytes), the number of its tasks (4), the attempt (4), and
whether keys and headers come (4 each, 0 or 1). Then frames, each after its length (4): number of records (4), partition
(4), length of the topic (2), topic, and of all records the offsets, arrivals and `sent_at` (8 each, µs; NONE: no
`sent_at`), lengths of the values (4; -1: NULL), values; then, if keys or headers come, of each record its key after its
length (4; -1: NULL) and the number of its headers (4), each its name and value after their lengths. A frame without
records ends the task's part.

To a task, big-endian: a record is its length (4), then topic, key, value and `sent_at` (text), each after its length
(4; -1: NULL). A length of 0 says that the batch is stored, and the task may end.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.formats.records import HEADER_LIST
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.rulebook import Record
from nightjar.rules.types import INSTANT

_HELLO = struct.Struct("<qiiii")
_HEAD = struct.Struct("<iih")
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

    def receive(self, most: int) -> list[Records]:
        """What has come, at most so many bytes.

        Raises:
            EOFError: the task has closed the connection.
        """
        received = self.socket.recv(most)
        if not received:
            raise EOFError
        self._held += received
        if self.hello is None and len(self._held) >= _HELLO.size:
            self.hello = Hello(*_HELLO.unpack_from(self._held))
            del self._held[: _HELLO.size]
        return list(self._frames()) if self.hello else []

    def _frames(self) -> Iterator[Records]:
        at = 0
        while len(self._held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held, at)
            begin = at + _LENGTH.size
            if len(self._held) - begin < length:
                break
            at = begin + length
            found = _decoded(bytes(self._held[begin:at]), self.hello)
            if found is None:
                self.has_ended = True
            else:
                self.place = found.topic, found.partition
                yield found
        del self._held[:at]


def _decoded(frame: bytes, hello: Hello | None) -> Records | None:
    """The records of a frame; None for one that has none."""
    count, partition, length = _HEAD.unpack_from(frame)
    if not count:
        return None
    at = _HEAD.size + length
    topic = frame[_HEAD.size : at].decode()
    offsets, arrivals, sent_at = np.frombuffer(frame, "<i8", 3 * count, at).reshape(3, count)
    at += 24 * count
    lengths = np.frombuffer(frame, "<i4", count, at)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    is_null = lengths < 0
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes()) if is_null.any() else None
    at += 4 * count
    values = pa.py_buffer(frame)[at : at + int(ends[-1])]
    at += int(ends[-1])
    columns = (
        pa.array(arrivals.copy()).view(INSTANT),
        pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(ends), values]),
        pa.array(sent_at.copy(), mask=sent_at == _NONE),
    )
    beside = _beside(frame, at, count, hello) if hello and (hello.has_keys or hello.has_headers) else {}
    return Records(topic, partition, offsets.copy(), columns, len(frame), beside)


def _beside(frame: bytes, at: int, count: int, hello: Hello) -> dict[str, pa.Array]:
    """The keys and the headers of a frame's records, from there on."""
    reader = _Reader(frame, at)
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

    def __init__(self, frame: bytes, at: int) -> None:
        self._frame, self._at = frame, at

    def length(self) -> int:
        (length,) = _LENGTH.unpack_from(self._frame, self._at)
        self._at += _LENGTH.size
        return int(length)

    def bytes(self) -> bytes | None:
        length = self.length()
        if length < 0:
            return None
        self._at += length
        return self._frame[self._at - length : self._at]

    def header(self) -> dict[str, object]:
        return {"key": (self.bytes() or b"").decode(errors="replace"), "value": self.bytes()}


def replies(tables: Iterable[pa.Table]) -> bytes:
    """Records (output_records.RECORDS) for a task."""
    written = bytearray()
    for each in tables:
        topics, keys, values, headers = (each.column(name).to_pylist() for name in each.column_names)
        for topic, key, value, of in zip(topics, keys, values, headers, strict=True):
            sent_at = of[0]["value"] if of else None
            members = b"".join(map(_member, (_text(topic), _text(key), _text(value), sent_at)))
            written += struct.pack(">i", len(members)) + members
    return bytes(written)


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _member(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
