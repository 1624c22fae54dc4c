"""Runs work in Spark tasks and exchanges rows between them as Arrow files.

Spark converts columns to rows and back whenever it passes data to Python, which costs more than the work done here. So
a task reads its own files, and passes data to other tasks as Arrow files in a folder that all of them can access, like
the lake itself. Spark schedules, distributes and retries the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from nightjar.lake.delta import File
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, matching, remove_tree, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_PARTITION = "exchange.partition"


class Work(Protocol):
    """The work to do; pickled, and identical in all tasks."""

    @property
    def tasks(self) -> int:
        """Number of sending tasks."""

    @property
    def rows(self) -> int:
        """Number of rows that all tasks read."""

    @property
    def receivers(self) -> int:
        """Number of receiving tasks; a bucket is received by the task of its number modulo this."""

    def send(self, task: int) -> Iterable[tuple[int, pa.Table]]:
        """A task's tables with their buckets: at most one table per bucket; all tables of a bucket share a schema."""

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """The result for a bucket from all rows sent to it; not called for buckets without rows."""


class InputSplit(Protocol):
    """The input of one task."""

    @property
    def files(self) -> Sequence[File]:
        """Its share of the files."""


class OverSplits:
    """Work whose tasks each read a split of the files."""

    splits: Sequence[InputSplit]

    @property
    def tasks(self) -> int:
        """One per split."""
        return len(self.splits)

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for split in self.splits for file in split.files)


class Partitioned(OverSplits):
    """Work that brings rows with equal keys together: a partition has all rows of some of the keys.

    partitions: number of tasks into which a comparison is divided.
    """

    partitions: int

    @property
    def receivers(self) -> int:
        """One per partition."""
        return self.partitions

    def partitioned(self, rows: pl.DataFrame, key: pl.Expr) -> Iterator[tuple[int, pa.Table]]:
        """The rows by the partition of their key."""
        numbered = rows.with_columns((key.hash() % self.partitions).alias(_PARTITION))
        for (partition,), some in numbered.partition_by(_PARTITION, as_dict=True, include_key=False).items():
            yield partition, some.to_arrow(compat_level=pl.CompatLevel.oldest())


def exchange(session: SparkSession, work: Work, schema: pa.Schema, folder: AnyPath, most_here: int) -> pa.Table:
    """What is received, of this schema. folder: where tables lie until then; what is there is removed. most_here: work
    on so few rows is done by this process, which takes less time than starting tasks.

    It uses RDDs, because Spark SQL would plan each query and compile code for it, which takes longer than these tasks.
    """
    if work.rows <= most_here:
        return _here(work, schema)
    remove_tree(folder)  # left by an earlier attempt
    folder.mkdir(parents=True)
    try:
        buckets = sorted(set(_in_tasks(session, work.tasks, _Sender(work, folder))))
        received = _in_tasks(session, work.receivers, _Receiver(work, folder, buckets))
        return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(each).read_all() for each in received)])
    finally:
        remove_tree(folder)


def _here(work: Work, schema: pa.Schema) -> pa.Table:
    sent: dict[int, list[pa.Table]] = {}
    for task in range(work.tasks):
        for bucket, table in work.send(task):
            sent.setdefault(bucket, []).append(table)
    received = (work.receive(bucket, pa.concat_tables(sent[bucket])) for bucket in sorted(sent))
    return pa.concat_tables([schema.empty_table(), *received])


def _in_tasks(session: SparkSession, tasks: int, do: Callable[[int], Iterable[_T]]) -> list[_T]:
    """Apply `do` to the numbers from 0 on, each in a task of its own, and collect the results."""
    return session.sparkContext.parallelize(range(tasks), max(tasks, 1)).flatMap(do).collect()


@dataclass(frozen=True)
class _Sender:
    work: Work
    folder: AnyPath

    def __call__(self, task: int) -> Iterator[int]:
        for bucket, table in self.work.send(task):
            _write(table, self.folder / str(bucket) / f"{task}.arrow")
            yield bucket


@dataclass(frozen=True)
class _Receiver:
    work: Work
    folder: AnyPath
    buckets: list[int]

    def __call__(self, task: int) -> Iterator[bytes]:
        for bucket in self.buckets:
            if bucket % self.work.receivers == task:
                received = [_read(file) for file in matching(self.folder / str(bucket), "*.arrow")]
                yield _as_bytes(self.work.receive(bucket, pa.concat_tables(received)))


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _write(table: pa.Table, file: AnyPath) -> None:
    with (
        whole(file) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _read(file: AnyPath) -> pa.Table:
    if isinstance(file, ObjectPath):
        return pa.ipc.open_file(pa.py_buffer(file.read_bytes())).read_all()
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
