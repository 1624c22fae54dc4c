"""Tables: lists that people keep beside the events, such as blocked addresses, declared beside the streams (S22).

A condition asks `ip IN blocked_ips`. To what evaluates it, that is a column of booleans named so (`membership`), which
follows from the event and the table's rows; rules/engine/table_rows.py has these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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

_IN = " IN "
_KEYS = ("key", "approved_from")
_KINDS = (Kind.STRING, Kind.INT64)


@dataclass(frozen=True)
class TableType(FieldType):
    """The type of a table's key, and what else its declaration says.

    approved_from: arrival (µs) from which on somebody else has to approve changes (S22.8); None: nobody has to.
    """

    approved_from: int | None = None


def membership(field: str, table: str) -> str:
    """The name of the column that says whether a field's value is in a table. No field has such a name."""
    return f"{field}{_IN}{table}"


def asked_of(column: str) -> tuple[str, str] | None:
    """The field and the table of a membership's name; None if it is no such name."""
    field, is_one, table = column.partition(_IN)
    return (field, table) if is_one else None


def tables_among(columns: Iterable[str]) -> list[str]:
    """The tables that some columns say something about."""
    return sorted({asked[1] for name in columns if (asked := asked_of(name)) is not None})


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
            found[name] = TableType(FieldType.parse(body.get("key", "string")).kind, approved_from=instant)
        except DeclarationError as refusal:
            raise error(f"{place}.key", refusal.what, refusal.remedy) from None
        if found[name].kind not in _KINDS:
            raise error(f"{place}.key", f"{found[name]} cannot be a key", "A key is a string or an int64")
    return found
