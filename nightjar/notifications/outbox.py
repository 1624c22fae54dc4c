"""The outbox: what waits to be sent, what could not be, and what targets know, in a file of SQLite.

How it works: alerts wait in *open* messages, one per target and grouping, until these are due. Then the message is
*sealed*: it gets its content and its key, which stay as they are until it is delivered or given up, and the alerts in
it count as told. New alerts of the grouping wait in another. Everything that was read of the topic and the offsets of
that change in one transaction.

Each thread opens the file for itself. It has to be on a local disk, as SQLite's log does not work over NFS.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nightjar.contracts.alerts import ANNOUNCED, BACKFILL, RETRACTED
from nightjar.notifications.messages import Message
from nightjar.notifications.notices import Seen, is_due, is_withdrawal, is_worth_it
from nightjar.rules.errors import SettingsError

_VERSION = 1
# Seconds that a thread waits for another's transaction.
_PATIENCE = 30.0
_TABLES = """
CREATE TABLE offsets (topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition));
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target TEXT NOT NULL,
    grouping TEXT NOT NULL,
    urgent INTEGER NOT NULL,
    due INTEGER NOT NULL,
    key TEXT UNIQUE,
    content TEXT,
    made_at INTEGER,
    tried_since INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    given_up INTEGER
);
CREATE INDEX kept_messages ON messages (target) WHERE given_up IS NULL;
CREATE UNIQUE INDEX open_messages ON messages (target, grouping, urgent) WHERE key IS NULL;
CREATE TABLE alerts (
    target TEXT,
    alert_id TEXT,
    revision INTEGER NOT NULL,
    is_correction INTEGER NOT NULL,
    told INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    message INTEGER,
    record TEXT,
    PRIMARY KEY (target, alert_id)
);
CREATE INDEX waiting_alerts ON alerts (message, seen_at) WHERE message IS NOT NULL;
CREATE INDEX old_alerts ON alerts (seen_at);
"""
# What may be sent: not given up, and beyond quiet hours unless it is urgent. Of sealed ones, and of open ones.
_SENDABLE = "target = :target AND given_up IS NULL AND (urgent OR NOT :quiet)"


@dataclass(frozen=True)
class Routed:
    """A record for a target. wait: until it is due at the latest, µs; urgent: whether quiet hours do not hold it.

    snoozed: whether its group is snoozed at its event time.
    """

    target: str
    record: Mapping[str, Any]
    grouping: str
    wait: int
    urgent: bool
    snoozed: bool = False


@dataclass(frozen=True)
class Sealed:
    """A message with its place in the outbox. tried_since: µs; attempts: that have failed since then."""

    id: int
    message: Message
    tried_since: int
    attempts: int


@dataclass(frozen=True)
class GivenUp:
    """A message that was given up. made_at, given_up_at: µs; alerts: how many it has; reason: of the last failure."""

    target: str
    key: str
    made_at: int
    given_up_at: int
    attempts: int
    alerts: int
    reason: str


@dataclass(frozen=True)
class Standing:
    """Of a target: how many messages wait and how many were given up, and since when the one waits that should have
    been sent first (µs; None: none should)."""

    waiting: int
    given_up: int
    overdue_since: int | None


class Outbox:
    """The file, opened by one thread; a context manager. It is created if it is missing, readable by its owner only.

    Raises:
        SettingsError: it cannot be opened, or is none of this release.
    """

    def __init__(self, file: Path) -> None:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)
            self._prepare(file)
        except (OSError, sqlite3.Error) as failure:
            raise SettingsError(
                f"cannot be opened ({getattr(failure, 'strerror', None) or failure})",
                where=f"outbox {file}",
                remedy="Set outbox to a file on a local disk that this user can write",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def offsets(self, topic: str) -> dict[int, int]:
        """By partition, up to where the topic was read."""
        query = "SELECT partition, next_offset FROM offsets WHERE topic = ?"
        return dict(self._connection.execute(query, (topic,)).fetchall())

    def take(self, topic: str, routed: Sequence[Routed], offsets: Mapping[int, int], now: int) -> Counter[str]:
        """Take in the next records of the topic, each partition's in order. offsets: of each partition after them.

        By target, of how many further alerts it is not told because they are snoozed.
        """
        left_out: Counter[str] = Counter()
        with self._transaction() as connection:
            for each in routed:
                left_out[each.target] += _take(connection, each, now)
            connection.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
                [(topic, partition, offset) for partition, offset in offsets.items()],
            )
        return +left_out

    def next(self, target: str, now: int, *, quiet: bool, listed: int, splits: bool) -> Sealed | None:
        """The message that is to be sent to a target next; None if none is due.

        quiet: whether only urgent ones are sent now; listed: how many alerts a message has at most; splits: whether
        further ones are in further messages, else they are only counted.
        """
        given = {"target": target, "quiet": quiet, "now": now}
        query = f"SELECT * FROM messages WHERE {_SENDABLE} AND key IS NOT NULL ORDER BY id LIMIT 1"  # noqa: S608  constants
        opened = f"SELECT id FROM messages WHERE {_SENDABLE} AND key IS NULL AND due <= :now ORDER BY due, id LIMIT 1"  # noqa: S608
        while (found := self._connection.execute(query, given).fetchone()) is None:
            due = self._connection.execute(opened, given).fetchone()
            if due is None:
                return None
            with self._transaction() as connection:
                _seal(connection, due["id"], now, listed, splits=splits)
        content = json.loads(found["content"])
        message = Message(found["key"], found["made_at"], content["alerts"], content["more"])
        return Sealed(found["id"], message, found["tried_since"], found["attempts"])

    def delivered(self, sealed: Sealed) -> None:
        """Remove a message that the target has accepted."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM messages WHERE id = ?", (sealed.id,))

    def failed(self, sealed: Sealed, reason: str, *, given_up: int | None = None) -> None:
        """Note that it was not accepted. given_up: the time (µs) if it is not to be tried again."""
        change = "UPDATE messages SET attempts = attempts + 1, reason = ?, given_up = ? WHERE id = ?"
        with self._transaction() as connection:
            connection.execute(change, (reason, given_up, sealed.id))

    def given_up(self) -> list[GivenUp]:
        """The messages that were given up, in the order in which they were made."""
        rows = self._connection.execute("SELECT * FROM messages WHERE given_up IS NOT NULL ORDER BY id").fetchall()
        return [
            GivenUp(
                row["target"],
                row["key"],
                row["made_at"],
                row["given_up"],
                row["attempts"],
                len(content["alerts"]) + sum(content["more"].values()),
                row["reason"],
            )
            for row in rows
            for content in [json.loads(row["content"])]
        ]

    def retry(self, now: int) -> int:
        """Have all that were given up tried again; how many these are."""
        change = "UPDATE messages SET given_up = NULL, attempts = 0, tried_since = ? WHERE given_up IS NOT NULL"
        with self._transaction() as connection:
            return connection.execute(change, (now,)).rowcount

    def standing(self, target: str, now: int, *, quiet: bool) -> Standing:
        """How things are at a target."""
        counts = "SELECT count(*) - count(given_up) AS waiting, count(given_up) AS gone FROM messages WHERE target = ?"
        (waiting, gone) = self._connection.execute(counts, (target,)).fetchone()
        query = f"SELECT min(due) FROM messages WHERE {_SENDABLE} AND due <= :now"  # noqa: S608  a constant
        (since,) = self._connection.execute(query, {"target": target, "quiet": quiet, "now": now}).fetchone()
        return Standing(waiting, gone, since)

    def left_to_others(self, targets: Collection[str]) -> dict[str, int]:
        """How many messages wait for targets that are none of these."""
        query = "SELECT target, count(*) FROM messages WHERE given_up IS NULL GROUP BY target"
        return {name: count for name, count in self._connection.execute(query) if name not in targets}

    def prune(self, before: int) -> None:
        """Forget what targets know of alerts that were last seen before then (µs), and what was given up before."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM alerts WHERE seen_at < ? AND message IS NULL", (before,))
            connection.execute("DELETE FROM messages WHERE given_up < ?", (before,))

    def _prepare(self, file: Path) -> None:
        connection = self._connection
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
        if version not in (0, _VERSION):
            remedy = "Use the release that wrote it, or let outbox name another file"
            raise SettingsError("is of another release", where=f"outbox {file}", remedy=remedy)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _take(connection: sqlite3.Connection, routed: Routed, now: int) -> bool:
    """Take in a record; whether its snooze is why the target is not told of the alert, for the first time."""
    record, target = routed.record, routed.target
    place = (target, record["alert_id"])
    query = "SELECT * FROM alerts WHERE target = ? AND alert_id = ?"
    row = connection.execute(query, place).fetchone()
    told = False
    if row is not None:
        told = bool(row["told"])
        if not Seen(row["revision"], bool(row["is_correction"])).is_behind(record):
            return False
    message = written = None
    if is_due(record, told=told, snoozed=routed.snoozed):
        message = None if row is None else row["message"]
        message = _open(connection, routed, now) if message is None else message
        written = json.dumps(record)
    seen = (record["revision"], record["source"] == BACKFILL, told, now, message, written)
    connection.execute("INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, *seen))
    is_new = row is None or row["message"] is not None
    return routed.snoozed and is_new and not told and is_worth_it(record)


def _open(connection: sqlite3.Connection, routed: Routed, now: int) -> int:
    """The open message of a grouping."""
    about = (routed.target, routed.grouping, routed.urgent)
    query = "SELECT id FROM messages WHERE target = ? AND grouping = ? AND urgent = ? AND key IS NULL"
    if (found := connection.execute(query, about).fetchone()) is not None:
        return int(found["id"])
    made = connection.execute(
        "INSERT INTO messages (target, grouping, urgent, due) VALUES (?, ?, ?, ?)", (*about, now + routed.wait)
    )
    return int(made.lastrowid or 0)


def _seal(connection: sqlite3.Connection, opened: int, now: int, listed: int, *, splits: bool) -> None:
    """Give the alerts of an open message, or the first of them, content and key. Without any left it is removed."""
    query = "SELECT record FROM alerts WHERE message = ? ORDER BY seen_at LIMIT ?"
    found = connection.execute(query, (opened, listed if splits else -1))  # without a limit
    waiting = [json.loads(record) for (record,) in found]
    if waiting:
        message = connection.execute("SELECT target, grouping, urgent, due FROM messages WHERE id = ?", (opened,))
        target, *about = message.fetchone()
        alerts = sorted(waiting[:listed], key=lambda each: str(each["event_time"]))
        more = Counter(RETRACTED if is_withdrawal(record) else ANNOUNCED for record in waiting[listed:])
        connection.execute(
            "INSERT INTO messages (target, grouping, urgent, due, key, content, made_at, tried_since) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (target, *about, uuid.uuid4().hex, json.dumps({"alerts": alerts, "more": more}), now, now),
        )
        connection.executemany(
            "UPDATE alerts SET told = NOT told, message = NULL, record = NULL WHERE target = ? AND alert_id = ?",
            [(target, record["alert_id"]) for record in waiting],
        )
    if connection.execute("SELECT 1 FROM alerts WHERE message = ? LIMIT 1", (opened,)).fetchone() is None:
        connection.execute("DELETE FROM messages WHERE id = ?", (opened,))
