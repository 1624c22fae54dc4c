"""What the job is told: a plain table, so that `streaming` knows nothing of where settings come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rules.streams import Stream


@dataclass(frozen=True)
class Topics:
    """The names of the topics that are not a stream's."""

    rules: str = "rules"
    clock: str = "clock"
    alerts: str = "alerts"
    late_events: str = "late-events"
    quarantine: str = "quarantine"
    rule_status: str = "rule-status"
    job_progress: str = "job-progress"


@dataclass(frozen=True)
class JobConfig:
    """Everything the job needs.

    kafka_options: for Spark, `kafka.bootstrap.servers` and security under Kafka's own names; client_options: the same
    for kafka-python. arrival: who stamps a record's arrival. Durations are µs. jars: absolute paths added to Spark's.
    """

    streams: Mapping[str, Stream]
    checkpoint: Path
    kafka_options: Mapping[str, str] = field(repr=False)
    client_options: Mapping[str, Any] = field(repr=False)
    jars: tuple[str, ...]
    topics: Topics = Topics()
    arrival: Literal["broker", "producer"] = "broker"
    activation_delay: int = 5_000_000
    buckets: int = 4
    shuffle_partitions: int = 2
    max_offsets_per_trigger: int = 200_000
    slow_batch: int = 5_000_000
    clock_interval: int = 10_000_000
    clock_skew: int = 60_000_000
    master: str = "local[*]"
    driver_memory: str = "2g"
