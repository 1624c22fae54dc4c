"""Purpose: schedule a bucket's task on the executor that holds its engine.

How it works: Spark gives a task of a shuffle to any free executor, and one that has not seen the bucket for a while
must read what the others processed, so that in the end all of them hold all buckets. But a task that reads a cached
partition is scheduled where that is cached. So the packed rows are joined with a cached table without rows, partitioned
by the same key: a bucket's task runs where its partition is cached. If an executor is lost, the executors that run its
tasks cache its partitions again; once another has joined, the driver spreads all of them again.

What it does not do: anything on one machine, where there is one executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from nightjar.ingestion.session import has_executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Places:
    """Assigns the partitions of the buckets' shuffle to executors, in a session."""

    def __init__(self, session: SparkSession, partitions: int) -> None:
        self._session = session
        self._partitions = partitions
        self._anchor: DataFrame | None = None
        self._known: frozenset[str] = frozenset()

    @property
    def one_machine(self) -> bool:
        """Whether all tasks run in the driver's JVM."""
        return not has_executors(self._session)

    @property
    def outdated(self) -> bool:
        """Whether executors have joined since the partitions were spread, or they never were."""
        return not self.one_machine and not self._executors() <= self._known

    def settle(self) -> None:
        """Spread the partitions over the current executors."""
        self.release()
        self._known = self._executors()
        numbers = self._session.range(0, self._partitions, 1, self._partitions)
        none = numbers.select(F.col("id").cast("int").alias("bucket")).where("bucket < 0")
        self._anchor = none.repartition(self._partitions, "bucket").persist()
        self._anchor.count()

    def release(self) -> None:
        """Drop the executors' cached partitions."""
        if self._anchor is not None:
            self._anchor.unpersist()
            self._anchor = None

    def of(self, packed: DataFrame) -> DataFrame:
        """The rows (payloads.PACKED_SCHEMA), each in the partition of its bucket."""
        parted = packed.repartition(self._partitions, "bucket")
        if self._anchor is None:
            return parted
        # a left join with nothing changes nothing
        return parted.join(self._anchor.hint("shuffle_hash"), "bucket", "left")

    def _executors(self) -> frozenset[str]:
        tracker = self._session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001  PySpark's own has no executors
        return frozenset(f"{each.host()}:{each.port()}" for each in tracker.getExecutorInfos())
