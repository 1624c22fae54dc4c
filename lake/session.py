"""The Spark session of the lake's jobs: Delta, and settings for few large batches."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ingestion.session import QUICK_COMPILER, common_settings, started
from lake.config import LakeConfig, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Alone: most that a night has Spark do runs once; rows are worked on by Python workers. With one compiler Java reserves
# too little room for what the JVM's planning and Delta compile to.
_COMPILER = (*QUICK_COMPILER, "-XX:ReservedCodeCacheSize=256m")


def open_session(config: LakeConfig, name: str = "nightjar-lake") -> SparkSession:
    """The session, started; the one that runs already where there is one.

    Raises:
        LakeError: Java could not start it.
    """
    return started(spark_settings(config), name, LakeError)


def spark_settings(config: LakeConfig) -> dict[str, str]:
    """Every Spark setting the lake's jobs depend on."""
    settings = common_settings(config.master, config.driver_memory, config.jars, (*_COMPILER, *config.java_options)) | {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A table's log is small: fifty tasks, Delta's default, would take longer than reading it.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # else nanoseconds, to everybody but Spark
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.pyspark.python": sys.executable,
    }
    if config.master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    return settings | dict(config.spark_conf)
