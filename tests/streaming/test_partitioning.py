"""Where Spark's shuffle puts a bucket, and which bucket a value belongs to."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nightjar.streaming.partitioning import bucket_numbers, bucket_of, partition_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 64


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 200])
def test_spark_sends_each_bucket_to_its_partition(spark: "SparkSession", partitions: int) -> None:
    """Spark's own hash partitioning of the keys deals the buckets out in turn."""
    keys = [partition_key(bucket, partitions) for bucket in range(BUCKETS)]
    rows = spark.createDataFrame([(key,) for key in keys], "bucket int")
    placed = rows.selectExpr("bucket", f"pmod(hash(bucket), {partitions}) AS at").toArrow().to_pydict()
    at = dict(zip(placed["bucket"], placed["at"], strict=True))
    assert [at[key] for key in keys] == [bucket % partitions for bucket in range(BUCKETS)]


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_a_key_stands_for_its_bucket_only(partitions: int) -> None:
    """The bucket is read back off the key."""
    assert [bucket_of(partition_key(bucket, partitions)) for bucket in range(BUCKETS)] == list(range(BUCKETS))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["ann", "", None, "é", "ann"]),
        pa.array([0, 7, None, -7, 7]),
        pa.array([0.0, -0.0, None, 1.5]),
        pa.array([True, False, None]),
        pa.array([Decimal("1.10"), None, Decimal("1.10")], pa.decimal128(12, 2)),
        pa.array([datetime(2024, 3, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    ],
    ids=lambda values: str(values.type),
)
def test_equal_values_share_a_bucket_however_they_are_sliced(values: pa.Array) -> None:
    """A bucket follows from the value alone; NULL belongs to the first."""
    numbers = bucket_numbers(values, BUCKETS).tolist()
    known: dict[Any, int] = {}
    for at, value in enumerate(values.to_pylist()):
        assert known.setdefault(value, numbers[at]) == numbers[at]
        assert bucket_numbers(values.slice(at, 1), BUCKETS).tolist() == [numbers[at]]
    assert known.get(None, 0) == 0


def test_the_numbers_stay_what_they_were() -> None:
    """State lies where these say: they are never to change for a checkpoint that lives."""
    assert bucket_numbers(pa.array(["ann", "bob", "cem", "dee"]), BUCKETS).tolist() == [19, 32, 7, 0]
