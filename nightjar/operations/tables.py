"""Look at and change the rows of tables: the records of their topic, read from its beginning each time."""

from __future__ import annotations

import getpass
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nightjar.configuration.settings import Settings
from nightjar.contracts.table_changes import MAX_KEYS, change_record, read_change
from nightjar.files.table_files import FileRow, Key
from nightjar.kafka.clients import explained, producer
from nightjar.kafka.readers import Reader
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.errors import SettingsError
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.tables import MAX_CHANGES
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import FieldType

_DELIVERY_SECONDS = 30


@dataclass(frozen=True)
class TableHistory:
    """What the topic says. changes: in order, also those that are beyond the bounds; skipped: records that are none."""

    rows: TableRows
    changes: tuple[Change, ...]
    skipped: int

    def of(self, table: str, key: Key | None = None) -> list[Change]:
        """The changes of a table (of one key, if given)."""
        return [each for each in self.changes if each.table == table and (key is None or key in each.keys)]

    def keys(self, table: str, at: int | None = None) -> list[str]:
        """The keys that the table has at an event time (µs; None: now), as text."""
        return [str(key) for key in self.rows.keys_at(table, _now() if at is None else at).to_pylist()]


def read_tables(settings: Settings, streams: Mapping[str, Stream]) -> TableHistory:
    """All changes so far.

    Raises:
        SettingsError: no table is declared.
        KafkaError: the topic cannot be read.
    """
    declared = _declared(streams)
    rows, changes, records = TableRows(declared), list[Change](), 0
    with Reader(settings, settings.tables_topic) as topic:
        for record in topic.all():
            records += 1
            change = read_change(Record(record.offset, record.arrival, record.value), declared)
            if change is not None:
                changes.append(change)
    rows.add(changes, changes[-1].position + 1 if changes else 0)
    return TableHistory(rows, tuple(changes), records - len(changes))


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


def change_table(settings: Settings, table: str, orders: Iterable[Order], arrival: int | None = None) -> None:
    """Set or remove keys; returns once all records are delivered.

    arrival: µs, for topics whose producers set it; None: now.
    """
    stamp = None if arrival is None else arrival // 1000
    with (
        producer(settings) as client,
        explained(settings, f"publishing on topic {settings.tables_topic}"),
    ):
        sent = []
        for order in orders:
            who = _login_name() if order.author is None else order.author
            for at in range(0, len(order.keys), MAX_KEYS):
                key, value = change_record(
                    table,
                    order.keys[at : at + MAX_KEYS],
                    is_set=order.is_set,
                    valid_from=order.valid_from,
                    author=who,
                    reason=order.reason,
                )
                sent.append(client.send(settings.tables_topic, value, key=key, timestamp_ms=stamp))
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


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        return ""


def _now() -> int:
    return time.time_ns() // 1000
