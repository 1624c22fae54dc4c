"""The job's configuration, passed in by the program: this package reads no settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nightjar.contracts.topics import Topics
from nightjar.rules.errors import NightjarError
from nightjar.rules.foreign import DEFAULT_FORMS, Forms
from nightjar.rules.streams import Stream
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath


class JobError(NightjarError):
    """The job cannot start or continue."""


@dataclass(frozen=True)
class JobConfig:
    """The job's settings. Durations are microseconds.

    streams: by name. spark_kafka, python_kafka: settings of every Kafka client, under Spark's (`kafka.…`) and
    kafka-python's names. jars: those that pyspark does not ship. java_options: for the driver's JVM. spark_conf: Spark
    settings, which override the job's. checkpoint: a folder that every Spark process reaches. max_offsets_per_trigger:
    None to let the job adapt it (driver/batch_size.py). alerts_per_rule_and_hour: those after which further ones are
    marked; None: none is. lake: its folder, None if there is none. priming_rate: events per second that priming reads;
    0: versions start with the history that the state has. fence: of the lease on a checkpoint in an object store, which
    the job's writers check. code: see ingestion.session.Driver.
    """

    streams: Mapping[str, Stream]
    spark_kafka: Mapping[str, str] = field(repr=False)  # may hold passwords
    python_kafka: Mapping[str, object] = field(repr=False)
    checkpoint: AnyPath
    jars: tuple[Path, ...]
    topics: Topics = field(default_factory=Topics)
    arrival: Literal["broker", "producer"] = "broker"
    activation_delay: int = 5_000_000
    approvals: int = 0
    forms: Forms = DEFAULT_FORMS
    master: str = "local[*,4]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
    java_options: tuple[str, ...] = ()
    shuffle_partitions: int = 2
    buckets: int = 4
    max_offsets_per_trigger: int | None = None
    max_retained_events: int = 50_000_000
    alerts_per_rule_and_hour: int | None = None
    slow_batch_warning: int = 5_000_000
    clock_interval: int = 5_000_000
    clock_margin: int = 2_000_000
    warm_up_batches: int = 8
    lake: AnyPath | None = None
    priming_rate: int = 0
    fence: Fence | None = None
    code: Path | None = None
