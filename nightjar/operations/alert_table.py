"""Alerts as rows of a table in PostgreSQL, one per alert_id: its latest revision.

How it works: a second table holds the offsets of the topic up to which the rows are written. Rows and offsets change
in one transaction, so each record counts exactly once, whatever crashes. A revision replaces an older one and never a
newer one; of equal ones the backfill's counts. A retraction stays as a row of that kind.

What it does not do: remove rows, or change columns that exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import structlog
from psycopg import conninfo, sql

from nightjar.configuration.private_files import private_text
from nightjar.contracts.alerts import ALERT, ALWAYS_THERE, BACKFILL
from nightjar.contracts.record_type import Member
from nightjar.operations.alert_forwarding import ForwardedAlert, ForwardError, TargetLostError
from nightjar.rules.canonical import canonical
from nightjar.rules.errors import SettingsError
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import Kind

_log = structlog.get_logger(__name__)

_KEY = "alert_id"
_OFFSETS = "_offsets"
# PostgreSQL cuts longer names off, 63 bytes with what is appended.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,54}", re.ASCII)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)

# Of libpq, where the connection string does not say otherwise: a server that has vanished is noticed within a minute.
_DEFAULTS = {
    "application_name": "nightjar",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_TYPES = {Kind.STRING: "text", Kind.INT64: "bigint", Kind.BOOLEAN: "boolean", Kind.TIMESTAMP: "timestamptz"}
# Text of PostgreSQL cannot hold NUL.
_NUL, _INSTEAD = "\0", "\N{REPLACEMENT CHARACTER}"
_UNREACHABLE = "Check the connection string and whether the server runs"
# What passes when the server has room again, ends a conflict, or is the primary again; otherwise an error stays.
_PASSING = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)


def connection_string(file: Path) -> str:
    """The connection string in a file that its owner alone can read, in either of libpq's forms.

    Raises:
        SettingsError: the file cannot be read, others can read it, or it holds no connection string. No message has
            any of its content.
    """
    where = f"--postgres: {file}"
    text = private_text(file, "--postgres", "a connection string")
    remedy = "Write one line, such as postgresql://user:password@host/database?sslmode=verify-full"
    try:
        given = conninfo.conninfo_to_dict(text)
    except psycopg.Error:
        given = {}
    if not given or not text.isprintable():
        raise SettingsError("holds no connection string", where=where, remedy=remedy)
    if "@" in str(given.get("host", "")):
        raise SettingsError("the host has an @", where=where, remedy="In a password write it as %40")
    return conninfo.make_conninfo("", **{**_DEFAULTS, **given})


class AlertTable:
    """A target; a context manager. table: its name, or schema and name with a dot; topic: where the alerts are from.

    The connection is made, and missing tables and columns are added, when the block begins.

    Raises:
        SettingsError: the name of the table cannot be used.
        ForwardError: the server cannot be reached or refuses the login, or the login may not do what is needed.
    """

    def __init__(self, connection: str, table: str, topic: str) -> None:
        schema, dot, name = table.rpartition(".")
        if not _NAME.fullmatch(name) or (dot and not _SCHEMA.fullmatch(schema)):
            remedy = "Write NAME or SCHEMA.NAME, of small letters, digits and underscores"
            raise SettingsError(f"{table!r} is not a table's name", where="--table", remedy=remedy)
        self._string, self._topic, self._name = connection, topic, table
        of_schema = (schema,) if dot else ()
        self._table = sql.Identifier(*of_schema, name)
        self._offset_table = sql.Identifier(*of_schema, name + _OFFSETS)
        self._upsert = _upsert(self._table)
        self._connection: psycopg.Connection | None = None
        self._offsets: dict[int, int] = {}

    def __enter__(self) -> Self:
        try:
            self._connect()
        except TargetLostError as failure:
            raise ForwardError(failure.what, where=failure.where, remedy=failure.remedy) from failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    def start(self) -> Mapping[int, int]:
        """The offsets that are in the database."""
        connection = self._open()
        query = sql.SQL("SELECT partition, next_offset FROM {} WHERE topic = %s").format(self._offset_table)
        with _explained(connection, "reading its offsets", self._where), connection.transaction():
            self._offsets = dict(connection.execute(query, (self._topic,)).fetchall())
        return dict(self._offsets)

    def write(self, alerts: Sequence[ForwardedAlert], offsets: Mapping[int, int]) -> None:
        """Write rows and offsets in one transaction."""
        connection = self._open()
        with (
            _explained(connection, "writing alerts", self._where),
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            # Before the rows: if there is another writer of these offsets, it is waited for here, and then noticed.
            for partition, offset in offsets.items():
                if offset != self._offsets.get(partition):
                    self._advance(cursor, partition, offset)
            cursor.executemany(self._upsert, [_values(each.row) for each in alerts])
        self._offsets = dict(offsets)

    def _advance(self, cursor: psycopg.Cursor, partition: int, offset: int) -> None:
        if partition in self._offsets:
            statement = "UPDATE {} SET next_offset = %s WHERE topic = %s AND partition = %s AND next_offset = %s"
            values: tuple[int | str, ...] = (offset, self._topic, partition, self._offsets[partition])
        else:
            statement = "INSERT INTO {} (next_offset, topic, partition) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            values = (offset, self._topic, partition)
        cursor.execute(sql.SQL(statement).format(self._offset_table), values)
        if cursor.rowcount != 1:
            raise ForwardError(
                f"another process has written partition {partition} of {self._topic} to it",
                where=self._where,
                remedy="Run one `nightjar alerts forward` for a table",
            )

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection:
        try:
            connection = psycopg.connect(self._string, autocommit=True)
        except psycopg.OperationalError as failure:
            raise TargetLostError(_reason(failure), where="PostgreSQL", remedy=_UNREACHABLE) from None
        self._connection = connection
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            remedy = "Alerts may have any character: name a database in UTF8"
            raise ForwardError(f"the database's encoding is {encoding}", where=self._where, remedy=remedy)
        with _explained(connection, "preparing the tables", self._where), connection.transaction():
            self._prepare(connection)
        return connection

    def _prepare(self, connection: psycopg.Connection) -> None:
        """Create what is missing. What exists is only looked at, so a login without rights to create can do that."""
        columns = {name: _column(name, member) for name, member in ALERT.members.items()}
        if not _exists(connection, self._table):
            _log.info("table_created", table=self._name)
            connection.execute(_created(self._table, list(columns.values())))
        empty = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(self._table))
        present = {each.name for each in empty.description or ()}
        for name in columns.keys() - present:
            _log.info("column_added", table=self._name, column=name)
            connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(self._table, columns[name]))
        if not _exists(connection, self._offset_table):
            parts = ("topic text", "partition integer", "next_offset bigint NOT NULL", "PRIMARY KEY (topic, partition)")
            connection.execute(_created(self._offset_table, [sql.SQL(each) for each in parts]))

    @property
    def _where(self) -> str:
        return f"table {self._name} in PostgreSQL"


@contextmanager
def _explained(connection: psycopg.Connection, doing: str, where: str) -> Iterator[None]:
    """Convert what psycopg raises in the block. After what may pass the connection is closed: the next one is new."""
    try:
        yield
    except _PASSING as error:
        connection.close()
        raise TargetLostError(f"{doing} failed: {_reason(error)}", where=where, remedy=_UNREACHABLE) from None
    except psycopg.Error as error:
        remedy = "See docs/how-to/forward-alerts.md for the columns"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            remedy = "Grant this login the rights of docs/how-to/forward-alerts.md"
        raise ForwardError(f"{doing} failed: {_reason(error)}", where=where, remedy=remedy) from None


def _reason(error: psycopg.Error) -> str:
    """What the server or libpq says, without the details, which have values."""
    said = error.diag.message_primary or str(error)
    return " ".join(said.split()) or type(error).__name__


def _exists(connection: psycopg.Connection, table: sql.Identifier) -> bool:
    (found,) = connection.execute("SELECT to_regclass(%s)::oid", (table.as_string(connection),)).fetchone() or (None,)
    return found is not None


def _created(table: sql.Identifier, columns: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(columns))


def _column(name: str, member: Member) -> sql.Composed:
    kind = "jsonb" if member.is_json else _TYPES[member.kind]
    constraint = " PRIMARY KEY" if name == _KEY else " NOT NULL" if name in ALWAYS_THERE else ""
    return sql.SQL("{} " + kind + constraint).format(sql.Identifier(name))


def _upsert(table: sql.Identifier) -> sql.Composed:
    columns = [sql.Identifier(name) for name in ALERT.members]
    return sql.SQL(
        "INSERT INTO {table} AS present ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {changes} "
        "WHERE (excluded.revision, excluded.source = {backfill}) >= (present.revision, present.source = {backfill})"
    ).format(
        table=table,
        columns=sql.SQL(", ").join(columns),
        values=sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        key=sql.Identifier(_KEY),
        changes=sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in ALERT.members if name != _KEY
        ),
        backfill=sql.Literal(BACKFILL),
    )


def _values(row: Mapping[str, Any]) -> list[Any]:
    return [_value(member, row[name]) for name, member in ALERT.members.items()]


def _value(member: Member, value: Any) -> Any:
    if value is None:
        return None
    if member.is_json:
        return _without_nul(value) if "\\u0000" in value else value
    if member.kind is Kind.TIMESTAMP:
        return from_microseconds(value)
    return value.replace(_NUL, _INSTEAD) if member.kind is Kind.STRING else value


def _without_nul(text: str) -> str:
    """The text of an object whose values are plain."""
    return canonical(
        {
            name.replace(_NUL, _INSTEAD): value.replace(_NUL, _INSTEAD) if isinstance(value, str) else value
            for name, value in json.loads(text).items()
        }
    )
