"""What must hold, as data: the expectations on a stream's events, its offsets, the violations and the reconciliation.

How it works: an expectation is SQL that finds what breaks it, and a sentence that says what holds. Those that look at
one row at a time are aggregates, which Great Expectations computes together in one pass over the frame; those that
compare rows are queries of their own. Comparison is Spark's own, exact for decimals: Great Expectations' comparisons
are made as doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rules.durations import format_duration
from rules.events import Reason
from rules.streams import Stream
from rules.types import Kind

Severity = Literal["critical", "warning"]

OUTCOMES = ("matched", "missed", "retracted", "revised", "withdrawn")
CAUSES = (
    "late_event", "cold_start", "rule_propagation", "stream_down", "settings_changed", "duplicate_conflict",
    "unexplained",
)  # fmt: skip

# An event of an earlier time is more likely a clock's mistake than history.
_EARLIEST = "2000-01-01"
# More unusable records than this share of the day's mean that something upstream has changed.
_MOST_REJECTED = 0.05


@dataclass(frozen=True)
class Expectation:
    """One thing that must hold. A critical one stops publication.

    Either aggregate (SQL for how many rows break it) and breaking (the condition of such rows), where rows are looked
    at one by one; or query (SQL over {batch} for the rows that break it), where rows are compared.
    """

    name: str
    sentence: str
    severity: Severity = "critical"
    aggregate: str = ""
    breaking: str = ""
    query: str = ""


@dataclass(frozen=True)
class Suite:
    """What must hold of one frame. columns: name to Spark's type; shown: what of a row helps whoever looks into it."""

    name: str
    columns: Mapping[str, str]
    expectations: tuple[Expectation, ...]
    shown: tuple[str, ...] = field(default=())


def every_row(name: str, sentence: str, condition: str, severity: Severity = "critical") -> Expectation:
    """The condition is true of each row; NULL is not true."""
    breaking = f"NOT coalesce({condition}, false)"
    return Expectation(name, sentence, severity, aggregate=f"count_if({breaking})", breaking=breaking)


def no_rows(name: str, sentence: str, query: str, severity: Severity = "critical") -> Expectation:
    """The query over {batch} finds nothing."""
    return Expectation(name, sentence, severity, query=query)


def unique(column: str, sentence: str) -> Expectation:
    """No value of the column is there twice."""
    values = f"SELECT `{column}`, count(*) AS rows"
    return no_rows(f"{column}_unique", sentence, f"{values} FROM {{batch}} GROUP BY `{column}` HAVING count(*) > 1")


def events_suite(stream: Stream, columns: Mapping[str, str]) -> Suite:
    """Of a day's records of the stream, by arrival. columns: those of its table (lake.tables.events_table)."""
    event_id, event_time = f"`{stream.event_id}`", f"`{stream.event_time}`"
    skew, reasons = stream.max_future_skew, ", ".join(f"'{reason.value}'" for reason in Reason)
    content = ", ".join(f"`{name}`, `{name}` IS NULL" for name in stream.fields)
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
            f" OR unix_micros({event_time}) - unix_micros(arrival_time) <= {skew}",
        ),
        every_row(
            "event_time_sane",
            f"an event happened since {_EARLIEST}",
            f"rejected IS NOT NULL OR {event_time} IS NULL OR {event_time} >= timestamp'{_EARLIEST} 00:00:00Z'",
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
            "partition IS NOT NULL AND offset >= 0 AND to_date(arrival_time) = arrival_date",
        ),
        *_decimals(stream),
        Expectation(
            "few_rejected",
            f"at most {_MOST_REJECTED:.0%} of the records are unusable",
            "warning",
            aggregate=f"if(count(rejected) > {_MOST_REJECTED} * count(*), count(rejected), 0)",
            breaking="rejected IS NOT NULL",
        ),
        no_rows(
            "coordinates_unique",
            "a record of Kafka is there once, so that the first arrival of an event is one row",
            "SELECT partition, offset, count(*) AS rows FROM {batch} GROUP BY partition, offset HAVING count(*) > 1",
        ),
        no_rows(
            "event_id_names_one_event",
            "records with one event id have the same content",
            f"SELECT min({event_id}) AS {event_id}, count(*) AS `$records` FROM (SELECT {event_id}, "  # noqa: S608  names of a declaration
            f"xxhash64({event_id}) AS `$id`, xxhash64({content}) AS `$content` FROM {{batch}} WHERE rejected IS NULL) "
            "GROUP BY `$id` HAVING min(`$content`) <> max(`$content`)",
            "warning",
        ),
    ]
    shown = ("partition", "offset", "arrival_time", "rejected", "detail", *stream.fields)
    return Suite(f"events_{stream.name}", columns, tuple(expectations), shown)


def _decimals(stream: Stream) -> list[Expectation]:
    return [
        every_row(
            f"{name}_in_precision",
            f"{name} has at most {kind.precision - kind.scale} digits before its point and {kind.scale} after",
            f"`{name}` IS NULL OR (abs(`{name}`) < {10 ** (kind.precision - kind.scale)}BD"
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
}  # fmt: skip


def violations_suite() -> Suite:
    """Of a run's violations, each with what its recheck says of it."""
    expectations = (
        every_row("alert_id_true", "an alert's id is the hash of rule, version, event, time", "alert_id = expected_id"),
        every_row("event_exists", "the event is in the lake, and happened when the violation says", "event_exists"),
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
        every_row("group_json", "the group is a JSON object", "json_object_keys(`group`) IS NOT NULL"),
        every_row("measures_json", "the measures are a JSON object", "json_object_keys(measures) IS NOT NULL"),
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
    of_the_truth = "count_if(outcome IN ('matched', 'missed', 'revised'))"
    of_the_stream = "count_if(outcome IN ('matched', 'retracted', 'revised'))"
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
            aggregate=f"abs({of_the_truth} - {violations})",
        ),
        Expectation(
            "alerts_add_up",
            f"matched, retracted and revised alerts are the {standing} that the stream had standing",
            aggregate=f"abs({of_the_stream} - {standing})",
        ),
        unique("alert_id", "an alert has one outcome"),
    )
    return Suite("reconciliation", OUTCOME, expectations, tuple(OUTCOME))


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)
