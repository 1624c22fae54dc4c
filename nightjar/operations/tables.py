"""Look at and change the rows of tables: the records of their topic, read from its beginning each time."""

from __future__ import annotations

import dataclasses
import heapq
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.contracts.table_changes import (
    MAX_KEYS,
    MAX_TEXT,
    MAX_VALUES_TEXT,
    ChangeReader,
    Declined,
    change_record,
    decision_record,
)
from nightjar.files.table_files import FileRow, Key, keys_of
from nightjar.kafka.clients import explained, producer
from nightjar.kafka.readers import Reader
from nightjar.operations.rule_publishing import login_name
from nightjar.rules.approval import same_person
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.names import did_you_mean
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.table_values import shown_values
from nightjar.rules.tables import MAX_CHANGES
from nightjar.rules.timestamps import from_microseconds, iso_text, microseconds
from nightjar.rules.types import FieldType

_DELIVERY_SECONDS = 30
# Of the id of a change, by which an approval names it.
_ID_DIGITS = 8
# Keys of a change that a line names.
_SHOWN = 10


@dataclass(frozen=True)
class TableHistory:
    """What the topic says.

    changes: in order, also those that are beyond the bounds; waiting: those that need approval, likewise; declined:
    those that nobody can approve any more; skipped: how many records have no effect.
    """

    rows: TableRows
    changes: tuple[Change, ...]
    skipped: int
    waiting: tuple[Change, ...] = ()
    declined: tuple[Declined, ...] = ()

    def of(self, table: str, key: Key | None = None) -> list[Change]:
        """The changes of a table (of one key, if given): those that took effect or were declined in the order of the
        records that made them so, then those that wait."""
        effective = ((each.position, each) for each in self.changes)
        declined = ((each.position, each.change) for each in self.declined)
        ended = (each for _, each in heapq.merge(effective, declined, key=itemgetter(0)))
        every = (*ended, *self.waiting)
        return [each for each in every if each.table == table and (key is None or key in each.keys)]

    def decline_of(self, change: Change) -> Declined | None:
        """Who declined a change that it has; None if nobody did."""
        return next((each for each in self.declined if each.change is change), None)

    def keys(self, table: str, at: int | None = None) -> list[str]:
        """The keys that the table has at an event time (µs; None: now), as text."""
        return [str(key) for key in self.rows.keys_at(table, now() if at is None else at).to_pylist()]

    def values(self, table: str, at: int | None = None) -> dict[str, dict[str, Any]]:
        """The same keys with the values of their rows, as table_values.declared_values has them."""
        found = self.rows.rows_at(table, now() if at is None else at).to_pylist()
        return {
            row.pop("key"): {name: _written(value) for name, value in row.items() if value is not None} for row in found
        }

    def last(self, table: str) -> Change | None:
        """The last change that has taken effect."""
        return next((each for each in reversed(self.changes) if each.table == table), None)


class TableLog:
    """The changes of all tables, from the records of their topic, added some at a time.

    next: the offset of the record after the last one that was added.

    Raises:
        SettingsError: no table is declared.
    """

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        if not (declared := tables_of(streams)):
            remedy = "Declare one as [tables.NAME] beside the streams"
            raise SettingsError("no table is declared", where="tables", remedy=remedy)
        self.next = 0
        self._declined: list[Declined] = []
        self._rows, self._reader = TableRows(declared), ChangeReader(declared, self._declined.append)
        self._changes: list[Change] = []

    def add(self, records: Iterable[Record]) -> TableHistory:
        """Read further records; all changes so far."""

        def noted() -> Iterator[Record]:
            for record in records:
                self.next = record.offset + 1
                yield record

        changes = [*self._reader.read(noted())]
        self._rows.add(changes, changes[-1].position + 1 if changes else 0)
        self._changes += changes
        waiting = tuple(self._reader.waiting.values())
        return TableHistory(self._rows, tuple(self._changes), self._reader.unusable, waiting, tuple(self._declined))


def read_records(settings: Settings, offset: int = 0) -> Iterator[Record]:
    """The records of the tables' topic from an offset on.

    Raises:
        KafkaError: the topic cannot be read.
    """
    with Reader(settings, settings.tables_topic) as topic:
        if offset:
            topic.from_offsets({settings.tables_topic: {0: offset}})
        for record in topic.all():
            yield Record(record.offset, record.arrival, record.value)


def read_tables(settings: Settings, streams: Mapping[str, Stream]) -> TableHistory:
    """All changes so far.

    Raises:
        SettingsError: no table is declared.
        KafkaError: the topic cannot be read.
    """
    return TableLog(streams).add(read_records(settings))


def _written(value: Any) -> Any:
    """A value of a row as JSON has it."""
    if isinstance(value, datetime):
        return iso_text(microseconds(value))
    return format(value, "f") if isinstance(value, Decimal) else value


@dataclass(frozen=True)
class Order:
    """What somebody wants to be changed: keys of a table, set or removed. valid_from: None: from its arrival on;
    author: None: the login name. values: of each key, as table_values.declared_values has them; none where all are
    NULL."""

    keys: Sequence[Key]
    is_set: bool
    valid_from: datetime | None
    author: str | None
    reason: str
    values: Sequence[Mapping[str, Any]] = ()

    def with_values(self, of_each: Mapping[str, Any]) -> Order:
        """The same, where all keys have these values."""
        return replace(self, values=[of_each] * len(self.keys)) if of_each else self


def imported(rows: Iterable[FileRow], present: Mapping[Key, Mapping[str, Any]], order: Order) -> list[Order]:
    """The orders that set the rows of a file.

    present: the keys that the table has, with their values; they are set again only from a time that the file states,
    or with other values. order: what holds where the file says nothing.
    """
    found: dict[tuple[bool, datetime | None, str | None, str], dict[Key, Mapping[str, Any]]] = {}
    for row in rows:
        who = row.author or order.author, row.reason or order.reason
        is_there = row.key in present and (row.values is None or row.values == present[row.key])
        if row.valid_from is not None or not is_there:
            begins = order.valid_from if row.valid_from is None else from_microseconds(row.valid_from)
            found.setdefault((True, begins, *who), {})[row.key] = row.values or {}
        if row.valid_until is not None:
            found.setdefault((False, from_microseconds(row.valid_until), *who), {})[row.key] = {}
    return [Order([*keys], *said, [*keys.values()] if any(keys.values()) else ()) for said, keys in found.items()]


def import_orders(
    rows: Iterable[FileRow], known: TableHistory, table: str, kind: FieldType, order: Order, *, replace: bool
) -> list[Order]:
    """The orders that bring the rows of a file into a table. order: what holds where the file says nothing.

    replace: whether the keys that the file lacks are removed.
    """
    rows, values = [*rows], known.values(table)
    present = dict(zip(keys_of(values, table, kind), values.values(), strict=True))
    held = {row.key for row in rows}
    gone = [key for key in present if key not in held] if replace else []
    return [*imported(rows, present, order), dataclasses.replace(order, keys=gone, is_set=False)]


def change_records(table: str, orders: Iterable[Order]) -> tuple[list[str], list[tuple[bytes, bytes]]]:
    """The ids of the changes that orders come to, and their records.

    Raises:
        SettingsError: an author or a reason is too long.
    """
    ids, records = list[str](), list[tuple[bytes, bytes]]()
    for order in orders:
        who = (login_name() or "") if order.author is None else order.author
        _refuse_long(who, order.reason)
        for part in _parts(order):
            ids.append(uuid.uuid4().hex[:_ID_DIGITS])
            records.append(
                change_record(
                    table,
                    order.keys[part],
                    is_set=order.is_set,
                    valid_from=order.valid_from,
                    author=who,
                    reason=order.reason,
                    id=ids[-1],
                    values=order.values[part],
                )
            )
    return ids, records


def _parts(order: Order) -> Iterator[slice]:
    """Which keys are one record: as many as one has, and whose values do not make it too long."""
    first = size = 0
    for at in range(len(order.keys)):
        more = len(json.dumps(order.values[at])) if order.values else 0
        if at > first and (at - first == MAX_KEYS or size + more > MAX_VALUES_TEXT):
            yield slice(first, at)
            first, size = at, 0
        size += more
    if order.keys:
        yield slice(first, len(order.keys))


def change_table(settings: Settings, table: str, orders: Iterable[Order], arrival: int | None = None) -> list[str]:
    """Set or remove keys; returns the ids of the changes once all records are delivered.

    arrival: µs, for topics whose producers set it; None: now.

    Raises:
        SettingsError: see `change_records`.
        KafkaError: Kafka does not take them.
    """
    ids, records = change_records(table, orders)
    send_changes(settings, records, None if arrival is None else arrival // 1000)
    return ids


def decision_records(
    table: str, ids: Sequence[str], known: TableHistory, *, approves: bool, author: str | None, reason: str
) -> list[tuple[bytes, bytes]]:
    """The records that approve, or decline, changes that wait. author: None: the login name.

    Raises:
        SettingsError: one of them does not wait, or is to be approved by its author; nobody is named; the author or the
            reason is too long.
    """
    who = ((login_name() or "") if author is None else author).strip()
    if not who:
        raise SettingsError("is missing", where="author", remedy="Say who you are")
    _refuse_long(who, reason)
    waiting = {each.id: each for each in known.waiting if each.table == table}
    for name in ids:
        if name not in waiting:
            remedy = did_you_mean(name, waiting, "Those that wait are") if waiting else "No change of it waits"
            raise SettingsError(
                f"is no change of {table} that waits for approval", where=shortened(name), remedy=remedy
            )
        if approves and same_person(waiting[name].author, who):
            remedy = "Somebody else has to approve it"
            raise SettingsError(f"was ordered by {waiting[name].author}", where=shortened(name), remedy=remedy)
    parts = (ids[at : at + MAX_KEYS] for at in range(0, len(ids), MAX_KEYS))
    return [decision_record(table, part, approves=approves, author=who, reason=reason) for part in parts]


def _refuse_long(author: str, reason: str) -> None:
    for name, text in (("author", author), ("reason", reason)):
        if len(text) > MAX_TEXT:
            raise SettingsError(f"has more than {MAX_TEXT} characters", where=name, remedy="Shorten it")


def send_changes(settings: Settings, records: Iterable[tuple[bytes, bytes]], stamp: int | None = None) -> None:
    """Send keys and values of records, and wait until they are delivered. stamp: ms; None: now.

    Raises:
        KafkaError: Kafka does not take them, some of which may have been sent.
    """
    with (
        producer(settings) as client,
        explained(settings, f"publishing on topic {settings.tables_topic}"),
    ):
        sent = [client.send(settings.tables_topic, value, key=key, timestamp_ms=stamp) for key, value in records]
        client.flush(_DELIVERY_SECONDS)
        for each in sent:
            each.get(_DELIVERY_SECONDS)


def refuse_beyond_bounds(known: TableHistory, orders: Iterable[Order]) -> None:
    """Raise SettingsError if so many more changes would be more than every host takes."""
    if sum(len(each.keys) for each in known.changes) + sum(len(each.keys) for each in orders) > MAX_CHANGES:
        raise SettingsError(
            f"all tables together would have more than {MAX_CHANGES:,} changes, and further ones do not count",
            where="tables",
            remedy="Name another tables_topic in the settings, and import what is current",
        )


def now() -> int:
    """The host's clock, µs."""
    return time.time_ns() // 1000


def shown_values_of(change: Change) -> str:
    """The values of the first keys of a change; only once where all keys have the same."""
    if not change.values or all(each == change.values[0] for each in change.values):
        return shown_values(change.values[0]) if change.values else ""
    first = [*zip(change.keys, change.values, strict=True)][:_SHOWN]
    listed = "; ".join(f"{key}: {shown_values(values)}" for key, values in first)
    return listed + _more(change.keys)


def shown_keys(keys: Sequence[Key]) -> str:
    """Some of the keys of a change, and how many more there are."""
    return ", ".join(map(str, keys[:_SHOWN])) + _more(keys)


def _more(keys: Sequence[Key]) -> str:
    return f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
