"""Change events of a table of rules, as Debezium publishes them: an envelope with `op`, `before` and `after`.

Purpose: people keep rules in a database, and a connector puts each change on the `rules` topic.

How it works: a row that was created, changed or read by a snapshot (`c`, `u`, `r`) publishes its rule. A row that was
deleted (`d`), or marked as deleted in the column that the setting names, retires it. These columns of a row are read:

    id      the rule's id, for rules of our form;    or  rule_id   the rule's number, for rules of the Flink demo
    rule    the rule itself, as JSON or YAML text    or  the demo's properties, one column each (camel or snake case)
    author, reason      who made the change and why, if the table has them
    deleted             true, a number other than 0, or a time: the rule is retired

Others are ignored.

What it does not do: use the database's time of change as the effective time; the message's arrival counts, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nightjar.rules.documents import read_documents
from nightjar.rules.errors import RuleError
from nightjar.rules.foreign import flink
from nightjar.rules.foreign.reading import Forms, MessageError, Reading, refused

_PUBLISHES = ("c", "u", "r")
_DELETES = "d"
_FALSE = ("", "0", "f", "false", "n", "no")
_FLINK_COLUMNS = {name.lower(): name for name in flink.PROPERTIES}
# What Debezium writes for a large value that an update did not change.
_UNAVAILABLE = "__debezium_unavailable_value"
_COLUMNS = "A row has id and rule, or rule_id and the Flink demo's properties"


def is_envelope(written: Mapping[str, Any]) -> bool:
    """Whether a mapping is a change event, with or without its schema."""
    inner = _payload(written)
    return inner is None or ("op" in inner and ("after" in inner or "before" in inner))


def from_envelope(written: Mapping[str, Any], forms: Forms, read: Callable[[Mapping[str, Any]], Reading]) -> Reading:
    """Read a change event. read: reads the rule in it, which is in our form or the demo's."""
    envelope = _payload(written)
    if envelope is None:
        raise refused("payload", "", "is empty: a tombstone holds no rule", "Set tombstones.on.delete to false")
    op = envelope.get("op")
    if op != _DELETES and op not in _PUBLISHES:
        remedy = f"Rules are changed by {', '.join((*_PUBLISHES, _DELETES))}; retire them one by one"
        raise refused("op", repr(op), f"{op!r:.60} is not a change of one rule", remedy)
    side = "before" if op == _DELETES else "after"
    row = envelope.get(side)
    if not isinstance(row, Mapping):
        remedy = "Publish the table with its primary key as its REPLICA IDENTITY"
        raise refused(side, repr(row)[:60], "is not a row", remedy)
    change = _Row(row, side)
    if op == _DELETES or change.is_deleted(forms.deleted):
        return change.retired()
    return change.published(read)


def _payload(written: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The envelope without its schema; None for a tombstone with a schema."""
    if "payload" in written and set(written) <= {"schema", "payload"}:
        inner = written["payload"]
        return inner if isinstance(inner, Mapping) else None
    return written


class _Row:
    """One side of a change. side: `before` or `after`."""

    def __init__(self, row: Mapping[str, Any], side: str) -> None:
        self.row = row
        self.side = side
        self.flink = {
            _FLINK_COLUMNS[folded]: value
            for name, value in row.items()
            if (folded := name.replace("_", "").lower()) in _FLINK_COLUMNS
        }

    @property
    def rule_id(self) -> str | None:
        """The id of the rule, from the row's key."""
        if "ruleId" in self.flink:
            return flink.rule_id_of(self.flink["ruleId"])
        found = self.row.get("id")
        return found if isinstance(found, str) else None

    def is_deleted(self, column: str) -> bool:
        value = self.row.get(column)
        return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)

    def retired(self) -> Reading:
        if self.rule_id is None:
            raise refused(self.side, "", "has no text column id, nor a column rule_id", f"{_COLUMNS}; the key is first")
        note = "a deleted row retires its rule: its versions stay listed, and inserting it again revives it"
        return Reading({"control": "retire", "rule": self.rule_id, **self.provenance()}, (note,))

    def published(self, read: Callable[[Mapping[str, Any]], Reading]) -> Reading:
        place = f"{self.side}.rule"
        inner: Mapping[str, Any]
        if self.row.get("rule") is None:
            if not flink.is_flink(self.flink):
                raise refused(self.side, "", "has no column rule, nor rule_id", _COLUMNS, self.rule_id)
            inner, place = self.flink, self.side
        else:
            inner = self.keyed(self.content(self.row["rule"], place), place)
        try:
            reading = read(inner)
        except MessageError as failure:
            problems = [replace(each, place=f"{place}.{each.place}".strip(".")) for each in failure.problems]
            raise MessageError(problems, failure.rule_id or self.rule_id) from None
        if "control" in reading.message and not flink.is_flink(inner):
            raise refused(
                place, "", "is a control message", "A row holds a rule; its state is in the rule", self.rule_id
            )
        # the rule's own author and reason have priority
        return replace(reading, message={**self.provenance(), **reading.message}, prefix=place)

    def content(self, rule: Any, place: str) -> Mapping[str, Any]:
        """The rule that a column holds: JSON or YAML text, or a value that the connector converted."""
        if rule == _UNAVAILABLE:
            remedy = "ALTER TABLE ... REPLICA IDENTITY FULL, then update the row again"
            raise refused(place, "", "is not in the message: it is large, and did not change", remedy, self.rule_id)
        if isinstance(rule, str):
            try:
                documents = read_documents(rule)
            except RuleError as failure:
                raise MessageError([replace(each, place=place) for each in failure.problems], self.rule_id) from None
            rule = documents[0] if len(documents) == 1 else None
        if not isinstance(rule, Mapping):
            raise refused(place, "", "does not hold one rule", "Write one rule as JSON or YAML text", self.rule_id)
        return rule

    def keyed(self, rule: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """The rule with the id of its row. One rule has one row, so that a deleted row identifies its rule."""
        key, held = ("ruleId", rule.get("ruleId")) if flink.is_flink(rule) else ("id", rule.get("id"))
        held_id = flink.rule_id_of(held) if key == "ruleId" and held is not None else held
        if self.rule_id is None:
            raise refused(self.side, "", "has no text column id, nor a column rule_id", _COLUMNS)
        if held is not None and held_id != self.rule_id:
            what = f"{held!r:.60} is not the rule of its row, {self.rule_id!r}"
            raise refused(f"{place}.{key}", repr(held), what, "Leave it out, or write the row's", self.rule_id)
        return {**rule, key: self.flink.get("ruleId") if key == "ruleId" else self.rule_id}

    def provenance(self) -> dict[str, Any]:
        if self.side == "before":  # of the row before: the author of the deletion is unknown
            return {}
        return {name: self.row[name] for name in ("author", "reason") if isinstance(self.row.get(name), str)}
