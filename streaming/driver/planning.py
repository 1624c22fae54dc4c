"""The query that the rules need: its shuffle keys in the checkpoint, its buckets' plan, and where it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog
from kafka import TopicPartition

from nightjar.ingestion.offsets import end_offsets
from nightjar.storage.paths import spark_name
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketTasks
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.clock import Arrivals
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.query import evaluated, kafka_records, packer_of, started, starting_offsets
from nightjar.streaming.driver.rule_changes import RuleChanges
from nightjar.streaming.state.checkpoint import Checkpoint

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

# Starts the planned query, with at most so many records in a batch, and so many stages.
Start = Callable[[int, int], "StreamingQuery"]


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

    def plan(self) -> Start:
        """Begin a run of the query with the shuffle keys of all rules."""
        config, checkpoint, rules = self._config, self._checkpoint, self._rules
        metadata = rules.settle(Arrivals(config, self._consumer).begins)
        begins = checkpoint.committed_offsets() or self._first_offsets(metadata.began or {})
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
        )
        starting = starting_offsets(config, self._consumer, begins)
        packer = packer_of(config, metadata.shuffle_keys, metadata.dropped)
        tasks = BucketTasks.of(plan, config.shuffle_partitions)

        def start(most: int, stages: int) -> StreamingQuery:
            records = kafka_records(self._session, config, most, starting)
            rows = evaluated(records, config, packer, tasks.run, self._places, stages=stages)
            query = started(rows, config, spark_name(checkpoint.query.resolve()), "nightjar")
            _log.info("the query runs", shuffle_keys=len(metadata.in_use), most_records=most, stages=stages)
            return query

        return start

    def _first_offsets(self, began: Mapping[str, Mapping[int, int]]) -> dict[str, Mapping[int, int]]:
        """Where a new checkpoint begins: events at the beginning of their topics, with all current rules."""
        clock = TopicPartition(self._config.topics.clock, 0)
        ended = end_offsets(self._consumer, [clock])[clock]
        answers = {0: self._rules.answering.end}
        return {**began, self._config.topics.rule_status: answers, clock.topic: {0: ended}}
