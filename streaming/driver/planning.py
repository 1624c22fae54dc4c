"""The query that the rules need: its shuffle keys in the checkpoint, its buckets' plan, and where it begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from kafka import TopicPartition

from nightjar.ingestion.kafka_source import columns_beside
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.storage.paths import spark_name
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketTasks
from nightjar.streaming.buckets.table_follower import TablesTopic
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.clock import Arrivals
from nightjar.streaming.driver.engine_link import EngineLink
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.query import (
    bridged,
    evaluated,
    event_topics,
    kafka_records,
    packer_of,
    result_topics,
    started,
    started_in_real_time,
    starting_offsets,
)
from nightjar.streaming.driver.rule_changes import RuleChanges
from nightjar.streaming.driver.session import SLOTS
from nightjar.streaming.driver.warmup import engine_warm_up
from nightjar.streaming.real_time.between_batches import Brokers
from nightjar.streaming.real_time.engine_process import EnginePlan
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Offsets

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PlannedQuery:
    """A run of the query, which may be started several times in micro-batches, or once in real time."""

    config: JobConfig
    session: SparkSession
    places: Places
    folder: str
    """Of Spark's logs."""
    packer: Packer
    plan: BucketPlan
    begins: str
    """Where a checkpoint without a batch begins, as Spark writes it."""
    answered: int
    """The offset of `rule-status` from which on it reads."""
    known: int
    """That after the last answer that is known."""
    has_gap: bool
    """Whether clocks that it would read have been deleted, which only a micro-batch passes over."""

    def start(self, most: int, stages: int, *, only_one: bool) -> StreamingQuery:
        """In micro-batches with at most so many records, and so many stages; only_one: it ends after one."""
        tasks = BucketTasks.of(self.plan, self.config.shuffle_partitions)
        records = kafka_records(self.session, self.config, most, self.begins)
        rows = evaluated(records, self.config, self.packer, tasks.run, self.places, stages=stages)
        query = started(rows, self.config, self.folder, "nightjar", only_one=only_one)
        self._log_start(most_records=most, stages=stages)
        return query

    def start_in_real_time(self, engine: EngineLink, seconds: float, *, only_one: bool) -> StreamingQuery:
        """In batches that last so long, of which the engine evaluates only one, or all."""
        config = self.config
        partitions = sum(map(len, json.loads(self.begins).values()))
        if partitions > SLOTS:
            raise JobError(
                f"in real time a task reads a partition all the time, and there are {partitions} of at most {SLOTS}",
                where='latency = "real-time"',
                remedy='Set latency = "micro-batch"',
            )
        given = EnginePlan(
            self.plan,
            self.packer,
            engine.path,
            self.answered,
            self.known,
            config.gather / 1_000_000,
            seconds,
            only_one,
            engine_warm_up(config),
            Brokers(
                config.kafka.python,
                columns_beside(config.streams.values()),
                event_topics(config),
                result_topics(config),
            ),
        )
        engine.run(given)
        rows = bridged(kafka_records(self.session, config, None, self.begins), engine.path)
        query = started_in_real_time(rows, config, self.folder, "nightjar", seconds)
        self._log_start(batch_seconds=seconds)
        return query

    def _log_start(self, **how: float) -> None:
        _log.info("the query runs", shuffle_keys=len(self.plan.shuffle_keys) - len(self.packer.dropped), **how)


class Planner:
    """Plans the query. consumer: looks up offsets."""

    def __init__(
        self,
        config: JobConfig,
        checkpoint: Checkpoint,
        session: SparkSession,
        places: Places,
        *,
        rules: RuleChanges,
        consumer: KafkaConsumer,
    ) -> None:
        self._config, self._checkpoint = config, checkpoint
        self._session, self._places = session, places
        self._rules, self._consumer = rules, consumer

    def plan(self) -> PlannedQuery:
        """Begin a run of the query with the shuffle keys of all rules."""
        config, checkpoint, rules = self._config, self._checkpoint, self._rules
        metadata = rules.settle(Arrivals(config, self._consumer).begins)
        begins = checkpoint.committed_offsets()
        if not begins:
            begins = self._first_offsets(metadata.began or {})
            checkpoint.begin_at(begins)
        answered = rules.answered(begins)
        checkpoint.begin_run([*rules.answering.exports(answered), *rules.priming.exports])
        rules.priming.restart()
        plan = BucketPlan(
            metadata.name,
            checkpoint.run_id,
            checkpoint.state,
            config.streams,
            metadata.shuffle_keys,
            config.buckets,
            config.topics,
            rules.answering.before(answered),
            config.alerts_per_rule_and_hour,
            config.fence,
            TablesTopic(config.topics.tables, config.kafka.python) if config.tables else None,
            begins.get(config.topics.tables, {}).get(0, 0),
        )
        return PlannedQuery(
            config,
            self._session,
            self._places,
            spark_name(checkpoint.query.resolve()),
            packer_of(config, metadata.shuffle_keys, metadata.dropped),
            plan,
            starting_offsets(config, self._consumer, begins),
            answered,
            rules.answering.end,
            self._has_gap(begins),
        )

    def _has_gap(self, begins: Offsets) -> bool:
        clock = TopicPartition(self._config.topics.clock, 0)
        return beginning_offsets(self._consumer, [clock])[clock] > begins.get(clock.topic, {}).get(0, 0)

    def _first_offsets(self, began: Mapping[str, Mapping[int, int]]) -> dict[str, Mapping[int, int]]:
        """Where a new checkpoint begins: events at the beginning of their topics, with all current rules."""
        clock = TopicPartition(self._config.topics.clock, 0)
        ended = end_offsets(self._consumer, [clock])[clock]
        answers = {0: self._rules.answering.end}
        return {**began, self._config.topics.rule_status: answers, clock.topic: {0: ended}}
