"""Purpose: the driver of the continuous job: starts the query, watches over it, and ends it cleanly.

How it works: one loop. It answers rule messages beside the query (answering.py); a rule that needs a route which the
query does not have makes it finish the batch, add the route to what the checkpoint keeps, and start the query again on
the same checkpoint. So does another size of batches (batch_size.py), with the same plan and the same engines. Once a
second it reports how the job is doing, every few seconds how far arrival has come.

What it does not do: evaluate anything, or keep any state of its own. All of it is in the checkpoint and in Kafka.

Known limitation: a new route begins without history; events before it are not counted by the rules it serves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError

from contracts.clock import Clock
from contracts.job_progress import DRIVER_KEY, JobReport
from contracts.json_text import ascii_json
from ingestion.offsets import end_offsets
from rules.rulebook import Route
from streaming import kafka_clients
from streaming.answering import Answering
from streaming.batch_size import BatchSize
from streaming.checkpoint import committed_offsets, committed_state, query_folder, refuse_unfit, settle
from streaming.clock import Arrivals, BrokerClock, clocks_of_standings, host_clock
from streaming.config import JobConfig, JobError
from streaming.places import Places
from streaming.processor import BucketPlan
from streaming.progress import batches_told, lag_told
from streaming.query import control_topics, evaluated, event_topics, finish, kafka_records, packer_of, started
from streaming.session import held_by_jvm
from streaming.state_files import STATE_LOST
from streaming.warmup import warm_up

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.producer.future import FutureRecordMetadata
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

TELL_SECONDS = 1.0
_LOOK_SECONDS = 0.1

_GOES_ON = "The log above has the cause. Start the job again once it is fixed: it resumes where it stopped"
_UNREADABLE_STATE = (
    "Where the checkpoint's files cannot be repaired, or Kafka no longer has the next records, "
    "`nightjar stream rebuild` writes a new one from the lake"
)
# Spark's errors where a checkpoint lacks something or was written by another plan, and the option that it names where
# Kafka has let go of what comes next.
_ERRORS_OF_STATE = (
    STATE_LOST,
    "STREAMING_CHECKPOINT",
    "CHECKPOINT_FILE",
    "DATA_LOSS",
    "failOnDataLoss",
)

# Spark's number for a partition's beginning.
_EARLIEST = -2


def run(
    config: JobConfig,
    session: SparkSession | Future[SparkSession],
    *,
    prepare: Callable[[], object] = lambda: None,
    stop: threading.Event | None = None,
    ready: Callable[[], None] | None = None,
    host: Callable[[], int] = host_clock,
) -> None:
    """Run the job until SIGTERM, SIGINT or `stop`; the running batch is finished first.

    session: of `open_session`; one that is still to come (`session.starting`) is the job's own, and its JVM holds the
    checkpoint's lock. prepare: what is to be done first, beside the start of Spark. ready: called once the query runs.
    host: the host's wall clock (µs), which is reported and decides nothing. Signals are heeded only in a program's main
    thread.

    Raises:
        JobError: it cannot start (a topic is missing, the checkpoint does not fit), or the query or Spark failed.
    """
    stop = stop or threading.Event()
    with lost_jvm_told(str(config.checkpoint)), _lost_kafka_told(config), contextlib.ExitStack() as cleanup:
        refuse_unfit(config)
        prepare()
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(3)]
        _refuse_missing_topics(config, consumers[0])
        producer = cleanup.enter_context(kafka_clients.producer(config))
        if isinstance(session, Future):
            session = session.result()
            cleanup.enter_context(held_by_jvm(session, config.checkpoint.with_name(f".{config.checkpoint.name}.jvm")))
        cleanup.enter_context(_heeding_signals(stop))
        places = Places(session, config.shuffle_partitions)
        cleanup.callback(places.release)
        if places.outdated:
            places.settle()
        warm_up(session, config, places)
        Driver(config, session, consumers, producer, host=host, places=places).run(stop, ready)


class Driver:
    """The loop around the query."""

    def __init__(
        self,
        config: JobConfig,
        session: SparkSession,
        consumers: list[KafkaConsumer],
        producer: KafkaProducer,
        *,
        host: Callable[[], int],
        places: Places,
    ) -> None:
        self._config = config
        self._places = places
        self._session = session
        self._producer = producer
        self._consumer = consumers[0]
        self._arrivals = Arrivals(config, self._consumer)
        self._host = host
        self._brokers = BrokerClock(host)
        self._answering = Answering(config, consumers[1:], producer, self._brokers.now, self._arrivals.events_per_day)
        self._routes: tuple[Route, ...] = ()
        self._began: Mapping[str, Mapping[int, int]] = {}
        self._incarnation = ""
        self._batch_size = BatchSize(config.max_offsets_per_trigger)
        self._lacks_places = places.outdated
        self._told_batch = -1
        self._next_tell = 0.0
        self._next_clock = 0.0

    def run(self, stop: threading.Event, ready: Callable[[], None] | None = None) -> None:
        """Until `stop`; plans the query anew as often as rules need it."""
        while not stop.is_set():
            rows = self._plan()
            while not stop.is_set() and not self._lacks_routes:
                if self._lacks_places:
                    self._places.settle()
                    self._lacks_places = False
                    _log.info("buckets are spread over the executors")
                query = self._start(rows())
                if ready is not None:
                    ready()
                    ready = None
                try:
                    while not (stop.is_set() or self._lacks_routes or self._lacks_size or self._lacks_places):
                        self._look(query)
                        stop.wait(_LOOK_SECONDS)
                finally:
                    finish(query)
                self._raise_failure(query)
                if self._lacks_size:
                    self._batch_size.change()
                    _log.info("batches have another size", records=self._batch_size.records)
            if not stop.is_set():
                with self._without_kafka():
                    self._tell(query, "replanning")
                _log.info("a rule needs a new shuffle key: the query is restarted")
        with self._without_kafka():
            self._tell(query, "stopped")
            self._producer.flush(kafka_clients.WAIT_MS / 1000)

    def _plan(self) -> Callable[[], DataFrame]:
        """Settle the routes of every rule there is, and keep them; what the query is then, for any size of batches."""
        config, answering = self._config, self._answering
        answering.catch_up()
        identity = settle(config, answering.book.routes, self._arrivals.begins)
        self._routes, self._began = identity.routes, identity.began
        answering.run_with(identity.routes)
        self._incarnation = uuid.uuid4().hex
        begins = committed_offsets(config) or self._first_offsets(identity.began)
        known = answering.before(begins.get(config.topics.rule_status, {}).get(0, 0))
        plan = BucketPlan(
            identity.name, self._incarnation, committed_state(config, self._incarnation).resolve(), config.streams,
            identity.routes, config.buckets, config.topics, known,
        )  # fmt: skip
        starting, packer = self._starting_offsets(begins), packer_of(config, identity.routes)
        return lambda: evaluated(
            kafka_records(self._session, config, self._batch_size.records, starting),
            config,
            packer,
            plan,
            self._places,
        )

    def _start(self, rows: DataFrame) -> StreamingQuery:
        query = started(rows, self._config, str(query_folder(self._config).resolve()), "nightjar")
        self._told_batch = -1
        _log.info("the query runs", routes=len(self._routes), most_records=self._batch_size.records)
        return query

    def _first_offsets(self, began: Mapping[str, Mapping[int, int]]) -> dict[str, Mapping[int, int]]:
        """Where a new checkpoint begins: events at the beginning of their topics, with all rules there are."""
        clock = TopicPartition(self._config.topics.clock, 0)
        ended = end_offsets(self._consumer, [clock])[clock]
        return {**began, self._config.topics.rule_status: {0: self._answering.end}, clock.topic: {0: ended}}

    def _starting_offsets(self, begins: Mapping[str, Mapping[int, int]]) -> str:
        """Where a checkpoint without a batch begins, as Spark takes it; what is not named is read from its beginning.

        Spark heeds it in the first batch only.
        """
        topics = [*event_topics(self._config), *control_topics(self._config)]
        partitions = {topic: self._consumer.partitions_for_topic(topic) or () for topic in topics}
        return json.dumps(
            {t: {str(p): begins.get(t, {}).get(p, _EARLIEST) for p in sorted(of)} for t, of in partitions.items()}
        )

    @property
    def _lacks_routes(self) -> bool:
        return len(self._answering.book.routes) > len(self._routes)

    @property
    def _lacks_size(self) -> bool:
        return self._batch_size.wanted != self._batch_size.records

    def _look(self, query: StreamingQuery) -> None:
        self._raise_failure(query)
        with self._without_kafka():
            self._answering.poll()
            if self._answering.owes and not self._lacks_routes:
                committed = committed_offsets(self._config)
                self._answering.activate(committed.get(self._config.topics.rule_status, {}).get(0, 0))
            now = time.monotonic()
            if now >= self._next_tell:
                self._next_tell = now + TELL_SECONDS
                self._tell(query, "running")

    @contextlib.contextmanager
    def _without_kafka(self) -> Iterator[None]:
        """Let what is inside come to nothing where no broker answers: the query waits for Kafka too, or fails."""
        try:
            yield
        except KafkaError as failure:
            _log.warning("Kafka does not answer", reason=str(failure))
            time.sleep(TELL_SECONDS)

    def _tell(self, query: StreamingQuery, state: str) -> None:
        """A record of progress, a warning of slow batches, and the clock when it is time."""
        self._lacks_places = self._places.outdated
        # looked up after the brokers have stamped the last clock: what arrived before it is in these standings
        stamped, committed = self._brokers.stamped, committed_offsets(self._config)
        standings = self._arrivals.standings(committed)
        recent = [batch for batch in query.recentProgress if batch["batchId"] > self._told_batch]
        for batch in recent:
            self._told_batch = max(self._told_batch, batch["batchId"])
            self._batch_size.take(batch)
            self._warn_if_slow(batch)
        book = self._answering.book
        report: JobReport = {
            "kind": "job",
            "state": state,
            "incarnation": self._incarnation,
            "process": os.getpid(),
            "at": self._host(),
            "skew": self._brokers.skew,
            **batches_told(recent),
            "lag": lag_told(standings, self._brokers.now()),
            "consumed": committed,
            "began": self._began,
            "rules": {"versions": len(book.answered), "answers": book.next_offset, "skipped": book.skipped},
        }
        self._send(self._config.topics.job_progress, ascii_json(report), key=DRIVER_KEY)
        if state == "running" and time.monotonic() >= self._next_clock:
            self._next_clock = time.monotonic() + self._config.clock_interval / 1_000_000
            # the first is sent for the time stamp that the brokers give it
            clocks = {} if stamped is None else clocks_of_standings(self._config, standings, stamped)
            sent_at = time.monotonic()
            sent = self._send(self._config.topics.clock, Clock(self._incarnation, clocks).encoded())
            sent.add_callback(lambda written: self._brokers.take(written.timestamp * 1000, sent_at))

    def _send(self, topic: str, value: bytes, **options: Any) -> FutureRecordMetadata:
        """Send a record, and log where it could not be delivered: nobody waits for it."""
        sent = self._producer.send(topic, value=value, **options)
        sent.add_errback(lambda error: _log.warning("a record was not delivered", topic=topic, reason=repr(error)))
        return sent

    def _warn_if_slow(self, batch: dict[str, Any]) -> None:
        took = batch["durationMs"].get("triggerExecution", 0)
        if took * 1000 > self._config.slow_batch_warning:
            _log.warning(
                "a micro-batch took long",
                batch=batch["batchId"],
                rows=batch["numInputRows"],
                milliseconds=took,
                parts=batch["durationMs"],
            )

    def _raise_failure(self, query: StreamingQuery) -> None:
        failure = query.exception()
        if failure is not None:
            detail, cause = told_failure(str(failure))
            _log.error("the query failed", detail=detail)
            raise JobError(
                f"the query failed: {cause}",
                where=str(self._config.checkpoint),
                remedy=_UNREADABLE_STATE if is_of_state(detail) else _GOES_ON,
            )


def is_of_state(detail: str) -> bool:
    """Whether Spark says that it cannot go on from its checkpoint: by the names of its errors."""
    return any(name in detail for name in _ERRORS_OF_STATE)


def told_failure(text: str) -> tuple[str, str]:
    """Spark's text of a failed query without its plan, and the line of it that names the cause."""
    detail = text.partition("=== Streaming Query ===")[0].strip()
    lines = [line.strip() for line in detail.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    # a traceback of a Python worker names its cause last
    return detail, lines[-1 if "Traceback" in detail else 0] if lines else "no reason was given"


@contextlib.contextmanager
def lost_jvm_told(where: str) -> Iterator[None]:
    """Turn what every call into Spark raises, once its JVM was killed, into a JobError."""
    from py4j.protocol import Py4JNetworkError

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as lost:
        raise JobError("Spark's JVM has ended: killed, or out of memory", where=where, remedy=_GOES_ON) from lost


@contextlib.contextmanager
def _lost_kafka_told(config: JobConfig) -> Iterator[None]:
    """Turn what kafka-python raises where the job cannot do without an answer into a JobError."""
    try:
        yield
    except KafkaError as failure:
        raise JobError(f"Kafka does not answer: {failure}", where=_brokers(config), remedy=_GOES_ON) from failure


def _brokers(config: JobConfig) -> str:
    return f"Kafka at {config.spark_kafka['kafka.bootstrap.servers']}"


def _refuse_missing_topics(config: JobConfig, consumer: KafkaConsumer) -> None:
    wanted = [*event_topics(config), *vars(config.topics).values()]
    missing = sorted(set(wanted) - set(consumer.topics()))
    if missing:
        raise JobError(
            f"there is no topic {', '.join(missing)}",
            where=_brokers(config),
            remedy="`nightjar up` makes the topics, or create them as described in docs/reference/settings.md",
        )


@contextlib.contextmanager
def _heeding_signals(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
