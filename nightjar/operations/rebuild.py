"""Purpose: rebuild the checkpoint of the job from the lake, where the job cannot resume from the one there is.

How it works: the archive brings Kafka to the lake first, so that it has every event that the job has read and every
alert that it has announced. Up to the offsets that the job last told it had read, events become the buckets' state;
from there on the job reads Kafka again. It may have read, and announced, a little more than it had told: all alerts
that are in the lake are in the state, also of events yet to be read again, so nothing is announced twice in other
words. What it had yet to read and Kafka has let go of is given to it from the lake. The new checkpoint takes the old
one's place at the very end, at once.

What it does not do: evaluate. An alert that the job should have announced and has not is the backfill's to find.

Known limitation: records that are no events go to the quarantine topic only where the job reads them from Kafka.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka import TopicPartition

from contracts.clock import Clock
from ingestion.offsets import beginning_offsets, end_offsets
from lake import stream_state
from lake.archive import archive
from lake.config import LakeConfig, LakeError
from lake.session import open_session
from nightjar.cli.stages import Stages
from nightjar.configuration.job import job_config
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.kafka.clients import consumer, explained, producer
from nightjar.operations.locks import sole_job, sole_writer
from rules.rulebook import RuleBook
from rules.streams import Stream
from streaming import kafka_clients
from streaming.answering import Answering
from streaming.bootstrap_state import share_of, write_share
from streaming.checkpoint import Offsets, rebuilding
from streaming.clock import Arrivals, clocks_of_standings
from streaming.config import JobConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DELIVERY_SECONDS = 30


@dataclass(frozen=True)
class Rebuilt:
    """begins: topic to partition to the offset at which the job goes on. events, announcements: how many the state
    holds, counted once for each route. clocks: how far arrival had come (µs), by stream."""

    begins: Offsets
    events: int
    announcements: int
    clocks: Mapping[str, int]


def rebuild(
    settings: Settings, streams: Mapping[str, Stream], stages: Stages, session: "SparkSession | None" = None
) -> Rebuilt:
    """Make the checkpoint anew for these settings.

    session: one that outlives this; None: one of its own.

    Raises:
        AlreadyRunningError: the job runs, or something else works on the lake.
        LakeError: no job ever told how far it had read; the lake holds a stream with other fields; or something that
            the job had yet to read is neither there nor on Kafka.
    """
    config, lake = job_config(settings, streams), lake_config(settings, streams)
    with sole_job(config.checkpoint), sole_writer(lake.root):
        for stream in streams.values():
            stream_state.refuse_other_fields(lake.root, stream)
        with stages.stage("Archive", f"{settings.bootstrap} to {lake.root}"):
            own = session or open_session(lake)
            try:
                archive(own, lake)
            finally:
                if session is None:
                    own.stop()
        told = stream_state.consumed(lake.root)
        if not any(told.values()):
            raise LakeError(
                "no job has reported that it read anything",
                where=str(lake.root),
                remedy="There is no state: `nightjar stream` begins",
            )
        book = _answered(config)
        begins = _begins(settings, config, told, book.next_offset)
        unread = {stream.name: _unread(lake, stream, told, begins) for stream in streams.values()}
        clocks = _clocks(settings, config, begins) | {name: gap.arrival for name, gap in unread.items() if gap.offsets}
        events = announcements = 0
        with rebuilding(config, book.routes, begins) as (identity, folder):
            for number, route in enumerate(identity.routes):
                stream = streams[route.stream]
                with stages.stage(f"State of {stream.name} by {route.field or '(all)'}"):
                    share = share_of(config, book, number, clocks.get(stream.name))
                    read = {p: (0, offset) for p, offset in told.get(stream.topic, {}).items()}
                    said = stream_state.announced(lake.root, stream, book, route, share.settled)
                    held = write_share(
                        folder,
                        share,
                        stream_state.events(lake.root, stream, read, share.horizon),
                        said,
                        stream_state.events(lake.root, stream, unread[stream.name].offsets),
                    )
                    stages.say(f"{held:,} events, {said.num_rows:,} alerts")
                    events, announcements = events + held, announcements + said.num_rows
    return Rebuilt(begins, events, announcements, clocks)


def _answered(config: JobConfig) -> RuleBook:
    """The rules, once every message has its answer."""
    with ExitStack() as cleanup:
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
        producer = cleanup.enter_context(kafka_clients.producer(config))
        answering = Answering(config, consumers, producer, lambda: None)
        answering.catch_up()
        return answering.book


def _begins(settings: Settings, config: JobConfig, told: Offsets, answers: int) -> Offsets:
    """Where the job resumes: where it had reported that it was, or where Kafka begins by now.

    It knows all rules there are, and has no use for past clocks. answers: the offset after the last answer.
    """
    topics = {stream.topic for stream in config.streams.values()}
    clock = TopicPartition(config.topics.clock, 0)
    places = [TopicPartition(topic, p) for topic in topics for p in told.get(topic, {})]
    with closing(consumer(settings)) as client, explained(settings, "looking up where topics begin"):
        first = beginning_offsets(client, places)
        end = end_offsets(client, [clock])[clock]
    begins: dict[str, dict[int, int]] = {clock.topic: {clock.partition: end}, config.topics.rule_status: {0: answers}}
    for place in places:
        begins.setdefault(place.topic, {})[place.partition] = max(first[place], told[place.topic][place.partition])
    return begins


@dataclass(frozen=True)
class _Unread:
    """What the job had yet to read and Kafka has no more. arrival: of the first of it, µs."""

    offsets: stream_state.Ranges
    arrival: int = 0


def _unread(lake: LakeConfig, stream: Stream, told: Offsets, begins: Offsets) -> _Unread:
    of, goes_on = told.get(stream.topic, {}), begins.get(stream.topic, {})
    offsets = {p: (offset, goes_on[p]) for p, offset in of.items() if offset < goes_on[p]}
    held, arrival = stream_state.extent(lake.root, stream, offsets)
    lacking = sum(end - first for first, end in offsets.values()) - held
    if lacking or (offsets and arrival is None):
        raise LakeError(
            f"{lacking:,} records that the job had yet to read are neither on Kafka nor in the lake",
            where=f"topic {stream.topic}, offsets {offsets}",
            remedy="They are lost; with a new folder as checkpoint_dir the job begins with what Kafka has",
        )
    return _Unread(offsets, arrival or 0)


def _clocks(settings: Settings, config: JobConfig, begins: Offsets) -> dict[str, int]:
    """How far arrival had come at these offsets, by stream, as the job itself reports it."""
    with (
        closing(consumer(settings)) as client,
        producer(settings) as sender,
        explained(settings, "looking up where topics stand"),
    ):
        sent = sender.send(config.topics.clock, Clock("rebuild", {}).encoded())
        stamped = sent.get(_DELIVERY_SECONDS).timestamp * 1000
        return clocks_of_standings(config, Arrivals(config, client).standings(begins), stamped)
