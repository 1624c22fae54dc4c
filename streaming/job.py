"""Purpose: the driver of the continuous job: starts the query, watches over it, and ends it cleanly.

How it works: one loop. It follows the rules topic beside the query; a rule that needs a route which the query does not
have makes it finish the batch, add the route to what the checkpoint keeps, and start the query again on the same
checkpoint. Once a second it tells how the job is doing, every few seconds how far arrival has come.

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
from typing import TYPE_CHECKING, Any

import structlog
from kafka.errors import KafkaError

from streaming import kafka_clients
from streaming.checkpoint import committed_offsets, initial_state, query_folder, refuse_unfit, settle
from streaming.clock import Arrivals, clock_record, clocks_of_standings
from streaming.config import JobConfig, JobError
from streaming.pack import Packer
from streaming.processor import BucketPlan
from streaming.progress import batches_told, lag_told, rules_told
from streaming.rulebook import Route
from streaming.rulewatch import RuleWatch
from streaming.session import held_by_jvm, open_session
from streaming.source import evaluated, finish, kafka_records, started, subscribed
from streaming.warmup import warm_up

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.producer.future import FutureRecordMetadata
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = structlog.get_logger(__name__)

TELL_SECONDS = 1.0
_LOOK_SECONDS = 0.1

_GOES_ON = "The log above has the cause; once it is gone, start the job again: it goes on where it was"
_UNREADABLE_STATE = (
    "Where the checkpoint's files cannot be put right, or Kafka no longer has what comes next, "
    "`nightjar stream rebuild` makes it anew from the lake"
)
# Spark's errors where a checkpoint lacks something or was written by another plan, and the option that it names where
# Kafka has let go of what comes next.
_ERRORS_OF_STATE = (
    "STATE_STORE",
    "STREAMING_STATEFUL_OPERATOR",
    "STREAMING_CHECKPOINT",
    "CHECKPOINT_FILE",
    "DATA_LOSS",
    "failOnDataLoss",
)

# Spark's number for a partition's beginning.
_EARLIEST = -2


def run(
    config: JobConfig,
    *,
    session: SparkSession | None = None,
    stop: threading.Event | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Run the job until SIGTERM, SIGINT or `stop`; the running batch is finished first.

    session: one that `open_session` made, and that outlives this run; None: one of its own. ready: called once the
    query runs. Signals are heeded only in a program's main thread.

    Raises:
        JobError: it cannot start (a topic is missing, the checkpoint does not fit), or the query or Spark failed.
    """
    stop = stop or threading.Event()
    with lost_jvm_told(str(config.checkpoint)), _lost_kafka_told(config), contextlib.ExitStack() as cleanup:
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
        _refuse_missing_topics(config, consumers[0])
        refuse_unfit(config)
        producer = cleanup.enter_context(kafka_clients.producer(config))
        if session is None:
            session = open_session(config)
            cleanup.callback(session.stop)
            cleanup.enter_context(held_by_jvm(session, config.checkpoint.with_name(f".{config.checkpoint.name}.jvm")))
        cleanup.enter_context(_heeding_signals(stop))
        warm_up(session, config)
        Driver(config, session, consumers, producer).run(stop, ready)


class Driver:
    """The loop around the query."""

    def __init__(
        self, config: JobConfig, session: SparkSession, consumers: list[KafkaConsumer], producer: KafkaProducer
    ) -> None:
        self._config = config
        self._session = session
        self._producer = producer
        self._consumer = consumers[0]
        self._arrivals = Arrivals(config, self._consumer)
        self._watch = RuleWatch(config, consumers[1])
        self._routes: tuple[Route, ...] = ()
        self._activated: set[bytes] = set()
        self._incarnation = ""
        self._told_batch = -1
        self._next_tell = 0.0
        self._next_clock = time.monotonic() + config.clock_interval / 1_000_000

    def run(self, stop: threading.Event, ready: Callable[[], None] | None = None) -> None:
        """Until `stop`; plans the query anew as often as rules need it."""
        while not stop.is_set():
            query = self._start()
            if ready is not None:
                ready()
                ready = None
            try:
                while not stop.is_set() and not self._lacks_routes:
                    self._look(query)
                    stop.wait(_LOOK_SECONDS)
            finally:
                finish(query)
            self._raise_failure(query)
            if not stop.is_set():
                with self._without_kafka():
                    self._tell(query, "planning anew")
                _log.info("a rule needs a new route: the query is planned anew")
        with self._without_kafka():
            self._tell(query, "stopped")
            self._producer.flush(kafka_clients.WAIT_MS / 1000)

    def _start(self) -> StreamingQuery:
        """Settle the routes of every rule there is, keep them, and start the query with them."""
        config, watch = self._config, self._watch
        watch.catch_up()
        identity = settle(config, watch.book.routes)
        self._routes = identity.routes
        self._incarnation = uuid.uuid4().hex
        topics = config.topics
        packer = Packer(
            config.streams, identity.routes, config.buckets, config.shuffle_partitions, topics.rules, topics.clock
        )
        begins = committed_offsets(config)
        plan = BucketPlan(
            identity.name, self._incarnation, config.streams, identity.routes, config.buckets,
            config.activation_delay, topics, watch.before(begins.get(topics.rules, {}).get(0, 0)),
        )  # fmt: skip
        records = kafka_records(self._session, config, self._starting_offsets(begins))
        rows = evaluated(records, config, packer, plan, initial_state(config))
        query = started(rows, config, str(query_folder(config).resolve()), "nightjar")
        self._told_batch = -1
        _log.info("the query runs", routes=len(identity.routes))
        return query

    def _starting_offsets(self, begins: Mapping[str, Mapping[int, int]]) -> str:
        """Where a checkpoint without a batch begins, as Spark takes it; what is not named is read from its beginning.

        Spark heeds it in the first batch only.
        """
        if not begins:
            return "earliest"
        partitions = {topic: self._consumer.partitions_for_topic(topic) or () for topic in subscribed(self._config)}
        return json.dumps(
            {t: {str(p): begins.get(t, {}).get(p, _EARLIEST) for p in sorted(of)} for t, of in partitions.items()}
        )

    def _activate(self) -> None:
        """Publish, once, that the rules which wait for a route have it.

        Where producers give arrivals there is no present to begin in: such a rule begins where it was published.
        """
        for message, arrival in self._watch.book.activations():
            if message not in self._activated:
                stamp = {"timestamp_ms": arrival // 1000} if self._config.arrival == "producer" else {}
                sent = self._send(self._config.topics.rules, message, **stamp)
                self._activated.add(message)
                sent.add_errback(lambda _, lost=message: self._activated.discard(lost))

    @property
    def _lacks_routes(self) -> bool:
        return len(self._watch.book.routes) > len(self._routes)

    def _look(self, query: StreamingQuery) -> None:
        self._raise_failure(query)
        with self._without_kafka():
            self._watch.poll()
            if not self._lacks_routes:
                self._activate()
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
        asked_at = time.time_ns() // 1000
        committed = committed_offsets(self._config)
        standings = self._arrivals.standings(committed)
        recent = [batch for batch in query.recentProgress if batch["batchId"] > self._told_batch]
        for batch in recent:
            self._told_batch = max(self._told_batch, batch["batchId"])
            self._warn_if_slow(batch)
        told: dict[str, Any] = {
            "kind": "job",
            "state": state,
            "incarnation": self._incarnation,
            "process": os.getpid(),
            "at": asked_at,
            **batches_told(recent),
            "lag": lag_told(standings, asked_at),
            "consumed": committed,
            "rules": rules_told(self._watch.book.ruleset),
        }
        self._send(self._config.topics.job_progress, json.dumps(told).encode(), key=b"job")
        if state == "running" and time.monotonic() >= self._next_clock:
            self._next_clock = time.monotonic() + self._config.clock_interval / 1_000_000
            if clocks := clocks_of_standings(self._config, standings, asked_at):
                self._send(self._config.topics.clock, clock_record(self._incarnation, clocks))

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
    wanted = [*subscribed(config), *vars(config.topics).values()]
    missing = sorted(set(wanted) - set(consumer.topics()))
    if missing:
        raise JobError(
            f"there is no topic {', '.join(missing)}",
            where=_brokers(config),
            remedy="`nightjar up` makes the topics, or have them made as docs/settings.md says",
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
