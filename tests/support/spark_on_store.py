"""Uses the lake of the settings with Spark, and prints as JSON what came of it; a process of its own, because a JVM
keeps the file systems, and the class path, that it was started with."""

from __future__ import annotations

import json
import sys
from datetime import date
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import load_settings
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.session import open_session
from nightjar.lake.tables import QUARANTINE
from nightjar.rules.streams import load_streams
from nightjar.storage.paths import AnyPath, spark_name


def main() -> None:
    """Write with Spark and delta-rs in turn, read with Spark and Polars, and follow the table with a query."""
    config = lake_config(load_settings(), load_streams())
    session, root = open_session(config), config.root
    jvm: Any = session.sparkContext._gateway
    found: dict[str, Any] = {"command": psutil.Process(jvm.proc.pid).cmdline()}
    delta.make(root, QUARANTINE)
    rows = pa.Table.from_pylist(
        [dict.fromkeys(QUARANTINE.columns) | {"arrival_date": date(2026, 1, 1)}] * 3, QUARANTINE.arrow
    )
    frame = session.createDataFrame(rows)
    for number in (1, 2, 2):  # the last one is a repetition
        delta.append(frame, root, QUARANTINE, "spark", number)
    found["copied"] = [_followed(session, root)]
    delta.add(root, QUARANTINE, rows, "delta-rs", 1)
    found["copied"].append(_followed(session, root))
    found["spark"] = delta.read(session, root, QUARANTINE).count()
    found["polars"] = scan(root, QUARANTINE).select(pl.len()).collect().item()
    found["version"] = delta.version(root, QUARANTINE)
    found["second_commit"] = _second_commit(session, root)
    session.stop()
    json.dump(found, sys.stdout)


def _followed(session: SparkSession, root: AnyPath) -> int:
    """Rows that a query has copied, all in all, once it has seen the table as it is now."""
    source = session.readStream.format("delta").load(spark_name(root / QUARANTINE.name))
    writer = source.writeStream.format("delta").option("checkpointLocation", spark_name(root / "query"))
    writer.trigger(availableNow=True).start(spark_name(root / "copy")).awaitTermination()
    copied: DataFrame = session.read.format("delta").load(spark_name(root / "copy"))
    return copied.count()


def _second_commit(session: SparkSession, root: AnyPath) -> str:
    """The class of the error when Spark commits a version of the table that there is."""
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(spark_name(root / QUARANTINE.name))
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    commit = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{0:020d}.json")
    lines = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList().iterator())
    try:
        log.store().write(commit, lines, False, log.newDeltaHadoopConf())  # noqa: FBT003  Scala's parameter
    except Py4JJavaError as failure:
        return str(failure.java_exception.getClass().getName())
    return "written"


if __name__ == "__main__":
    main()
