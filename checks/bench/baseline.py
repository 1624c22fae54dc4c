"""The controls of the end-to-end benchmarks: a small query with the job's source, sink and settings.

    python -m checks.bench.baseline NAME      run until SIGTERM, with the NIGHTJAR_ settings in the environment

They parse as an ordinary program would: `from_json` with a schema, without validation. stateful: counts, sums and keeps
the largest amount per customer, and emits about every 20th update. stateless: emits about every 20th event. python: the
same after a Python stage that changes nothing.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from checks.bench.pipeline import REAL_TIME
from nightjar.configuration.job import job_config
from nightjar.configuration.settings import load_settings
from nightjar.contracts.headers import SENT_AT
from nightjar.ingestion.kafka_source import first_header
from nightjar.kafka import topics
from nightjar.rules.streams import load_streams
from nightjar.streaming.driver.query import event_records
from nightjar.streaming.driver.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The batch size that the job chooses itself on two slow cores.
MOST = 100_000
SLOWEST = "slowest batch, ms:"  # what it prints at its end
EVENT = "transaction_id string, event_time bigint, customer_id string, terminal_id string, amount decimal(12,2)"

# As Spark's documentation recommends for large state.
_STATE_STORE = {
    "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "rocksdb.changelogCheckpointing.enabled": "true",
}


def stateful(parsed: DataFrame) -> DataFrame:
    """customer_id, value and sent_at of about every 20th update of an aggregate by customer."""
    updates = parsed.groupBy("event.customer_id").agg(
        F.count("*").alias("n"),
        F.sum("event.amount").alias("spent"),
        F.max("event.amount").alias("most"),
        F.max(SENT_AT).alias(SENT_AT),
    )
    value = F.to_json(F.struct("customer_id", "n", "spent", "most"))
    return updates.where(F.pmod(F.xxhash64("customer_id", "n"), F.lit(20)) == 0).withColumn("value", value)


def stateless(parsed: DataFrame) -> DataFrame:
    """customer_id, value and sent_at of about every 20th event."""
    some = parsed.select("event.*", SENT_AT).where(F.pmod(F.xxhash64("transaction_id"), F.lit(20)) == 0)
    return some.select("customer_id", F.to_json(F.struct("customer_id", "amount")).alias("value"), SENT_AT)


def python(parsed: DataFrame) -> DataFrame:
    """The output of `stateless`, passed through one Python stage."""
    output = stateless(parsed)
    return output.mapInArrow(lambda batches: batches, output.schema)


CONTROLS = {"stateful": stateful, "stateless": stateless, "python": python}


def main() -> None:
    """Run the control in the foreground."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = load_settings()
    streams = load_streams(settings.streams)
    topics.ensure(settings, streams.values())
    config = job_config(settings, streams)
    session = open_session(config, "control")
    for name, value in _STATE_STORE.items():
        session.conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    # All are read once, at the end: reading them while it runs would slow the control down.
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    name = sys.argv[1].removesuffix(REAL_TIME)
    is_real_time = name != sys.argv[1]
    most = None if is_real_time else config.max_offsets_per_trigger or MOST
    events = event_records(session, config, most)
    events = events.where(F.col("topic") == streams["transactions"].topic)
    parsed = events.select(
        F.from_json(F.col("value").cast("string"), EVENT).alias("event"), first_header(SENT_AT).alias(SENT_AT)
    )
    output = CONTROLS[name](parsed).select(
        F.lit(config.topics.alerts).alias("topic"),
        F.col("customer_id").alias("key"),
        "value",
        F.array(F.struct(F.lit(SENT_AT).alias("key"), F.col(SENT_AT).alias("value"))).alias("headers"),
    )
    writer = (
        output.writeStream.format("kafka")
        .options(**config.kafka.spark)
        .outputMode("update")
        .option("checkpointLocation", str(config.checkpoint))
    )
    if is_real_time:
        writer = writer.trigger(realTime=f"{config.real_time_batch // 1000} milliseconds")
    query = writer.start()
    print("the query runs", flush=True)
    while not stop.wait(0.2) and query.isActive:
        pass
    slowest = max((batch["durationMs"].get("triggerExecution", 0) for batch in query.recentProgress), default=0)
    query.stop()
    print(f"{SLOWEST} {slowest}", flush=True)
    session.stop()
    if failure := query.exception():
        raise SystemExit(str(failure))


if __name__ == "__main__":
    main()
