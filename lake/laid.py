"""A batch of Kafka's records as Arrow files: it is read from Kafka once, and before anybody knows how large it is.

It imports little, since Spark's workers begin with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

# Rows of a table from a topic's records.
Reader = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# Of each file the topic, how many records it has, and the bytes of their values.
LAID_DDL = "topic string, rows bigint, bytes bigint, file string"


@dataclass(frozen=True)
class Laying:
    """What `mapInArrow` runs over a batch's records: value, topic and others to LAID_DDL. A file has one topic. What an
    attempt that failed has laid down is named by no row."""

    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Lay the records down."""
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for topic in pc.unique(table.column("topic")).to_pylist():
                mine = table.filter(pc.equal(table.column("topic"), topic)).drop_columns("topic")
                file = self.folder / f"{uuid.uuid4().hex}.arrow"
                with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, mine.schema) as writer:
                    writer.write_table(mine)
                size = pc.sum(pc.binary_length(mine.column("value"))).as_py() or 0
                row = {"topic": topic, "rows": mine.num_rows, "bytes": size, "file": str(file)}
                yield pa.RecordBatch.from_pylist([row])


@dataclass(frozen=True)
class ReadBack:
    """What `mapInArrow` runs over the numbers of such files: their records to a table's rows, a file a task."""

    files: list[Path]
    columns: list[str]
    reader: Reader | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from read_back([self.files[number]], self.columns, self.reader)


def read_back(files: Iterable[Path], columns: list[str], reader: Reader | None) -> Iterator[pa.RecordBatch]:
    """These columns of a table's rows, from the records of some files; None: the records are its rows."""
    for file in files:
        with pa.memory_map(str(file)) as source:
            laid = pa.ipc.open_file(source).read_all().combine_chunks().to_batches()
        yield from (batch.select(columns) for batch in (laid if reader is None else reader(iter(laid))))
