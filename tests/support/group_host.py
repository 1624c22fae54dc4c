"""The job's buckets in real time, without Spark, Kafka or time: each step of a run is a group of a batch of several.

How it works: as stream_host.py, but buckets stay in the batch until it ends, after a number of groups that is as good
as chance. A step that is to be repeated is a crash after its group: another evaluator starts from the last batch's
state, evaluates the groups again, and must emit the same. A batch ends before whatever the driver does at its end:
restarts, new shuffle keys, history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

import pyarrow as pa

from nightjar.rules.rulebook import Record, ShuffleKey
from nightjar.streaming.buckets.packer import PackedRow, Packer
from nightjar.streaming.buckets.payloads import Payload, PayloadKind
from nightjar.streaming.real_time.groups import GroupEvaluator
from tests.support.random_runs import Batch, Published, Run
from tests.support.stream_host import Activated, Emitted, StreamHost, read_records

T = TypeVar("T")


@dataclass(frozen=True)
class _Group:
    run_id: str
    at: int
    packed: list[dict[str, list[Payload]]]
    emitted: list[Emitted]


class GroupHost(StreamHost):
    """A job in real time over the streams of a run."""

    def __init__(self, run: Run, folder: Path) -> None:
        super().__init__(run, folder)
        self._groups: list[_Group] = []
        # what the query knew when its last batch began: answers, and the position of changes of tables
        self._known = self._known_tables = 0
        self._exports_of_batch: list[str] = []

    @property
    def _committed(self) -> int:
        return self._version - 1 if self._groups else self._version

    @property
    def _known_answers(self) -> tuple[Record, ...]:
        return tuple(self._answers[: self._known])

    @property
    def _committed_tables(self) -> int:
        return self._known_tables

    @property
    def _kept_exports(self) -> list[str]:
        return [*super()._kept_exports, *self._exports_of_batch]

    def _begin(self) -> None:
        self._end_batch()
        self._known = len(self._answers)
        self._start()

    def _start(self) -> None:
        super()._begin()
        self._evaluator = GroupEvaluator(self._plan, cast("Packer", _AsItIs()), _AtOnce())

    def prepare(self, step: Batch) -> ShuffleKey | None:
        """See StreamHost."""
        if step.history:
            self._end_batch()
        return super().prepare(step)

    def answer(self, messages: Iterable[Published]) -> list[dict[str, Any]]:
        """See StreamHost."""
        if self._run.primes:
            self._end_batch()
        return super().answer(messages)

    def activate(self, at: int) -> Iterator[Activated]:
        """See StreamHost."""
        if self._export is not None:
            self._exports_of_batch.append(self._export[0])
        yield from super().activate(at)

    def _process(self, batch: Batch, packed: list[dict[str, list[Payload]]]) -> list[Emitted]:
        self._version += not self._groups
        emitted = self._evaluated(packed, self._plan.run_id, batch.at)
        self._groups.append(_Group(self._plan.run_id, batch.at, packed, emitted))
        chance = crc32(f"{batch.at} {len(self._groups)}".encode())
        if batch.again:
            self._starts += 1
            self._start()
            again = [self._evaluated(group.packed, group.run_id, group.at) for group in self._groups]
            before = [group.emitted for group in self._groups]
            assert before == again, f"first {before}, then {again}"
        elif chance % 7 == 0:
            self._evaluator.write_ahead()
        elif chance % 5 == 0:  # Spark has committed the batch before
            self._evaluator.remove_earlier()
        if chance % 4 == 0:
            self._end_batch()
        return emitted

    def _evaluated(self, packed: list[dict[str, list[Payload]]], run_id: str, at: int) -> list[Emitted]:
        """What each bucket emits, of those that the group is for."""
        found = []
        for bucket, of_kind in enumerate(packed):
            rows = [(bucket, PayloadKind(kind), payload) for kind, of in of_kind.items() for payload in of]
            tables = self._evaluator.evaluate(cast("pa.Table", rows), self._version, run_id, at) if rows else []
            found.append(read_records(tables))
        return found

    def _end_batch(self) -> None:
        if self._groups:
            self._evaluator.store()
            self._known = max(self._known, self._delivered)
            self._known_tables = self._tables_read
            self._groups.clear()
            self._exports_of_batch.clear()


class _AsItIs:
    """In the place of the packer, whose rows the host has: a bucket's at a time."""

    def packed(self, rows: list[PackedRow]) -> list[PackedRow]:
        return rows


class _AtOnce(Executor):
    """In the place of the thread that writes state: a run is to be the same each time."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future
