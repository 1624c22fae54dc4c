"""Options and columns of Spark's Kafka source, shared by the stream and the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from nightjar.contracts.headers import SENT_AT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Records of aborted transactions are not read. A batch's records already exist, so a fetch need not wait for more: with
# Kafka's default of 500 ms, a consumer's prefetch at the end of a partition would delay Spark's query for offsets,
# which comes with every read, because a broker answers the requests of a connection in order. Spark asks for the first
# and the last offset of a partition after each poll: with Kafka's default of 500 records, a third of a read.
SOURCE_OPTIONS = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "10000",
}

# Tasks wait for records: a fetch may, too, and ends as soon as there is one.
REAL_TIME_OPTIONS = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "500",
}


def record_columns(records: DataFrame) -> DataFrame:
    """Select the parser's columns from the Kafka source: topic, partition, offset, timestamp, value.

    Adds sent_at (bigint, µs) from the header, or NULL.
    """
    sent_at = first_header(SENT_AT).cast("string").try_cast("bigint")
    return records.select("topic", "partition", "offset", "timestamp", "value", sent_at.alias(SENT_AT))


def first_header(name: str) -> Column:
    """The value (binary) of a Kafka record's first header of this name; NULL without one.

    Without a lambda, as of `filter`: Spark interprets those, at 2 µs a record.
    """
    at = F.array_position("headers.key", F.lit(name)) - 1
    return F.get("headers.value", at.cast("int"))
