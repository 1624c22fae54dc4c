"""Tables: what people keep beside the events, such as blocked addresses or the limits of customers, declared beside
the streams (S22).

A condition asks `ip IN blocked_ips`. To what evaluates it, that is a column of booleans named so (`membership`), which
follows from the event and the table's rows; rules/engine/table_rows.py has these. A row may have values: where a rule
looks up a table by a field, as in `lookup: {cards: card_id}`, `cards.country` is likewise a column (`value_column`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nightjar.rules.errors import DeclarationError
from nightjar.rules.names import did_you_mean, is_usable_name
from nightjar.rules.timestamps import parse_timestamp
from nightjar.rules.types import BOOLEAN, FieldType, Kind

# A key takes as much memory in each executor, and every change of a row some 60 bytes.
MAX_KEY = 256
MAX_CHANGES = 5_000_000
MAX_KEY_BYTES = 256 << 20
# Tables that can be declared: each is a possible column for each field of its type.
MAX_TABLES = 100
# Fields of values in one table.
MAX_VALUES = 32
# The columns that a file of rows has beside the values.
FILE_COLUMNS = ("key", "valid_from", "valid_until", "author", "reason")

_IN = " IN "
_KEYS = ("key", "values", "approved_from")
_KINDS = (Kind.STRING, Kind.INT64)


@dataclass(frozen=True)
class TableType(FieldType):
    """The type of a table's key, and what else its declaration says.

    approved_from: arrival (µs) from which on somebody else has to approve changes (S22.8); None: nobody has to.
    values: the fields that a row has beside its key, with their types, in their order.
    """

    approved_from: int | None = None
    values: tuple[tuple[str, FieldType], ...] = ()


@dataclass(frozen=True)
class ValueType(FieldType):
    """The type of a value that a rule looks up. column: the name of its column to what evaluates the rule."""

    column: str = ""


class Asked(NamedTuple):
    """What a column says of a table: of its row whose key is a field's value. value: a field of the row; None: whether
    there is one."""

    field: str
    table: str
    value: str | None = None


def membership(field: str, table: str) -> str:
    """The name of the column that says whether a field's value is in a table. No field has such a name."""
    return f"{field}{_IN}{table}"


def value_column(field: str, table: str, value: str) -> str:
    """The name of the column of what a table's row has in a field of its values. No field has such a name."""
    return f"{membership(field, table)}.{value}"


def asked_of(column: str) -> Asked | None:
    """What a name that `membership` or `value_column` made is about; None if it is no such name."""
    field, is_one, rest = column.partition(_IN)
    table, has_value, value = rest.partition(".")
    return Asked(field, table, value if has_value else None) if is_one else None


def tables_among(columns: Iterable[str]) -> list[str]:
    """The tables that some columns say something about."""
    return sorted({asked.table for name in columns if (asked := asked_of(name)) is not None})


def value_columns(columns: Iterable[str]) -> list[str]:
    """Those among some columns that have values of tables."""
    return [name for name in columns if (asked := asked_of(name)) is not None and asked.value is not None]


def values_of(kind: FieldType) -> Mapping[str, FieldType]:
    """The fields of values of a table of this type."""
    return dict(kind.values) if isinstance(kind, TableType) else {}


def looked_up(
    lookup: Mapping[str, str], fields: Mapping[str, FieldType], tables: Mapping[str, FieldType]
) -> dict[str, FieldType]:
    """The columns of a rule's lookup, as conditions name them: `cards.country`. Of what is not declared (any more)
    there are none. lookup: table to the field that is its key."""
    return {
        f"{table}.{value}": ValueType(kind.kind, kind.precision, kind.scale, value_column(field, table, value))
        for table, field in lookup.items()
        if table in tables and field in fields and fields[field].kind is tables[table].kind
        for value, kind in values_of(tables[table]).items()
    }


def memberships(fields: Mapping[str, FieldType], tables: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The columns of what can be asked of the tables about these fields: where a table's key has the field's type."""
    return {
        membership(field, table): BOOLEAN
        for table, key in tables.items()
        for field, kind in fields.items()
        if kind.kind is key.kind  # neither has digits
    }


def tables_from_mapping(mapping: Any, origin: str) -> dict[str, FieldType]:
    """The declared tables, as the type of each one's key. origin: names the source in errors.

    Raises:
        DeclarationError: with the place and the remedy.
    """

    def error(place: str, what: str, remedy: str) -> DeclarationError:
        return DeclarationError(what, where=f"{origin}: tables{place}", remedy=remedy)

    if not isinstance(mapping, Mapping):
        raise error("", f"{mapping!r:.60} is not a table", "A list is declared as [tables.NAME]")
    if len(mapping) > MAX_TABLES:
        raise error("", f"{len(mapping)} tables are declared, more than {MAX_TABLES}", "Put lists together")
    found: dict[str, FieldType] = {}
    for name, body in mapping.items():
        place = f".{name}"
        if not is_usable_name(name) or name != name.lower():
            remedy = "Use lower-case letters, digits and _, as in blocked_ips, and no word of SQL"
            raise error(place, f"{name!r} cannot be the name of a table", remedy)
        if not isinstance(body, Mapping):
            raise error(place, f"{body!r:.60} is not a table", f'Declare it as [tables.{name}] with key = "string"')
        for key in body:
            if key not in _KEYS:
                raise error(f"{place}.{key}", "is not a key of a table", did_you_mean(str(key), _KEYS, "Keys are"))
        since = body.get("approved_from")
        instant = parse_timestamp(since, zone_required=True) if isinstance(since, str) else None
        if since is not None and instant is None:
            remedy = 'Write the time from which on changes need an approval, as in "2026-01-05T12:00:00Z"'
            raise error(f"{place}.approved_from", f"{since!r:.40} is not a point in time", remedy)
        try:
            key = FieldType.parse(body.get("key", "string"))
        except DeclarationError as refusal:
            raise error(f"{place}.key", refusal.what, refusal.remedy) from None
        found[name] = TableType(key.kind, approved_from=instant, values=_values(body.get("values", {}), place, error))
        if found[name].kind not in _KINDS:
            raise error(f"{place}.key", f"{found[name]} cannot be a key", "A key is a string or an int64")
    return found


def _values(
    body: Any, table: str, error: Callable[[str, str, str], DeclarationError]
) -> tuple[tuple[str, FieldType], ...]:
    """The declared fields of values. table: its place in errors."""
    place = f"{table}.values"
    if not isinstance(body, Mapping):
        raise error(place, f"{body!r:.60} is not a table", 'Write values = {country = "string", risk = "int64"}')
    if len(body) > MAX_VALUES:
        raise error(place, f"{len(body)} fields of values are declared, more than {MAX_VALUES}", "Make two tables")
    found = []
    for name, kind in body.items():
        if not is_usable_name(name) or name in FILE_COLUMNS:
            remedy = f"Use letters, digits and _, no word of SQL, and none of {', '.join(FILE_COLUMNS)}"
            raise error(f"{place}.{name}", f"{name!r} cannot be the name of a value", remedy)
        try:
            found.append((str(name), FieldType.parse(kind)))
        except DeclarationError as refusal:
            raise error(f"{place}.{name}", refusal.what, refusal.remedy) from None
    return tuple(found)
