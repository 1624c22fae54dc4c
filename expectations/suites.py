"""Defines the expectations as data: on a stream's events, its offsets, the violations and the reconciliation.

How it works: an expectation is a sentence that states what holds, and SQL (Polars' dialect) that selects the violating
rows. The violations of all expectations are counted in one pass over the rows, part by part (measured.py), by Polars,
which compares decimals exactly; Great Expectations would compare them as doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.rules.durations import format_duration
from nightjar.rules.events import ERASED, Reason
from nightjar.rules.masking import masked, masked_text
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

Severity = Literal["critical", "warning"]

# Column with the number of rows of a key in an example; no field can have this name.
ROWS = "$rows"

# Columns that are JSON objects of an event's fields, or of measures.
JSON_COLUMNS = ("group", "measures")
# By stream the names of its sensitive fields, and of measures of these (rules.masking.names_by_stream).
Sensitive = Mapping[str, frozenset[str]]
NONE_SENSITIVE: Sensitive = MappingProxyType({})

# An event of an earlier year is more likely a clock's mistake than history.
_EARLIEST = 2000
# A larger share of unusable records suggests that a producer has changed.
_MOST_REJECTED = 0.05


@dataclass(frozen=True)
class Expectation:
    """One expectation. A critical one stops publication if it does not hold.

    It is about single rows (`breaking`), or about rows that are compared (`key`).
    """

    name: str
    sentence: str
    severity: Severity = "critical"
    breaking: str = ""
    """SQL condition of a violating row."""
    at_most: float = 0.0
    """The share of rows that may violate it."""
    exactly: int | None = None
    """How many rows must meet the condition; None: none."""
    key: tuple[str, ...] = ()
    """Columns that must be unique or, with `content`, whose equal rows must have the same content."""
    content: tuple[str, ...] = ()
    where: str = ""
    """SQL condition of the rows to compare; empty: all."""

    @property
    def sql(self) -> str:
        """The SQL that finds violating rows."""
        if not self.key:
            return self.breaking
        by, where = _columns(self.key), f" WHERE {self.where}" if self.where else ""
        several = f"DISTINCT ({_columns(self.content)})" if self.content else "*"
        return f"SELECT {by}, count(*) AS `{ROWS}` FROM batch{where} GROUP BY {by} HAVING count({several}) > 1"  # noqa: S608  names of a declaration

    def observed(self, rows: int, breaking: int) -> int:
        """The number of violating rows, if `breaking` of all `rows` meet the condition."""
        if self.exactly is not None:
            return abs(breaking - self.exactly)
        return breaking if breaking > self.at_most * rows else 0


@dataclass(frozen=True)
class Suite:
    """The expectations on one table."""

    name: str
    columns: Mapping[str, str]
    """Name to Spark's type."""
    expectations: tuple[Expectation, ...]
    shown: tuple[str, ...] = field(default=())
    """Columns to show in examples."""
    masked: frozenset[str] = frozenset()
    """Columns whose values are not shown."""
    masked_members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the value of the column `stream`, members of the columns JSON_COLUMNS that are not shown."""

    def example(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as an example may show it."""
        members = self.masked_members.get(row.get("stream") or "", frozenset())
        texts = {name: masked_text(row[name], members) for name in JSON_COLUMNS if name in row}
        return masked({**row, **texts}, self.masked)


def every_row(name: str, sentence: str, condition: str, severity: Severity = "critical") -> Expectation:
    """Expect the condition to be true for each row; NULL counts as a violation."""
    return Expectation(name, sentence, severity, breaking=f"NOT coalesce({condition}, false)")


def unique(column: str, sentence: str) -> Expectation:
    """Expect the values of the column to be unique."""
    return Expectation(f"{column}_unique", sentence, key=(column,))


def _columns(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def events_suite(stream: Stream, columns: Mapping[str, str]) -> Suite:
    """Expectations on a day's records of the stream, by arrival. columns: those of lake.tables.events_table."""
    expectations = (*_of_events(stream), *_of_records(), *_decimals(stream), *_compared(stream))
    shown = ("partition", "offset", "arrival_time", "rejected", "detail", *stream.fields)
    return Suite(f"events_{stream.name}", columns, expectations, shown, stream.sensitive)


def _of_events(stream: Stream) -> Iterator[Expectation]:
    """On the id and the time of usable records."""
    event_id, event_time, skew = f"`{stream.event_id}`", f"`{stream.event_time}`", stream.max_future_skew
    yield every_row(
        "event_id_given",
        f"a usable record has an event id ({stream.event_id})",
        f"rejected IS NOT NULL OR coalesce({event_id}, '') <> ''",
    )
    yield every_row(
        "event_time_given", "a usable record has an event time", f"rejected IS NOT NULL OR {event_time} IS NOT NULL"
    )
    yield every_row(
        "event_time_within_skew",
        f"an event happened at most {format_duration(skew)} after its arrival",
        f"rejected IS NOT NULL OR {event_time} IS NULL"
        f" OR {event_time} - arrival_time <= INTERVAL '{skew} microseconds'",
    )
    yield every_row(
        "event_time_sane",
        f"an event happened since {_EARLIEST}",
        f"rejected IS NOT NULL OR {event_time} IS NULL OR EXTRACT(YEAR FROM {event_time}) >= {_EARLIEST}",
        "warning",
    )


def _of_records() -> Iterator[Expectation]:
    """On what the archive notes of every record."""
    reasons = _listed((*(reason.value for reason in Reason), ERASED))
    yield every_row(
        "rejected_explained",
        "an unusable record has its reason, a detail and its original bytes",
        f"rejected IS NULL OR (rejected IN ({reasons}) AND detail IS NOT NULL AND original IS NOT NULL)",
    )
    yield every_row(
        "arrival_known",
        "a record has its partition, offset and arrival, and is in the partition of its arrival date",
        "`partition` IS NOT NULL AND `offset` >= 0 AND CAST(arrival_time AS DATE) = arrival_date",
    )


def _decimals(stream: Stream) -> list[Expectation]:
    return [
        every_row(
            f"{name}_in_precision",
            f"{name} has at most {kind.precision - kind.scale} digits before its point and {kind.scale} after",
            f"`{name}` IS NULL OR (abs(`{name}`) < {10 ** (kind.precision - kind.scale)}"
            f" AND `{name}` = round(`{name}`, {kind.scale}))",
        )
        for name, kind in stream.fields.items()
        if kind.kind is Kind.DECIMAL
    ]


def _compared(stream: Stream) -> Iterator[Expectation]:
    """On a day's records together."""
    yield Expectation(
        "few_rejected",
        f"at most {_MOST_REJECTED:.0%} of the records are unusable",
        "warning",
        breaking=f"rejected IS NOT NULL AND rejected NOT IN ('{ERASED}', '{Reason.IGNORED.value}')",
        at_most=_MOST_REJECTED,
    )
    yield Expectation(
        "coordinates_unique",
        "each Kafka record occurs once, so that the first arrival of an event is one row",
        key=("partition", "offset"),
    )
    yield Expectation(
        "event_id_names_one_event",
        "records with the same event id have the same content",
        "warning",
        key=(stream.event_id,),
        content=tuple(stream.fields),
        where="rejected IS NULL",
    )


# Offsets of a topic that are missing in the lake; see offsets.py.
GAPS = {
    "stream": "string",
    "partition": "int",
    "first_missing": "bigint",
    "last_missing": "bigint",
    "known": "boolean",
    "why": "string",
}


def offsets_suite(stream: str) -> Suite:
    """Expectations on the gaps (GAPS) in the offsets of a stream's records."""
    expectations = (
        every_row("nothing_lost", "no record of the topic is missing", "known IS NULL OR known"),
        every_row("gaps_looked_into", "the cause of each gap is known", "known IS NOT NULL", "warning"),
    )
    return Suite(f"offsets_{stream}", GAPS, expectations, tuple(GAPS))


# A violation and the results of rechecking it; see violation_checks.py.
VIOLATIONS = {
    "alert_id": "string",
    "rule_id": "string",
    "rule_version": "bigint",
    "stream": "string",
    "group": "string",
    "event_id": "string",
    "event_time": "timestamp",
    "measures": "string",
    "expected_id": "string",
    "event_exists": "boolean",
    "group_true": "boolean",
    "version_effective": "boolean",
    "condition_true": "boolean",
    "group_json": "boolean",
    "measures_json": "boolean",
}


def violations_suite(sensitive: Sensitive = NONE_SENSITIVE) -> Suite:
    """Expectations on a run's violations, each with the results of its recheck."""
    expectations = (
        every_row("alert_id_true", "an alert's id is the hash of rule, version, event, time", "alert_id = expected_id"),
        every_row("event_exists", "the event is in the lake and has the violation's event time", "event_exists"),
        every_row("group_true", "the group is the event's", "NOT coalesce(event_exists, false) OR group_true"),
        every_row(
            "version_effective",
            "the version is the one that applied at the event's time, and was active or shadow",
            "version_effective",
        ),
        every_row(
            "condition_true",
            "the rule's condition holds on the recorded measures",
            "NOT coalesce(event_exists AND version_effective, false) OR condition_true",
        ),
        every_row("group_json", "the group is a JSON object", "group_json"),
        every_row("measures_json", "the measures are a JSON object", "measures_json"),
        unique("alert_id", "each alert occurs once"),
    )
    shown = ("alert_id", "rule_id", "rule_version", "stream", "group", "event_id", "event_time", "measures")
    return Suite("violations", VIOLATIONS, expectations, shown, masked_members=sensitive)


OUTCOME = {
    "alert_id": "string",
    "rule_id": "string",
    "rule_version": "bigint",
    "stream": "string",
    "group": "string",
    "event_id": "string",
    "event_time": "timestamp",
    "outcome": "string",
    "cause": "string",
}


def reconciliation_suite(violations: int, alerts: int, sensitive: Sensitive = NONE_SENSITIVE) -> Suite:
    """Expectations on a run's outcomes. violations: those the run found; alerts: the stream's in the run's scope."""
    expectations = (
        every_row("outcome_known", f"an outcome is one of {', '.join(Outcome)}", f"outcome IN ({_listed(Outcome)})"),
        every_row(
            "cause_where_differing",
            "an alert has a cause exactly where the stream and the truth differ",
            f"(outcome IN ({_listed((Outcome.MATCHED, Outcome.WITHDRAWN))})) = (cause IS NULL)",
        ),
        every_row(
            "cause_known",
            f"a cause is one of {', '.join(Cause)}",
            f"cause IS NULL OR cause IN ({_listed(Cause)})",
        ),
        # Only a warning, because corrections of these alerts are held back and all others are published.
        every_row(
            "explained", "every difference is explained", f"cause IS NULL OR cause <> '{Cause.UNEXPLAINED}'", "warning"
        ),
        Expectation(
            "violations_add_up",
            f"matched, missed and revised alerts add up to the violations ({violations:,})",
            breaking=f"outcome IN ({_listed((Outcome.MATCHED, Outcome.MISSED, Outcome.REVISED))})",
            exactly=violations,
        ),
        Expectation(
            "alerts_add_up",
            f"matched, retracted and revised alerts add up to the alerts of the stream ({alerts:,})",
            breaking=f"outcome IN ({_listed((Outcome.MATCHED, Outcome.RETRACTED, Outcome.REVISED))})",
            exactly=alerts,
        ),
        unique("alert_id", "an alert has one outcome"),
    )
    return Suite("reconciliation", OUTCOME, expectations, tuple(OUTCOME), masked_members=sensitive)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)
