"""Changes of tables: the records of the topic `tables`, which set or remove keys of a declared table.

    {"table": "blocked_ips", "set": ["10.0.0.1"], "valid_from": "2026-01-05T12:00:00Z", "author": "ann", "reason": "…"}

`remove` takes the place of `set`. Without `valid_from` the change is valid from the record's arrival on. Of a table
with values a record that sets keys can have these of each key, in the same order:

    {"table": "cards", "set": ["4711", "4712"], "values": [{"country": "DE", "limit": "500.00"}, {"country": "FR"}]}

Whoever may write to the topic may change tables; what is no such record is skipped, by every host alike, and stays in
the lake.

Where a table's declaration asks for approvals (S22.8), a change has an `id`, and waits for a record by another author:

    {"table": "blocked_ips", "approve": ["4f2a"], "author": "bob"}

With `decline` in the place of `approve` they wait no more, and never take effect. Their own author may do that, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from nightjar.contracts.json_text import ascii_json
from nightjar.rules.approval import APPROVE, DECLINE, same_person
from nightjar.rules.engine.table_rows import Change
from nightjar.rules.rulebook import Record
from nightjar.rules.table_values import declared_values, is_text, text_size
from nightjar.rules.tables import MAX_KEY, TableType, values_of
from nightjar.rules.timestamps import iso_text, microseconds, parse_timestamp
from nightjar.rules.types import FieldType, Kind

# Of a record: with keys of MAX_KEY characters it stays below what brokers take by default.
MAX_KEYS = 1000
MAX_TEXT = 500
# Characters of the values that the commands put into one record, for the same reason.
MAX_VALUES_TEXT = 400_000

MAX_ID = 64
# That wait for approval at once: changes, and characters of their keys. Further ones have no effect.
MAX_WAITING = 10_000
MAX_WAITING_TEXT = 64 << 20

_ACTIONS = {"set": True, "remove": False}
_MEMBERS = frozenset({"table", *_ACTIONS, "values", "valid_from", "author", "reason", "id"})
_DECISIONS = {APPROVE: True, DECLINE: False}
_OF_DECISION = frozenset({"table", *_DECISIONS, "author", "reason"})
_INT64 = 1 << 63


def change_record(
    table: str,
    keys: Sequence[str | int],
    *,
    is_set: bool,
    valid_from: datetime | None = None,
    author: str = "",
    reason: str = "",
    id: str = "",  # noqa: A002  the record's own word
    values: Sequence[Mapping[str, Any]] = (),
) -> tuple[bytes, bytes]:
    """Key and value of a record, with at most MAX_KEYS keys. values: of each key, as `declared_values` has them."""
    record: dict[str, Any] = {"table": table, "set" if is_set else "remove": list(keys)}
    if any(values):
        record["values"] = [dict(each) for each in values]
    if valid_from is not None:
        record["valid_from"] = iso_text(microseconds(valid_from))
    record |= {name: text for name, text in (("id", id), ("author", author), ("reason", reason)) if text}
    return table.encode(), ascii_json(record)


def decision_record(
    table: str, ids: Sequence[str], *, approves: bool, author: str, reason: str = ""
) -> tuple[bytes, bytes]:
    """Key and value of a record that approves or declines changes, at most MAX_KEYS."""
    record = {"table": table, APPROVE if approves else DECLINE: list(ids), "author": author}
    return table.encode(), ascii_json(record | ({"reason": reason} if reason else {}))


@dataclass(frozen=True)
class Declined:
    """A change that somebody has declined, which never takes effect. position, arrival (µs): of the record."""

    change: Change
    position: int
    arrival: int
    author: str
    reason: str


class ChangeReader:
    """Reads the records of the topic in order, some at a time. tables: the declared ones, with the type of the key.

    declined: is told of each change that somebody declines. waiting: changes that wait for approval, by table and id.
    unusable: how many records have had no effect.
    """

    def __init__(
        self, tables: Mapping[str, FieldType], declined: Callable[[Declined], object] = lambda _: None
    ) -> None:
        self._tables, self._declined = tables, declined
        self.waiting: dict[tuple[str, str], Change] = {}
        self.unusable = 0
        self._undated = set[tuple[str, str]]()
        self._size = 0

    def read(self, records: Iterable[Record]) -> Iterator[Change]:
        """The changes that take effect with these records."""
        for record in records:
            written = _written(record)
            is_decision = not _DECISIONS.keys().isdisjoint(written)
            change = _decision(written) if is_decision else _change(record, written, self._tables)
            if isinstance(change, _Decision):
                yield from self._decided(record, change)
            elif change is None:
                self.unusable += 1
            elif not _needs_approval(change, self._tables[change.table]):
                yield change
            else:
                self._wait(change, dated="valid_from" in written)

    def _wait(self, change: Change, *, dated: bool) -> None:
        place, size = (change.table, change.id), _size(change)
        full = len(self.waiting) >= MAX_WAITING or self._size + size > MAX_WAITING_TEXT
        if full or not change.id or not change.author or place in self.waiting:
            self.unusable += 1
            return
        self.waiting[place] = change
        self._size += size
        if not dated:
            self._undated.add(place)

    def _decided(self, record: Record, decision: _Decision) -> Iterator[Change]:
        """The changes that a decision lets take effect."""
        found = False
        for name in decision.ids:
            place = decision.table, name
            change = self.waiting.get(place)
            if change is None or (decision.approves and same_person(change.author, decision.author)):
                continue
            found = True
            del self.waiting[place]
            self._size -= _size(change)
            begins = record.arrival if place in self._undated else change.valid_from
            self._undated.discard(place)
            if not decision.approves:
                self._declined(Declined(change, record.offset, record.arrival, decision.author, decision.reason))
                continue
            yield replace(
                change,
                position=record.offset,
                arrival=record.arrival,
                valid_from=begins,
                approver=decision.author,
            )
        self.unusable += not found


@dataclass(frozen=True)
class _Decision:
    table: str
    ids: list[str]
    approves: bool
    author: str
    reason: str


def _needs_approval(change: Change, kind: FieldType) -> bool:
    since = kind.approved_from if isinstance(kind, TableType) else None
    return since is not None and change.arrival >= since


def _size(change: Change) -> int:
    return sum(len(str(key)) for key in change.keys) + sum(map(text_size, change.values))


def _written(record: Record) -> dict[str, Any]:
    """The object that a record is; empty if it is none."""
    try:
        # numbers as they are written: a decimal has all its digits
        written = json.loads(record.value, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        return {}
    return written if isinstance(written, dict) else {}


def _decision(written: Mapping[str, Any]) -> _Decision | None:
    """The decision that a record is; None if it is anything else."""
    (action, *others), table = [name for name in _DECISIONS if name in written], written.get("table")
    ids, author, reason = written[action], written.get("author"), written.get("reason", "")
    if others or not written.keys() <= _OF_DECISION or not isinstance(table, str):
        return None
    if not isinstance(author, str) or not author.strip() or not isinstance(reason, str):
        return None
    if max(len(author), len(reason)) > MAX_TEXT:
        return None
    if not isinstance(ids, list) or not 0 < len(ids) <= MAX_KEYS or not all(isinstance(each, str) for each in ids):
        return None
    return _Decision(table, ids, _DECISIONS[action], author, reason)


def _change(record: Record, written: Mapping[str, Any], tables: Mapping[str, FieldType]) -> Change | None:
    """The change that a record is; None if it is anything else, or of a table that is not declared."""
    if not written.keys() <= _MEMBERS:
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
    author, reason, name = said = [written.get(member, "") for member in ("author", "reason", "id")]
    if valid_from is None or not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in said):
        return None
    values = _values(written.get("values", ()), kind, len(keys) if actions == ["set"] else 0)
    if len(name) > MAX_ID or values is None:
        return None
    place, is_set = (record.offset, record.arrival, str(table)), _ACTIONS[actions[0]]
    return Change(*place, keys, is_set, valid_from, author, reason, name, values=values)


def _values(written: Any, kind: FieldType, keys: int) -> Sequence[Mapping[str, Any]] | None:
    """The values of so many keys that are set; None if these are none of the table."""
    fields = values_of(kind)
    if written == ():
        return ()
    if not isinstance(written, list) or len(written) != keys or not all(isinstance(each, dict) for each in written):
        return None
    try:
        return [declared_values(each, fields) for each in written]
    except ValueError:
        return None


def is_key(key: Any, kind: FieldType) -> bool:
    """Whether a value can be a key of this type."""
    if kind.kind is Kind.STRING:
        return isinstance(key, str) and 0 < len(key) <= MAX_KEY and is_text(key)
    return isinstance(key, int) and not isinstance(key, bool) and -_INT64 <= key < _INT64
