"""Kafka to the lake, incrementally and exactly once.

How it works: one Structured Streaming query reads all topics from where its checkpoint stands to their ends and stops.
Each of its batches is added to each table under the batch's number, which Delta adds only once, so that a batch that is
repeated after a crash repeats nothing. Only committed records are read: corrections are published in transactions.

What it does not do: drop duplicates or judge lateness; the tables hold what came.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from lake import delta
from lake.config import LakeConfig, LakeError
from lake.events import typed
from lake.records import JsonReader
from lake.stream_state import refuse_other_fields
from lake.tables import (
    ALERTS,
    COORDINATES,
    CORRECTIONS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RECONCILIATION,
    RULE_STATUS,
    RULES,
    RUNS,
    VIOLATIONS,
    Table,
    events_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = structlog.get_logger(__name__)

_CHECKPOINT = "_archive"
_WRITES_AT_ONCE = 3


@dataclass(frozen=True)
class Archived:
    """What one run of the archive brought: rows by table, and how long it took (s)."""

    seconds: float
    rows: Counter[str] = field(default_factory=Counter)


def make_tables(session: SparkSession, config: LakeConfig) -> None:
    """Create the tables that are not there yet, and add the columns that others lack.

    Raises:
        LakeError: the lake holds a stream with other fields than are declared, or data without a table.
    """
    for stream in config.streams.values():
        refuse_other_fields(config.root, stream)
    results = [VIOLATIONS, RECONCILIATION, CORRECTIONS, RUNS]
    tables = [*map(events_table, config.streams.values()), *_of_topics(config).values(), *results]
    with ThreadPoolExecutor(_WRITES_AT_ONCE) as pool:
        list(pool.map(lambda table: delta.make(session, config.root, table), tables))


def archive(session: SparkSession, config: LakeConfig, *, leave_out_deleted: bool = False) -> Archived:
    """Bring every topic to the lake, up to where they end now.

    leave_out_deleted: go on behind records that Kafka has deleted before they were archived.

    Raises:
        LakeError: the topics cannot be read, or hold no longer what was not archived yet.
    """
    from pyspark.errors import PySparkException, StreamingQueryException

    began = time.monotonic()
    make_tables(session, config)
    done = Archived(0)
    topics = [*(stream.topic for stream in config.streams.values()), *_of_topics(config)]
    try:
        reader = session.readStream.format("kafka").options(**config.spark_kafka)
        records = (
            reader.option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", str(config.max_offsets_per_batch))
            .option("failOnDataLoss", str(not leave_out_deleted).lower())
            .load()
        )
        writer = records.writeStream.foreachBatch(lambda batch, number: _add(config, batch, number, done.rows))
        writer = writer.option("checkpointLocation", str(config.root / _CHECKPOINT))
        writer.trigger(availableNow=True).start().awaitTermination()
    except (StreamingQueryException, PySparkException) as failure:
        raise _told(str(failure), config) from failure
    archived = Archived(round(time.monotonic() - began, 2), done.rows)
    _log.info("archived", seconds=archived.seconds, **archived.rows)
    return archived


def _told(failure: str, config: LakeConfig) -> LakeError:
    """What Spark says of a failed query, as an error of ours."""
    # the option that would have had Spark go on, which its text names wherever records are missing
    if "failOnDataLoss" in failure:
        reason = re.search(r"^Reason: (.+)", failure, re.MULTILINE)
        return LakeError(
            f"Kafka has deleted records before they were archived{': ' + reason[1] if reason else ''}",
            where=str(config.root),
            remedy="They are lost to the lake; keep records for longer (event_retention). "
            "`nightjar archive --leave-out-deleted` goes on with those that are left",
        )
    cause = failure.partition("=== Streaming Query ===")[0].strip()
    return LakeError(
        f"the archive failed: {cause[:2000]}",
        where=str(config.root),
        remedy="Once the cause is gone, run it again: it goes on where it was",
    )


def _of_topics(config: LakeConfig) -> dict[str, Table]:
    names = config.topics
    return {
        names.rules: RULES,
        names.rule_status: RULE_STATUS,
        names.alerts: ALERTS,
        names.late_events: LATE_EVENTS,
        names.quarantine: QUARANTINE,
        names.job_progress: PROGRESS,
    }


def _add(config: LakeConfig, batch: DataFrame, number: int, rows: Counter[str]) -> None:
    """Add one batch's records to every table."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    batch.persist()
    try:
        found = {row["topic"]: row["count"] for row in batch.groupBy("topic").count().collect()}
        writes: list[tuple[DataFrame, Table]] = []
        for stream in config.streams.values():
            if stream.topic in found:
                records = typed(batch.where(F.col("topic") == stream.topic), stream)
                writes.append((records, events_table(stream)))
                rows[events_table(stream).name] += found[stream.topic]
        placed = batch.withColumnsRenamed({"timestamp": "arrival_time"})
        placed = placed.withColumn("arrival_date", F.to_date("arrival_time")).select("topic", "value", *COORDINATES)
        for topic, table in _of_topics(config).items():
            if topic in found:
                records = placed.where(F.col("topic") == topic).drop("topic")
                read = records if table is RULES else records.mapInArrow(JsonReader(table), table.ddl)
                writes.append((read, table))
                rows[table.name] += found[topic]
        # Most of a small write is planning and committing, which leaves the processors to others.
        with ThreadPoolExecutor(_WRITES_AT_ONCE) as pool:
            list(pool.map(lambda write: _append(write[0], config, write[1], number), writes))
    finally:
        batch.unpersist()


def _append(rows: DataFrame, config: LakeConfig, table: Table, number: int) -> None:
    # few files a day and batch: without this, every task would write one into every day it meets
    if table.partitioned_by:
        rows = rows.repartition(*table.partitioned_by)
    delta.append(rows, config.root, table, _writer(config), number)


def _writer(config: LakeConfig) -> str:
    """The query's name for good: a checkpoint that was made anew counts its batches from 0 again."""
    metadata = json.loads((config.root / _CHECKPOINT / "metadata").read_text())
    return f"archive-{metadata['id']}"
