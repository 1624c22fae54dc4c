"""Snoozes: until when the alerts of a rule about one group need nobody's attention, and the records that say so.

How it works: a snooze covers the event times from `since` to before `until`. A record sets it, a later one with its id
ends it or moves its end, and the last one to arrive counts. So whether an alert is snoozed follows from its rule, its
group and its event time: whoever reads the alert again a month later finds the same.

What it does not do: change an alert. What is true does not depend on whom it interests
(docs/explanation/decisions/0013-snoozes.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

from nightjar.contracts.json_text import json_text
from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.canonical import canonical
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.model import MAX_AUTHOR, MAX_REASON
from nightjar.rules.timestamps import microseconds, parse_timestamp
from nightjar.rules.types import Kind

SET, ENDED = "set", "ended"
# Days from a snooze's record to its end: what is exempt for good belongs in the rule or on a list, where others see it.
MAX_DAYS = 366

_ID = re.compile(r"[0-9a-f]{32}")
# Longest lines of text, in characters.
_LONGEST = {"author": MAX_AUTHOR, "reason": MAX_REASON}


def _is_snooze(written: Mapping[str, Any], row: Row) -> bool:
    since, until, at = row["since"], row["until"], row["set_at"]
    return (
        all(isinstance(written.get(name), str) for name in ("snooze_id", "rule_id", "author", "reason"))
        and _ID.fullmatch(row["snooze_id"]) is not None
        and row["kind"] in (SET, ENDED)
        and isinstance(written.get("group"), dict)
        and None not in (since, until, at)
        and since <= until <= max(at, since) + MAX_DAYS * MICROSECONDS["d"]
        and all(row[name].strip() and _is_line(row[name], name) for name in _LONGEST)
    )


def _is_line(text: str, name: str) -> bool:
    return text.isprintable() and len(text) <= _LONGEST[name]


SNOOZE = RecordType(
    "snooze",
    "Until when a rule's alerts about a group need nobody's attention. Of several of a snooze_id the last one counts.",
    {
        "snooze_id": Member("the snooze", schema={"pattern": "^[0-9a-f]{32}$"}),
        "kind": Member("`ended`: somebody has brought its end forward", schema={"enum": [SET, ENDED]}),
        "rule_id": Member("the rule, in whichever version"),
        "group": Member("the group, as the rule's alerts have it", schema={"type": "object"}, is_json=True),
        "since": Member("the first event time that it covers", Kind.TIMESTAMP),
        "until": Member("the first event time after it", Kind.TIMESTAMP),
        "author": Member(f"who says so: one line of at most {MAX_AUTHOR} characters"),
        "reason": Member(f"why: one line of at most {MAX_REASON} characters"),
        "set_at": Member(
            f"when this was said, by the author's clock; `until` is at most {MAX_DAYS} days after it or `since`",
            Kind.TIMESTAMP,
        ),
    },
    _is_snooze,
)


@dataclass(frozen=True)
class Snooze:
    """A snooze as its last record has it. group: canonical JSON; times in µs."""

    snooze_id: str
    kind: str
    rule_id: str
    group: str
    since: int
    until: int
    author: str
    reason: str
    set_at: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Snooze:
        """That of a row of SNOOZE, or of the lake's table, whose times are datetimes."""
        members: dict[str, Any] = {n: _instant(row[n]) if n in _TIMES else row[n] for n in SNOOZE.members}
        return cls(**members)

    def covers(self, at: int) -> bool:
        """Whether an event time (µs) is in it."""
        return self.since <= at < self.until


_TIMES = tuple(name for name, member in SNOOZE.members.items() if member.kind is Kind.TIMESTAMP)


def _instant(value: int | datetime | str) -> int | None:
    """µs; None for a text that is not a time."""
    if isinstance(value, datetime):
        return microseconds(value)
    return value if isinstance(value, int) else parse_timestamp(value, zone_required=True)


class Snoozes:
    """All snoozes that are known. rows: of SNOOZE or of the lake's table, in the order of their arrival."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        last = {row["snooze_id"]: row for row in rows}
        self.every = sorted(map(Snooze.of, last.values()), key=lambda each: (each.set_at, each.snooze_id))

    @cached_property
    def _by_group(self) -> dict[tuple[str, str], list[Snooze]]:
        found: dict[tuple[str, str], list[Snooze]] = {}
        for each in self.every:
            if each.since < each.until:
                found.setdefault((each.rule_id, each.group), []).append(each)
        return found

    @property
    def rules(self) -> frozenset[str]:
        """The ids of rules of which some group is or was snoozed."""
        return frozenset(rule_id for rule_id, _ in self._by_group)

    def of_group(self, rule_id: str, group: str) -> list[Snooze]:
        """Those of a rule and a group (canonical JSON) that cover some time, in the order in which they were set."""
        return [*self._by_group.get((rule_id, group), ())]

    def of_rule(self, rule_id: str) -> list[Snooze]:
        """Those of a rule, whatever the group, that cover some time."""
        return [each for each in self.every if each.rule_id == rule_id and each.since < each.until]

    def until(self, alert: Mapping[str, Any]) -> int | None:
        """Until when (µs) an alert is snoozed, by its event time; None if it is not.

        alert: a record of ALERT, its row, or one of the lake's table: of it rule_id, group and event_time.
        """
        group = alert["group"]
        known = self._by_group.get((alert["rule_id"], group if isinstance(group, str) else canonical(group)))
        if known is None:
            return None
        at = _instant(alert["event_time"])
        if at is None:
            return None
        return max((each.until for each in known if each.covers(at)), default=None)


def snooze_record(
    *,
    rule_id: str,
    group: str,
    since: int,
    until: int,
    author: str,
    reason: str,
    now: int,
    snooze_id: str | None = None,
) -> Row:
    """The record that sets a snooze. group: canonical JSON; times in µs; snooze_id: None for a new one.

    Raises:
        SettingsError: it would not be read as a snooze, or covers no time from now on.
    """
    longest = max(now, since) + MAX_DAYS * MICROSECONDS["d"]
    if until <= max(now, since):
        raise SettingsError("is over by then", where="until", remedy="Give a time that is still to come")
    if until > longest:
        remedy = f"Give a time within {MAX_DAYS} days; exempt for good is whom the rule or a list exempts"
        raise SettingsError("is too far away", where="until", remedy=remedy)
    about = {"snooze_id": snooze_id or uuid4().hex, "kind": SET, "rule_id": rule_id, "group": group}
    return _record(about | {"since": since, "until": until, "author": author, "reason": reason, "set_at": now})


def end_record(snooze: Snooze, *, author: str, reason: str, now: int) -> Row:
    """The record by which a snooze ends now (µs): it still covers the event times before.

    Raises:
        SettingsError: author or reason cannot be used.
    """
    until = max(snooze.since, min(now, snooze.until))
    changed = {"kind": ENDED, "until": until, "author": author, "reason": reason, "set_at": now}
    return _record(snooze.__dict__ | changed)


def _record(row: Row) -> Row:
    for name, longest in _LONGEST.items():
        if not row[name].strip():
            remedy = "Say why, in one line" if name == "reason" else "Say who says so"
            raise SettingsError("is missing", where=name, remedy=remedy)
        if not _is_line(row[name], name):
            remedy = f"Write one of at most {longest} characters"
            raise SettingsError("is not a line of text", where=f"{name} {shortened(row[name], 200)}", remedy=remedy)
    return SNOOZE.record(row)


def message(record: Row) -> tuple[bytes, bytes]:
    """Key and value as bytes."""
    return record["snooze_id"].encode(), json_text(record).encode()
