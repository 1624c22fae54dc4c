"""Records of a topic, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.encodings import Envelope
from nightjar.rules.envelopes import PREFIX
from nightjar.rules.field_paths import HEADERS, KEY
from nightjar.rules.streams import Stream

HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class KafkaRecord(Protocol):
    """As a Kafka client has it."""

    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Any: ...


def keys_of(records: Iterable[KafkaRecord]) -> pa.Array:
    """The records' keys (binary)."""
    return pa.array([record.key for record in records], pa.binary())


def headers_of(records: Iterable[KafkaRecord]) -> pa.Array:
    """The records' headers (HEADER_LIST)."""
    listed = [[{"key": name, "value": value} for name, value in record.headers or ()] for record in records]
    return pa.array(listed, HEADER_LIST)


class Raw(NamedTuple):
    """A record. value: b"" if it is NULL; arrival: µs; beside: what stands beside its value, if that is read."""

    value: bytes
    arrival: int
    beside: dict[str, Any] | None = None


@dataclass(frozen=True)
class Records:
    """Records: values (binary, NULL if empty) and arrivals (int64, µs); keys (binary) and headers (HEADER_LIST) where
    the stream reads them."""

    values: pa.Array
    arrivals: pa.Array
    keys: pa.Array | None = None
    headers: pa.Array | None = None

    @classmethod
    def of(cls, records: Sequence[KafkaRecord], arrivals: pa.Array, stream: Stream) -> Records:
        """Records of a client of Kafka. arrivals: int64, µs."""
        keys = headers = None
        if stream.reads_key:
            keys = keys_of(records)
        if stream.reads_headers:
            headers = headers_of(records)
        return cls.read(pa.array([record.value for record in records], pa.binary()), arrivals, keys, headers, stream)

    @classmethod
    def read(
        cls, values: pa.Array, arrivals: pa.Array, keys: pa.Array | None, headers: pa.Array | None, stream: Stream
    ) -> Records:
        """Records with what the stream reads of them."""
        read = _those_read(headers, stream) if stream.reads_headers and headers is not None else None
        return cls(values, arrivals, keys if stream.reads_key else None, read)

    @property
    def has_context(self) -> bool:
        """Whether anything beside the values is read."""
        return self.keys is not None or self.headers is not None

    def beside(self, rows: Sequence[int]) -> list[dict[str, Any]] | None:
        """What stands beside the values of these records; None if that is not read."""
        if not self.has_context:
            return None
        wanted = pa.array(rows, pa.int64())
        found = [dict[str, Any]() for _ in rows]
        if self.keys is not None:
            for of, key in zip(found, self.keys.take(wanted).to_pylist(), strict=True):
                of[KEY] = _text(key)
        if self.headers is not None:
            for of, headers in zip(found, self.headers.take(wanted).to_pylist(), strict=True):
                of[HEADERS] = {header["key"]: _text(header["value"]) for header in headers or ()}
        return found


def _text(value: bytes | None) -> str | bytes | None:
    """As text; what is not UTF-8 stays bytes, which no field takes."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _those_read(headers: pa.Array, stream: Stream) -> pa.Array:
    """The headers that the stream reads; a record may have hundreds of thousands of others."""
    listed = headers.flatten()
    names = pc.struct_field(listed, 0)
    read = pc.is_in(names, pa.array(sorted(stream.header_names), pa.string()))
    if stream.encoding.envelope is Envelope.CLOUDEVENTS:
        read = pc.or_(read, pc.starts_with(names, PREFIX))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy())
    counted = np.append(0, np.cumsum(read.to_numpy(zero_copy_only=False)))
    offsets = pa.array(counted[np.append(0, ends)], pa.int32())
    return pa.ListArray.from_arrays(offsets, listed.filter(read))
