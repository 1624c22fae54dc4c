"""Purpose: a bucket's task comes back to the executor that holds its engine.

How it works: Spark gives a task of a shuffle to whichever executor is free, and one that has not seen the bucket for a
while must read what the others took in, so that in the end all of them hold all buckets. But a task that reads a cached
partition goes where that lies. So the packed rows are joined with a table without rows, cached, in as many partitions
by the same key: where its partition lies is where the bucket is. Where an executor is lost, its partitions are cached
again by those that do their tasks; once another has come, the driver spreads all of them anew.

What it does not do: anything on one machine, where there is one executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from ingestion.session import has_executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Places:
    """Where the partitions of the buckets' shuffle are done, in a session."""

    def __init__(self, session: SparkSession, partitions: int) -> None:
        self._session = session
        self._partitions = partitions
        self._anchor: DataFrame | None = None
        self._known: frozenset[str] = frozenset()

    @property
    def outdated(self) -> bool:
        """Whether there are executors that came after the partitions were spread, or before they ever were."""
        return has_executors(self._session) and not self._executors() <= self._known

    def settle(self) -> None:
        """Spread the partitions over the executors that there are now."""
        self.release()
        self._known = self._executors()
        numbers = self._session.range(0, self._partitions, 1, self._partitions)
        none = numbers.select(F.col("id").cast("int").alias("bucket")).where("bucket < 0")
        self._anchor = none.repartition(self._partitions, "bucket").persist()
        self._anchor.count()

    def release(self) -> None:
        """Have the executors keep nothing."""
        if self._anchor is not None:
            self._anchor.unpersist()
            self._anchor = None

    def of(self, packed: DataFrame) -> DataFrame:
        """The rows (wire.PACKED_SCHEMA), each in the partition of its bucket."""
        parted = packed.repartition(self._partitions, "bucket")
        if self._anchor is None:
            return parted
        # a left join with nothing changes nothing
        return parted.join(self._anchor.hint("shuffle_hash"), "bucket", "left")

    def _executors(self) -> frozenset[str]:
        tracker = self._session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001  PySpark's own has no executors
        return frozenset(f"{each.host()}:{each.port()}" for each in tracker.getExecutorInfos())
