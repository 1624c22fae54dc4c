"""Changes of tables: the records of the topic `tables`, which set or remove keys of a declared table.

    {"table": "blocked_ips", "set": ["10.0.0.1"], "valid_from": "2026-01-05T12:00:00Z", "author": "ann", "reason": "…"}

`remove` takes the place of `set`. Without `valid_from` the change is valid from the record's arrival on. Whoever may
write to the topic may change tables; what is no such record is skipped, by every host alike, and stays in the lake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nightjar.contracts.json_text import ascii_json
from nightjar.rules.engine.table_rows import Change
from nightjar.rules.rulebook import Record
from nightjar.rules.tables import MAX_KEY
from nightjar.rules.timestamps import iso_text, microseconds, parse_timestamp
from nightjar.rules.types import FieldType, Kind

# Of a record: with keys of MAX_KEY characters it stays below what brokers take by default.
MAX_KEYS = 1000
MAX_TEXT = 500

_ACTIONS = {"set": True, "remove": False}
_MEMBERS = frozenset({"table", *_ACTIONS, "valid_from", "author", "reason"})
_INT64 = 1 << 63


def change_record(
    table: str,
    keys: Sequence[str | int],
    *,
    is_set: bool,
    valid_from: datetime | None = None,
    author: str = "",
    reason: str = "",
) -> tuple[bytes, bytes]:
    """Key and value of a record, with at most MAX_KEYS keys."""
    record: dict[str, Any] = {"table": table, "set" if is_set else "remove": list(keys)}
    if valid_from is not None:
        record["valid_from"] = iso_text(microseconds(valid_from))
    record |= {name: text for name, text in (("author", author), ("reason", reason)) if text}
    return table.encode(), ascii_json(record)


def read_changes(records: Iterable[Record], tables: Mapping[str, FieldType]) -> Iterator[Change]:
    """The changes of the records that are such, of the declared tables (name to type of the key)."""
    for record in records:
        if (change := read_change(record, tables)) is not None:
            yield change


def read_change(record: Record, tables: Mapping[str, FieldType]) -> Change | None:
    """The change that a record is; None if it is anything else, or of a table that is not declared."""
    try:
        written = json.loads(record.value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(written, dict) or not written.keys() <= _MEMBERS:
        return None
    actions = [name for name in _ACTIONS if name in written]
    kind = tables.get(table) if isinstance(table := written.get("table"), str) else None
    if kind is None or len(actions) != 1:
        return None
    keys = written[actions[0]]
    if not isinstance(keys, list) or not 0 < len(keys) <= MAX_KEYS or not all(is_key(key, kind) for key in keys):
        return None
    valid_from: int | None = record.arrival
    if "valid_from" in written:
        text = written["valid_from"]
        valid_from = parse_timestamp(text, zone_required=True) if isinstance(text, str) else None
    author, reason = (written.get(name, "") for name in ("author", "reason"))
    if valid_from is None or not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in (author, reason)):
        return None
    return Change(record.offset, record.arrival, str(table), keys, _ACTIONS[actions[0]], valid_from, author, reason)


def is_key(key: Any, kind: FieldType) -> bool:
    """Whether a value can be a key of this type."""
    if kind.kind is Kind.STRING:
        return isinstance(key, str) and 0 < len(key) <= MAX_KEY and _is_text(key)
    return isinstance(key, int) and not isinstance(key, bool) and -_INT64 <= key < _INT64


def _is_text(key: str) -> bool:
    """Whether it is text, which half of a surrogate pair is not."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
