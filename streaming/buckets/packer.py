"""Pack Kafka records into few rows: one Arrow stream per bucket, for any stream of events.

How it works: `pack` runs under `mapInArrow`, once per task. For each shuffle key of its stream an event goes to the
bucket of the shuffle key's field, all of a bucket's events as one Arrow stream; an accepted rule goes to the buckets of
its stream, a clock to every bucket. Unusable records become records for the quarantine topic. Invalid records on
nightjar's own topics are skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from nightjar.contracts.clock import read_clock
from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.quarantine import quarantine_record
from nightjar.contracts.rule_status import is_failure, read_answer
from nightjar.formats.records import Records
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.event_schema import events_schema
from nightjar.ingestion.parsing import parse_events
from nightjar.rules.events import QUARANTINE_REASONS
from nightjar.rules.publishing import Answer
from nightjar.rules.rulebook import WHOLE_STREAM, ShuffleKey
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import MAX_TIMESTAMP
from nightjar.rules.types import INSTANT
from nightjar.rules.unions import as_union, unions_with
from nightjar.streaming.buckets.output_records import batches_of, json_records
from nightjar.streaming.buckets.payloads import Payload, PayloadKind, encoded
from nightjar.streaming.partitioning import buckets_of, divided, partition_key

_log = structlog.get_logger(__name__)

# The bucket that forwards quarantined records, and counts skipped ones.
_ANSWERING = 0
# Bytes of records that are packed at once; more than an ordinary batch has.
_SLICE_BYTES = 128 * 1024 * 1024
# Columns of the record that its event keeps.
_COORDINATES = ("timestamp", "partition", "offset", SENT_AT)

PackedRow = tuple[int, PayloadKind, Payload]


@dataclass(frozen=True)
class Packer:
    """What `mapInArrow` runs. Shuffle key r has the buckets from r * buckets on; that of the whole stream only one."""

    streams: Mapping[str, Stream]
    shuffle_keys: tuple[ShuffleKey, ...]
    buckets: int
    """Of each shuffle key."""
    partitions: int
    """Of the shuffle."""
    answers_topic: str
    """`rule-status`."""
    clock_topic: str
    quarantine_topic: str
    bounded: bool
    """Whether brokers stamp arrivals, so that no clock is later than its record."""
    dropped: frozenset[int] = frozenset()
    """The numbers of shuffle keys that nothing is sent to."""
    schemas: Schemas | None = None
    """Of records that name them."""
    tables_topic: str | None = None
    """None: no table is declared."""

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Kafka records (see query.kafka_records) to rows of payloads.PACKED_SCHEMA."""
        for read in _slices(batches):
            rows = list(self.packed(pa.Table.from_batches(read)))
            columns = [
                pa.array([partition_key(bucket, self.partitions) for bucket, _, _ in rows], pa.int32()),
                pa.array([kind.value for _, kind, _ in rows], pa.string()),
                pa.array([encoded(payload) for _, _, payload in rows], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["bucket", "kind", "payload"])

    def packed(self, records: pa.Table) -> Iterator[PackedRow]:
        """The rows: bucket, kind, payload."""
        topics = set(pc.unique(records.column("topic")).to_pylist())
        if self.answers_topic in topics:
            yield from self._answers(_of_topic(records, self.answers_topic, topics))
        if self.clock_topic in topics:
            yield from self._clocks(_of_topic(records, self.clock_topic, topics))
        if self.tables_topic is not None and self.tables_topic in topics:
            read = pc.max(_of_topic(records, self.tables_topic, topics).column("offset")).as_py() + 1
            yield from self._to_buckets(PayloadKind.TABLES, str(read).encode())
        for stream in recorded_streams(self.streams.values()):
            if stream.topic in topics:
                yield from self._events(_of_topic(records, stream.topic, topics), stream)

    def _answers(self, records: pa.Table) -> Iterator[PackedRow]:
        """The answers that create a version or set its effective time, for the buckets of its stream."""
        skipped = 0
        for offset, arrival, raw in _records(records):
            answer = read_answer(raw)
            if answer is None:
                skipped += not is_failure(raw)
            elif answer.answer is Answer.ACTIVE or answer.rule is not None:
                written = {"offset": offset, "arrival": arrival, "value": raw.decode()}
                stream = None if answer.rule is None else answer.rule.stream
                yield from self._to_buckets(PayloadKind.RULE, json.dumps(written).encode(), stream)
        yield from _skipped(self.answers_topic, skipped)

    def _clocks(self, records: pa.Table) -> Iterator[PackedRow]:
        skipped = 0
        for _, arrival, raw in _records(records):
            clock = read_clock(raw, arrival if self.bounded else MAX_TIMESTAMP)
            skipped += clock is None
            if clock is not None:
                yield from self._to_buckets(PayloadKind.CLOCK, clock.encoded())
        yield from _skipped(self.clock_topic, skipped)

    def _to_buckets(self, kind: PayloadKind, payload: bytes, stream: str | None = None) -> Iterator[PackedRow]:
        """The payload, for every bucket of the stream (None: of all streams)."""
        for number, key in self._shuffle_keys_of(stream):
            yield from ((bucket, kind, payload) for bucket in buckets_of(number, key, self.buckets))

    def _shuffle_keys_of(self, stream: str | None) -> list[tuple[int, ShuffleKey]]:
        """The shuffle keys of a stream (None: of all) that are in use, with their numbers."""
        return [
            (number, key)
            for number, key in enumerate(self.shuffle_keys)
            if stream in (None, key.stream) and number not in self.dropped
        ]

    def _events(self, records: pa.Table, stream: Stream) -> Iterator[PackedRow]:
        """A stream's events, for the buckets of its shuffle keys; unusable records, for the quarantine topic."""
        came = {name: records.column(name).combine_chunks() for name in _COORDINATES}
        came["timestamp"] = _instants(came["timestamp"])
        raw = records.column("value").combine_chunks()
        keys = records.column("key").combine_chunks() if stream.reads_key else None
        headers = records.column("headers").combine_chunks() if stream.reads_headers else None
        read = Records.read(raw, came["timestamp"].view(pa.int64()), keys, headers, stream)
        parsed = parse_events(read, stream, self.schemas)
        refused = (
            quarantine_record(
                rejection,
                stream,
                partition=came["partition"][at].as_py(),
                offset=came["offset"][at].as_py(),
                arrival=came["timestamp"][at].value,
                raw=raw[at].as_py() or b"",
            )
            for at, rejection in parsed.rejected
            if rejection.reason in QUARANTINE_REASONS
        )
        for some in batches_of(refused):
            yield _ANSWERING, PayloadKind.QUARANTINE, json_records(self.quarantine_topic, some)
        if parsed.events.num_rows:
            is_every = len(parsed.rows) == len(raw) and bool((np.diff(parsed.rows) > 0).all())
            columns = [column.combine_chunks() for column in parsed.events.columns]
            columns += [column if is_every else column.take(parsed.rows) for column in came.values()]
            names = [*stream.fields, "arrival_time", *_COORDINATES[1:]]
            events = pa.RecordBatch.from_arrays(columns, names)
            yield from self._by_bucket(events, stream)
            for union, member in unions_with(stream, self.streams):
                united = as_union(pa.Table.from_batches([events]), union, member).combine_chunks()
                yield from self._by_bucket(united.to_batches()[0], union)

    def _by_bucket(self, events: pa.RecordBatch, stream: Stream) -> Iterator[PackedRow]:
        """Events for the buckets of each shuffle key of their stream, the first of which reports the late ones."""
        of_stream = self._shuffle_keys_of(stream.name)
        for number, key in of_stream:
            values = None if key.field == WHOLE_STREAM else events.column(key.field)
            for at, part in divided(events, values, self.buckets):
                is_primary = pa.repeat(pa.scalar(number == of_stream[0][0]), part.num_rows)
                whole = pa.Table.from_arrays([*part.columns, is_primary], schema=events_schema(stream))
                yield number * self.buckets + at, PayloadKind.EVENTS, whole


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches of a task, combined up to a maximum size: anybody may send megabytes of garbage."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.nbytes for each in held) > _SLICE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _of_topic(records: pa.Table, topic: str, topics: Collection[str]) -> pa.Table:
    """The records of a topic; topics: all that the records are of."""
    if len(topics) == 1:
        return records
    return records.filter(pc.equal(records.column("topic"), topic))


def _instants(times: pa.Array) -> pa.Array:
    return times if times.type.equals(INSTANT) else times.cast(INSTANT)


def _records(records: pa.Table) -> Iterator[tuple[int, int, bytes]]:
    """Offset, arrival (µs) and value of each record."""
    offsets, values = (records.column(name).to_pylist() for name in ("offset", "value"))
    arrivals = records.column("timestamp").cast(INSTANT).cast(pa.int64()).to_pylist()
    return zip(offsets, arrivals, (value or b"" for value in values), strict=True)


def _skipped(topic: str, records: int) -> Iterator[PackedRow]:
    """A count of invalid records, which anybody may have written to one of nightjar's own topics."""
    if records:
        _log.warning("records that do not belong on the topic were skipped", topic=topic, records=records)
        yield _ANSWERING, PayloadKind.SKIPPED, str(records).encode()
