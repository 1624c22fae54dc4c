"""What has been announced, so that only what changed is announced again (S7 and S10).

Entries are rows of tables, in the order they were made; each store row leads to its newest entry, and each entry to
the one before it at the same row. Nothing is done per entry in Python, unless its event is evaluated again, or entries
are few.

An announcement may be known before its event: a stream whose state was rebuilt reads again some of what it had read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine.columns import FEW
from nightjar.rules.engine.kernels import chains
from nightjar.rules.engine.memory import RowArray
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import INSTANT

LEDGER_SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_time", INSTANT),
        ("rule_id", pa.string()),
        ("rule_version", pa.int64()),
        ("revision", pa.int64()),
        ("retracted", pa.bool_()),
        ("rule_state", pa.string()),
        ("group", pa.string()),
        ("measures", pa.string()),
        ("severity", pa.string()),
        ("text", pa.string()),
        ("muted", pa.bool_()),
        ("mute", pa.int64()),  # of the rule, µs; 0 for none: for that long after its event the alert can mute others
    ]
)
# An alert's content: one that agrees with the last in these is not announced again; for `muted` see muting.py.
CONTENT = ("rule_state", "group", "measures", "severity", "text")

NO_ANNOUNCEMENTS = LEDGER_SCHEMA.empty_table()

# With fewer entries than this it is not worth searching for entries to drop.
_FLOOR = 4096

# Each batch adds a table, often of one entry: beyond this many they are combined.
_MOST_TABLES = 64


def completed(table: pa.Table) -> pa.Table:
    """Announcements of an earlier release as LEDGER_SCHEMA: its rules muted nothing."""
    if table.schema.equals(LEDGER_SCHEMA):
        return table
    values = {"muted": pa.scalar(value=False), "mute": pa.scalar(0)}
    for name, value in values.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table.select(LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA)


class Subject(NamedTuple):
    """What an alert is about: one version of a rule, at one event."""

    rule_id: str
    rule_version: int


class Last(NamedTuple):
    """The last announcement about a subject at an event: its number in the ledger, revision and kind."""

    entry: int
    revision: int
    retracted: bool


def grown(array: npt.NDArray[Any], needed: int) -> npt.NDArray[Any]:
    """The array itself, or a copy with at least `needed` and at least twice the places (amortised O(1) per append)."""
    if needed <= len(array):
        return array
    bigger = np.zeros(max(needed, 2 * len(array)), array.dtype)
    bigger[: len(array)] = array
    return bigger


def _chosen(rows: Int64Array, table: pa.Table, chosen: npt.NDArray[np.bool_]) -> tuple[Int64Array, pa.Table]:
    """The chosen rows of both, without a copy if these are all."""
    return (rows, table) if chosen.all() else (rows[chosen], table.filter(pa.array(chosen)))


class Ledger:
    """The last announcement of every alert whose event may still be evaluated again."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._awaited: dict[tuple[str, int], list[dict[str, Any]]] = {}  # by id and time (µs) of an event not yet read
        self._clear()

    def _clear(self) -> None:
        self.count = 0  # entries held, needed or not
        self._look_again_at = _FLOOR
        self._subjects: dict[Subject, int] = {}
        self._tables: list[pa.Table] = []
        self._starts: list[int] = []  # the first entry of each table
        # of each store row its newest entry + 1, 0 for none
        self._newest = RowArray(np.int32)
        # of each entry
        self._row: Int64Array = np.zeros(64, np.int64)
        self._subject: Int64Array = np.zeros(64, np.int64)
        self._revision: Int64Array = np.zeros(64, np.int64)
        self._retracted: Int64Array = np.zeros(64, np.int64)
        self._previous: Int64Array = np.zeros(64, np.int64)

    def _reach(self) -> None:
        """Have a place for each row of the store."""
        self._newest.reserve(self._store.room, self._store.live if self.count else ())

    def release(self, rows: slice) -> None:
        """Follow the store in giving back the memory of these rows."""
        self._newest.release(rows)

    def announced(self, rows: Int64Array) -> np.ndarray:
        """Which of the store rows have an entry: bool, one per row."""
        self._reach()
        announced: np.ndarray = self._newest.all[rows] != 0
        return announced

    def get(self, rows: Int64Array, subject: Subject) -> list[Last | None]:
        """The last announcement about the subject at each of the rows' events."""
        code = self._subjects.get(subject, -1)
        found = chains.find(rows, np.full(len(rows), code), self._newest.all, self._previous, self._subject)
        return [None if entry < 0 else self._last(entry) for entry in found.tolist()]

    def unretracted(self, row: int) -> dict[Subject, Last]:
        """The alerts at this row's event that are not retracted, by rule id and version."""
        subjects = list(self._subjects)
        found: dict[Subject, Last] = {}
        entry = int(self._newest.all[row]) - 1
        while entry >= 0:
            found.setdefault(subjects[self._subject[entry]], self._last(entry))
            entry = int(self._previous[entry])
        return {subject: found[subject] for subject in sorted(found) if not found[subject].retracted}

    def _last(self, entry: int) -> Last:
        return Last(entry, int(self._revision[entry]), bool(self._retracted[entry]))

    def content(self, entry: int) -> dict[str, str]:
        """An entry's content, by the names of CONTENT."""
        table = bisect_right(self._starts, entry) - 1
        at = entry - self._starts[table]
        return {name: self._tables[table].column(name)[at].as_py() for name in CONTENT}

    def read(self, entries: Int64Array) -> pa.Table:
        """Entries as LEDGER_SCHEMA."""
        if not len(entries):
            return NO_ANNOUNCEMENTS
        self._combine()
        return self._tables[0].take(pa.array(entries, pa.int64()))

    def _combine(self) -> None:
        self._tables = [pa.concat_tables(self._tables).combine_chunks()]
        self._starts = [0]

    def append(self, rows: Int64Array, table: pa.Table) -> None:
        """Append announcements (LEDGER_SCHEMA) at store rows as the last of their subjects."""
        if not len(rows):
            return
        old, new = self.count, self.count + len(rows)
        self._reach()
        self._row, self._subject, self._revision, self._retracted, self._previous = (
            grown(each, new) for each in (self._row, self._subject, self._revision, self._retracted, self._previous)
        )
        self._row[old:new] = rows
        self._subject[old:new] = self._coded(table)
        self._revision[old:new] = table.column("revision").to_numpy()
        self._retracted[old:new] = table.column("retracted").to_numpy()
        chains.link(rows, old, self._newest.all, self._previous)
        self._tables.append(table)
        self._starts.append(old)
        self.count = new
        if len(self._tables) > _MOST_TABLES:
            self._combine()

    def _coded(self, table: pa.Table) -> Int64Array:
        """A code for each row's rule id and version."""
        if table.num_rows <= FEW:
            pairs = map(Subject, *(table.column(name).to_pylist() for name in ("rule_id", "rule_version")))
            return np.array([self._subjects.setdefault(subject, len(self._subjects)) for subject in pairs], np.int64)
        named = pa.concat_arrays(table.column("rule_id").chunks).dictionary_encode()
        names = named.dictionary.to_pylist()
        # as one number: np.unique of pairs takes ten times as long
        numbers = table.column("rule_version").to_numpy() * len(names) + named.indices.to_numpy()
        distinct, inverse = np.unique(numbers, return_inverse=True)
        subjects = [Subject(names[number % len(names)], number // len(names)) for number in distinct.tolist()]
        codes = [self._subjects.setdefault(subject, len(self._subjects)) for subject in subjects]
        coded: Int64Array = np.array(codes)[inverse]
        return coded

    def drop_settled(self, settled: int) -> None:
        """Drop announcements about events before `settled` (µs), once those may be most of the entries."""
        if self.count >= self._look_again_at:
            self._keep(self._needed(settled), self._row)

    def renumber(self, new_row: Int64Array, settled: int) -> None:
        """Drop entries of rows that the store drops (new_row is -1 for them) and of events before `settled` (µs).

        Called before the store drops them.
        """
        self._keep(self._needed(settled), np.append(new_row, -1)[self._row])

    def _needed(self, settled: int) -> Int64Array:
        """The entries that are the last of their subjects at events from `settled` on, oldest first."""
        count = self.count
        alert = self._row[:count] * (len(self._subjects) + 1) + self._subject[:count]
        last = count - 1 - np.unique(alert[::-1], return_index=True)[1]
        rows = self._row[last]
        needed: Int64Array = np.sort(last[self._store.holds(rows) & (self._store.times[rows] >= settled)])
        return needed

    def _keep(self, entries: Int64Array, rows: Int64Array) -> None:
        """Drop all but these entries; rows: every entry's new store row, -1 for none."""
        entries = entries[rows[entries] >= 0]
        table, rows = self.read(entries).combine_chunks(), rows[entries]
        self._clear()
        self.append(rows, table)
        self._look_again_at = max(_FLOOR, 2 * len(entries))

    def entries(self, settled: int) -> pa.Table:
        """The last announcements about events at or after `settled` (µs), as LEDGER_SCHEMA."""
        awaited = [entry for event, known in self._awaited.items() if event[1] >= settled for entry in known]
        return pa.concat_tables([self.read(self._needed(settled)), pa.Table.from_pylist(awaited, LEDGER_SCHEMA)])

    def restore(self, table: pa.Table) -> None:
        """Add entries (LEDGER_SCHEMA), also about events that the store does not hold yet.

        They may come in any order: of each alert the highest revision counts.
        """
        if not table.num_rows:
            return
        times = table.column("event_time").cast(pa.int64()).to_numpy()
        rows = self._store.ids.find(table.column("event_id").combine_chunks())
        held = (rows >= 0) & (self._store.times[rows] == times)
        self._take(*_chosen(rows, table, held))
        for entry in _chosen(rows, table, ~held)[1].to_pylist():
            self._awaited.setdefault((entry["event_id"], microseconds(entry["event_time"])), []).append(entry)

    def meet(self, base: int, settled: int) -> bool:
        """Add awaited entries about the store's new rows, from `base` on; returns whether there were any.

        Entries about events before `settled` (µs) are no longer awaited: those events will not be evaluated.
        """
        if not self._awaited:
            return False
        self._awaited = {event: known for event, known in self._awaited.items() if event[1] >= settled}
        ids = self._store.array(self._store.stream.event_id, np.arange(base, self._store.rows)).to_pylist()
        new = zip(ids, self._store.times[base : self._store.rows].tolist(), strict=True)
        met = [
            (row, entry)
            for row, event in enumerate(new, base)
            if event in self._awaited
            for entry in self._awaited.pop(event)
        ]
        self._take(
            np.array([row for row, _ in met], np.int64), pa.Table.from_pylist([e for _, e in met], LEDGER_SCHEMA)
        )
        return bool(met)

    def _take(self, rows: Int64Array, table: pa.Table) -> None:
        """Append those of the entries at store rows that are newer than the known ones."""
        revisions = table.column("revision").to_numpy()
        if (revisions[1:] < revisions[:-1]).any():
            order = np.argsort(revisions, kind="stable")
            rows, table, revisions = rows[order], table.take(pa.array(order)), revisions[order]
        self._reach()
        known = chains.find(rows, self._coded(table), self._newest.all, self._previous, self._subject)
        self.append(*_chosen(rows, table, (known < 0) | (self._revision[known] < revisions)))
