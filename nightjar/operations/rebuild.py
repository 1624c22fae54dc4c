"""Purpose: rebuild the job's checkpoint from the lake when the job cannot resume from the existing one.

How it works: the archive brings Kafka to the lake first, so that it has every event that the job has read and every
alert that it has announced. Up to the offsets that the job last reported it had read, events become the buckets' state;
from there on the job reads Kafka again. It may have read, and announced, a little more than it had reported: all alerts
that are in the lake are in the state, also of events yet to be read again, so no alert is announced twice with other
content. Events that it had yet to read and Kafka has deleted come from the lake. At the very end the new checkpoint
replaces the old one atomically.

What it does not do: evaluate rules. The backfill finds alerts that the job should have published but did not.

Known limitation: invalid records reach the quarantine topic only if the job reads them from Kafka.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka import TopicPartition

from nightjar.configuration.job import job_config
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.contracts.clock import Clock
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.kafka.clients import consumer, explained, producer, refuse_others
from nightjar.lake import stream_state
from nightjar.lake.archive import archive
from nightjar.lake.config import LakeConfig, LakeError
from nightjar.lake.session import open_session
from nightjar.operations.locks import sole_job, sole_writer
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.streaming import kafka_clients
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.answering import Answering
from nightjar.streaming.driver.clock import Arrivals, clocks_of_progress
from nightjar.streaming.priming.bootstrap_state import share_of, write_share
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Offsets
from nightjar.terminal.console import counted
from nightjar.terminal.stages import Stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DELIVERY_SECONDS = 30


@dataclass(frozen=True)
class Rebuilt:
    """The result of a rebuild.

    buckets: of each shuffle key; begins: the offset from which the job resumes, by topic and partition. events,
    announcements: how many the state holds; each counts once per shuffle key. clocks: arrival time reached at these
    offsets (µs), by stream.
    """

    buckets: int
    begins: Offsets
    events: int
    announcements: int
    clocks: Mapping[str, int]


def rebuild(
    settings: Settings, streams: Mapping[str, Stream], stages: Stages, session: "SparkSession | None" = None
) -> Rebuilt:
    """Rebuild the checkpoint for these settings.

    session: a session to use and leave open; None: open one and close it.

    Raises:
        AlreadyRunningError: the job runs, or something else works on the lake.
        KafkaError: what listens on the local broker's port is not this installation's.
        LakeError: no job has reported how far it had read; the lake holds a stream with other fields; or something that
            the job had yet to read is neither there nor on Kafka.
    """
    config, lake = job_config(settings, streams), lake_config(settings, streams)
    refuse_others(settings)
    with sole_job(config.checkpoint) as fence, sole_writer(lake.root) as lake_fence:
        config, lake = replace(config, fence=fence), replace(lake, fence=lake_fence)
        checkpoint = Checkpoint(config)
        for stream in recorded_streams(streams.values()):
            stream_state.refuse_other_fields(lake.root, stream)
        with stages.stage("Archive", f"{settings.bootstrap} to {lake.root}"):
            own = session or open_session(lake)
            try:
                archive(own, lake)
            finally:
                if session is None:
                    own.stop()
        consumed = stream_state.consumed(lake.root)
        if not any(consumed.values()):
            raise LakeError(
                "no job has reported that it read anything",
                where=str(lake.root),
                remedy="There is no state to rebuild: start the job with `nightjar stream`",
            )
        book = _answered(config)
        begins = _begins(settings, config, consumed, book.next_offset)
        unread = {stream.name: _unread(lake, stream, consumed, begins) for stream in streams.values()}
        clocks = _clocks(settings, config, begins) | {name: gap.arrival for name, gap in unread.items() if gap.offsets}
        events = announcements = 0
        with checkpoint.rebuilding(book.shuffle_keys, begins) as folder:
            for number, key in enumerate(book.shuffle_keys):
                stream = streams[key.stream]
                with stages.stage(f"State of {stream.name} by {key.field or '(all)'}"):
                    share = share_of(config, book, number, clocks.get(stream.name))
                    read = {p: (0, offset) for p, offset in stream.by_partition(consumed).items()}
                    announced = stream_state.announced(lake.root, stream, book, key, share.announced_since)
                    held = write_share(
                        folder,
                        share,
                        stream_state.events(lake.root, stream, read, share.horizon),
                        announced,
                        stream_state.events(lake.root, stream, unread[stream.name].offsets),
                    )
                    stages.note(f"{held:,} events, {announced.num_rows:,} alerts")
                    events, announcements = events + held, announcements + announced.num_rows
    return Rebuilt(config.buckets, begins, events, announcements, clocks)


def _answered(config: JobConfig) -> RuleBook:
    """The rule book, once every rule message has its answer."""
    with ExitStack() as cleanup:
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
        producer = cleanup.enter_context(kafka_clients.producer(config))
        answering = Answering(config, consumers, producer, lambda: None)
        answering.catch_up()
        return answering.book


def _begins(settings: Settings, config: JobConfig, consumed: Offsets, answers: int) -> Offsets:
    """Where the job resumes: where it had reported that it was, or where Kafka begins by now.

    The state has all rules and past clock records are of no use, so both topics are resumed at their end. answers: the
    offset after the last answer.
    """
    topics = {stream.topic for stream in recorded_streams(config.streams.values())}
    clock = TopicPartition(config.topics.clock, 0)
    places = [TopicPartition(topic, p) for topic in topics for p in consumed.get(topic, {})]
    with closing(consumer(settings)) as client, explained(settings, "looking up where topics begin"):
        first = beginning_offsets(client, places)
        end = end_offsets(client, [clock])[clock]
    begins: dict[str, dict[int, int]] = {clock.topic: {clock.partition: end}, config.topics.rule_status: {0: answers}}
    for place in places:
        begins.setdefault(place.topic, {})[place.partition] = max(first[place], consumed[place.topic][place.partition])
    return begins


@dataclass(frozen=True)
class _Unread:
    """Events that the job has not read and Kafka has deleted. arrival: the first one's, µs."""

    offsets: stream_state.Ranges
    arrival: int = 0


def _unread(lake: LakeConfig, stream: Stream, consumed: Offsets, begins: Offsets) -> _Unread:
    of, goes_on = stream.by_partition(consumed), stream.by_partition(begins)
    offsets = {p: (offset, goes_on[p]) for p, offset in of.items() if offset < goes_on[p]}
    held, arrival = stream_state.extent(lake.root, stream, offsets)
    lacking = sum(end - first for first, end in offsets.values()) - held
    if lacking or (offsets and arrival is None):
        raise LakeError(
            f"neither Kafka nor the lake has {counted(lacking, 'record')} that the job had yet to read",
            where=f"topic {', '.join(stream.topics)}, offsets {offsets}",
            remedy="They are lost. Set checkpoint_dir to a new folder to start with what Kafka still has",
        )
    return _Unread(offsets, arrival or 0)


def _clocks(settings: Settings, config: JobConfig, begins: Offsets) -> dict[str, int]:
    """The arrival time reached at these offsets, by stream, computed as the job does."""
    with (
        closing(consumer(settings)) as client,
        producer(settings) as sender,
        explained(settings, "looking up the position of topics"),
    ):
        sent = sender.send(config.topics.clock, Clock("rebuild", {}).encoded())
        stamped = sent.get(_DELIVERY_SECONDS).timestamp * 1000
        return clocks_of_progress(config, Arrivals(config, client).progress(begins), stamped)
