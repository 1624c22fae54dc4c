"""Work in Spark's tasks whose rows travel as columns.

Spark makes rows of columns, and columns of rows again, wherever Python is handed some, and that costs more than what is
done with them here. So a task reads its own files, and what goes from it to another lies as an Arrow file in a folder
that all of them see, as the lake itself does. Spark plans, spreads, and does again what fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from lake.atomic_write import whole
from lake.delta import File

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_HEAP = "exchange.heap"


class Work(Protocol):
    """What is done: pickled, and the same in all tasks."""

    @property
    def tasks(self) -> int:
        """How many tasks send."""

    @property
    def rows(self) -> int:
        """How many rows the tasks read, all together."""

    @property
    def receivers(self) -> int:
        """How many tasks receive: a bucket is received by that of its number, modulo this one."""

    def send(self, task: int) -> Iterable[tuple[int, pa.Table]]:
        """A task's tables and the buckets they are for; one at most a bucket, and those of a bucket have one schema."""

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """What is made of all that came for a bucket; a bucket for which nothing came is not received."""


class Part(Protocol):
    """What one task reads."""

    @property
    def files(self) -> Sequence[File]:
        """Its share of the files."""


class OverParts:
    """Work whose tasks read a part of the files each."""

    parts: Sequence[Part]

    @property
    def tasks(self) -> int:
        """One per part."""
        return len(self.parts)

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for part in self.parts for file in part.files)


class InHeaps(OverParts):
    """Work for which rows with equal keys come together: a heap has some of the keys.

    heaps: into how many tasks a comparison is divided.
    """

    heaps: int

    @property
    def receivers(self) -> int:
        """One a heap."""
        return self.heaps

    def heaped(self, rows: pl.DataFrame, key: pl.Expr) -> Iterator[tuple[int, pa.Table]]:
        """The rows by the heap of their key."""
        numbered = rows.with_columns((key.hash() % self.heaps).alias(_HEAP))
        for (heap,), some in numbered.partition_by(_HEAP, as_dict=True, include_key=False).items():
            yield heap, some.to_arrow(compat_level=pl.CompatLevel.oldest())


def exchange(session: SparkSession, work: Work, schema: pa.Schema, folder: Path, most_here: int) -> pa.Table:
    """What is received, of this schema. folder: where tables lie until then; what is there is removed. most_here: work
    on so few rows is done by this process, which takes less time than starting tasks.

    By Spark's older interface: its SQL plans each query and compiles code for it, which takes longer than these tasks.
    """
    if work.rows <= most_here:
        return _here(work, schema)
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt before
    folder.mkdir(parents=True)
    try:
        buckets = sorted(set(_in_tasks(session, work.tasks, _Sender(work, folder))))
        received = _in_tasks(session, work.receivers, _Receiver(work, folder, buckets))
        return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(each).read_all() for each in received)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(work: Work, schema: pa.Schema) -> pa.Table:
    sent: dict[int, list[pa.Table]] = {}
    for task in range(work.tasks):
        for bucket, table in work.send(task):
            sent.setdefault(bucket, []).append(table)
    received = (work.receive(bucket, pa.concat_tables(sent[bucket])) for bucket in sorted(sent))
    return pa.concat_tables([schema.empty_table(), *received])


def _in_tasks(session: SparkSession, tasks: int, do: Callable[[int], Iterable[_T]]) -> list[_T]:
    """What is done to the numbers from 0 on, each in a task of its own."""
    return session.sparkContext.parallelize(range(tasks), max(tasks, 1)).flatMap(do).collect()


@dataclass(frozen=True)
class _Sender:
    work: Work
    folder: Path

    def __call__(self, task: int) -> Iterator[int]:
        for bucket, table in self.work.send(task):
            _write(table, self.folder / str(bucket) / f"{task}.arrow")
            yield bucket


@dataclass(frozen=True)
class _Receiver:
    work: Work
    folder: Path
    buckets: list[int]

    def __call__(self, task: int) -> Iterator[bytes]:
        for bucket in self.buckets:
            if bucket % self.work.receivers == task:
                received = [_read(file) for file in sorted((self.folder / str(bucket)).glob("*.arrow"))]
                yield _as_bytes(self.work.receive(bucket, pa.concat_tables(received)))


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


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
