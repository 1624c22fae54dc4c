"""The model of a case and of its outcome, shared by all hosts that run cases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import ALERT
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.record_type import RecordType
from nightjar.contracts.restrictions import RESTRICTION
from nightjar.rules.streams import Stream

SECTIONS = ("alerts", "final", "corrections", "restrictions", "late", "quarantine", "rule_status")


def _keys(record: RecordType, *without: str) -> tuple[str, ...]:
    """A record's members, in their order."""
    return tuple(name for name in record.members if name not in without)


KEYS: Mapping[str, tuple[str, ...]] = {
    "alerts": _keys(ALERT, "cause"),
    "final": _keys(ALERT, "cause"),
    "corrections": _keys(ALERT, "emitted_at", "overflow"),
    "restrictions": _keys(RESTRICTION, "cause"),
    "late": _keys(LATE_EVENT, "partition", "offset"),
    "quarantine": ("stream", "reason", "detail", "raw", "arrival_time"),
    "rule_status": (
        "status",
        "rule_id",
        "rule_version",
        "effective",
        "reasons",
        "approver",
        "approval_reason",
        "declined_by",
        "decline_reason",
        "emitted_at",
    ),
}
# Keys with a time in any of the records: ISO 8601 in UTC with microseconds.
TIMES = frozenset({"event_time", "arrival_time", "emitted_at", "effective", "starts_at", "ends_at"})

Row = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """One message on a stream's topic, as its bytes."""

    stream: str
    raw: bytes


@dataclass(frozen=True)
class Step:
    """Everything that happens at one time, in this order: a crash, rule messages (rules, then control), changes of
    tables, events.

    at: arrival of everything in it, µs since 1970 in UTC. rules: messages on the `rules` topic; tables: likewise.
    """

    at: int
    crash: bool
    rules: tuple[bytes, ...]
    events: tuple[Message, ...]
    tables: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class ExpectedOutcome:
    """What a case expects: the rows of each checked section, with the keys to compare, and the state."""

    rows: Mapping[str, list[Row]] = field(default_factory=dict)
    state: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True)
class Case:
    """Steps and their expected results."""

    title: str
    description: str
    origin: str
    """What it was read from, for errors."""
    streams: Mapping[str, Stream]
    settings: Settings
    """Its own and the defaults, without the environment and settings files."""
    steps: tuple[Step, ...]
    expect: ExpectedOutcome


def final_alerts(records: Iterable[Row]) -> list[Row]:
    """The highest revision of each alert, without retracted ones."""
    last: dict[str, Row] = {}
    for record in records:
        known = last.get(record["alert_id"])
        if known is None or record["revision"] > known["revision"]:
            last[record["alert_id"]] = record
    return [record for record in last.values() if record["kind"] == "alert"]


@dataclass
class CaseOutcome:
    """The result of a case: the JSON records of each topic in order (see KEYS), and the retained rows."""

    alerts: list[Row] = field(default_factory=list)
    corrections: list[Row] = field(default_factory=list)
    """The records that a backfill of all days adds to the stream's alerts."""
    restrictions: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    quarantine: list[Row] = field(default_factory=list)
    rule_status: list[Row] = field(default_factory=list)
    state: dict[str, dict[str, int]] = field(default_factory=dict)
    """Stream → the group-by's fields joined by commas → rows."""
    simultaneous: list[Row] = field(default_factory=list)
    """Where events of one group happened at the same time and no tie-breaker orders them, so that a hash of their ids
    does (S1.1): stream, group, event_time, and their ids in that order."""

    @property
    def final(self) -> list[Row]:
        """A consumer's final alerts before the backfill."""
        return final_alerts(self.alerts)

    def as_dict(self) -> dict[str, Any]:
        """One JSON object: the sections, the state, and which order a hash decided."""
        sections = {section: getattr(self, section) for section in SECTIONS}
        return {**sections, "state": self.state, "simultaneous": self.simultaneous}
