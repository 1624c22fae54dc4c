"""Work is done the same by this process and by Spark's tasks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nightjar.lake.arrow_shuffle import exchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUM = pa.schema([("bucket", pa.int64()), ("sum", pa.int64()), ("process", pa.int64())])


@dataclass(frozen=True)
class Sums:
    """The numbers below some bound, each task those that leave its number; their sums by the last digit."""

    rows: int
    tasks: int = 3
    receivers: int = 2

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """By the last digit."""
        for digit in range(10):
            mine = [number for number in range(self.rows) if number % 3 == task and number % 10 == digit]
            if mine:
                yield digit, pa.table({"number": mine})

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """A row of SUM."""
        import os

        return pa.table([[bucket], [pc.sum(rows.column("number")).as_py()], [os.getpid()]], SUM)


@pytest.mark.spark
def test_tasks_and_this_process_come_to_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    """A bucket is received once, with what all tasks sent; nothing is left in the folder."""
    found = {}
    for most_here in (24, 25):
        table = exchange(spark, Sums(25), SUM, tmp_path / "folder", most_here)
        found[most_here] = dict(zip(table["bucket"].to_pylist(), table["sum"].to_pylist(), strict=True))
        processes = set(table["process"].to_pylist())
        assert len(processes) == (1 if most_here == 25 else 2)
    sums = {digit: sum(range(digit, 25, 10)) for digit in range(10)}
    assert found == {24: sums, 25: sums}
    assert not (tmp_path / "folder").exists()


@pytest.mark.spark
def test_nothing_that_is_sent_is_nothing_that_is_received(spark: "SparkSession", tmp_path: Path) -> None:
    """The table is empty, and has its columns."""
    for most_here in (-1, 0):
        assert exchange(spark, Sums(0), SUM, tmp_path / "folder", most_here).equals(SUM.empty_table())
