"""Purpose: the process that writes the history which the state of a shuffle key lacks, beside the running job.

How it works: it reads the events from the lake, as far as the archive has come, and the rest from Kafka, and writes
them into the folders of the shuffle key's buckets (buckets/primed_state.py), those for measures with a resolution as
steps. A micro-batch that waits for a core is a late alert: it runs at the lowest priority, on one core, in short slices
for half of the time, and reads at most `priming_rate` events per second. It is given a `Request` on its standard input,
reports its progress as lines of JSON on its standard output, and ends when the driver does.

What it does not do: decide what is lacking, or take anything in.

Known limitation: what is neither in the lake nor on Kafka is missing. It is logged. The ids of all events that a bucket
lacks are in memory, to leave out repeated ones.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import structlog
from kafka import TopicPartition

from nightjar.formats.records import Records
from nightjar.ingestion.offsets import beginning_offsets
from nightjar.ingestion.parsing import parse_events
from nightjar.lake import delta, stream_state
from nightjar.lake.archive import archived_offsets
from nightjar.lake.tables import events_table
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT
from nightjar.rules.unions import as_union
from nightjar.storage.paths import AnyPath
from nightjar.streaming import kafka_clients
from nightjar.streaming.buckets.primed_state import ExportWriter, Lack
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.partitioning import buckets_of
from nightjar.streaming.priming.bootstrap_state import divided_events
from nightjar.streaming.state.state_files import files_of

_log = structlog.get_logger(__name__)

_FETCH_BYTES = 1 << 20
_POLL_MS = 200
# A record that exists is read within this time (seconds), or something is wrong.
_PATIENCE = 60.0
# Events between two rests, and the share of the time in which it works.
_SLICE = 4096
_SHARE = 0.5
_REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Request:
    """What to export."""

    config: JobConfig
    name: str
    """Of the export."""
    number: int
    """Of the shuffle key."""
    shuffle_key: ShuffleKey
    state: AnyPath
    """The folder of all buckets."""
    until: Mapping[int, int]
    """The offset by partition of the stream up to which events are needed."""
    lacks: tuple[Lack, ...]
    """What the state lacks, by bucket of the shuffle key."""
    firsts: tuple[int, ...]
    """The first position among arrivals that each of these buckets uses."""

    @property
    def stream(self) -> Stream:
        """The stream of the events."""
        return self.config.streams[self.shuffle_key.stream]

    @property
    def since(self) -> int:
        """Event time (µs) from which on events are needed."""
        return min(lack.earliest for lack in self.lacks)

    @property
    def before(self) -> int:
        """Event time (µs) from which on no bucket lacks an event, but for those before the offsets of `always`."""
        return max(lack.latest for lack in self.lacks)

    @property
    def always(self) -> Mapping[int, int]:
        """The offset by partition before which the shuffle key has no event at all."""
        return self.lacks[0].always


class Throttle:
    """Sleeps so that what is taken is at most `rate` per second, and this process uses at most `share` of a core."""

    def __init__(self, rate: int, share: float = 1.0) -> None:
        self._rate, self._share = rate, share
        self._began, self._used = time.monotonic(), time.process_time()
        self._taken = 0

    def take(self, events: int) -> None:
        """Wait until so many more may have been taken."""
        self._taken += events
        least = max(self._taken / self._rate, (time.process_time() - self._used) / self._share)
        time.sleep(max(0.0, self._began + least - time.monotonic()))


def export(request: Request, report: Callable[[int], None] = lambda _: None) -> int:
    """Write the export; returns the number of events. report: is called with the number of events read so far.

    Raises:
        JobError, LakeError, KafkaError: something cannot be read.
    """
    config, stream, key = request.config, request.stream, request.shuffle_key
    span = sum(request.until.values())  # at least as many positions as events
    writers = [
        ExportWriter(
            files_of(request.state, bucket), stream, request.name, lack, first=first - span, ends=request.until
        )
        for bucket, lack, first in zip(
            buckets_of(request.number, key, config.buckets), request.lacks, request.firsts, strict=True
        )
    ]
    throttle, read = Throttle(config.priming_rate, _SHARE), 0
    for table in _lacking(request):
        for begin in range(0, table.num_rows, _SLICE):
            some = table.slice(begin, _SLICE)
            for at, part in divided_events(some, key, key.field, config.buckets):
                writers[at].take(part)
            throttle.take(some.num_rows)
            read += some.num_rows
            report(read)
    return sum(writer.close() for writer in writers)


def _lacking(request: Request) -> Iterator[pa.Table]:
    """The events that some bucket lacks, and some others: the stream's fields, ARRIVAL, partition, offset."""
    config, stream, lake = request.config, request.stream, request.config.lake
    archived = {}
    if lake is not None and delta.exists(lake, events_table(stream)):
        archived = stream.by_partition(archived_offsets(lake))
    split = {partition: min(archived.get(partition, 0), end) for partition, end in request.until.items()}
    if lake is not None and any(split.values()):
        offsets = {partition: (0, end) for partition, end in split.items()}
        yield from stream_state.events(
            lake, stream, offsets, request.since, before=request.before, always=request.always
        )
    rest = {p: (split[p], end) for p, end in request.until.items() if split[p] < end}
    for table in kafka_events(config, stream, rest, request.since):
        times = table.column(stream.event_time).cast(pa.int64()).to_numpy()
        yield table.filter(pa.array(times >= request.since))


def kafka_events(
    config: JobConfig, stream: Stream, offsets: Mapping[int, tuple[int, int]], since: int
) -> Iterator[pa.Table]:
    """The usable events in these ranges of offsets by partition, as far as Kafka has them and they can be from `since`
    (event time, µs) on: the stream's fields, ARRIVAL, partition, offset. Those of a table are in order of arrival."""
    for member in stream.members:
        of_topic = stream.of_member(member, offsets)
        yield from (as_union(each, stream, member) for each in kafka_events(config, member.stream, of_topic, since))
    if stream.members:
        return
    ends = {TopicPartition(stream.topic, partition): end for partition, (_, end) in offsets.items()}
    if not ends:
        return
    with kafka_clients.consumer(config, _FETCH_BYTES) as client:
        kept = beginning_offsets(client, ends)
        if lost := sum(max(0, kept[place] - offsets[place.partition][0]) for place in ends):
            _log.warning("records are neither in the lake nor on Kafka any more", topic=stream.topic, records=lost)
        earliest = max(0, since - stream.max_future_skew) // 1000
        came = client.offsets_for_times(dict.fromkeys(ends, earliest))
        client.assign(list(ends))
        for place, end in ends.items():
            found = came.get(place)
            first = end if found is None else found.offset
            client.seek(place, min(end, max(first, kept[place], offsets[place.partition][0])))
        waited = 0.0
        while left := [place for place, end in ends.items() if client.position(place) < end]:
            polled = client.poll(timeout_ms=_POLL_MS)
            records = [r for of in polled.values() for r in of if r.offset < ends[TopicPartition(r.topic, r.partition)]]
            waited = 0.0 if polled else waited + _POLL_MS / 1000
            if waited > _PATIENCE:
                raise JobError(
                    f"partition {left[0].partition} cannot be read up to offset {ends[left[0]]}",
                    where=f"topic {stream.topic}",
                    remedy="See the broker's log. Priming is tried again",
                )
            if records:
                arrivals = np.array([record.timestamp for record in records], np.int64) * 1000
                order = np.lexsort(([r.offset for r in records], [r.partition for r in records], arrivals))
                in_order = [records[at] for at in order]
                some = Records.of(in_order, pa.array(arrivals[order]), stream)
                parsed = parse_events(some, stream, config.schemas)
                rows = parsed.rows.tolist()
                yield (
                    parsed.events.append_column(ARRIVAL, pa.array(arrivals[order][rows]).cast(INSTANT))
                    .append_column("partition", pa.array([in_order[at].partition for at in rows], pa.int32()))
                    .append_column("offset", pa.array([in_order[at].offset for at in rows], pa.int64()))
                )


def _end_with_the_driver() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing more comes: it returns when the pipe is closed
    os._exit(1)


class _Reports:
    """Lines of JSON, at most one per second."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, read: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _REPORT_SECONDS
            print(json.dumps({"read": read}), flush=True)  # noqa: T201  to the driver


def main() -> None:
    """The process."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    pa.set_cpu_count(1)  # the driver limits Polars likewise
    request: Request = pickle.load(sys.stdin.buffer)  # noqa: S301  the driver's
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    events = export(request, _Reports())
    print(json.dumps({"events": events}), flush=True)  # noqa: T201
    sys.stderr.flush()
    os._exit(0)  # a thread that waits for the driver cannot be ended otherwise


if __name__ == "__main__":
    main()
