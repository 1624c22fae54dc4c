"""Compares the stream's alerts with the truth about more events than fit in memory, part by part.

How it works: for each group-by of the rules, every event is written to the file of one of `PARTS` parts, that of its
group's hash. So a part has whole groups, and the rules over that group-by can be evaluated on it alone. The results of
all parts together are the truth. Each event is on disk once per group-by; in memory is one part per processor.

What it does not do: rules that start again after an alert, or with `mute`, whose results depend on earlier ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from checks.soak.workers import workers
from nightjar.demo.verdict import StreamVerdict, Violations
from nightjar.rules.streams import Stream
from nightjar.rules.versions import RuleSet

# A part of a hundred million events is then a gigabyte while it is evaluated.
PARTS = 64

GroupBy = tuple[str, ...]
# A part: a group-by, and a number below PARTS.
Part = tuple[GroupBy, int]


class Parts:
    """Events on disk, in parts. A context manager, which closes the files."""

    def __init__(self, folder: Path, stream: Stream, group_bys: Iterable[GroupBy]) -> None:
        folder.mkdir()
        self._folder, self._stream, self._group_bys = folder, stream, list(group_bys)
        self._files: dict[Part, pa.ipc.RecordBatchStreamWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, events: pa.Table) -> None:
        """Write some events; see `Violations`."""
        for by in self._group_bys:
            numbers = _numbers(pl.DataFrame(events.select(list(by))))
            order = numbers.arg_sort().to_arrow()
            ordered, begin = events.take(order), 0
            for number, rows in numbers.value_counts(sort=False).sort(numbers.name).iter_rows():
                self._file((by, number), events.schema).write_table(ordered.slice(begin, rows))
                begin += rows

    def compared(self, ruleset: RuleSet, *finals: Iterable[Mapping[str, Any]]) -> list[StreamVerdict]:
        """Compare each of several states of the final alerts with the truth; see `Violations.compare`.

        No event can be added afterwards.
        """
        self._open.close()
        divided = [self._divided(final) for final in finals]
        tasks = []
        for by in self._group_bys:
            for number in range(PARTS):
                of_part = [final.get((by, number), []) for final in divided]
                tasks.append(_Task(self._stream, ruleset, by, self._place((by, number)), of_part))
        totals = [StreamVerdict(0, 0, []) for _ in finals]
        with workers(os.cpu_count() or 1) as pool:
            for found in pool.map(_Task.done, tasks):
                totals = [_sum(total, of_part) for total, of_part in zip(totals, found, strict=True)]
        return totals

    def _divided(self, final: Iterable[Mapping[str, Any]]) -> dict[Part, list[Mapping[str, Any]]]:
        """The alerts of each part. One whose group is of no group-by is a difference, wherever it is."""
        by_fields = {frozenset(by): by for by in self._group_bys}
        of_each: dict[GroupBy, list[Mapping[str, Any]]] = {}
        for alert in final:
            of_each.setdefault(by_fields.get(frozenset(alert["group"]), self._group_bys[0]), []).append(alert)
        found: dict[Part, list[Mapping[str, Any]]] = {}
        for by, alerts in of_each.items():
            groups = pl.DataFrame({name: [alert["group"].get(name) for alert in alerts] for name in by})
            for alert, number in zip(alerts, _numbers(groups), strict=True):
                found.setdefault((by, number), []).append(alert)
        return found

    def _file(self, part: Part, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if part not in self._files:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            file = pa.ipc.new_stream(self._open.enter_context(self._place(part).open("wb")), schema, options=options)
            self._files[part] = self._open.enter_context(file)
        return self._files[part]

    def _place(self, part: Part) -> Path:
        by, number = part
        return self._folder / f"{'-'.join(by)}.{number}.arrows"


@dataclass(frozen=True)
class _Task:
    """A part to be compared, in a process of its own."""

    stream: Stream
    ruleset: RuleSet
    group_by: GroupBy
    file: Path
    finals: Sequence[Sequence[Mapping[str, Any]]]

    def done(self) -> list[StreamVerdict]:
        """Compare each of `finals`."""
        violations = Violations(self.stream, self.ruleset, self._events(), frozenset({self.group_by}))
        return [violations.compare(final) for final in self.finals]

    def _events(self) -> pa.Table:
        if not self.file.exists():
            return self.stream.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC"))).empty_table()
        with pa.ipc.open_stream(self.file) as stored:
            return stored.read_all()


def _numbers(groups: pl.DataFrame) -> pl.Series:
    """The number of the part of each group."""
    return groups.select((pl.struct(pl.all().cast(pl.String)).hash() % PARTS).alias("part")).to_series()


def _sum(one: StreamVerdict, other: StreamVerdict) -> StreamVerdict:
    return StreamVerdict(
        one.violations + other.violations, one.equal + other.equal, [*one.differences, *other.differences]
    )
