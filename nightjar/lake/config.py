"""The configuration of the lake, passed in by the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nightjar.contracts.topics import Topics
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.kafka_config import KafkaConfig
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import Stream
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath


class LakeError(NightjarError):
    """The lake cannot be read or written."""


@dataclass(frozen=True)
class LakeConfig:
    """Where the lake is, and how its jobs run."""

    root: AnyPath
    """The folder of all tables."""
    streams: Mapping[str, Stream]
    """By name."""
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    topics: Topics = field(default_factory=Topics)
    max_offsets_per_batch: int = 2_000_000
    """Most records in one batch of the archive."""
    max_driver_bytes: int = 64 << 20
    """Larger batches are written by Spark's tasks, and work on more rows is done by them."""
    max_driver_rows: int = 200_000
    schemas: Schemas | None = None
    """Of records that name them; None: no stream has such."""
    fence: Fence | None = None
    """Of the lease on a lake in an object store, which writers check."""

    def refuse_missing(self) -> None:
        """Refuse to work on a lake that is not there.

        Raises:
            LakeError: there is none.
        """
        if not self.root.is_dir():
            remedy = "Check lake_dir; `nightjar archive` creates a lake"
            raise LakeError("there is no lake", where=str(self.root), remedy=remedy)

    def refuse_overtaken(self) -> None:
        """Raise LostLeaseError if another process has taken over the lake."""
        if self.fence is not None:
            self.fence.check()
