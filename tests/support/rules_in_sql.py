"""Rules in SQL: every measure and every verdict of a version at every event, by one query of DuckDB.

How it works: events are numbered in the order of S1.1, and each is joined with its group's events up to it; a measure
is an aggregate of those that its options let through. Predicates are the rule's own text.

What it does not do: sums of doubles and spreads of large numbers, which SQL has not exactly; calendars of zones;
sessions; episodes, each of which depends on those before it; sequences; alerts of other rules; and rules that start
again after alerts. They come as UNKNOWN, and so does a verdict that hangs on them.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from nightjar.rules.functions import WHOLE, Function
from nightjar.rules.measures import Measure
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind
from nightjar.rules.versions import RuleVersion
from tests.support.histories import LOOKED_UP, asked, shown_as
from tests.support.reference import Event, fnv64, listed

# ruff: noqa: S608  the queries are made of rules that have been checked

UNKNOWN = object()
# Squares of as many as a history has, and their sum, fit 127 bits.
_SQUARABLE = 10**15
_EXACT = 10**6
_EARLIER = "ORDER BY the_nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
# What DuckDB lacks, or has with another meaning at NULL: as random predicates call it.
_FUNCTIONS = (
    "greatest(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL WHEN a > b THEN a ELSE b END",
    "least(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL WHEN a < b THEN a ELSE b END",
    "concat(a, b) AS a || b",
    "regexp_like(a, b) AS regexp_matches(a, b)",
    "ip_in(a, b) AS CASE WHEN a = b THEN TRUE WHEN a IN ('::', '::a', '::b') THEN FALSE END",
)
_DOUBLES = (Function.AVG, Function.STDDEV)


def connect() -> duckdb.DuckDBPyConnection:
    """A database of its own, on one thread."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")  # it would stand among what is printed
    for function in _FUNCTIONS:
        connection.execute(f"CREATE MACRO {function}")
    return connection


def evaluated(
    connection: duckdb.DuckDBPyConnection,
    stream: Stream,
    versions: list[RuleVersion],
    version: RuleVersion,
    events: list[Event],
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Event id → (whether the version is violated, measures) at the events that it is judged at.

    versions: the rule's, in the order of publication. events: in the order of arrival.
    """
    connection.register("arrived", _table(stream, events))
    query = _query(stream, versions, version)
    if (of_table := asked(stream)) is not None:
        for column in (of_table[1], LOOKED_UP):
            query = query.replace(column, f'"{column}"')  # a column of its own
    rows = connection.execute(query).fetchall()
    names = list(version.rule.aggregates)
    found = {}
    for event_id, holds, *values in rows:
        measures = {
            name: _read(version.rule.aggregates[name], stream, value) for name, value in zip(names, values, strict=True)
        }
        measures |= dict.fromkeys(version.rule.computed, UNKNOWN)
        if version.rule.reset_after_alert or version.rule.inner or version.rule.over_alerts:
            measures = dict.fromkeys(version.rule.measures, UNKNOWN)
        found[event_id] = (UNKNOWN if UNKNOWN in measures.values() else holds, measures)
    return found


def _table(stream: Stream, events: list[Event]) -> pa.Table:
    """The fields (timestamps as µs), the units of decimals as whole numbers, arrival, and the hash of the id."""
    columns = {
        "hash": pa.array([fnv64(event[stream.event_id]) for event in events], pa.uint64()),
        "arrived": pa.array(range(len(events)), pa.int64()),
    }
    for name, kind in stream.fields.items():
        values = [event[name] for event in events]
        columns[name] = pa.array(values, pa.int64() if kind.kind is Kind.TIMESTAMP else kind.arrow)
        if kind.kind is Kind.DECIMAL:
            units = [None if value is None else int(value.scaleb(kind.scale)) for value in values]
            columns[f"{name} units"] = pa.array(units, pa.int64())
    if (found := asked(stream)) is not None:
        columns[found[1]] = pa.array([event[found[1]] for event in events], pa.bool_())
        columns[LOOKED_UP] = pa.array([event[LOOKED_UP] for event in events], pa.int64())
    return pa.table(columns)


def _query(stream: Stream, versions: list[RuleVersion], version: RuleVersion) -> str:
    rule = version.rule
    event_id, event_time = f'"{stream.event_id}"', f'"{stream.event_time}"'
    tie = f'"{stream.tiebreaker}" NULLS LAST, ' if stream.tiebreaker else ""
    grouped = [f'"{name}" IS NOT NULL' for name in rule.group_by]
    same = [f'e."{name}" = o."{name}"' for name in rule.group_by]
    by = ", ".join(f'"{name}"' for name in rule.group_by)
    marks, resets = [], []
    for name, measure in rule.aggregates.items():
        if measure.where is not None:
            where = "TRUE" if name in rule.inner else measure.where
            marks.append(f'coalesce(({where}), FALSE) AS "{name} counts"')
        if measure.since is not None:
            earlier = _EARLIER
            if measure.delay is not None:
                frame = f"RANGE BETWEEN UNBOUNDED PRECEDING AND {measure.delay} PRECEDING"
                earlier = f"ORDER BY {event_time} {frame}"
            over = f"{'PARTITION BY ' + by if by else ''} {earlier}"
            resets.append(
                f'coalesce(max(the_nth) FILTER (WHERE {measure.since}) OVER ({over}), 0) AS "{name} begins after"'
            )
    aggregates = [f'{_aggregate(name, measure, stream)} AS "{name}"' for name, measure in rule.aggregates.items()]
    later = versions[versions.index(version) + 1 :]
    applies = [f"e.{event_time} >= {version.effective}", *(f"e.{event_time} < {other.effective}" for other in later)]
    measures = "".join(f', "{name}"' for name in rule.aggregates)
    when = "FALSE" if rule.computed else rule.when
    holds, judged = f"coalesce(({when}), FALSE)", ""
    if rule.unless is not None:
        until = f"e.{event_time} + {rule.unless.within}"
        judged = f" AND {until} < (SELECT max({event_time}) FROM known)"
        after = [f"f.{event_id} <> e.{event_id}", f"f.{event_time} BETWEEN e.{event_time} AND {until}"]
        after += [f'f."{name}" = e."{name}"' for name in rule.group_by]
        holds += f" AND {event_id} NOT IN (SELECT {event_id} FROM followed)"
        awaited = f"SELECT * FROM known WHERE {rule.unless.where}"
        followed = f"SELECT e.{event_id} FROM seen AS e JOIN ({awaited}) AS f ON {' AND '.join(after)}"
    else:
        followed = f"SELECT {event_id} FROM known WHERE FALSE"
    return f"""
        WITH known AS (
            SELECT * FROM arrived QUALIFY row_number() OVER (PARTITION BY {event_id} ORDER BY arrived) = 1
        ), seen AS (
            SELECT *, row_number() OVER (ORDER BY {event_time}, {tie}hash, {event_id}) AS the_nth FROM known
            WHERE {" AND ".join([f"({rule.where or 'TRUE'})", *grouped])}
        ), marked AS (
            SELECT {", ".join(["*", *marks, *resets])} FROM seen
        ), found AS (
            SELECT {", ".join([f"e.{event_id}", *aggregates])}
            FROM marked AS e JOIN marked AS o ON {" AND ".join([*same, "o.the_nth <= e.the_nth"])}
            WHERE {" AND ".join(applies)}{judged} GROUP BY e.{event_id}
        ), followed AS (
            {followed}
        )
        SELECT {event_id}, {holds}{measures} FROM found JOIN seen USING ({event_id})
    """


def _aggregate(name: str, measure: Measure, stream: Stream) -> str:
    """The measure over o, seen from e."""
    if measure.over_alerts:
        return "NULL"
    time = f'"{stream.event_time}"'
    ends = f"e.{time} - {measure.delay or 0}"
    begins = f"{ends} - {measure.length}"
    if measure.resolution is not None:  # rounded down, also before 1970
        r = measure.resolution
        begins += f" - ((e.{time} - {measure.length}) % {r} + {r}) % {r}"
    conditions = [f"o.{time} {'>' if measure.excluding_start else '>='} {begins}", f"o.{time} <= {ends}"]
    conditions += [f'o."{field}" = e."{field}"' for field in measure.per]
    if measure.where is not None:
        conditions.append(f'o."{name} counts"')
    if measure.since is not None:
        conditions.append(f'o.the_nth > e."{name} begins after"')
    if measure.excluding_current:
        conditions.append("o.the_nth < e.the_nth")
    if measure.field is None:
        return f"count(*) FILTER (WHERE {' AND '.join(conditions)})"
    kind, x = stream.fields[measure.field], f'o."{measure.field}"'
    counted = f"FILTER (WHERE {' AND '.join([*conditions, f'{x} IS NOT NULL'])})"
    if measure.function in (Function.SUM, *_DOUBLES) and kind.kind is Kind.DOUBLE:
        return "CAST('NaN' AS DOUBLE)"
    units = f'o."{measure.field} units"' if kind.kind is Kind.DECIMAL else x
    scale = 10**kind.scale
    match measure.function:
        case Function.SUM:  # NULL where 64 bits do not hold it
            total = f"coalesce(sum({units}) {counted}, 0)"
            fits = f"{total} BETWEEN -9223372036854775808 AND 9223372036854775807"
            return f"CASE WHEN {fits} THEN CAST(coalesce(sum({x}) {counted}, 0) AS DECIMAL(19, {kind.scale})) END"
        case Function.AVG:
            return f"CAST(sum({units}) {counted} AS DOUBLE) / (count({x}) {counted} * CAST({scale} AS HUGEINT))"
        case Function.STDDEV:
            small = f"{units} BETWEEN -{_SQUARABLE} AND {_SQUARABLE}"
            n, wide = f"count({x}) {counted}", f"CAST(CASE WHEN {small} THEN {units} END AS HUGEINT)"
            squares, total = f"sum({wide} * {wide}) {counted}", f"sum({wide}) {counted}"
            spread = f"CAST({n} * {squares} - {total} * {total} AS DOUBLE) / ({n} * ({n} - 1))"
            return (
                f"CASE WHEN NOT bool_and({small}) {counted} THEN CAST('NaN' AS DOUBLE)"
                f" WHEN {n} >= 2 THEN sqrt({spread}) / {scale} END"
            )
        case Function.COUNT_DISTINCT:
            return f"count(DISTINCT {x}) {counted}"
        case Function.FIRST:
            return f"arg_min({x}, o.the_nth) {counted}"
        case Function.LAST | Function.PREVIOUS:
            return f"arg_max({x}, o.the_nth) {counted}"
        case Function.MEDIAN | Function.PERCENTILE:
            # of what a double holds with digits to spare, as it is calculated with
            x = f"CAST({units} AS DOUBLE)"
            part = 0.5 if measure.share is None else measure.share / WHOLE
            return (
                f"CASE WHEN NOT bool_and(abs({x}) <= {_EXACT}) {counted} THEN CAST('NaN' AS DOUBLE)"
                f" ELSE quantile_cont({x}, {part}) {counted} / {scale} END"
            )
        case Function.MODE:  # the first of several, in the order that is given
            return f"mode({x} ORDER BY o.the_nth DESC) {counted}"
        case Function.VALUES:
            return f"list({x} ORDER BY o.the_nth) {counted}"
    return f"{measure.function}({x}) {counted}"


def _read(measure: Measure, stream: Stream, value: Any) -> Any:
    if measure.episode is not None or measure.calendar is not None or measure.session is not None or measure.steps:
        return UNKNOWN
    if isinstance(value, float) and value != value:  # noqa: PLR0124  NaN, which no event has
        return UNKNOWN
    if measure.function is Function.VALUES:
        return listed(value or [], shown_as(stream.fields[str(measure.field)]))
    if measure.function is Function.SUM:
        if value is None:
            return UNKNOWN
        return value if stream.fields[str(measure.field)].kind is Kind.DECIMAL else int(value)
    return value
