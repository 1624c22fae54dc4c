"""A few micro-batches before traffic, so that the first real ones do not wait for compilers.

They run through the same steps, from Kafka to Kafka, on a temporary checkpoint: the JVM compiles what it runs often,
the Python workers import their libraries and load the Numba kernels. They read the newest event of each partition, and
made-up events from one of Spark's sources; they write, and read again, clocks of no effect.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog
from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses
from pyspark.sql import types as T  # noqa: N812

from nightjar.contracts import rule_status
from nightjar.contracts.clock import Clock
from nightjar.contracts.json_text import ascii_json
from nightjar.ingestion.kafka_source import record_columns
from nightjar.rules.functions import Function
from nightjar.rules.rulebook import Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import iso_text
from nightjar.rules.types import FieldType, Kind
from nightjar.storage.paths import AnyPath, remove_tree, spark_name
from nightjar.streaming.buckets.output_records import RECORDS
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketTasks
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.answering import answer_to
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.query import evaluated, finish, kafka_records, newest_offsets, packer_of, started
from nightjar.streaming.driver.stages import Stages
from nightjar.streaming.real_time.engine_process import WarmUp
from nightjar.streaming.real_time.frames import as_records, table

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql import Column, DataFrame, SparkSession

_log = structlog.get_logger(__name__)

_ROWS = 64
# Events of the groups that warm up an engine process.
_GROUPS = (1, 20, 300, 2, 40)
# Rows from this on have values that the engine stores differently: numbers beyond 32 bits, and NULL where allowed.
_OTHERS_FROM = 2 * _ROWS
_BEYOND_32_BITS = 1 << 32
# In a record, before the number of the field whose value stands there.
_PLACE = "nightjar-warm-up:"
_HEADERS = "array<struct<key string, value binary>>"

# A slow machine needs a second per batch; beyond this (seconds) real traffic may compile the rest.
_AT_MOST = 60.0


def warm_up(session: SparkSession, config: JobConfig, places: Places, consumer: KafkaConsumer) -> None:
    """Run `config.warm_up_batches` micro-batches. consumer: looks up offsets."""
    if not config.warm_up_batches:
        return
    began = time.monotonic()
    config = replace(config, streams={name: stream.as_json() for name, stream in config.streams.items()})
    keys = tuple(RuleBook(config.streams).shuffle_keys)
    config = replace(config, buckets=buckets_for(config.shuffle_partitions, keys))
    rules = made_up_rules(config.streams, keys)
    name = f"warm-up-{uuid.uuid4().hex}"
    # The job's sources come first, and clocks in both: Spark numbers the parts of the code that it generates, without
    # the sources that have no data in a batch, and compiles the code of each number by itself.
    real = kafka_records(session, config, _ROWS, newest_offsets(config, consumer), also=[config.topics.clock])
    records = real.unionByName(record_columns(_records(session, config)))
    # beside the checkpoint, which every machine sees
    prefix = f".{config.checkpoint.name}.warm-up-"
    config.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    for killed in config.checkpoint.parent.glob(f"{prefix}*"):
        remove_tree(killed)
    with _temporary(config.checkpoint.with_name(f"{prefix}{uuid.uuid4().hex[:8]}")) as folder:
        plan = BucketPlan(name, name, folder / "state", config.streams, keys, config.buckets, config.topics, rules)
        tasks = BucketTasks.of(plan, config.shuffle_partitions)
        clocks = _Clocks(tasks, config.topics.clock, Clock(name, {}).encoded().decode())
        stages = Stages(one_machine=places.one_machine).number
        rows = evaluated(records, config, packer_of(config, keys), clocks.run, places, stages=stages)
        query = started(rows, config, spark_name(folder / "query"), name)
        while query.isActive and time.monotonic() - began < _AT_MOST:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] + 2 >= config.warm_up_batches:
                break  # the running one is the last
            query.awaitTermination(0.02)  # type: ignore[arg-type]  # fractions of a second work
        finish(query)
    _log.info("warm", seconds=round(time.monotonic() - began, 1))


@dataclass(frozen=True)
class _Clocks:
    """Runs a plan's tasks, and writes a clock of no effect instead of their records. (Not with Spark's expressions: the
    code that Spark generates for the sink would differ from the job's.)"""

    tasks: BucketTasks
    topic: str
    clock: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's packed rows (PACKED_SCHEMA) to at most one row of OUTPUT_SCHEMA."""
        if sum(batch.num_rows for batch in self.tasks.run(batches)):
            yield pa.RecordBatch.from_pylist([{"topic": self.topic, "value": self.clock}], schema=RECORDS)


@contextmanager
def _temporary(folder: AnyPath) -> Iterator[AnyPath]:
    try:
        yield folder
    finally:
        remove_tree(folder)


def _records(session: SparkSession, config: JobConfig) -> DataFrame:
    now = int(time.time() * 1000)
    source = session.readStream.format("rate-micro-batch").options(
        rowsPerBatch=str(_ROWS), numPartitions="1", startTimestamp=str(now), advanceMillisPerBatch="200"
    )
    return made_up(source.load(), recorded_streams(config.streams.values()))


def engine_warm_up(config: JobConfig) -> WarmUp | None:
    """What warms up the engine process of a real-time query: rules that use every function, on a few groups of events;
    None if nothing is to be."""
    if not config.warm_up_batches:
        return None
    config = replace(config, streams={name: stream.as_json() for name, stream in config.streams.items()})
    keys = tuple(RuleBook(config.streams).shuffle_keys)
    name = f"warm-up-{uuid.uuid4().hex}"
    rules = made_up_rules(config.streams, keys)
    plan = BucketPlan(name, name, Path(), config.streams, keys, 1, config.topics, rules)
    groups, at = [], 0
    for rows in [*_GROUPS] * 2:
        numbers = range(at, at + rows)
        at += rows
        groups += [_made_up_group(stream, numbers) for stream in recorded_streams(config.streams.values())]
    return WarmUp(plan, packer_of(replace(config, buckets=1), keys), tuple(groups))


def _made_up_group(stream: Stream, numbers: Sequence[int]) -> pa.Table:
    """Events as frames.SCHEMA."""
    now = time.time_ns() // 1000
    events = ({name: _made_up_value(stream, name, number, now) for name in stream.recorded} for number in numbers)
    made = zip(numbers, events, strict=True)
    records = [Record(number, now, ascii_json(stream.record(event))) for number, event in made]
    return table([as_records(stream.topic, records)])


def _made_up_value(stream: Stream, name: str, number: int, now: int) -> object:
    """As `_value`, in Python."""
    kind = stream.fields[name]
    match kind.kind:
        case Kind.STRING:
            return f"w{number if name == stream.event_id else number % 10}"
        case Kind.TIMESTAMP:
            return iso_text(now) if name in stream.times else now // 1000
        case Kind.DECIMAL:
            return number % 10
        case Kind.INT64:
            return number
        case Kind.DOUBLE:
            return number + 0.5
        case Kind.BOOLEAN:
            return number % 2 == 0


def made_up(rows: DataFrame, streams: Sequence[Stream]) -> DataFrame:
    """An event for each row of `timestamp` and `value` (its number), as a record of the Kafka source."""
    number = F.col("value")
    topic, value = F.lit(None).cast("string"), F.lit(None).cast("string")
    for at, stream in enumerate(streams):
        mine = number % len(streams) == at
        topic = F.when(mine, F.lit(stream.topic)).otherwise(topic)
        value = F.when(mine, _record(stream)).otherwise(value)
    return rows.select(
        topic.alias("topic"),
        F.lit(0).alias("partition"),
        number.alias("offset"),
        F.col("timestamp"),
        value.cast("binary").alias("value"),
        F.lit(None).cast(_HEADERS).alias("headers"),
    )


def _record(stream: Stream) -> Column:
    """The JSON of an event, its values at their places."""
    names = list(stream.recorded)
    form = ascii_json(stream.record({name: f"{_PLACE}{at}" for at, name in enumerate(names)})).decode()
    parts = re.split(f'"{_PLACE}([0-9]+)"', form)
    return F.concat(*(_field(stream, names[int(part)]) if at % 2 else F.lit(part) for at, part in enumerate(parts)))


def _field(stream: Stream, name: str) -> Column:
    """The JSON of a value."""
    kind, number = stream.fields[name], F.col("value")
    made = _value(kind, number, of_each=name == stream.event_id)
    if name in stream.times:
        made = F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    text = made.cast("string")
    if kind.kind is Kind.STRING or name in stream.times:
        text = F.concat(F.lit('"'), text, F.lit('"'))
    if name not in stream.optional:
        return text
    return F.when((number < _OTHERS_FROM) | (F.floor(number / 8) % 2 == 0), text).otherwise(F.lit("null"))


def _value(kind: FieldType, number: Column, *, of_each: bool) -> Column:
    """of_each: values unique to each number."""
    other = number >= _OTHERS_FROM
    match kind.kind:
        case Kind.STRING:
            return F.concat(F.lit("w"), number if of_each else number % 10)
        case Kind.TIMESTAMP:
            return F.unix_millis("timestamp")
        case Kind.DECIMAL:
            largest = min(_BEYOND_32_BITS, 10**kind.precision - 1)
            unscaled = F.when(other, F.lit(largest)).otherwise(F.lit(1)).cast(T.DecimalType(20, 0))
            return (unscaled / F.lit(10**kind.scale)).cast(T.DecimalType(kind.precision, kind.scale))
        case Kind.INT64:
            return F.when(other, number + _BEYOND_32_BITS).otherwise(number)
        case Kind.DOUBLE:
            return number + F.lit(0.5)
        case Kind.BOOLEAN:
            return number % 2 == 0


def buckets_for(partitions: int, shuffle_keys: Sequence[ShuffleKey]) -> int:
    """The fewest buckets per key that give each partition one: all run the same, but each in its own process."""
    return math.ceil(partitions / len(shuffle_keys))


def made_up_rules(streams: Mapping[str, Stream], shuffle_keys: Sequence[ShuffleKey]) -> tuple[Record, ...]:
    """The answers that accept a rule for each shuffle key."""
    return tuple(_answer(streams, key, offset) for offset, key in enumerate(shuffle_keys))


def _answer(streams: Mapping[str, Stream], key: ShuffleKey, offset: int) -> Record:
    book = RuleBook(streams)
    message = Record(offset, 0, ascii_json(_rule(streams[key.stream], key.field, offset)))
    _, value = answer_to(message, f"rules-0-{offset}", book, book.shuffle_keys, 0)
    return Record(offset, 0, rule_status.encoded(value))


def _rule(stream: Stream, field: str, number: int) -> dict[str, Any]:
    """A rule grouped by this field that uses every function and every kind of window. number: unique to the rule."""
    measures: dict[str, Any] = {
        f"w_{function}": {function.value: function.of(of), "over": "1h"}
        for function in Function
        if (of := _field_for(function, stream)) is not None
    }
    measures |= {
        "w_rows": {"count": "*", "over": "10m"},
        "w_episode": {"count": "*", "episode": "10m", "until": f"{stream.event_id} = 'w0'"},
        "w_day": {"count": "*", "calendar": "day"},
        "w_session": {"count": "*", "over": "10m", "session": "1m"},
        "w_delayed": {"count": "*", "over": "10m", "delay": "10m"},
        "w_delayed_here": {"count": "*", "over": "10m", "delay": "10m", "per": [stream.event_id]},
        "w_chain": {"sequence": [f"{stream.event_id} <> 'w0'", f"{stream.event_id} = 'w0'"], "over": "10m"},
        "w_others": {"last": stream.event_id, "over": "10m", "excluding_current": True},
    }
    if field != stream.event_id:
        measures["w_steps"] = {"count": "*", "over": "1d", "resolution": "1h"}
    return {
        "id": f"warm-up-{number}",
        "stream": stream.name,
        "group_by": [field],
        "measures": measures,
        "when": "w_rows > 2",
        "effective": "2000-01-01T00:00:00Z",
    }


def _field_for(function: Function, stream: Stream) -> str | None:
    names = (*stream.entities, *stream.fields)
    return next((name for name in names if stream.fields[name].kind in function.spec.takes), None)
