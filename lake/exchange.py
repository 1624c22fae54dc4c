"""Work in Spark's tasks whose rows travel as columns.

Spark makes rows of columns, and columns of rows again, wherever Python is handed some, and that costs more than what is
done with them here. So a task reads its own files, and what goes from it to another lies as an Arrow file in a folder
that all of them see, as the lake itself does. Spark plans, spreads, and does again what fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lake.files import whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SENT = "bucket int"


class Work(Protocol):
    """What is done: pickled, and the same in all tasks."""

    @property
    def tasks(self) -> int:
        """How many tasks send."""

    @property
    def receivers(self) -> int:
        """How many tasks receive: a bucket is received by that of its number, modulo this one."""

    def send(self, task: int) -> Iterable[tuple[int, pa.Table]]:
        """A task's tables and the buckets they are for; one at most a bucket, and those of a bucket have one schema."""

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """What is made of all that came for a bucket; a bucket for which nothing came is not received."""


def exchange(session: SparkSession, work: Work, ddl: str, folder: Path) -> pa.Table:
    """What is received: rows of `ddl`. folder: where tables lie until then; what is there is removed."""
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt before
    folder.mkdir(parents=True)
    try:
        sent = _in_tasks(session, work.tasks).mapInArrow(_Sender(work, folder), _SENT).toArrow()
        buckets = sorted(set(sent.column("bucket").to_pylist()))
        receiver = _Receiver(work, folder, buckets)
        return _in_tasks(session, work.receivers).mapInArrow(receiver, ddl).toArrow()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_tasks(session: SparkSession, tasks: int) -> DataFrame:
    """The numbers from 0 on, each in a task of its own."""
    return session.range(0, tasks, 1, max(tasks, 1))


@dataclass(frozen=True)
class _Sender:
    work: Work
    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                buckets = []
                for bucket, table in self.work.send(task):
                    _write(table, self.folder / str(bucket) / f"{task}.arrow")
                    buckets.append(bucket)
                yield pa.RecordBatch.from_arrays([pa.array(buckets, pa.int32())], ["bucket"])


@dataclass(frozen=True)
class _Receiver:
    work: Work
    folder: Path
    buckets: list[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for bucket in self.buckets:
                    if bucket % self.work.receivers == task:
                        received = [_read(file) for file in sorted((self.folder / str(bucket)).glob("*.arrow"))]
                        yield from self.work.receive(bucket, pa.concat_tables(received)).combine_chunks().to_batches()


def _write(table: pa.Table, file: Path) -> None:
    with (
        whole(file) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _read(file: Path) -> pa.Table:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
