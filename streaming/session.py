"""The Spark session of the job, with the settings that measured well for many small batches on a local disk."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from streaming.config import JobConfig, JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Hadoop's local file system starts a `chmod` process for every file it makes; this one sets the permission itself.
LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
LOCAL_FILES_JAR = "hadoop-bare-naked-local-fs-"


# See that module; by name, so that the driver does not import it.
PYTHON_DAEMON = "streaming.python_daemon"


def open_session(config: JobConfig, name: str = "nightjar") -> SparkSession:
    """The session, started.

    Raises:
        JobError: Java could not start it.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(config.master)
    for key, value in spark_settings(config).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as failure:
        raise JobError(
            f"Spark could not be started ({failure})", where=config.master, remedy="It needs Java 17: see its log above"
        ) from failure
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_settings(config: JobConfig) -> dict[str, str]:
    """Every Spark setting the job depends on."""
    local = config.master.startswith("local")
    jars = [str(jar) for jar in config.jars]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": config.driver_memory,
        # VFORK: a fork of a JVM copies its page tables.
        "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
        "spark.sql.shuffle.partitions": str(config.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": PYTHON_DAEMON,
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTING,
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "64",
        # Without data the job would ask the brokers for their offsets a hundred times a second.
        "spark.sql.streaming.pollingDelay": "20ms",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    if local:
        # On the class path from the start: Hadoop looks for its file systems before `spark.jars` are there.
        settings["spark.driver.extraClassPath"] = os.pathsep.join(jars)
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        if any(LOCAL_FILES_JAR in jar for jar in jars):
            settings["spark.hadoop.fs.file.impl"] = LOCAL_FILES
    else:
        settings["spark.jars"] = ",".join(jars)
    return settings
