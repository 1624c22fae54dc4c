"""Look at and change the rows of tables: the records of their topic, read from its beginning each time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nightjar.configuration.settings import Settings
from nightjar.contracts.table_changes import MAX_KEYS, ChangeReader, approval_record, change_record
from nightjar.files.table_files import FileRow, Key
from nightjar.kafka.clients import explained, producer
from nightjar.kafka.readers import Reader
from nightjar.operations.rule_publishing import login_name
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.names import did_you_mean
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.tables import MAX_CHANGES
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import FieldType

_DELIVERY_SECONDS = 30
# Of the id of a change, by which an approval names it.
_ID_DIGITS = 8


@dataclass(frozen=True)
class TableHistory:
    """What the topic says.

    changes: in order, also those that are beyond the bounds; waiting: those that need approval, likewise; skipped: how
    many records have no effect.
    """

    rows: TableRows
    changes: tuple[Change, ...]
    skipped: int
    waiting: tuple[Change, ...] = ()

    def of(self, table: str, key: Key | None = None) -> list[Change]:
        """The changes of a table (of one key, if given), those that wait last."""
        every = (*self.changes, *self.waiting)
        return [each for each in every if each.table == table and (key is None or key in each.keys)]

    def keys(self, table: str, at: int | None = None) -> list[str]:
        """The keys that the table has at an event time (µs; None: now), as text."""
        return [str(key) for key in self.rows.keys_at(table, now() if at is None else at).to_pylist()]


def read_tables(settings: Settings, streams: Mapping[str, Stream]) -> TableHistory:
    """All changes so far.

    Raises:
        SettingsError: no table is declared.
        KafkaError: the topic cannot be read.
    """
    declared = _declared(streams)
    rows, reader = TableRows(declared), ChangeReader(declared)
    with Reader(settings, settings.tables_topic) as topic:
        records = (Record(record.offset, record.arrival, record.value) for record in topic.all())
        changes = tuple(reader.read(records))
    rows.add(changes, changes[-1].position + 1 if changes else 0)
    return TableHistory(rows, changes, reader.unusable, tuple(reader.waiting.values()))


@dataclass(frozen=True)
class Order:
    """What somebody wants to be changed: keys of a table, set or removed. valid_from: None: from its arrival on;
    author: None: the login name."""

    keys: Sequence[Key]
    is_set: bool
    valid_from: datetime | None
    author: str | None
    reason: str


def imported(rows: Iterable[FileRow], present: Collection[Key], order: Order) -> list[Order]:
    """The orders that set the rows of a file.

    present: the keys that the table has, which are set again only from a time that the file states. order: what holds
    where the file says nothing.
    """
    found: dict[tuple[bool, datetime | None, str | None, str], dict[Key, None]] = {}
    for row in rows:
        who = row.author or order.author, row.reason or order.reason
        if row.valid_from is not None or row.key not in present:
            begins = order.valid_from if row.valid_from is None else from_microseconds(row.valid_from)
            found.setdefault((True, begins, *who), {})[row.key] = None
        if row.valid_until is not None:
            found.setdefault((False, from_microseconds(row.valid_until), *who), {})[row.key] = None
    return [Order([*keys], *said) for said, keys in found.items()]


def change_table(settings: Settings, table: str, orders: Iterable[Order], arrival: int | None = None) -> list[str]:
    """Set or remove keys; returns the ids of the changes once all records are delivered.

    arrival: µs, for topics whose producers set it; None: now.
    """
    ids, records = list[str](), list[tuple[bytes, bytes]]()
    for order in orders:
        who = (login_name() or "") if order.author is None else order.author
        for at in range(0, len(order.keys), MAX_KEYS):
            ids.append(uuid.uuid4().hex[:_ID_DIGITS])
            records.append(
                change_record(
                    table,
                    order.keys[at : at + MAX_KEYS],
                    is_set=order.is_set,
                    valid_from=order.valid_from,
                    author=who,
                    reason=order.reason,
                    id=ids[-1],
                )
            )
    _send(settings, records, None if arrival is None else arrival // 1000)
    return ids


def approve_changes(
    settings: Settings, table: str, ids: Sequence[str], known: TableHistory, *, author: str | None, reason: str
) -> None:
    """Approve changes that wait. author: None: the login name.

    Raises:
        SettingsError: one of them does not wait, or is of the same author.
    """
    who = (login_name() or "") if author is None else author
    waiting = {each.id: each for each in known.waiting if each.table == table}
    for name in ids:
        if name not in waiting:
            remedy = did_you_mean(name, waiting, "Those that wait are") if waiting else "No change of it waits"
            raise SettingsError(
                f"is no change of {table} that waits for approval", where=shortened(name), remedy=remedy
            )
        if not who or waiting[name].author == who:
            remedy = "Somebody else has to approve it: --author names who does"
            raise SettingsError(f"was ordered by {waiting[name].author}", where=shortened(name), remedy=remedy)
    parts = (ids[at : at + MAX_KEYS] for at in range(0, len(ids), MAX_KEYS))
    _send(settings, [approval_record(table, part, author=who, reason=reason) for part in parts], None)


def _send(settings: Settings, records: Iterable[tuple[bytes, bytes]], stamp: int | None) -> None:
    """Send keys and values, and wait until they are delivered. stamp: ms."""
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


def _declared(streams: Mapping[str, Stream]) -> Mapping[str, FieldType]:
    if not (declared := tables_of(streams)):
        raise SettingsError(
            "no table is declared", where="tables", remedy="Declare one as [tables.NAME] beside the streams"
        )
    return declared


def now() -> int:
    """The host's clock, µs."""
    return time.time_ns() // 1000
