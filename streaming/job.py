"""Purpose: the driver of the continuous job: starts the query, monitors it, and stops it cleanly.

How it works: one loop. It answers rule messages beside the query (driver/answering.py); if a rule needs a shuffle key
that the query lacks, it finishes the batch, adds the shuffle key to the checkpoint, and restarts the query from the
same checkpoint. So does another batch size (driver/batch_size.py), with the same plan and the same engines. Once per
second it reports progress, every few seconds it publishes the clock.

What it does not do: evaluate anything, or keep any state of its own. All of it is in the checkpoint and in Kafka.

Known limitation: without priming (priming/priming.py) a new shuffle key begins without history; events before it are
not counted by the rules it serves.
"""

from __future__ import annotations

import contextlib
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

from nightjar.contracts.clock import Clock
from nightjar.contracts.job_progress import DRIVER_KEY, JobReport
from nightjar.contracts.json_text import ascii_json
from nightjar.ingestion.offsets import end_offsets
from nightjar.rules.rulebook import ShuffleKey
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import spark_name
from nightjar.streaming import kafka_clients
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketTasks
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.answering import Answering
from nightjar.streaming.driver.batch_size import BatchSize
from nightjar.streaming.driver.clock import Arrivals, BrokerClock, ClockPublisher, Position, host_clock
from nightjar.streaming.driver.failures import (
    raise_failure,
    refuse_missing_topics,
    reporting_lost_jvm,
    reporting_lost_kafka,
)
from nightjar.streaming.driver.overflow import CapWatch
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.progress import RecentBatches, batches_report, lag_report
from nightjar.streaming.driver.query import evaluated, finish, kafka_records, packer_of, started, starting_offsets
from nightjar.streaming.driver.session import held_by_jvm
from nightjar.streaming.driver.warmup import warm_up
from nightjar.streaming.priming.priming import Priming
from nightjar.streaming.state.checkpoint import (
    Offsets,
    committed_offsets,
    committed_state,
    last_run,
    query_folder,
    refuse_unfit,
    settle,
)
from nightjar.streaming.state.epochs import take_over

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.producer.future import FutureRecordMetadata
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

REPORT_SECONDS = 1.0
_LOOK_SECONDS = 0.1


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

    session: of `open_session`; one that is still starting (`session.starting`) is the job's own, and its JVM holds the
    checkpoint's lock. prepare: runs first, while Spark starts. ready: called once the query runs. host: the host's wall
    clock (µs), which is reported and decides nothing. Signals are handled only in a program's main thread.

    Raises:
        JobError: it cannot start (a topic is missing, the checkpoint does not fit), or the query or Spark failed.
    """
    stop = stop or threading.Event()
    with reporting_lost_jvm(str(config.checkpoint)), reporting_lost_kafka(config), contextlib.ExitStack() as cleanup:
        take_over(config.checkpoint, config.fence)
        refuse_unfit(config)
        prepare()
        needed = 3 if config.alerts_per_rule_and_hour is None else 4
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(needed)]
        refuse_missing_topics(config, consumers[0])
        producer = cleanup.enter_context(kafka_clients.producer(config))
        if isinstance(session, Future):
            session = session.result()
            if not isinstance(config.checkpoint, ObjectPath):  # there the fence stops it
                lock = config.checkpoint.with_name(f".{config.checkpoint.name}.jvm")
                cleanup.enter_context(held_by_jvm(session, lock))
        cleanup.enter_context(_heeding_signals(stop))
        places = Places(session, config.shuffle_partitions)
        cleanup.callback(places.release)
        if places.outdated:
            places.settle()
        warm_up(session, config, places, consumers[0])
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
        self._clocks = ClockPublisher(config, self._brokers, self._send)
        self._priming = Priming(config)
        self._answering = Answering(
            config, consumers[1:3], producer, self._brokers.now, self._arrivals.events_per_day, history=self._priming
        )
        most, watched = config.alerts_per_rule_and_hour, config.topics.job_progress
        self._cap = None if most is None else CapWatch(most, consumers[3], watched)
        self._shuffle_keys: list[ShuffleKey] = []
        self._clocked: Mapping[str, int] = {}
        self._unused: frozenset[ShuffleKey] = frozenset()
        self._began: Mapping[str, Mapping[int, int]] = {}
        self._run_id = ""
        self._batch_size = BatchSize(config.max_offsets_per_trigger)
        self._batches = RecentBatches(config.slow_batch_warning)
        self._lacks_places = places.outdated
        self._next_report = self._next_check = 0.0

    def run(self, stop: threading.Event, ready: Callable[[], None] | None = None) -> None:
        """Run until `stop`; plans the query again whenever rules need it. ready: called once the first query runs."""
        with contextlib.closing(self._priming):
            self._run(stop, ready)

    def _run(self, stop: threading.Event, ready: Callable[[], None] | None) -> None:
        query = None
        while not stop.is_set():
            rows = self._plan()
            while not (stop.is_set() or self._needs_other_shuffle_keys):
                self._spread_buckets()
                query = self._start(rows())
                if ready is not None:
                    ready()
                    ready = None
                self._watch(query, stop)
                self._change_batch_size()
            if query is not None and not stop.is_set():
                self._try_report(query, "replanning")
                _log.info("rules need other shuffle keys: the query is restarted")
        if query is not None:
            self._try_report(query, "stopped")
        with self._without_kafka():
            self._producer.flush(kafka_clients.WAIT_MS / 1000)

    def _plan(self) -> Callable[[], DataFrame]:
        """Determine and store the shuffle keys of all rules; returns the query they lead to, for any batch size."""
        config, answering = self._config, self._answering
        if (before := last_run(config)) is not None:
            self._priming.resume(*before)
        answering.catch_up()
        book = answering.book
        self._unused = book.unused(self._clocked)
        identity = settle(config, book.shuffle_keys, self._arrivals.begins, unused=self._unused, wanted=book.wanted())
        self._shuffle_keys, self._began = identity.in_use, identity.began
        answering.run_with(identity.in_use)
        self._run_id = uuid.uuid4().hex
        begins = committed_offsets(config) or self._first_offsets(identity.began)
        answered = begins.get(config.topics.rule_status, {}).get(0, 0)
        exports = [*answering.exports(answered), *self._priming.exports]
        plan = BucketPlan(
            identity.name, self._run_id, committed_state(config, self._run_id, exports), config.streams,
            identity.shuffle_keys, config.buckets, config.topics, answering.before(answered),
            config.alerts_per_rule_and_hour, config.fence,
        )  # fmt: skip
        self._priming.resume(identity, self._run_id)
        starting = starting_offsets(config, self._consumer, begins)
        packer, tasks = packer_of(config, identity.shuffle_keys, identity.dropped), BucketTasks.of(plan)
        return lambda: evaluated(
            kafka_records(self._session, config, self._batch_size.records, starting),
            config,
            packer,
            tasks.run,
            self._places,
        )

    def _first_offsets(self, began: Mapping[str, Mapping[int, int]]) -> dict[str, Mapping[int, int]]:
        """Where a new checkpoint begins: events at the beginning of their topics, with all current rules."""
        clock = TopicPartition(self._config.topics.clock, 0)
        ended = end_offsets(self._consumer, [clock])[clock]
        return {**began, self._config.topics.rule_status: {0: self._answering.end}, clock.topic: {0: ended}}

    def _spread_buckets(self) -> None:
        """Spread the buckets over the executors, if these have changed."""
        if self._lacks_places:
            self._places.settle()
            self._lacks_places = False
            _log.info("buckets are spread over the executors")

    def _start(self, rows: DataFrame) -> StreamingQuery:
        query = started(rows, self._config, spark_name(query_folder(self._config).resolve()), "nightjar")
        self._batches.restart()
        _log.info("the query runs", shuffle_keys=len(self._shuffle_keys), most_records=self._batch_size.records)
        return query

    def _watch(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Monitor the query until it is to stop, and stop it between two batches. Raises JobError if it failed."""
        try:
            while not (stop.is_set() or self._needs_other_shuffle_keys or self._lacks_size or self._lacks_places):
                raise_failure(query, self._config.checkpoint)
                self._look(query)
                stop.wait(_LOOK_SECONDS)
        finally:
            finish(query)
        raise_failure(query, self._config.checkpoint)

    def _change_batch_size(self) -> None:
        if self._lacks_size:
            self._batch_size.change()
            _log.info("batches have another size", records=self._batch_size.records)

    @property
    def _needs_other_shuffle_keys(self) -> bool:
        """Whether a version waits for a shuffle key, or one is out of use."""
        return self._answering.lacks_shuffle_key or not self._unused.isdisjoint(self._shuffle_keys)

    @property
    def _lacks_size(self) -> bool:
        return self._batch_size.wanted != self._batch_size.records

    def _look(self, query: StreamingQuery) -> None:
        """Answer rule messages, and report once per second."""
        self._refuse_overtaken()
        with self._without_kafka():
            self._answering.poll()
            self._priming.step()
            if self._answering.owes and not self._answering.lacks_shuffle_key:
                committed = committed_offsets(self._config)
                self._answering.activate(committed.get(self._config.topics.rule_status, {}).get(0, 0))
            if self._cap is not None and (reached := self._cap.reached()):
                self._send(self._config.topics.clock, Clock(self._run_id, {}, reached).encoded())
            if time.monotonic() >= self._next_report:
                self._next_report = time.monotonic() + REPORT_SECONDS
                self._report(query, "running")

    def _refuse_overtaken(self) -> None:
        """Raise LostLeaseError if another job has taken over the checkpoint; looks once per second."""
        if self._config.fence is not None and time.monotonic() >= self._next_check:
            self._config.fence.check()
            self._next_check = time.monotonic() + REPORT_SECONDS

    def _report(self, query: StreamingQuery, state: str) -> None:
        """Publish the query's progress, and the clock when due."""
        self._lacks_places = self._places.outdated
        batches = self._batches.take(query)
        for batch in batches:
            self._batch_size.take(batch)
        # looked up after the brokers stamped the last clock: what arrived before it is in these positions
        stamped, committed = self._brokers.stamped, committed_offsets(self._config)
        positions = self._arrivals.positions(committed)
        report = self._job_report(state, batches, positions, committed)
        self._send(self._config.topics.job_progress, ascii_json(report), key=DRIVER_KEY)
        if state == "running" and (clocks := self._clocks.publish_if_due(self._run_id, positions, stamped)):
            self._priming.note_clocks(clocks)
            self._clocked, self._unused = clocks, self._answering.book.unused(clocks)
            self._answering.conclude(clocks, committed.get(self._config.topics.rule_status, {}).get(0, 0))

    def _try_report(self, query: StreamingQuery, state: str) -> None:
        with self._without_kafka():
            self._report(query, state)

    def _job_report(
        self, state: str, batches: list[dict[str, Any]], positions: Mapping[str, list[Position]], committed: Offsets
    ) -> JobReport:
        book = self._answering.book
        return {
            "kind": "job",
            "state": state,
            "run_id": self._run_id,
            "process": os.getpid(),
            "at": self._host(),
            "skew": self._brokers.skew,
            **batches_report(batches),
            "lag": lag_report(positions, self._brokers.now()),
            "consumed": committed,
            "began": self._began,
            "priming": self._priming.report(),
            "rules": {"versions": len(book.answered), "answers": book.next_offset, "skipped": book.skipped},
        }

    @contextlib.contextmanager
    def _without_kafka(self) -> Iterator[None]:
        """Skip what is inside if no broker answers: the query waits for Kafka too, or fails."""
        try:
            yield
        except KafkaError as failure:
            _log.warning("Kafka does not answer", reason=str(failure))
            time.sleep(REPORT_SECONDS)

    def _send(self, topic: str, value: bytes, **options: Any) -> FutureRecordMetadata:
        """Send a record without waiting, and log if it could not be delivered."""
        sent = self._producer.send(topic, value=value, **options)
        sent.add_errback(lambda error: _log.warning("a record was not delivered", topic=topic, reason=repr(error)))
        return sent


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
