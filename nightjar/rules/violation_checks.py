"""Check recorded violations: does each one, with its recorded measures, violate its rule?

How it works: the version is looked up by event time (S5.1), and its `where` and `when` run on the event's fields and
on the recorded measures, read back from their JSON. No window is evaluated: the engine is responsible for the measures;
that the rest follows from them is checked here, independently.

What it does not do: raise for an invalid violation; every failed check is a `false` in its row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal, DecimalException
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.absence import DUE
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.allowing import ALLOWED_BY, allows_alerts
from nightjar.rules.engine.alert_columns import json_objects, jsonable
from nightjar.rules.engine.table_rows import EVERY, TableRows
from nightjar.rules.model import Rule, measure_types
from nightjar.rules.predicates import Predicate, compile_predicate, truths
from nightjar.rules.streams import Stream
from nightjar.rules.tables import asked_of, values_of
from nightjar.rules.timestamps import parse_timestamp
from nightjar.rules.types import BOOLEAN, FieldType, Kind
from nightjar.rules.versions import RuleSet, RuleVersion

# The checks, one row per violation, in the violations' order.
#   expected_id: the id by S10.1
#   event_exists: an event of that id exists, and happened at that time
#   group_true: the group is the event's
#   version_effective: that version of the rule applies at the event's time, and is evaluated
#   condition_true: the rule's `where` holds at the event, and its `when` on the recorded measures
RECHECKED = pa.schema(
    [
        ("expected_id", pa.string()),
        ("event_exists", pa.bool_()),
        ("group_true", pa.bool_()),
        ("version_effective", pa.bool_()),
        ("condition_true", pa.bool_()),
    ]
)

_DTYPES = {Kind.STRING: pl.String, Kind.DOUBLE: pl.Float64, Kind.BOOLEAN: pl.Boolean}
_MISSING = object()


def recheck(
    violations: pa.Table, events: pa.Table, stream: Stream, ruleset: RuleSet, tables: TableRows | None = None
) -> pa.Table:
    """RECHECKED, one row per violation.

    violations: rule_id, rule_version, group, event_id, event_time (timestamp[us, UTC]) and measures of VIOLATION_SCHEMA
    at least. events: the stream's fields in their Arrow types; the events of the violations, each id once.
    tables: the rows of tables, all of which count.
    """
    rows = violations.num_rows
    ids, times = violations.column("event_id"), violations.column("event_time").cast(pa.int64()).to_pylist()
    of_violation = events.take(pc.index_in(ids, value_set=events.column(stream.event_id).combine_chunks()))
    happened = of_violation.column(stream.event_time).cast(pa.int64()).to_pylist()
    rule_ids, numbers, groups = (violations.column(name).to_pylist() for name in ("rule_id", "rule_version", "group"))
    named: list[tuple[str, int]] = list(zip(rule_ids, numbers, strict=True))
    found: dict[str, list[Any]] = {
        "expected_id": [
            alert_id(*rule, *event) for rule, *event in zip(named, ids.to_pylist(), times, groups, strict=True)
        ],
        "event_exists": [at is not None and at == recorded for at, recorded in zip(happened, times, strict=True)],
        "group_true": [False] * rows,
        "version_effective": [False] * rows,
        "condition_true": [False] * rows,
    }
    places: dict[tuple[str, int], list[int]] = {}
    for place, name in enumerate(named):
        places.setdefault(name, []).append(place)
    for (rule_id, number), at in places.items():
        of_rule = RuleSet(ruleset.of_stream(stream.name).of_rule(rule_id))
        version = next((known for known in of_rule.versions if known.version == number), None)
        if version is None or not version.rule.state.is_evaluated:
            continue
        own, about = violations.take(at), of_violation.take(at)
        answers = {
            "version_effective": [of_rule.applicable(rule_id, times[place]) == version for place in at],
            "group_true": _groups(own, about, stream, version.rule),
            "condition_true": _conditions(own, about, stream, version, tables),
        }
        for column, values in answers.items():
            for place, value in zip(at, values, strict=True):
                found[column][place] = value
    return pa.table(found, RECHECKED)


def _groups(violations: pa.Table, events: pa.Table, stream: Stream, rule: Rule) -> list[bool]:
    keys = {name: jsonable(events.column(name).combine_chunks(), stream.fields[name]) for name in rule.group_by}
    expected = json_objects(keys, events.num_rows).to_pylist()
    recorded = violations.column("group").to_pylist()
    return [_parsed(one) == json.loads(other) for one, other in zip(recorded, expected, strict=True)]


def _conditions(
    violations: pa.Table, events: pa.Table, stream: Stream, version: RuleVersion, tables: TableRows | None
) -> list[bool]:
    """Whether the version's conditions hold at each event, with the measures that its violation records."""
    rule, rows = version.rule, violations.num_rows
    stream = stream.looking_up(rule.lookup)
    types = measure_types(rule, stream)
    recorded = [_parsed(text) for text in violations.column("measures").to_pylist()]
    columns = {name: _physical(events.column(name), kind) for name, kind in stream.fields.items()}
    names = types.keys() | ({DUE} if rule.unless else set())
    times = violations.column("event_time").cast(pa.int64()).to_pylist()
    readable = [
        isinstance(each, dict) and each.keys() - {ALLOWED_BY} == names and _can_be_silenced(each, version, at)
        for each, at in zip(recorded, times, strict=True)
    ]
    for name, kind in types.items():
        values = [_read(each[name], kind) if known else None for each, known in zip(recorded, readable, strict=True)]
        readable = [known and value is not _MISSING for known, value in zip(readable, values, strict=True)]
        given = [None if value is _MISSING else value for value in values]
        columns[name] = pl.Series(name, given, dtype=_DTYPES.get(kind.kind, pl.Int64))
    conditions = _compiled(rule, stream, types)
    for name in frozenset[str]().union(*(condition.columns for condition in conditions)) - columns.keys():
        columns[name] = _of_table(name, events, stream, tables)
    held = [truth.tolist() for truth in truths(conditions, columns, rows)]
    there = events.column(stream.event_id).is_valid().to_pylist()
    return [all(each) for each in zip(there, readable, *held, strict=True)]


def _can_be_silenced(recorded: dict[str, Any], version: RuleVersion, at: int) -> bool:
    """Whether the allow rule that an alert's measures name, if they do, can silence it. at: event time, µs."""
    if ALLOWED_BY not in recorded:
        return True
    known, named = RuleSet(version.named), recorded[ALLOWED_BY]
    applies = known.applicable(named, at) if isinstance(named, str) else None
    return applies is not None and allows_alerts(applies.rule, version.rule)


def _of_table(name: str, events: pa.Table, stream: Stream, tables: TableRows | None) -> pl.Series:
    """What a table has for a field's value at each event, by the column's name; NULL where it is unknown."""
    asked = asked_of(name)
    if asked is None:
        return pl.Series(name, [None] * events.num_rows, dtype=pl.Boolean)
    if tables is None:
        value = values_of(stream.tables[asked.table]).get(asked.value or "", BOOLEAN)
        return pl.Series(name, [None] * events.num_rows, dtype=_DTYPES.get(value.kind, pl.Int64))
    keys = events.column(asked.field).combine_chunks()
    times = pc.fill_null(events.column(stream.event_time).cast(pa.int64()), 0).to_numpy()
    return pl.Series(name, tables.column(asked, keys, times, np.full(len(times), EVERY)))


def meets(events: pa.Table, stream: Stream, condition: str, tables: TableRows | None, *, where: str) -> list[bool]:
    """Which events meet a condition over their fields. events: the stream's fields; tables: their rows, if some are
    declared; where: for errors."""
    columns = {name: _physical(events.column(name), kind) for name, kind in stream.fields.items()}
    predicate = compile_predicate(condition, stream.columns, where=where)
    for name in predicate.columns - columns.keys():
        columns[name] = _of_table(name, events, stream, tables)
    (held,) = truths([predicate], columns, events.num_rows)
    found: list[bool] = held.astype(bool).tolist()
    return found


def _compiled(rule: Rule, stream: Stream, types: dict[str, FieldType]) -> Sequence[Predicate]:
    when = compile_predicate(rule.when, {**stream.columns, **types}, where=f"rule {rule.id}: when")
    if rule.where is None:
        return [when]
    return [when, compile_predicate(rule.where, stream.columns, where=f"rule {rule.id}: where")]


def _physical(values: pa.ChunkedArray, kind: FieldType) -> pl.Series:
    """An event's field as predicates see it."""
    column = pl.Series(values)
    return column.to_physical().cast(pl.Int64) if kind.kind in (Kind.DECIMAL, Kind.TIMESTAMP) else column


def _parsed(text: str | None) -> Any:
    """The value of a JSON text; for invalid text a value that equals nothing."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return _MISSING


def _read(value: Any, kind: FieldType) -> Any:
    """A measure's physical value from its JSON in an alert; _MISSING if it is not of its type."""
    try:
        return None if value is None else _READ[kind.kind](value, kind)
    except (ValueError, TypeError, OverflowError, DecimalException):
        return _MISSING


def _int64(value: Any, _: FieldType) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else _MISSING


def _decimal(value: Any, kind: FieldType) -> Any:
    scaled = Decimal(value).scaleb(kind.scale) if isinstance(value, str) else None
    return _int64(int(scaled), kind) if scaled is not None and scaled == int(scaled) else _MISSING


def _double(value: Any, _: FieldType) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _MISSING


def _timestamp(value: Any, _: FieldType) -> Any:
    read = parse_timestamp(value, zone_required=True)
    return _MISSING if read is None else read


def _of(shape: type) -> Callable[[Any, FieldType], Any]:
    return lambda value, _: value if isinstance(value, shape) else _MISSING


_READ: dict[Kind, Callable[[Any, FieldType], Any]] = {
    Kind.INT64: _int64,
    Kind.DECIMAL: _decimal,
    Kind.DOUBLE: _double,
    Kind.TIMESTAMP: _timestamp,
    Kind.STRING: _of(str),
    Kind.BOOLEAN: _of(bool),
}
