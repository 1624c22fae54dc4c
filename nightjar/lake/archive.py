"""Copies Kafka to the lake, incrementally and exactly once.

How it works: one Structured Streaming query reads all topics from its checkpoint to their ends, then stops. Each of its
batches is appended to each table under the batch's number, which Delta accepts only once, so a batch repeated after a
crash adds nothing. Only committed records are read, because corrections are published in transactions. Batches of
ordinary size are read and written by this process, because Spark would take many times as long to plan and commit each
table. Large batches, such as those of a first archive, are processed by Spark's tasks.

Before the archive looks up the topics' end offsets, it sends a marker record to the job-progress topic. The broker's
timestamp of that record is the progress of the completed run: every record that arrived earlier is in the lake. It is
stored in the table `archives`, so that whether a day is complete does not depend on a host's clock.

What it does not do: drop duplicates or determine lateness; the tables have every record.

Known limitation: a record in a producer's open transaction is archived by a later run, although its timestamp is before
the stored time.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import kafka.errors
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from kafka import KafkaProducer

from nightjar.contracts.job_progress import ARCHIVE_KEY, ARCHIVE_MARK
from nightjar.ingestion.kafka_source import SOURCE_OPTIONS, columns_beside
from nightjar.lake import delta
from nightjar.lake.config import LakeConfig, LakeError
from nightjar.lake.events import EventReader, placed
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.scanning import scan, scan_files
from nightjar.lake.stream_state import refuse_other_fields
from nightjar.lake.tables import (
    ALERTS,
    ARCHIVES,
    CORRECTIONS,
    FORGOTTEN,
    LABELS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RECONCILIATION,
    RESTRICTIONS,
    RULE_STATUS,
    RULES,
    RUNS,
    SNOOZES,
    TABLES,
    VIOLATIONS,
    Table,
    events_table,
)
from nightjar.rules.streams import recorded_streams, tables_of
from nightjar.rules.timestamps import from_microseconds, iso_text, microseconds
from nightjar.storage.paths import AnyPath, names_in, spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = structlog.get_logger(__name__)

_CHECKPOINT = "_archive"
_WRITES_AT_ONCE = 3
# µs. Each broker stamps records with its own clock, and a record gets its timestamp a moment before it can be read.
_MARGIN = 2_000_000
_SEND_SECONDS = 30
# The timestamp that a topic with producers' timestamps would return.
_NO_TIME_MS = 1


@dataclass(frozen=True)
class Archived:
    """The result of one run of the archive: rows by table, and its duration in seconds (None where a release did not
    note it). until: every record that arrived before this time (µs) is in the lake."""

    seconds: float | None
    until: int
    rows: Counter[str] = field(default_factory=Counter)


def make_tables(config: LakeConfig) -> None:
    """Create missing tables, and add missing columns to existing ones.

    Raises:
        LakeError: the lake has other fields for a stream than are declared, or a folder with data but without a table.
    """
    streams = recorded_streams(config.streams.values())
    for stream in streams:
        refuse_other_fields(config.root, stream)
    results = [VIOLATIONS, RECONCILIATION, CORRECTIONS, RUNS, ARCHIVES, FORGOTTEN]
    tables = [*map(events_table, streams), *_of_topics(config).values(), *results]
    for table in tables:
        delta.make(config.root, table)


def archive(session: SparkSession, config: LakeConfig, *, leave_out_deleted: bool = False) -> Archived:
    """Copy every topic to the lake, up to its current end.

    leave_out_deleted: skip records that Kafka deleted before they were archived, instead of failing.

    Raises:
        LakeError: the topics cannot be read, or Kafka has deleted records that were not archived yet.
    """
    from pyspark.errors import PySparkException, StreamingQueryException

    began = time.monotonic()
    make_tables(config)
    until = _send_marker(config)
    rows: Counter[str] = Counter()
    topics = [*(stream.topic for stream in recorded_streams(config.streams.values())), *_of_topics(config)]
    try:
        reader = session.readStream.format("kafka").options(**{**config.kafka.spark, **SOURCE_OPTIONS})
        records = (
            reader.option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(config.max_offsets_per_batch))
            .option("failOnDataLoss", str(not leave_out_deleted).lower())
            .load()
        )
        writer = records.writeStream.foreachBatch(lambda batch, number: _add(config, batch, number, rows))
        writer = writer.option("checkpointLocation", spark_name(config.root / _CHECKPOINT))
        writer.trigger(availableNow=True).start().awaitTermination()
    except (StreamingQueryException, PySparkException) as failure:
        raise _as_lake_error(str(failure), config) from failure
    archived = Archived(round(time.monotonic() - began, 2), until, rows)
    _record_progress(config, archived)
    _log.info("archived", seconds=archived.seconds, until=iso_text(until), **rows)
    return archived


def archived_until(root: AnyPath) -> int | None:
    """The time (µs, by the brokers' timestamps) before which every arrival is in the lake; None if unknown."""
    if not delta.exists(root, ARCHIVES):
        return None
    until: int | None = scan(root, ARCHIVES).select(pl.col("until").dt.epoch("us").max()).collect().item()
    return until


@dataclass(frozen=True)
class ArchiveRuns:
    """The first and the last run of the archive. first: before this time (µs) every arrival was in the lake after the
    first run, in whole milliseconds."""

    first: int
    last: Archived


def archive_runs(root: AnyPath) -> ArchiveRuns | None:
    """The archive's runs so far, None if there is none. Of the table's files it reads the newest one only."""
    if not delta.exists(root, ARCHIVES) or not (spans := delta.spans_of_files(root, ARCHIVES, "until")):
        return None
    newest, *_ = max(spans, key=lambda span: span[2])
    row = scan_files(ARCHIVES, [newest]).sort("until").tail(1).collect().row(0, named=True)
    last = Archived(row["seconds"], microseconds(row["until"]), Counter(json.loads(row["rows"])))
    return ArchiveRuns(min(low for _, low, _ in spans), last)


def archived_offsets(root: AnyPath) -> dict[str, dict[int, int]]:
    """Topic -> partition -> the offset after the last record that is in the lake; empty if the archive never ran."""
    folder = root / _CHECKPOINT
    done = [int(name) for name in names_in(folder / "commits") if name.isdigit()]
    if not done:
        return {}
    # a line with the version, one with Spark's settings, then the offsets of the only source
    lines = (folder / "offsets" / str(max(done))).read_text().splitlines()
    offsets = json.loads(lines[2])
    return {topic: {int(partition): offset for partition, offset in of.items()} for topic, of in offsets.items()}


def query_id(config: LakeConfig) -> str:
    """The id of the archive's query: unique per lake, and new if its checkpoint was removed.

    Raises:
        LakeError: the archive has never run.
    """
    file = config.root / _CHECKPOINT / "metadata"
    try:
        return str(json.loads(file.read_text())["id"])
    except OSError:
        raise LakeError("the archive has never run", where=str(config.root), remedy="Run `nightjar archive`") from None


def _send_marker(config: LakeConfig) -> int:
    """Send the archive's marker record; return the broker's timestamp of it (µs) minus the margin."""
    topic = config.topics.job_progress
    try:
        producer = KafkaProducer(
            acks="all", allow_auto_create_topics=False, max_block_ms=_SEND_SECONDS * 1000, **config.kafka.python
        )
        try:
            mark = producer.send(topic, ARCHIVE_MARK, key=ARCHIVE_KEY, timestamp_ms=_NO_TIME_MS)
            sent = mark.get(_SEND_SECONDS)
        finally:
            producer.close(_SEND_SECONDS)
    except kafka.errors.KafkaError as failure:
        raise LakeError(
            f"the archive's marker record could not be sent: {failure or type(failure).__name__}",
            where=f"topic {topic}",
            remedy="Check that Kafka responds, that the topic exists (`nightjar up` creates it), and that the archive "
            "may write to it",
        ) from failure
    if sent.timestamp == _NO_TIME_MS:
        raise LakeError(
            "its timestamps are set by producers, so they do not show the archive's progress",
            where=f"topic {topic}",
            remedy="Set message.timestamp.type to LogAppendTime",
        )
    return int(sent.timestamp) * 1000 - _MARGIN


def _record_progress(config: LakeConfig, archived: Archived) -> None:
    row = {
        "finished_at": datetime.now(UTC),
        "until": from_microseconds(archived.until),
        "rows": json.dumps(archived.rows),
        "seconds": archived.seconds,
    }
    new = pa.Table.from_pylist([row], ARCHIVES.arrow)
    delta.add(config.root, ARCHIVES, new, f"{_writer(config)}-until", archived.until)


def _as_lake_error(failure: str, config: LakeConfig) -> LakeError:
    """What Spark says of a failed query, as an error of ours."""
    # the option that would have had Spark go on, which its text names wherever records are missing
    if "failOnDataLoss" in failure:
        reason = re.search(r"^Reason: (.+)", failure, re.MULTILINE)
        return LakeError(
            f"Kafka has deleted records before they were archived{': ' + reason[1] if reason else ''}",
            where=str(config.root),
            remedy="They are lost to the lake; keep records for longer (event_retention). "
            "`nightjar archive --leave-out-deleted` continues with the remaining ones",
        )
    if (refused := re.search(r"Not authorized to access topics: \[(.*?)\]", failure)) is not None:
        return LakeError(
            f"Kafka refuses the archive access to topic {refused[1]}",
            where=str(config.root),
            remedy="An administrator can grant it: `nightjar topics` shows which access the backfill needs, `nightjar "
            "topics grant` grants it",
        )
    cause = failure.partition("=== Streaming Query ===")[0].strip()
    return LakeError(
        f"the archive failed: {cause[:2000]}",
        where=str(config.root),
        remedy="Run it again once the cause is fixed: it resumes where it stopped",
    )


def _of_topics(config: LakeConfig) -> dict[str, Table]:
    names = config.topics
    return {
        names.rules: RULES,
        names.rule_status: RULE_STATUS,
        names.alerts: ALERTS,
        names.restrictions: RESTRICTIONS,
        names.late_events: LATE_EVENTS,
        names.quarantine: QUARANTINE,
        names.job_progress: PROGRESS,
        names.labels: LABELS,
        names.snoozes: SNOOZES,
        **({names.tables: TABLES} if tables_of(config.streams) else {}),
    }


def _readers(config: LakeConfig) -> dict[str, tuple[Table, EventReader | JsonReader | None]]:
    """By topic the table of its records and the reader that parses them; None if the records are stored unparsed."""
    streams = {
        stream.topic: (events_table(stream), EventReader(stream, config.schemas))
        for stream in recorded_streams(config.streams.values())
    }
    others = _of_topics(config).items()
    return {
        **streams,
        **{topic: (table, None if table in (RULES, TABLES) else JsonReader(table)) for topic, table in others},
    }


def _add(config: LakeConfig, batch: DataFrame, number: int, rows: Counter[str]) -> None:
    """Add one batch's records to every table."""
    from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

    config.refuse_overtaken()  # after Spark has logged the batch, so that whoever takes over repeats it
    batch.persist()
    try:
        beside = columns_beside(config.streams.values())
        read = [F.coalesce(F.octet_length(F.col(name).cast("string")), F.lit(0)) for name in ("value", *beside)]
        counted = batch.groupBy("topic").agg(F.count(F.lit(1)), F.sum(sum(read, F.lit(0))))
        sizes = [tuple(row) for row in counted.collect()]
        records = placed(batch, "topic", *beside)
        if sum(size for _, _, size in sizes) <= config.max_driver_bytes:
            _add_here(config, records.toArrow(), number, rows)
            return
        writes: list[tuple[DataFrame, Table]] = []
        readers = _readers(config)
        for topic, count, _ in sizes:
            table, reader = readers[topic]
            mine = records.where(F.col("topic") == topic).drop("topic")
            writes.append((mine.drop(*beside) if reader is None else mine.mapInArrow(reader, table.ddl), table))
            rows[table.name] += count
        # A write is mostly planning and committing, which leaves processors idle, so several run at once.
        with ThreadPoolExecutor(_WRITES_AT_ONCE) as pool:
            list(pool.map(lambda write: _append(write[0], config, write[1], number), writes))
    finally:
        batch.unpersist()


def _add_here(config: LakeConfig, records: pa.Table, number: int, rows: Counter[str]) -> None:
    """Add one batch's records, already in this process, to every table."""
    for topic, (table, reader) in _readers(config).items():
        mine = records.filter(pc.equal(records.column("topic"), topic)).drop_columns("topic")
        if not mine.num_rows:
            continue
        batches = mine.combine_chunks().to_batches()
        read = pa.Table.from_batches(batches if reader is None else reader(iter(batches)))
        delta.add(config.root, table, read.select(list(table.columns)).cast(table.arrow), _writer(config), number)
        rows[table.name] += mine.num_rows


def _append(rows: DataFrame, config: LakeConfig, table: Table, number: int) -> None:
    # Few files per day and batch: otherwise every task would write one file for each of its days.
    if table.partitioned_by:
        rows = rows.repartition(*table.partitioned_by)
    delta.append(rows, config.root, table, _writer(config), number)


def _writer(config: LakeConfig) -> str:
    """The writer's name, unique per checkpoint: a recreated checkpoint numbers its batches from 0 again."""
    return f"archive-{query_id(config)}"
