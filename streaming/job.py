"""Purpose: the driver of the continuous job: starts the query, monitors it, and stops it cleanly.

How it works: one loop. It answers rule messages beside the query (driver/answering.py); if a rule needs a shuffle key
that the query lacks, it finishes the micro-batch, adds the shuffle key to the checkpoint, and restarts the query from
the same checkpoint. So does another batch size (driver/batch_size.py) or number of stages (driver/stages.py), with the
same plan and the same engines, and the death of a real-time query's engine process. Once per second it reports
progress, every few seconds it publishes the clock.

What it does not do: evaluate anything, or keep any state of its own. All of it is in the checkpoint and in Kafka.

Known limitation: without priming (priming/priming.py) a new shuffle key begins without history; events before it are
not counted by the rules it serves.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import structlog

from nightjar.storage.objects import ObjectPath
from nightjar.streaming import kafka_clients
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.answering import Answering
from nightjar.streaming.driver.batch_size import BatchSize
from nightjar.streaming.driver.clock import Arrivals, BrokerClock, host_clock
from nightjar.streaming.driver.engine_link import EngineEndedError, EngineKilledError, EngineLink, refuse_real_time
from nightjar.streaming.driver.failures import (
    has_ended,
    raise_failure,
    refuse_missing_topics,
    reporting_lost_jvm,
    reporting_lost_kafka,
)
from nightjar.streaming.driver.outbox import Outbox, without_kafka
from nightjar.streaming.driver.overflow import CapWatch
from nightjar.streaming.driver.pacing import Every
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.planning import PlannedQuery, Planner
from nightjar.streaming.driver.progress import RecentBatches, batches_report, groups_report
from nightjar.streaming.driver.query import finish
from nightjar.streaming.driver.reporting import Reporter
from nightjar.streaming.driver.rule_changes import RuleChanges
from nightjar.streaming.driver.session import held_by_jvm
from nightjar.streaming.driver.stages import Stages
from nightjar.streaming.driver.warmup import warm_up
from nightjar.streaming.priming.priming import Primer
from nightjar.streaming.real_time.group_times import GroupTimes
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

REPORT_SECONDS = 1.0
# Of a real-time batch that evaluates logged groups again, µs.
_START = 5_000_000
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
    """Run the job until SIGTERM, SIGINT or `stop`; a running micro-batch is finished first.

    session: of `open_session`; one that is still starting (`session.starting`) is the job's own, and its JVM holds the
    checkpoint's lock. prepare: runs first, while Spark starts. ready: called once the query runs. host: the host's wall
    clock (µs), which is reported and decides nothing. Signals are handled only in a program's main thread.

    Raises:
        JobError: it cannot start (a topic is missing, the checkpoint does not fit), or the query or Spark failed.
    """
    stop = stop or threading.Event()
    with reporting_lost_jvm(str(config.checkpoint)), reporting_lost_kafka(config), contextlib.ExitStack() as cleanup:
        checkpoint = Checkpoint(config)
        checkpoint.refuse_unfit()
        if config.latency == "real-time":
            refuse_real_time(config)
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
        if config.latency == "micro-batch":
            warm_up(session, config, places, consumers[0])
        outbox, brokers, arrivals = Outbox(producer), BrokerClock(host), Arrivals(config, consumers[0])
        priming = cleanup.enter_context(contextlib.closing(Primer(config, checkpoint)))
        answering = Answering(config, consumers[1:3], producer, brokers.now, arrivals.events_per_day, history=priming)
        most, watched = config.alerts_per_rule_and_hour, config.topics.job_progress
        cap = None if most is None else CapWatch(most, consumers[3], watched)
        rules = RuleChanges(config, checkpoint, answering, priming, outbox=outbox, cap=cap)
        planner = Planner(config, checkpoint, session, places, rules=rules, consumer=consumers[0])
        reporter = Reporter(config, checkpoint, rules, arrivals=arrivals, brokers=brokers, outbox=outbox)
        Driver(config, checkpoint, places, rules=rules, planner=planner, reporter=reporter).run(stop, ready)
        with without_kafka():
            outbox.flush()


class Driver:
    """The loop around the query."""

    def __init__(
        self,
        config: JobConfig,
        checkpoint: Checkpoint,
        places: Places,
        *,
        rules: RuleChanges,
        planner: Planner,
        reporter: Reporter,
    ) -> None:
        self._config, self._checkpoint, self._places = config, checkpoint, places
        self._mode, self._is_finishing = config.latency, False
        self._committed: Offsets = {}
        self._engine: EngineLink | None = None
        """While the query runs in real time."""
        self._groups: list[GroupTimes] = []
        """That were not reported yet."""
        self._lost_after: Offsets | None = None
        """What was committed when an engine process was lost."""
        self._rules, self._planner, self._reporter = rules, planner, reporter
        self._batch_size = BatchSize(config.max_offsets_per_trigger)
        self._stages = Stages(one_machine=places.one_machine)
        self._batches = RecentBatches(config.slow_batch_warning)
        self._lacks_places = places.outdated
        self._second = Every(REPORT_SECONDS)

    def run(self, stop: threading.Event, ready: Callable[[], None] | None = None) -> None:
        """Run until `stop`; plans the query again whenever rules need it. ready: called once the first query runs."""
        last = None
        while not stop.is_set():
            planned = self._planner.plan()
            while not (stop.is_set() or self._rules.need_other_keys):
                self._spread_buckets()
                try:
                    with self._started(planned) as query:
                        last = query
                        if ready is not None:
                            ready()
                            ready = None
                        self._watch(query, stop)
                    raise_failure(query, self._checkpoint.folder)
                except EngineKilledError:
                    if not stop.is_set():
                        self._bear_the_loss()
                self._change_batches()
                if self._mode == "real-time" or self._is_finishing:
                    break  # it was started for this run alone
            if last is not None and not stop.is_set():
                self._try_report(last, "replanning")
                _log.info("the query is planned again")
        if last is not None:
            self._try_report(last, "stopped")

    @contextlib.contextmanager
    def _started(self, planned: PlannedQuery) -> Iterator[StreamingQuery]:
        """The running query; it is stopped at the end. A batch that has to run the other way comes first."""
        unfinished = self._checkpoint.unfinished
        self._mode = unfinished or ("micro-batch" if planned.has_gap else self._config.latency)
        self._is_finishing, self._committed = self._mode != self._config.latency, self._checkpoint.committed_offsets()
        if self._mode == "micro-batch":
            repeated = self._is_finishing and unfinished is not None
            query = planned.start(self._batch_size.records, self._stages.number, only_one=repeated)
            self._batches.restart()
            try:
                yield query
            finally:
                finish(query)
            return
        refuse_real_time(self._config)
        lasts = self._config.real_time_batch
        if unfinished:  # what is evaluated again takes no longer than it did, but there is a start before it
            again = 2 * self._checkpoint.logged_time + _START
            lasts = again if self._is_finishing else max(again, lasts)
        with EngineLink.start() as engine:
            query = planned.start_in_real_time(engine, lasts / 1_000_000, only_one=self._is_finishing)
            self._engine = engine
            self._rules.attach(engine)
            try:
                yield query
            finally:
                self._rules.attach(None)
                self._engine = None
                query.stop()
                self._groups += engine.reports()

    def _spread_buckets(self) -> None:
        """Spread the buckets over the executors, if these have changed."""
        if self._lacks_places:
            self._places.settle()
            self._lacks_places = False
            _log.info("buckets are spread over the executors")

    def _watch(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Monitor the query until it is to stop.

        Raises:
            JobError: it failed, or, EngineKilledError, the engine process was killed.
        """
        while not (stop.is_set() or self._must_restart or self._has_finished(query)):
            if self._engine is not None:
                self._engine.refuse_killed()
            raise_failure(query, self._checkpoint.folder)
            try:
                self._look(query)
            except EngineEndedError:
                if not has_ended(query):  # then that is the cause, of which the next look tells
                    raise
            stop.wait(_LOOK_SECONDS)

    @property
    def _must_restart(self) -> bool:
        unfit = self._batch_size.is_unfit or self._stages.is_unfit
        return unfit or self._lacks_places or self._rules.need_other_keys

    def _bear_the_loss(self) -> None:
        """Have the query start again after its engine process was killed; raise JobError if nothing has been committed
        since the last time: then it would be killed again and again."""
        committed = self._checkpoint.committed_offsets()
        if committed == self._lost_after:
            raise JobError(
                "the engine process was killed twice within one batch",
                where=str(self._checkpoint.folder),
                remedy="Was it out of memory? Start the job again once it has enough: it resumes where it stopped",
            )
        self._lost_after = committed
        _log.warning("the engine process was killed; the query starts again")

    def _has_finished(self, query: StreamingQuery) -> bool:
        """Whether the batch that has to run the other way is committed."""
        if not self._is_finishing:
            return False
        return not query.isActive or self._checkpoint.committed_offsets() != self._committed

    def _change_batches(self) -> None:
        if self._batch_size.is_unfit:
            self._batch_size.change()
            _log.info("batches have another size", records=self._batch_size.records)
        if self._stages.is_unfit:
            self._stages.change()
            _log.info("batches run in another number of stages", stages=self._stages.number)

    def _look(self, query: StreamingQuery) -> None:
        """Answer rule messages, and report once per second."""
        is_due = self._second.due()
        if self._engine is not None:  # read also where Kafka is away: it waits for that
            self._groups += self._engine.reports()
        if is_due:
            self._checkpoint.refuse_overtaken()
        with without_kafka():
            self._rules.follow()
            if is_due:
                self._report(query, "running")

    def _report(self, query: StreamingQuery, state: str) -> None:
        self._lacks_places = self._places.outdated
        if self._mode == "real-time":
            batches = groups_report(self._groups)
            self._groups = []
        else:
            progress = self._batches.take(query)
            for batch in progress:
                self._batch_size.take(batch)
                self._stages.take(batch)
            batches = batches_report(progress)
        self._reporter.report(state, self._mode, batches)

    def _try_report(self, query: StreamingQuery, state: str) -> None:
        with without_kafka():
            self._report(query, state)


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
