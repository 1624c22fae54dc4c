"""Options and columns of Spark's Kafka source, shared by the stream and the lake."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from nightjar.contracts.headers import SENT_AT
from nightjar.rules.streams import Stream

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


def columns_beside(streams: Collection[Stream]) -> list[str]:
    """The columns beside a record's value that some stream reads: key, headers."""
    read = {"key": any(of.reads_key for of in streams), "headers": any(of.reads_headers for of in streams)}
    return [name for name, is_read in read.items() if is_read]


def record_columns(records: DataFrame, beside: Collection[str] = ()) -> DataFrame:
    """Select the parser's columns from the Kafka source: topic, partition, offset, timestamp, value, and those beside.

    Adds sent_at (bigint, µs) from the header, or NULL.
    """
    sent_at = first_header(SENT_AT).cast("string").try_cast("bigint")
    return records.select("topic", "partition", "offset", "timestamp", "value", sent_at.alias(SENT_AT), *beside)


def first_header(name: str) -> Column:
    """The value (binary) of a Kafka record's first header of this name; NULL without one.

    Without a lambda, as of `filter`: Spark interprets those, at 2 µs a record.
    """
    at = F.array_position("headers.key", F.lit(name)) - 1
    return F.get("headers.value", at.cast("int"))
