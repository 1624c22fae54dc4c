"""The Spark session of the lake's jobs: Delta, and settings for few large batches."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lake.config import LakeConfig, LakeError
from streaming.session import LOCAL_FILES, LOCAL_FILES_JAR, PYTHON_DAEMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(config: LakeConfig, name: str = "nightjar-lake") -> SparkSession:
    """The session, started; the one that runs already where there is one.

    Raises:
        LakeError: Java could not start it.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in spark_settings(config).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as failure:
        raise LakeError(
            f"Spark could not be started ({failure})", where=config.master, remedy="It needs Java 17: see its log above"
        ) from failure
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_settings(config: LakeConfig) -> dict[str, str]:
    """Every Spark setting the lake's jobs depend on; what spark-submit is given too."""
    jars = [str(jar) for jar in config.jars]
    settings = {
        "spark.master": config.master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": config.driver_memory,
        # VFORK: a fork of a JVM copies its page tables.
        "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A table's log is small: fifty tasks, Delta's default, would take longer than reading it.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # else nanoseconds, to everybody but Spark
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": PYTHON_DAEMON,
        "spark.pyspark.python": sys.executable,
    }
    if config.master.startswith("local"):
        # On the class path from the start: Hadoop looks for its file systems before `spark.jars` are there.
        settings["spark.driver.extraClassPath"] = os.pathsep.join(jars)
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        if any(LOCAL_FILES_JAR in jar for jar in jars):
            settings["spark.hadoop.fs.file.impl"] = LOCAL_FILES
    else:
        settings["spark.jars"] = ",".join(jars)
    return settings
