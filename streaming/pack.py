"""Parsed records to few rows, because the stateful operator makes a Python object of every row.

How it works: `pack` runs under `mapInArrow`, once a task. For each route of its stream an event goes to the bucket of
the route's field, all of a bucket's events as one Arrow stream; rule messages and clocks go to every bucket. Suspect
records are read by `rules.events.parse_event`, and what cannot be used leaves as a record for the quarantine topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules.documents import MAX_BYTES
from rules.events import Rejection, check_skew, parse_event
from rules.streams import Stream
from streaming.hashing import buckets_of, divided, shuffle_key
from streaming.parse import column_of
from streaming.records import chunks, quarantine_line
from streaming.rulebook import WHOLE_STREAM, Route
from streaming.wire import PRIMARY, SENT_AT, Kind, events_schema, to_ipc

# The bucket that passes quarantined records on.
_ANSWERING = 0
# Bytes of parsed records that are packed at once; ordinary ones of a whole batch are fewer.
_SLICE_BYTES = 128 * 1024 * 1024
_MICROSECONDS = pa.timestamp("us", "UTC")

Packed = tuple[int, Kind, bytes]


@dataclass(frozen=True)
class Packer:
    """What `mapInArrow` runs. Route r has the buckets from r * buckets on; the whole-stream route has that one only."""

    streams: Mapping[str, Stream]
    routes: tuple[Route, ...]
    buckets: int
    partitions: int
    rules_topic: str
    clock_topic: str

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parsed records (see parse.parsed) to rows of wire.PACKED_SCHEMA."""
        for read in _slices(batches):
            rows = list(self.packed(pa.Table.from_batches(read)))
            columns = [
                pa.array([shuffle_key(bucket, self.partitions) for bucket, _, _ in rows], pa.int32()),
                pa.array([kind.value for _, kind, _ in rows], pa.string()),
                pa.array([payload for _, _, payload in rows], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["bucket", "kind", "payload"])

    def packed(self, records: pa.Table) -> Iterator[Packed]:
        """The rows: bucket, kind, payload."""
        topics = set(pc.unique(records.column("topic")).to_pylist())
        if self.rules_topic in topics:
            yield from self._to_every_bucket(Kind.RULE, _rules(_of_topic(records, self.rules_topic)))
        if self.clock_topic in topics:
            yield from self._to_every_bucket(Kind.CLOCK, _clocks(_of_topic(records, self.clock_topic)))
        for stream in self.streams.values():
            if stream.topic in topics:
                yield from self._events(records, stream)

    def _to_every_bucket(self, kind: Kind, payloads: list[bytes]) -> Iterator[Packed]:
        for number, route in enumerate(self.routes):
            for bucket in buckets_of(number, route, self.buckets):
                yield from ((bucket, kind, payload) for payload in payloads)

    def _events(self, records: pa.Table, stream: Stream) -> Iterator[Packed]:
        usable = records.filter(pc.is_valid(records.column(column_of(stream))))
        events = [_typed(usable, stream)]
        ours = pc.and_(pc.equal(records.column("topic"), stream.topic), pc.is_valid(records.column("raw")))
        if (suspects := records.filter(ours)).num_rows:
            understood, rejected = read_suspects(suspects, stream)
            events.append(understood)
            yield from ((_ANSWERING, Kind.QUARANTINE, lines.encode()) for lines in chunks(rejected))
        table = pa.concat_tables(events).combine_chunks()
        if not table.num_rows:
            return
        batch = table.to_batches()[0]
        first = True  # every route gets the event, the stream's first speaks for it
        for number, route in enumerate(self.routes):
            if route.stream != stream.name:
                continue
            values = None if route.field == WHOLE_STREAM else batch.column(route.field)
            for at, part in divided(batch, values, self.buckets):
                speaks = pa.repeat(pa.scalar(first), part.num_rows)
                whole = pa.Table.from_arrays([*part.columns, speaks], schema=events_schema(stream))
                yield number * self.buckets + at, Kind.EVENTS, to_ipc(whole)
            first = False


def read_suspects(records: pa.Table, stream: Stream) -> tuple[pa.Table, list[str]]:
    """Records the JVM was not sure about: the events among them, and lines for the quarantine topic of the others."""
    events: list[dict[str, Any]] = []
    rejected: list[str] = []
    columns = [records.column(name).to_pylist() for name in ("raw", "partition", "offset", SENT_AT)]
    for raw, partition, offset, sent_at, arrival in zip(*columns, _arrivals(records).to_pylist(), strict=True):
        event = parse_event(raw, stream)
        refused = event if isinstance(event, Rejection) else check_skew(event[stream.event_time], arrival, stream)
        if refused is None and not isinstance(event, Rejection):
            coordinates = {"arrival_time": arrival, "partition": partition, "offset": offset, SENT_AT: sent_at}
            events.append(event | coordinates)
        elif refused is not None:
            rejected.append(
                quarantine_line(refused, stream, partition=partition, offset=offset, arrival=arrival, raw=raw)
            )
    schema = _typed_schema(stream)
    arrays = [_array([event[field.name] for event in events], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema), rejected


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches of a task, together as long as they are not too large: anybody may send megabytes of garbage."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.nbytes for each in held) > _SLICE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _of_topic(records: pa.Table, topic: str) -> pa.Table:
    return records.filter(pc.equal(records.column("topic"), topic))


def _arrivals(records: pa.Table) -> pa.ChunkedArray:
    return records.column("timestamp").cast(_MICROSECONDS).cast(pa.int64())


def _rules(records: pa.Table) -> list[bytes]:
    found = zip(
        *(records.column(name).to_pylist() for name in ("offset", "raw")), _arrivals(records).to_pylist(), strict=True
    )
    written = []
    for offset, raw, arrival in found:
        # every bucket keeps the message: of one that is refused for its length no more than it takes to be so
        value = raw[: MAX_BYTES + 1].decode("utf-8", "surrogateescape")
        written.append(json.dumps({"offset": offset, "arrival": arrival, "value": value}).encode())
    return written


def _clocks(records: pa.Table) -> list[bytes]:
    """The values that are clocks; anybody can write to a topic, and the operator must not stumble."""
    return [raw for raw in records.column("raw").to_pylist() if _is_clock(raw)]


def _is_clock(raw: bytes) -> bool:
    try:
        written = json.loads(raw)
        clocks = written["clocks"]
        return isinstance(written["incarnation"], str) and all(isinstance(clock, int) for clock in clocks.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _typed_schema(stream: Stream) -> pa.Schema:
    schema = events_schema(stream)
    return schema.remove(schema.get_field_index(PRIMARY))


def _typed(records: pa.Table, stream: Stream) -> pa.Table:
    structs = records.column(column_of(stream)).combine_chunks()
    arrays = dict(zip(stream.fields, structs.flatten(), strict=True))
    arrays["arrival_time"] = records.column("timestamp").combine_chunks()
    for name in ("partition", "offset", SENT_AT):
        arrays[name] = records.column(name).combine_chunks()
    schema = _typed_schema(stream)
    return pa.Table.from_arrays([arrays[field.name].cast(field.type) for field in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
