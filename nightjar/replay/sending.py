"""Sends a plan's records to Kafka, each when it is due, and counts them."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import kafka
import numpy as np
import pyarrow as pa
from kafka.partitioner.default import murmur2
from numpy.typing import NDArray

from nightjar.configuration.schemas import registry_of
from nightjar.configuration.settings import Settings
from nightjar.contracts.headers import sent_now
from nightjar.formats.encoding import Encoded, Encoder
from nightjar.kafka.clients import explained, producer
from nightjar.replay.plan import RecordKind
from nightjar.rules.streams import Stream
from nightjar.terminal.console import counted
from nightjar.terminal.tables import RecordTable, number

# Most records handed to the producer before the preceding ones are delivered: its queue is unbounded.
_IN_FLIGHT = 10_000

# Keys whose partition is remembered: some hundred megabytes, however many a replay has.
_CACHED_KEYS = 1 << 20

_BATCH_BYTES = 128 * 1024
# Long enough to fill batches when sending fast, and far below the measured latencies.
_LINGER_MS = 5

# A broker that takes longer for 10,000 records is considered lost.
_DELIVERY_SECONDS = 120

# Seconds between checks of the clock: how far a record's sending may lag behind its due time.
_TICK = 0.02


@dataclass
class Report:
    """What a replay sent. `events` counts distinct events, including disordered and late ones; `records` counts all."""

    records: int = 0
    events: int = 0
    disordered: int = 0
    late: int = 0
    duplicates: int = 0
    malformed: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, batch: pa.Table) -> None:
        """Count a batch of a plan."""
        kinds = Counter(batch["kind"].to_pylist())
        self.records += batch.num_rows
        self.events += kinds[RecordKind.EVENT] + kinds[RecordKind.DISORDERED] + kinds[RecordKind.LATE]
        self.disordered += kinds[RecordKind.DISORDERED]
        self.late += kinds[RecordKind.LATE]
        self.duplicates += kinds[RecordKind.DUPLICATE]
        self.malformed += kinds[RecordKind.MALFORMED]
        self.forms.update(batch["form"].drop_null().to_pylist())
        self.reasons.update(batch["reason"].drop_null().to_pylist())

    def table(self) -> RecordTable:
        """For the terminal."""
        title = f"{counted(self.records, 'record')} in {self.seconds:.1f} s"
        table = RecordTable("sent", number("records"), title=title)
        for name in ("events", "disordered", "late", "duplicates", "malformed"):
            table.add_row(f"  {name}" if name in ("disordered", "late") else name, f"{getattr(self, name):,}")
        for reason, count in sorted(self.reasons.items()):
            table.add_row(f"  {reason}", f"{count:,}")
        return table

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the counts, with malformed records by kind and by reason code."""
        return {**vars(self), "forms": dict(sorted(self.forms.items())), "reasons": dict(sorted(self.reasons.items()))}


def send(
    settings: Settings,
    stream: Stream,
    batches: Iterable[pa.Table],
    *,
    speed: float,
    shifted: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Send a plan's batches to the stream's topic, in order, and wait until all are delivered.

    Records of a `shifted` plan are due at their arrival time by the wall clock. Those of another plan are due at the
    pace of their arrivals times `speed`, and the arrival is sent as the record's timestamp (which a topic with
    `arrival = broker` ignores). With speed inf everything is due at once. The header `sent_at` holds the wall-clock
    microseconds of sending as decimal text. `progress` is called with the number of records handed over since its last
    call.

    Raises:
        SchemaError, RegistryError: the stream's schema cannot be found, or does not allow a record.
        KafkaError: no broker answers, the topic does not exist, or a record could not be delivered.
    """
    report = Report()
    began = time.monotonic()
    clock: _Clock | None = None
    with (
        producer(settings, linger_ms=_LINGER_MS, batch_size=_BATCH_BYTES) as client,
        explained(settings, f"sending to topic {stream.topic}"),
    ):
        sender = Sender(client, stream.topic, stamp=not shifted, encode=Encoder(stream, registry_of(settings)).encode)
        for batch in batches:
            due = batch["arrival_time"].cast(pa.int64()).to_numpy()
            clock = clock or _clock(int(due[0]), speed, shifted)
            for begin, end in _portions(due, clock):
                sender.send(batch.slice(begin, end - begin))
                progress(end - begin)
            report.add(batch)
        sender.finish()
    report.seconds = time.monotonic() - began
    return report


# Returns the current time in a plan's microseconds.
_Clock = Callable[[], float]


def _clock(first: int, speed: float, shifted: bool) -> _Clock:
    if math.isinf(speed):
        return lambda: math.inf
    if shifted:
        return lambda: time.time_ns() / 1000
    began = time.monotonic()
    return lambda: first + (time.monotonic() - began) * speed * 1_000_000


def _portions(due: NDArray[np.int64], clock: _Clock) -> Iterator[tuple[int, int]]:
    """Bounds of consecutive portions of records, each yielded as soon as it is due."""
    begin = 0
    while begin < due.size:
        end = min(int(np.searchsorted(due, clock(), side="right")), begin + _IN_FLIGHT)
        if end > begin:
            yield begin, end
            begin = end
        else:
            time.sleep(_TICK)


@lru_cache(_CACHED_KEYS)
def partition_of(key: str, partitions: int) -> int:
    """The partition that Kafka's default partitioner chooses for a key.

    Cached because hashing a key in Python costs more than sending its record.
    """
    chosen: int = (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
    return chosen


class Sender:
    """Hands records to the producer, using the default partitioner's partitions, and raises delivery failures."""

    def __init__(
        self,
        client: kafka.KafkaProducer,
        topic: str,
        *,
        stamp: bool,
        encode: Callable[[bytes], Encoded],
    ) -> None:
        """encode: the JSON of a plan's record to the record."""
        self._client = client
        self._encode = encode
        self._topic = topic
        self._stamp = stamp
        self._partitions: list[int] = sorted(client.partitions_for(topic))
        self._failures: list[BaseException] = []
        self._awaited: Any = None

    def send(self, records: pa.Table) -> None:
        """Hand over some records; returns once those of the previous call are delivered."""
        stamps = records["arrival_time"].cast(pa.int64()).to_pylist() if self._stamp else [None] * records.num_rows
        last = None
        for key, value, stamp in zip(records["key"].to_pylist(), records["value"].to_pylist(), stamps, strict=True):
            record = self._encode(value)
            last = self._client.send(
                self._topic,
                record.value,
                key=key.encode() if record.key is None else record.key,
                headers=[*sent_now(time.time_ns() // 1000), *record.headers],
                partition=self._partitions[partition_of(key, len(self._partitions))],
                timestamp_ms=None if stamp is None else stamp // 1000,
            )
            last.add_errback(self._failures.append)
        self._confirm()
        self._awaited = last

    def finish(self) -> None:
        """Return once everything is delivered."""
        self._client.flush()
        self._confirm()

    def _confirm(self) -> None:
        if self._awaited is not None:
            self._awaited.get(timeout=_DELIVERY_SECONDS)
        if self._failures:
            raise self._failures[0]
