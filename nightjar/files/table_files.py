"""Files of tables' rows: keys, one a line; or CSV with a header, which can also say when a row is valid and who set it,
and the row's values, in columns of their names.

key,valid_from,valid_until,author,reason
203.0.113.7,2026-01-05T12:00:00Z,,ann,credential stuffing
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.contracts.table_changes import MAX_TEXT, is_key
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.names import did_you_mean
from nightjar.rules.table_values import value_of_text
from nightjar.rules.tables import FILE_COLUMNS, MAX_KEY, values_of
from nightjar.rules.timestamps import MIN_TIMESTAMP, parse_timestamp
from nightjar.rules.types import FieldType, Kind

Key = str | int


@dataclass(frozen=True)
class FileRow:
    """A row of a file. valid_from, valid_until: event times (µs), None where it says nothing; author, reason: likewise
    empty. values: as table_values.declared_values has them; None of a file that has none."""

    key: Key
    valid_from: int | None = None
    valid_until: int | None = None
    author: str = ""
    reason: str = ""
    values: Mapping[str, Any] | None = None


def values_of_texts(texts: Iterable[str], table: str, kind: FieldType) -> dict[str, Any]:
    """The values of a row from texts such as country=DE; one without a text after the = is NULL.

    Raises:
        SettingsError: a text is none such, or the table has no such value.
    """
    found = dict[str, Any]()
    for text in texts:
        name, is_one, written = text.partition("=")
        if not is_one or name in found:
            what = "is given twice" if is_one else "is not a name, = and a value"
            raise SettingsError(what, where=f"--value {shortened(text)!r}", remedy="Write --value country=DE")
        found[name] = _value(name, written, table, kind)
    return {name: found[name] for name in values_of(kind) if found.get(name) is not None}


def _value(name: str, text: str, table: str, kind: FieldType) -> Any:
    """The value of a row that a text is."""
    fields = values_of(kind)
    if name not in fields:
        remedy = did_you_mean(name, fields, "Values are") if fields else "It has keys only"
        raise SettingsError(f"is not a value of table {table}", where=shortened(name) or "an empty name", remedy=remedy)
    try:
        return value_of_text(text, fields[name])
    except ValueError as refusal:
        raise SettingsError(refusal.args[0], where=f"{table}.{name}", remedy=refusal.args[1]) from None


def table_kind(table: str, declared: Mapping[str, FieldType]) -> FieldType:
    """The type of a declared table's key.

    Raises:
        SettingsError: there is no such table.
    """
    if not declared:
        remedy = "Declare one as [tables.NAME] beside the streams"
        raise SettingsError("no table is declared", where="tables", remedy=remedy)
    if table not in declared:
        remedy = did_you_mean(table, declared, "Tables are")
        raise SettingsError("is not a declared table", where=shortened(table), remedy=remedy)
    return declared[table]


def keys_of(texts: Iterable[str], table: str, kind: FieldType) -> list[Key]:
    """Keys of a table from texts; each once, in order.

    Raises:
        SettingsError: one cannot be a key.
    """
    return [*dict.fromkeys(_key(text, table, kind) for text in texts)]


def _key(text: str, table: str, kind: FieldType) -> Key:
    digits = text.removeprefix("-")
    is_number = kind.kind is Kind.INT64 and digits.isascii() and digits.isdigit() and len(text) < MAX_KEY
    key: Key = int(text) if is_number else text
    if not is_key(key, kind):
        length = f" of 1 to {MAX_KEY} characters" if kind.kind is Kind.STRING else ""
        remedy = f"A key of {table} is {kind}{length}"
        raise SettingsError("cannot be a key", where=shortened(text) or "an empty text", remedy=remedy)
    return key


def read_rows(file: Path, table: str, kind: FieldType) -> list[FileRow]:
    """The rows of a file for a table with this type of key; of lines each key once.

    A file whose name ends in .csv has a header. Of others each line is a key, without spaces around it; empty lines and
    those that begin with # are skipped.

    Raises:
        SettingsError: it cannot be read, or a row of it is none.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8"
        remedy = "Give a file of keys, one a line, or a .csv with a column `key`"
        raise SettingsError(f"cannot be read ({reason})", where=str(file), remedy=remedy) from None
    found: list[FileRow] = []
    is_csv = file.suffix.lower() == ".csv"
    for _, row in rows_of_text(text, table, kind, is_csv=is_csv, origin=f"{file}: "):
        if isinstance(row, SettingsError):
            raise row
        found.append(row)
    return found if is_csv else [*{row.key: row for row in found}.values()]


def rows_of_text(
    text: str, table: str, kind: FieldType, *, is_csv: bool, origin: str = ""
) -> Iterator[tuple[int, FileRow | SettingsError]]:
    """The rows of a file's text, each with the number of its line; in place of what is no row, why.

    origin: what stands before the line's number in errors about CSV.

    Raises:
        SettingsError: the first line of a CSV is no header.
    """
    if is_csv:
        yield from _csv_rows(origin, text, table, kind)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if (written := line.strip()) and written[0] != "#":
            try:
                yield number, FileRow(_key(written, table, kind))
            except SettingsError as refusal:
                yield number, refusal


def _csv_rows(origin: str, text: str, table: str, kind: FieldType) -> Iterator[tuple[int, FileRow | SettingsError]]:
    reader = csv.reader(io.StringIO(text), strict=True)

    def error(what: str, remedy: str) -> SettingsError:
        return SettingsError(what, where=f"{origin}line {reader.line_num}", remedy=remedy)

    def values() -> list[str] | SettingsError | None:
        """Of the next line; None after the last."""
        try:
            return next(reader, None)
        except csv.Error as failure:
            return error(f"is not CSV: {failure}", "Put texts with a comma or a quote in double quotes")

    header = values() or []
    if isinstance(header, SettingsError):
        raise header
    columns = (*FILE_COLUMNS, *values_of(kind))
    for name in header:
        if name not in columns or header.count(name) > 1:
            raise error(f"{name!r:.40} is not a column of rows", did_you_mean(name, columns, "Columns are"))
    if "key" not in header:
        raise error("there is no column `key`", f"The first line names the columns: {', '.join(columns)}")
    while (found := values()) is not None:
        if found:
            try:
                row = found if isinstance(found, SettingsError) else _csv_row(header, found, table, kind, error)
            except SettingsError as refusal:
                row = refusal
            yield reader.line_num, row


def _csv_row(
    header: list[str], values: list[str], table: str, kind: FieldType, error: Callable[[str, str], SettingsError]
) -> FileRow:
    if len(values) != len(header):
        what = f"has {len(values)} values, and the header names {len(header)} columns"
        raise error(what, "Put texts with a comma in double quotes")
    row = dict(zip(header, values, strict=True))
    begins, ends = (_time(row.get(name, "")) for name in FILE_COLUMNS[1:3])
    for name, time in zip(FILE_COLUMNS[1:3], (begins, ends), strict=True):
        if time is None and row.get(name):
            raise error(f"{name} {row[name]!r:.40} is not a point in time", "Write 2026-01-05T12:00:00Z")
    if begins is not None and ends is not None and ends <= begins:
        raise error("valid_until is not after valid_from", "Exchange them, or leave the row out")
    author, reason = (row.get(name, "") for name in FILE_COLUMNS[3:])
    if len(author) > MAX_TEXT or len(reason) > MAX_TEXT:
        raise error(f"author or reason has more than {MAX_TEXT} characters", "Shorten it")
    try:
        key = _key(row["key"], table, kind)
        read = {name: _value(name, row[name], table, kind) for name in values_of(kind) if name in row}
    except SettingsError as refusal:
        raise error(f"{refusal.where} {refusal.what}", refusal.remedy) from None
    written = {name: value for name, value in read.items() if value is not None}
    return FileRow(key, begins, ends, author, reason, written if read else None)


def _time(text: str) -> int | None:
    return parse_timestamp(text, zone_required=True) if text else None


def rows_of_files(given: Sequence[str], declared: Mapping[str, FieldType]) -> TableRows | None:
    """The rows of the tables that texts like `blocked_ips=addresses.txt` name; None without such texts.

    A row without `valid_from` is valid from the beginning.

    Raises:
        SettingsError: a text is none such, or names no table, or its file cannot be read.
    """
    if not given:
        return None
    named = {text.partition("=")[0] for text in given}
    rows, position = TableRows({name: kind for name, kind in declared.items() if name in named}), 0
    for text in given:
        name, is_one, file = text.partition("=")
        if not is_one or not file:
            remedy = "Write --table blocked_ips=addresses.txt"
            raise SettingsError(f"{shortened(text)!r} names no file", where="--table", remedy=remedy)
        changes = []
        for row in read_rows(Path(file), name, table_kind(name, declared)):
            begins = MIN_TIMESTAMP if row.valid_from is None else row.valid_from
            ends = [] if row.valid_until is None else [(False, row.valid_until)]
            for is_set, at in [(True, begins), *ends]:
                keys: Any = [row.key]
                values = [row.values] if is_set and row.values else []
                changes.append(Change(position, 0, name, keys, is_set, at, values=values))
                position += 1
        rows.add(changes, position)
    if rows.left_out:
        raise SettingsError(
            f"have {rows.left_out:,} changes more than all tables together can",
            where="--table",
            remedy="Give fewer rows",
        )
    return rows
