"""What must hold, as data: the expectations on a stream's events, its offsets, the violations and the reconciliation.

How it works: an expectation is SQL (of Polars) that finds what breaks it, and a sentence that says what holds. What
breaks each is counted in one pass over the rows, in as many parts as there are (measured.py). Comparison is Polars'
own, exact for decimals: Great Expectations' comparisons are made as doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rules.durations import format_duration
from rules.events import Reason
from rules.streams import Stream
from rules.types import Kind

Severity = Literal["critical", "warning"]

# What counts the rows of a key in an example; no field has such a name.
ROWS = "$rows"

OUTCOMES = ("matched", "missed", "retracted", "revised", "withdrawn")
CAUSES = (
    "late_event", "cold_start", "rule_propagation", "stream_down", "settings_changed", "duplicate_conflict",
    "unexplained",
)  # fmt: skip

# An event of an earlier year is more likely a clock's mistake than history.
_EARLIEST = 2000
# More unusable records than this share of the day's mean that something upstream has changed.
_MOST_REJECTED = 0.05


@dataclass(frozen=True)
class Expectation:
    """One thing that must hold. A critical one stops publication.

    Where rows are looked at one by one: breaking, SQL for the condition of a row that breaks it; at_most, the share of
    the rows that may; exactly, how many rows are to meet the condition (None: none).

    Where rows are compared: key, columns whose values no two rows share; or, where there is content, whose rows all
    have the same content; where, SQL for the rows that are compared (empty: all).
    """

    name: str
    sentence: str
    severity: Severity = "critical"
    breaking: str = ""
    at_most: float = 0.0
    exactly: int | None = None
    key: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    where: str = ""

    @property
    def sql(self) -> str:
        """What finds the rows that break it."""
        if not self.key:
            return self.breaking
        by, where = _columns(self.key), f" WHERE {self.where}" if self.where else ""
        several = f"DISTINCT ({_columns(self.content)})" if self.content else "*"
        return f"SELECT {by}, count(*) AS `{ROWS}` FROM batch{where} GROUP BY {by} HAVING count({several}) > 1"  # noqa: S608  names of a declaration

    def observed(self, rows: int, breaking: int) -> int:
        """By how many rows it is broken, where so many of all rows meet the condition."""
        if self.exactly is not None:
            return abs(breaking - self.exactly)
        return breaking if breaking > self.at_most * rows else 0


@dataclass(frozen=True)
class Suite:
    """What must hold of one table. columns: name to Spark's type; shown: what of a row helps whoever looks into it."""

    name: str
    columns: Mapping[str, str]
    expectations: tuple[Expectation, ...]
    shown: tuple[str, ...] = field(default=())


def every_row(name: str, sentence: str, condition: str, severity: Severity = "critical") -> Expectation:
    """The condition is true of each row; NULL is not true."""
    return Expectation(name, sentence, severity, breaking=f"NOT coalesce({condition}, false)")


def unique(column: str, sentence: str) -> Expectation:
    """No value of the column is there twice."""
    return Expectation(f"{column}_unique", sentence, key=(column,))


def _columns(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def events_suite(stream: Stream, columns: Mapping[str, str]) -> Suite:
    """Of a day's records of the stream, by arrival. columns: those of its table (lake.tables.events_table)."""
    event_id, event_time = f"`{stream.event_id}`", f"`{stream.event_time}`"
    skew, reasons = stream.max_future_skew, ", ".join(f"'{reason.value}'" for reason in Reason)
    expectations = [
        every_row(
            "event_id_given",
            f"a usable record has an event id ({stream.event_id})",
            f"rejected IS NOT NULL OR coalesce({event_id}, '') <> ''",
        ),
        every_row(
            "event_time_given", "a usable record has an event time", f"rejected IS NOT NULL OR {event_time} IS NOT NULL"
        ),
        every_row(
            "event_time_within_skew",
            f"an event happened at most {format_duration(skew)} after its arrival",
            f"rejected IS NOT NULL OR {event_time} IS NULL"
            f" OR {event_time} - arrival_time <= INTERVAL '{skew} microseconds'",
        ),
        every_row(
            "event_time_sane",
            f"an event happened since {_EARLIEST}",
            f"rejected IS NOT NULL OR {event_time} IS NULL OR EXTRACT(YEAR FROM {event_time}) >= {_EARLIEST}",
            "warning",
        ),
        every_row(
            "rejected_explained",
            "an unusable record has its reason, a detail and its original bytes",
            f"rejected IS NULL OR (rejected IN ({reasons}) AND detail IS NOT NULL AND original IS NOT NULL)",
        ),
        every_row(
            "arrival_known",
            "a record has its partition, offset and arrival, and lies under its arrival's date",
            "`partition` IS NOT NULL AND `offset` >= 0 AND CAST(arrival_time AS DATE) = arrival_date",
        ),
        *_decimals(stream),
        Expectation(
            "few_rejected",
            f"at most {_MOST_REJECTED:.0%} of the records are unusable",
            "warning",
            breaking="rejected IS NOT NULL",
            at_most=_MOST_REJECTED,
        ),
        Expectation(
            "coordinates_unique",
            "a record of Kafka is there once, so that the first arrival of an event is one row",
            key=("partition", "offset"),
        ),
        Expectation(
            "event_id_names_one_event",
            "records with one event id have the same content",
            "warning",
            key=(stream.event_id,),
            content=tuple(stream.fields),
            where="rejected IS NULL",
        ),
    ]
    shown = ("partition", "offset", "arrival_time", "rejected", "detail", *stream.fields)
    return Suite(f"events_{stream.name}", columns, tuple(expectations), shown)


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


# Offsets of a topic that the lake does not have; see offsets.py.
GAPS = {
    "stream": "string", "partition": "int", "first_missing": "bigint", "last_missing": "bigint", "known": "boolean",
    "why": "string",
}  # fmt: skip


def offsets_suite(stream: str) -> Suite:
    """Of the gaps (GAPS) in the offsets of a stream's records."""
    expectations = (
        every_row("nothing_lost", "no record of the topic is missing", "known IS NULL OR known"),
        every_row("gaps_looked_into", "of each gap it is known why", "known IS NOT NULL", "warning"),
    )
    return Suite(f"offsets_{stream}", GAPS, expectations, tuple(GAPS))


# A violation, and what rechecking it said; see rechecked.py.
VIOLATIONS = {
    "alert_id": "string", "rule_id": "string", "rule_version": "bigint", "stream": "string", "group": "string",
    "event_id": "string", "event_time": "timestamp", "measures": "string", "expected_id": "string",
    "event_exists": "boolean", "group_true": "boolean", "version_effective": "boolean", "condition_true": "boolean",
    "group_json": "boolean", "measures_json": "boolean",
}  # fmt: skip


def violations_suite() -> Suite:
    """Of a run's violations, each with what its recheck says of it."""
    expectations = (
        every_row("alert_id_true", "an alert's id is the hash of rule, version, event, time", "alert_id = expected_id"),
        every_row("event_exists", "the event is in the lake, and has the event time of the violation", "event_exists"),
        every_row("group_true", "the group is the event's", "NOT coalesce(event_exists, false) OR group_true"),
        every_row(
            "version_effective",
            "the version is the one that applied at the event's time, and looked for something",
            "version_effective",
        ),
        every_row(
            "condition_true",
            "the rule's condition holds on the recorded measures",
            "NOT coalesce(event_exists AND version_effective, false) OR condition_true",
        ),
        every_row("group_json", "the group is a JSON object", "group_json"),
        every_row("measures_json", "the measures are a JSON object", "measures_json"),
        unique("alert_id", "an alert is there once"),
    )
    shown = ("alert_id", "rule_id", "rule_version", "stream", "group", "event_id", "event_time", "measures")
    return Suite("violations", VIOLATIONS, expectations, shown)


OUTCOME = {
    "alert_id": "string", "rule_id": "string", "rule_version": "bigint", "stream": "string", "group": "string",
    "event_id": "string", "event_time": "timestamp", "outcome": "string", "cause": "string",
}  # fmt: skip


def reconciliation_suite(violations: int, standing: int) -> Suite:
    """Of the outcomes of a run that found so many violations, where the stream had so many alerts standing in scope."""
    expectations = (
        every_row("outcome_known", f"an outcome is one of {', '.join(OUTCOMES)}", f"outcome IN ({_listed(OUTCOMES)})"),
        every_row(
            "cause_where_differing",
            "an alert has a cause exactly where the stream and the truth differ",
            "(outcome IN ('matched', 'withdrawn')) = (cause IS NULL)",
        ),
        every_row(
            "cause_known",
            f"a cause is one of {', '.join(CAUSES)}",
            f"cause IS NULL OR cause IN ({_listed(CAUSES)})",
        ),
        # a warning: corrections of the alerts concerned are held back, and those of all others are not
        every_row("explained", "every difference is explained", "cause IS NULL OR cause <> 'unexplained'", "warning"),
        Expectation(
            "violations_add_up",
            f"matched, missed and revised alerts are the {violations} violations",
            breaking="outcome IN ('matched', 'missed', 'revised')",
            exactly=violations,
        ),
        Expectation(
            "alerts_add_up",
            f"matched, retracted and revised alerts are the {standing} alerts of the stream",
            breaking="outcome IN ('matched', 'retracted', 'revised')",
            exactly=standing,
        ),
        unique("alert_id", "an alert has one outcome"),
    )
    return Suite("reconciliation", OUTCOME, expectations, tuple(OUTCOME))


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)
