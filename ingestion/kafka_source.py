"""Spark's Kafka source, as the stream and the lake read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from contracts.headers import SENT_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of every reader of Kafka. What a producer took back is not there. What a batch reads is there: with Kafka's own half a
# second, the fetch that a consumer sends ahead at a partition's end would hold up the question for its offsets, which
# Spark has with every read, since a broker answers a connection's requests in turn.
SOURCE_OPTIONS = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "1",
}


def record_columns(records: DataFrame) -> DataFrame:
    """Rows of Kafka's source as the parser reads them: topic, partition, offset, timestamp, value.

    And sent_at (bigint, µs) of the header, or NULL.
    """
    sent_at = f"try_cast(cast(get(filter(headers, h -> h.key = '{SENT_AT}'), 0).value AS string) AS bigint)"
    return records.select("topic", "partition", "offset", "timestamp", "value", F.expr(sent_at).alias(SENT_AT))
