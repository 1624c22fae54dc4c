"""Look at and change the rows of tables: the records of their topic, read from its beginning each time."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nightjar.configuration.settings import Settings
from nightjar.contracts.table_changes import MAX_KEYS, change_record, is_key, read_change
from nightjar.kafka.clients import explained, producer
from nightjar.kafka.readers import Reader
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.names import did_you_mean
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.tables import MAX_CHANGES, MAX_KEY
from nightjar.rules.types import FieldType, Kind

_DELIVERY_SECONDS = 30

Key = str | int


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


def table_kind(table: str, streams: Mapping[str, Stream]) -> FieldType:
    """The type of a table's key.

    Raises:
        SettingsError: it is not declared.
    """
    declared = _declared(streams)
    if table not in declared:
        remedy = did_you_mean(table, declared, "Tables are")
        raise SettingsError("is not a declared table", where=shortened(table), remedy=remedy)
    return declared[table]


def keys_of(texts: Iterable[str], table: str, kind: FieldType) -> list[Key]:
    """Keys of a table from texts; each once, in order.

    Raises:
        SettingsError: one cannot be a key.
    """
    found: dict[Key, None] = {}
    for text in texts:
        key: Key = text
        if (
            kind.kind is Kind.INT64
            and text.lstrip("-").isascii()
            and text.lstrip("-").isdigit()
            and len(text) < MAX_KEY
        ):
            key = int(text)
        if not is_key(key, kind):
            remedy = f"A key of {table} is {kind}" + (
                f" of 1 to {MAX_KEY} characters" if kind.kind is Kind.STRING else ""
            )
            raise SettingsError("cannot be a key", where=shortened(text) or "an empty text", remedy=remedy)
        found[key] = None
    return [*found]


def keys_in(file: Path) -> Iterator[str]:
    """The lines of a file, without spaces around them, empty ones and those that begin with #.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8"
        raise SettingsError(
            f"cannot be read ({reason})", where=str(file), remedy="Give a file of keys, one a line"
        ) from None
    return (line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def change_table(
    settings: Settings,
    table: str,
    keys: Sequence[Key],
    *,
    is_set: bool,
    valid_from: datetime | None = None,
    author: str | None = None,
    reason: str,
) -> None:
    """Set or remove keys; returns once all records are delivered. author: None: the login name."""
    with (
        producer(settings) as client,
        explained(settings, f"publishing on topic {settings.tables_topic}"),
    ):
        sent = []
        who = _login_name() if author is None else author
        for at in range(0, len(keys), MAX_KEYS):
            some = keys[at : at + MAX_KEYS]
            key, value = change_record(table, some, is_set=is_set, valid_from=valid_from, author=who, reason=reason)
            sent.append(client.send(settings.tables_topic, value, key=key))
        client.flush(_DELIVERY_SECONDS)
        for each in sent:
            each.get(_DELIVERY_SECONDS)


def refuse_beyond_bounds(known: TableHistory, keys: Sequence[Key]) -> None:
    """Raise SettingsError if so many more changes would be more than every host takes."""
    if sum(len(change.keys) for change in known.changes) + len(keys) > MAX_CHANGES:
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
