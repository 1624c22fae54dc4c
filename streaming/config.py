"""The job's configuration, passed in by the program: this package reads no settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nightjar.contracts.topics import Topics
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.kafka_config import KafkaConfig
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.rules.errors import NightjarError
from nightjar.rules.foreign import DEFAULT_FORMS, Forms
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.types import FieldType
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath

# How the query runs.
Latency = Literal["micro-batch", "real-time"]


class JobError(NightjarError):
    """The job cannot start or continue."""


@dataclass(frozen=True)
class JobConfig:
    """The job's settings. Durations are microseconds."""

    streams: Mapping[str, Stream]
    """By name."""
    checkpoint: AnyPath
    """A folder that every Spark process reaches."""
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    topics: Topics = field(default_factory=Topics)
    arrival: Literal["broker", "producer"] = "broker"
    """Who stamps the arrival of events."""
    activation_delay: int = 5_000_000
    """From a rule's publication until it takes effect."""
    approvals: int = 0
    """That a published version needs before it takes effect."""
    forms: Forms = DEFAULT_FORMS
    """The forms in which rule messages may come."""
    latency: Latency = "micro-batch"
    """How the query runs."""
    real_time_batch: int = 300_000_000
    """How long a real-time batch lasts."""
    gather: int = 3_000
    """For how long a group of a real-time batch waits for more records after its first one."""
    shuffle_partitions: int = 2
    """Tasks of the evaluation stage."""
    buckets: int = 4
    """Of keyed state, for each shuffle key."""
    max_offsets_per_trigger: int | None = None
    """None: the job adapts it (driver/batch_size.py)."""
    max_retained_events: int = 50_000_000
    """Most events that one rule may retain, as estimated when it is published."""
    alerts_per_rule_and_hour: int | None = None
    """Further alerts are marked as overflow; None: none is."""
    slow_batch_warning: int = 5_000_000
    """A micro-batch that takes longer is logged as a warning."""
    clock_interval: int = 5_000_000
    """Between two clocks of a stream (driver/clock.py)."""
    clock_margin: int = 2_000_000
    """By which the clock stays behind the brokers' present."""
    warm_up_batches: int = 8
    """Before traffic, so that the first real one does not wait for compilers."""
    lake: AnyPath | None = None
    """The lake's folder; None: there is none."""
    priming_rate: int = 0
    """Events per second that priming reads; 0: versions start with the history that the state has."""
    schemas: Schemas | None = None
    """Of records that name them; None: no stream has such."""
    fence: Fence | None = None
    """Of the lease on a checkpoint in an object store, which the job's writers check."""

    @property
    def tables(self) -> Mapping[str, FieldType]:
        """The declared tables, with the type of each one's key."""
        return tables_of(self.streams)
