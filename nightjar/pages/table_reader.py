"""Reads and changes tables for the pages: the changes of their topic, each read once by a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nightjar.configuration.settings import Settings
from nightjar.files.table_files import keys_of
from nightjar.kafka.clients import KafkaError
from nightjar.operations.table_keys import standings
from nightjar.operations.tables import (
    Order,
    TableHistory,
    TableLog,
    change_records,
    decision_records,
    now,
    read_records,
    refuse_beyond_bounds,
    send_changes,
)
from nightjar.rules.errors import SettingsError
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.tables import asked_of, memberships
from nightjar.rules.types import FieldType

# Everybody who looks within so many seconds sees the same reading of the topic.
_FRESH = 2.0
# Seconds after a failure in which pages that do without lists do not ask Kafka again.
_PATIENCE = 30.0

Messages = Iterable[tuple[bytes, bytes]]


class TableReader:
    """The tables of the declared streams, for all readers of a process at once.

    records: those of the topic from an offset on; send: puts keys and values of records on it.
    """

    def __init__(
        self,
        streams: Mapping[str, Stream],
        records: Callable[[int], Iterable[Record]],
        send: Callable[[Messages], object],
    ) -> None:
        self._streams, self._records, self._send = streams, records, send
        self._lock = threading.Lock()
        self._log: TableLog | None = None
        self._read: tuple[float, TableHistory] | None = None
        self._failed: float | None = None

    @classmethod
    def on_kafka(cls, settings: Settings, streams: Mapping[str, Stream]) -> TableReader:
        """Those on the topic of an installation."""
        return cls(
            streams, lambda offset: read_records(settings, offset), lambda records: send_changes(settings, records)
        )

    @property
    def declared(self) -> Mapping[str, FieldType]:
        """The declared tables, with the type of each one's key."""
        return tables_of(self._streams)

    @contextmanager
    def history(self, *, fresh: bool = False) -> Iterator[TableHistory]:
        """All changes, at most some seconds old, as long as nobody else reads them. fresh: as they are now.

        Raises:
            SettingsError: no table is declared.
            KafkaError: the topic cannot be read.
        """
        with self._lock:
            if fresh or self._read is None or time.monotonic() - self._read[0] > _FRESH:
                self._log = self._log or TableLog(self._streams)
                try:
                    records = [*self._records(self._log.next)]
                except KafkaError:
                    self._failed = time.monotonic()
                    raise
                self._failed, self._read = None, (time.monotonic(), self._log.add(records))
            yield self._read[1]

    def change(self, table: str, orders: Sequence[Order]) -> list[str]:
        """Set or remove keys; the ids of the changes.

        Raises:
            SettingsError: they would have no effect.
            KafkaError: Kafka does not take them.
        """
        with self.history(fresh=True) as known:
            refuse_beyond_bounds(known, orders)
        ids, records = change_records(table, orders)
        self._send(records)
        return ids

    def decide(self, table: str, ids: Sequence[str], author: str, *, approves: bool, reason: str = "") -> None:
        """Approve, or decline, changes that wait.

        Raises:
            SettingsError: see `decision_records`.
            KafkaError: Kafka does not take it.
        """
        with self.history(fresh=True) as known:
            records = decision_records(table, ids, known, approves=approves, author=author, reason=reason)
        self._send(records)

    def lists_of(self, field: str, kind: FieldType, value: str) -> dict[str, bool | None]:
        """The tables that can be asked about a field of this type, and whether each has the value now.

        None where Kafka cannot be read.
        """
        columns = memberships({field: kind}, self.declared)
        names = [asked.table for column in columns if (asked := asked_of(column)) is not None]
        if not names:
            return {}
        if self._failed is not None and time.monotonic() - self._failed < _PATIENCE:
            return dict.fromkeys(names)
        try:
            (key,) = keys_of([value], names[0], kind)
            with self.history() as known:
                return {name: standings(known, name, kind, [key], now())[0].has for name in names}
        except KafkaError:
            return dict.fromkeys(names)
        except SettingsError:  # what cannot be a key is in no table
            return {}
