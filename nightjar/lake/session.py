"""Starts the Spark session of the lake's jobs, with Delta and settings for few large batches."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from nightjar.ingestion.session import QUICK_COMPILER, common_settings, started
from nightjar.lake.config import LakeConfig, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(config: LakeConfig, name: str = "nightjar-lake") -> SparkSession:
    """Start the session, or return the one already running.

    Raises:
        LakeError: Java could not start it.
    """
    return started(spark_settings(config), config.root, name, LakeError)


def spark_settings(config: LakeConfig) -> dict[str, str]:
    """Every Spark setting the lake's jobs depend on."""
    # most of a backfill's JVM code runs once, because Python workers process the rows
    settings = common_settings(config.spark, config.root, QUICK_COMPILER) | {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A table's log is small; Delta's default of fifty tasks takes longer than reading it.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # others read INT96 as nanoseconds
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.pyspark.python": sys.executable,
    }
    if config.spark.master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    return settings | dict(config.spark.conf)
