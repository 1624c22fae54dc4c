"""The query from end to end: Kafka, JVM parse, packer, stateful operator, Kafka."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from streaming.config import JobConfig
from streaming.pack import Packer
from streaming.parse import parsed
from streaming.processor import BucketPlan, BucketProcessor
from streaming.records import OUTPUT_SCHEMA
from streaming.wire import PACKED_SCHEMA, SENT_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# How long a clean stop waits for the running batch (seconds); after that Spark interrupts it, and repeats it later.
_FINISH_SECONDS = 120.0


def subscribed(config: JobConfig) -> list[str]:
    """The topics the query reads."""
    return [*(stream.topic for stream in config.streams.values()), config.topics.rules, config.topics.clock]


def kafka_records(session: SparkSession, config: JobConfig, begins: str = "earliest") -> DataFrame:
    """The source: every topic from where the checkpoint stands; what a producer took back is not there.

    begins: where a checkpoint without a batch begins, as Spark writes `startingOffsets`.
    """
    reader = session.readStream.format("kafka").options(**config.spark_kafka)
    return (
        reader.option("subscribe", ",".join(subscribed(config)))
        .option("startingOffsets", begins)
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", str(config.max_offsets_per_trigger))
        .load()
    )


def evaluated(
    records: DataFrame, config: JobConfig, packer: Packer, plan: BucketPlan, initial: Path | None = None
) -> DataFrame:
    """Source rows to sink rows: topic, key, value, headers.

    initial: a folder of the state that a checkpoint without a batch begins with (see initial.py).
    """
    rows = parsed(records, config.streams.values()).coalesce(config.shuffle_partitions)
    packed = rows.mapInArrow(packer.pack, PACKED_SCHEMA)
    held = None if initial is None else records.sparkSession.read.parquet(str(initial)).groupBy("bucket")
    said = packed.groupBy("bucket").transformWithState(BucketProcessor(plan), OUTPUT_SCHEMA, "append", "none", held)
    lines = said.select("topic", F.explode(F.split("lines", "\n")).alias("line"))
    parts = lines.select("topic", F.split("line", "\t", 3).alias("part"))
    header = F.struct(F.lit(SENT_AT).alias("key"), F.col("part")[1].cast("binary").alias("value"))
    return parts.select(
        "topic",
        F.col("part")[0].alias("key"),
        F.col("part")[2].alias("value"),
        F.when(F.col("part")[1] != "", F.array(header)).alias("headers"),
    )


def started(rows: DataFrame, config: JobConfig, folder: str, name: str) -> StreamingQuery:
    """The running query with its checkpoint in `folder`, as fast as it will go."""
    writer = rows.writeStream.format("kafka").options(**config.spark_kafka).outputMode("append").queryName(name)
    return writer.option("checkpointLocation", folder).start()


def finish(query: StreamingQuery) -> None:
    """Stop the query between two batches."""
    running = _batch(query)
    deadline = time.monotonic() + _FINISH_SECONDS
    while (
        query.isActive and query.status["isTriggerActive"] and _batch(query) == running and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    query.stop()


def _batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
