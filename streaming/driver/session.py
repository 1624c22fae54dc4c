"""The Spark session of the job, with the settings that measured well for many small batches on a local disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightjar.ingestion.session import QUICK_COMPILER, common_settings, started
from nightjar.storage.objects import ObjectPath
from nightjar.streaming.config import JobConfig, JobError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Java compiles a method after 200 calls, which for code that runs once per batch is half a minute of slow batches; the
# interpreter asks for it every 128 calls by default. (The names say Tier3 where C1 is the only compiler, too.)
# Not among QUICK_COMPILER: nights were not measured with it.
_COMPILED_SOON = (
    "-XX:Tier0InvokeNotifyFreqLog=4",
    "-XX:Tier3InvocationThreshold=16",
    "-XX:Tier3MinInvocationThreshold=8",
    "-XX:Tier3CompileThreshold=32",
    "-XX:Tier3BackEdgeThreshold=4000",
)

# Tasks of a real-time batch wait most of the time, one for each partition; those of a micro-batch are few.
SLOTS = 1000

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A JVM whose Python process has ended stops by itself, after the batch at most.
_JVM_ENDS_SECONDS = 60.0
_LOOK_SECONDS = 0.2


def open_session(config: JobConfig, name: str = "nightjar") -> SparkSession:
    """The session, started.

    Raises:
        JobError: Java could not start it.
    """
    return started(spark_settings(config), config.checkpoint, name, JobError)


@contextmanager
def starting(config: JobConfig) -> Iterator[Future[SparkSession]]:
    """The session while it starts, so that the caller can use those seconds; stopped at the end."""
    import pyspark.sql  # noqa: F401  if two threads imported it at once, one could find half of it
    from py4j.protocol import Py4JError

    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(open_session, config)
        pool.submit(lambda: _start_python(session.result()))
        try:
            yield session
        finally:
            if session.exception() is None:
                with suppress(Py4JError, OSError):  # a JVM that has ended cannot be called
                    session.result().stop()


def _start_python(session: SparkSession) -> None:
    """Start a Python worker, and with it the process that all are forked from, whose imports take seconds."""
    rows = session.range(1, numPartitions=1).mapInArrow(_unchanged, "id bigint")
    rows.write.format("noop").mode("overwrite").save()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def held_by_jvm(session: SparkSession, file: Path) -> Iterator[None]:
    """Have the session's JVM hold a lock on the file inside the block: it may outlive a killed Python process, and
    continue to write for a moment.

    Raises:
        JobError: another JVM still holds it after a minute.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    jvm: Any = session._jvm  # noqa: SLF001  PySpark has no other way in
    opened = jvm.java.io.RandomAccessFile(str(file.resolve()), "rw")
    try:
        until = time.monotonic() + _JVM_ENDS_SECONDS
        while opened.getChannel().tryLock() is None:
            if time.monotonic() > until:
                raise JobError(
                    "the JVM of an earlier job does not end",
                    where=f"lock {file}",
                    remedy="Find it with `jps -l` and kill it; the checkpoint is as it should be",
                )
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        opened.close()


def spark_settings(config: JobConfig) -> dict[str, str]:
    """Every Spark setting the job depends on."""
    return (
        common_settings(config.spark, config.checkpoint, (*QUICK_COMPILER, *_COMPILED_SOON))
        | _slots(config)
        | {
            "spark.sql.shuffle.partitions": str(config.shuffle_partitions),
            "spark.sql.adaptive.enabled": "false",
            # A task must not run where its input was written: places.py decides where.
            "spark.shuffle.reduceLocality.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
            "spark.sql.streaming.minBatchesToRetain": "20",
            "spark.sql.streaming.numRecentProgressUpdates": "64",
            # Without data the job would request offsets from the brokers a hundred times per second.
            "spark.sql.streaming.pollingDelay": "20ms",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
        }
        | ({} if isinstance(config.checkpoint, ObjectPath) else {_MANAGER: _CHECKPOINTING})
        | dict(config.spark.conf)
    )


def _slots(config: JobConfig) -> dict[str, str]:
    """On one machine, a master with enough slots, and as many tries of a task as it had."""
    master, _, tries = config.spark.master.partition(",")
    if not master.startswith("local"):
        return {}
    # otherwise Spark would divide local data into as many partitions
    few = {"spark.default.parallelism": str(config.shuffle_partitions)}
    return few | {"spark.master": f"local[{SLOTS},{tries}" if tries else f"local[{SLOTS}]"}
