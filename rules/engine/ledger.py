"""What has been announced, so that only what changed is announced again (laws 7 and 10).

An announcement may be known before its event: a stream whose state was made anew reads again some of what it had read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rules.engine.store import EventStore, Mask
from rules.engine.strings import grown
from rules.timestamps import microseconds

LEDGER_SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("rule_id", pa.string()),
        ("rule_version", pa.int64()),
        ("revision", pa.int64()),
        ("retracted", pa.bool_()),
        ("rule_state", pa.string()),
        ("group", pa.string()),
        ("measures", pa.string()),
        ("severity", pa.string()),
        ("text", pa.string()),
    ]
)


_NOTHING_SAID = LEDGER_SCHEMA.empty_table()


class Subject(NamedTuple):
    """What an alert is about: one version of a rule, at one event."""

    rule_id: str
    rule_version: int


class Content(NamedTuple):
    """What an alert says, as text; two records that say the same are not announced twice."""

    rule_state: str
    group: str
    measures: str
    severity: str
    text: str


class Announcement(NamedTuple):
    """The last record of an alert. A retraction says what the alert it withdraws said."""

    revision: int
    retracted: bool
    content: Content


class Ledger:
    """The last announcement of every alert whose event may still be evaluated again, by store row."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._of_row: dict[int, dict[Subject, Announcement]] = {}
        self._announced: Mask = np.zeros(64, np.uint8)
        # by id and time (µs) of an event that has yet to come: entries
        self._awaited: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def announced(self, rows: np.ndarray) -> np.ndarray:
        """Which of the store rows have ever had an alert: bool, one place a row."""
        self._announced = grown(self._announced, self._store.rows)
        announced: np.ndarray = self._announced[rows] != 0
        return announced

    def get(self, row: int, subject: Subject) -> Announcement | None:
        """The last announcement about the subject at this row's event."""
        return self._of_row.get(row, {}).get(subject)

    def standing(self, row: int) -> list[tuple[Subject, Announcement]]:
        """The alerts at this row's event that are not retracted."""
        return [(s, a) for s, a in self._of_row.get(row, {}).items() if not a.retracted]

    def set(self, row: int, subject: Subject, announcement: Announcement) -> None:
        """Remember the announcement as the last of its subject."""
        if row >= len(self._announced):
            self._announced = grown(self._announced, self._store.rows)
        self._announced[row] = 1
        self._of_row.setdefault(row, {})[subject] = announcement

    def renumber(self, new_row: np.ndarray, settled: int) -> None:
        """Follow the store in forgetting rows (new_row is -1 for them), and forget events before `settled` (µs).

        Called once the store has forgotten.
        """
        moved = ((int(new_row[row]), subjects) for row, subjects in self._of_row.items())
        self._of_row = {row: s for row, s in moved if row >= 0 and self._store.times[row] >= settled}
        self._announced = np.zeros(max(64, self._store.rows), np.uint8)
        self._announced[list(self._of_row)] = 1

    def entries(self, since: int) -> pa.Table:
        """All that is remembered of events at or after `since` (µs), as LEDGER_SCHEMA."""
        held = [
            (row, subject, announcement)
            for row, subjects in self._of_row.items()
            if self._store.times[row] >= since
            for subject, announcement in subjects.items()
        ]
        awaited = [entry for known in self._awaited.values() for entry in known if _time(entry) >= since]
        return pa.concat_tables([entries(self._store, held), pa.Table.from_pylist(awaited, LEDGER_SCHEMA)])

    def restore(self, table: pa.Table) -> None:
        """Remember what the entries (LEDGER_SCHEMA) say, also of events that the store does not hold yet.

        They may come in any order: of each alert the highest revision counts.
        """
        if not table.num_rows:
            return
        rows = self._store.ids.find(table.column("event_id").combine_chunks())
        for row, entry in zip(rows.tolist(), table.to_pylist(), strict=True):
            if row >= 0 and self._store.times[row] == _time(entry):
                self._take(row, entry)
            else:
                self._awaited.setdefault((entry["event_id"], _time(entry)), []).append(entry)

    def meet(self, base: int, settled: int) -> bool:
        """Whether something was announced already of the store's rows from `base` on, which are new to it.

        What was announced of an event before `settled` (µs) is awaited no more: nobody will evaluate it.
        """
        if not self._awaited:
            return False
        self._awaited = {event: known for event, known in self._awaited.items() if event[1] >= settled}
        ids = self._store.array(self._store.stream.event_id, np.arange(base, self._store.rows)).to_pylist()
        new = zip(ids, self._store.times[base : self._store.rows].tolist(), strict=True)
        met = [(row, self._awaited.pop(event)) for row, event in enumerate(new, base) if event in self._awaited]
        for row, known in met:
            for entry in known:
                self._take(row, entry)
        return bool(met)

    def _take(self, row: int, entry: dict[str, Any]) -> None:
        subject, announcement = _read(entry)
        known = self.get(row, subject)
        if known is None or known.revision < announcement.revision:
            self.set(row, subject, announcement)


def _read(entry: dict[str, Any]) -> tuple[Subject, Announcement]:
    content = Content(*(entry[name] for name in Content._fields))
    subject = Subject(entry["rule_id"], entry["rule_version"])
    return subject, Announcement(entry["revision"], entry["retracted"], content)


def _time(entry: dict[str, Any]) -> int:
    return microseconds(entry["event_time"])


def entries(store: EventStore, announcements: list[tuple[int, Subject, Announcement]]) -> pa.Table:
    """Announcements at store rows as a table of LEDGER_SCHEMA."""
    if not announcements:
        return _NOTHING_SAID
    rows = np.array([row for row, _, _ in announcements], np.int64)
    columns = {
        "event_id": store.array(store.stream.event_id, rows),
        "event_time": store.array(store.stream.event_time, rows),
    }
    for name in LEDGER_SCHEMA.names[2:]:
        values = [{**s._asdict(), **a._asdict(), **a.content._asdict()}[name] for _, s, a in announcements]
        columns[name] = pa.array(values, LEDGER_SCHEMA.field(name).type)
    return pa.table(columns).cast(LEDGER_SCHEMA)
