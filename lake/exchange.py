"""Work in Spark's tasks whose rows travel as columns.

Spark makes rows of columns, and columns of rows again, wherever Python is handed some, and that costs more than what is
done with them here. So a task reads its own files, and what goes from it to another is packed: an Arrow stream is one
row's value. Spark plans, moves, and does again what fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The JVM moves large values slowly: some hundred kilobytes each.
_ROWS_A_PIECE = 8192
_PACKS = "bucket int, rows binary"


class Work(Protocol):
    """What is done: pickled, and the same in all tasks."""

    @property
    def tasks(self) -> int:
        """How many tasks send."""

    @property
    def receivers(self) -> int:
        """How many tasks receive: a bucket is received by that of its number, modulo this one."""

    def send(self, task: int) -> Iterable[tuple[int, pa.Table]]:
        """A task's tables and the buckets they are for; the tables of a bucket have one schema."""

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """What is made of all that came for a bucket; a bucket for which nothing came is not received."""


def exchange(session: SparkSession, work: Work, ddl: str) -> DataFrame:
    """What is received: rows of `ddl`."""
    tasks, receivers = max(work.tasks, 1), max(work.receivers, 1)
    sent = session.range(0, work.tasks, 1, tasks).mapInArrow(_Sender(work), _PACKS)
    return sent.repartitionById(receivers, "bucket").mapInArrow(_Receiver(work), ddl)


@dataclass(frozen=True)
class _Sender:
    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for bucket, table in self.work.send(task):
                    for piece in _pieces(table):
                        row = [pa.array([bucket], pa.int32()), pa.array([packed(piece)], pa.binary())]
                        yield pa.RecordBatch.from_arrays(row, ["bucket", "rows"])


@dataclass(frozen=True)
class _Receiver:
    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received: dict[int, list[pa.Table]] = {}
        for batch in batches:
            for bucket, value in zip(batch.column("bucket").to_pylist(), batch.column("rows"), strict=True):
                received.setdefault(bucket, []).append(unpacked(value.as_buffer()))
        for bucket in sorted(received):
            made = self.work.receive(bucket, pa.concat_tables(received.pop(bucket)))
            yield from made.combine_chunks().to_batches()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces that the JVM can hold a few of; at least one, so that what is empty is sent too."""
    for start in range(0, max(table.num_rows, 1), _ROWS_A_PIECE):
        yield table.slice(start, _ROWS_A_PIECE)


def packed(table: pa.Table) -> bytes:
    """A table as one value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpacked(rows: pa.Buffer) -> pa.Table:
    """The table of `packed`."""
    return pa.ipc.open_stream(rows).read_all()
