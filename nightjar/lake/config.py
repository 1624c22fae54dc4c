"""The configuration of the lake, passed in by the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.contracts.topics import Topics
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import Stream
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath


class LakeError(NightjarError):
    """The lake cannot be read or written."""


@dataclass(frozen=True)
class LakeConfig:
    """Where the lake is, and how its jobs run.

    root: the folder of all tables. streams: by name. spark_kafka, python_kafka: options of every Kafka client, under
    Spark's (`kafka.…`) and kafka-python's names. jars: those that pyspark does not ship. java_options: for the driver's
    JVM. spark_conf: Spark settings, which override the lake's. max_offsets_per_batch: most records in one batch of the
    archive. max_driver_bytes: larger batches are written by Spark's tasks. max_driver_rows: work on more rows is done
    by Spark's tasks. fence: of the lease on a lake in an object store, which writers check. code: see
    ingestion.session.Driver.
    """

    root: AnyPath
    streams: Mapping[str, Stream]
    spark_kafka: Mapping[str, str] = field(repr=False)  # may hold passwords
    jars: tuple[Path, ...]
    topics: Topics = field(default_factory=Topics)
    master: str = "local[*,4]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
    java_options: tuple[str, ...] = ()
    max_offsets_per_batch: int = 2_000_000
    max_driver_bytes: int = 64 << 20
    max_driver_rows: int = 200_000
    python_kafka: Mapping[str, object] = field(default_factory=dict, repr=False)
    fence: Fence | None = None
    code: Path | None = None

    def refuse_overtaken(self) -> None:
        """Raise LostLeaseError if another process has taken over the lake."""
        if self.fence is not None:
            self.fence.check()
