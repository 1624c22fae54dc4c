"""The query from end to end: Kafka, packer, buckets, Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from nightjar.ingestion.kafka_source import REAL_TIME_OPTIONS, SOURCE_OPTIONS, columns_beside, record_columns
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.streams import recorded_streams
from nightjar.streaming.buckets.output_records import OUTPUT_SCHEMA
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import PACKED_SCHEMA
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.places import Places

if TYPE_CHECKING:
    import pyarrow as pa
    from kafka import KafkaConsumer
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

# Packed rows (PACKED_SCHEMA) to records (OUTPUT_SCHEMA).
Evaluate = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

# How long a clean stop waits for the running batch (seconds); then Spark interrupts it, and repeats it later.
_FINISH_SECONDS = 120.0

# Spark's numbers for a partition's beginning and its end.
_EARLIEST, _LATEST = -2, -1


def event_topics(config: JobConfig) -> list[str]:
    """The topics of events."""
    return [stream.topic for stream in recorded_streams(config.streams.values())]


def result_topics(config: JobConfig) -> list[str]:
    """The topics that buckets write to."""
    topics = config.topics
    return [
        topics.alerts,
        topics.restrictions,
        topics.late_events,
        topics.quarantine,
        topics.rule_status,
        topics.job_progress,
    ]


def control_topics(config: JobConfig) -> list[str]:
    """The topics of answers to rule messages, of clocks, and of changes of tables if some are declared."""
    return [config.topics.rule_status, config.topics.clock, *([config.topics.tables] if config.tables else [])]


def starting_offsets(config: JobConfig, consumer: KafkaConsumer, begins: Mapping[str, Mapping[int, int]]) -> str:
    """Where a checkpoint without a batch begins, in Spark's format; others are read from their beginning.

    Spark uses it in the first batch only.
    """
    topics = _partitions(config, consumer)
    return json.dumps({t: {p: begins.get(t, {}).get(p, _EARLIEST) for p in of} for t, of in topics.items()})


def newest_offsets(config: JobConfig, consumer: KafkaConsumer) -> str:
    """The newest record of each partition of events, and the end of the control topics, in Spark's format."""
    topics = _partitions(config, consumer)
    newest = {topic: dict.fromkeys(partitions, _LATEST) for topic, partitions in topics.items()}
    places = [TopicPartition(topic, partition) for topic in event_topics(config) for partition in topics[topic]]
    begins = beginning_offsets(consumer, places)
    for place, end in end_offsets(consumer, places).items():
        newest[place.topic][place.partition] = max(begins[place], end - 1)
    return json.dumps(newest)


def _partitions(config: JobConfig, consumer: KafkaConsumer) -> dict[str, list[int]]:
    """The partitions of each topic that the query reads."""
    topics = [*event_topics(config), *control_topics(config)]
    return {topic: sorted(consumer.partitions_for_topic(topic) or ()) for topic in topics}


def packer_of(config: JobConfig, shuffle_keys: tuple[ShuffleKey, ...], dropped: frozenset[int] = frozenset()) -> Packer:
    """The packer of a job with these shuffle keys, of which those with the `dropped` numbers are out of use."""
    return Packer(
        config.streams,
        shuffle_keys,
        config.buckets,
        config.shuffle_partitions,
        config.topics.rule_status,
        config.topics.clock,
        config.topics.quarantine,
        config.arrival == "broker",
        dropped,
        config.schemas,
        config.topics.tables if config.tables else None,
    )


def kafka_records(
    session: SparkSession, config: JobConfig, most: int | None, begins: str = "earliest", also: Sequence[str] = ()
) -> DataFrame:
    """What the packer reads: events and the job's control records, each from the checkpoint's position.

    Columns: topic, partition, offset, timestamp, value and sent_at (bigint, µs, of the header, or NULL), and the key
    and the headers if a stream reads them.

    most: records of a micro-batch; None: a real-time batch is not limited. begins: where a checkpoint without a batch
    begins, in the format of `startingOffsets`. also: further topics to read with the events.

    Events and control records are two sources, and events the first: Spark reads their end offsets in this order, so
    that an answer older than an event is in the same batch at the latest. The limit on a batch never delays control
    records, however far behind the job is.
    """
    topics = [*event_topics(config), *also], control_topics(config)
    begins_of = [begins] * 2 if begins == "earliest" else _begins(json.loads(begins), topics)
    events = event_records(session, config, most, begins_of[0], also)
    options = SOURCE_OPTIONS if most is not None else REAL_TIME_OPTIONS
    # Old clocks are useless, and may have been deleted; the driver makes sure that no answer has been.
    control = _source(session, config, topics[1], begins_of[1], {**options, "failOnDataLoss": "false"})
    beside = columns_beside(config.streams.values())
    return record_columns(events, beside).unionByName(record_columns(control.load(), beside))


def event_records(
    session: SparkSession, config: JobConfig, most: int | None, begins: str = "earliest", also: Sequence[str] = ()
) -> DataFrame:
    """The records of the event topics as Kafka has them; most, also: as in kafka_records."""
    options = REAL_TIME_OPTIONS if most is None else {**SOURCE_OPTIONS, "maxOffsetsPerTrigger": str(most)}
    return _source(session, config, [*event_topics(config), *also], begins, options).load()


def _source(
    session: SparkSession, config: JobConfig, topics: Sequence[str], begins: str, options: Mapping[str, str]
) -> DataStreamReader:
    reader = session.readStream.format("kafka").options(**{**config.kafka.spark, **options})
    return reader.option("subscribe", ",".join(topics)).option("startingOffsets", begins)


def _begins(of_topic: dict[str, Any], sources: Iterable[Sequence[str]]) -> list[str]:
    return [json.dumps({topic: of_topic[topic] for topic in topics}) for topics in sources]


def evaluated(
    records: DataFrame, config: JobConfig, packer: Packer, evaluate: Evaluate, places: Places, *, stages: int
) -> DataFrame:
    """Kafka records to sink rows (OUTPUT_SCHEMA).

    evaluate: what a task of the buckets runs. stages: 1: one task packs and passes on a whole batch, on one machine; 2:
    several tasks do either, with a shuffle between them.
    """
    if stages == 1:
        return records.coalesce(1).mapInArrow(lambda batches: evaluate(packer.pack(batches)), OUTPUT_SCHEMA)
    packed = records.coalesce(config.shuffle_partitions).mapInArrow(packer.pack, PACKED_SCHEMA)
    return places.of(packed).mapInArrow(evaluate, OUTPUT_SCHEMA)


def bridged(records: DataFrame, path: str) -> DataFrame:
    """Kafka records to sink rows, by the engine process that listens on the socket of this path."""
    session = records.sparkSession
    jvm: Any = session._jvm  # noqa: SLF001  PySpark has no other way to an operator of the JVM's
    columns = records.withColumn("timestamp", F.unix_micros("timestamp"))
    encoder = jvm.org.apache.spark.sql.Encoders.row(jvm.org.apache.spark.sql.types.StructType.fromDDL(OUTPUT_SCHEMA))
    bridge = jvm.nightjar.EngineBridge(path, "key" in records.columns, "headers" in records.columns)
    return DataFrame(columns._jdf.mapPartitions(bridge, encoder), session)  # noqa: SLF001


def started(rows: DataFrame, config: JobConfig, folder: str, name: str, *, only_one: bool = False) -> StreamingQuery:
    """The running query with its checkpoint in `folder`; each batch starts right after the one before. only_one: it
    ends after the first, which is the one that was not committed, if there is one."""
    writer = _writer(rows, config, folder, name).outputMode("append")
    return (writer.trigger(once=True) if only_one else writer).start()


def started_in_real_time(rows: DataFrame, config: JobConfig, folder: str, name: str, seconds: float) -> StreamingQuery:
    """The running query, of which a batch lasts so long and publishes meanwhile."""
    writer = _writer(rows, config, folder, name).outputMode("update")
    trigger: Any = writer.trigger  # its declaration lacks `realTime`
    query: StreamingQuery = trigger(realTime=f"{round(1000 * seconds)} milliseconds").start()
    return query


def _writer(rows: DataFrame, config: JobConfig, folder: str, name: str) -> DataStreamWriter:
    writer = rows.writeStream.format("kafka").options(**config.kafka.spark).queryName(name)
    return writer.option("checkpointLocation", folder)


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
