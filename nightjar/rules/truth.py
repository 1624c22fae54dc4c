"""The truth: the results of rules on a finished table of events, whatever the order of arrival (S9).

The stream's alerts are compared with it, and `nightjar evaluate` writes it to a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.alert_schema import ALERT_SCHEMA
from nightjar.rules.engine import Engine, Failure, RuleResult
from nightjar.rules.engine.alert_columns import Described, measure_column
from nightjar.rules.engine.columns import table_of
from nightjar.rules.engine.muting import muted_among
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.errors import EvaluationError
from nightjar.rules.model import State, measure_types
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet, RuleVersion

RESULT_SCHEMA = pa.schema(
    [
        ("rule_id", pa.string()),
        ("rule_version", pa.int64()),
        ("event_id", pa.string()),
        ("event_time", INSTANT),
        ("violated", pa.bool_()),
        ("group", pa.string()),
        ("measures", pa.string()),
    ]
)

# The columns of a violation, as in alerts (S10).
VIOLATION_SCHEMA = pa.schema(
    [ALERT_SCHEMA.field(name) for name in ALERT_SCHEMA.names if name not in ("revision", "kind")]
)

# Rows whose texts are created at once: some tens of megabytes, and a row group of a file.
ROWS_AT_ONCE = 131_072


@dataclass(frozen=True)
class Verdict:
    """One version of a rule: at how many events it was evaluated, at how many it was violated, and how many of these
    alerts each allow rule silences, by its id."""

    version: RuleVersion
    evaluated: int
    violations: int
    silenced: Mapping[str, int]


@dataclass(frozen=True)
class _Found:
    """The evaluations of one version, one per group-by."""

    version: RuleVersion
    results: list[RuleResult]

    def places(self, result: RuleResult, *, every: bool) -> np.ndarray:
        """The places of a result to show, in the order of arrival."""
        at = result.seen if every else result.violated
        ordered: np.ndarray = at[np.argsort(result.rows[at])]
        return ordered


class Truth:
    """The results of one stream's rules on a table of events.

    stream: the events' declaration. ruleset: the versions; those of other streams are ignored. events: the stream's
    fields in their Arrow types and `arrival_time` (timestamp[us, UTC]; without it events arrive when they happen), in
    any row order; of several events with one id the first arrival counts. group_bys: evaluate only the rules of these
    (None: of all), if the events are those of some of their groups. tables: their rows, all of which count. clock: µs,
    the time before which all events are known (None: that of the last one): until then it is known what has not
    happened (S19). failures: where a measure's exact value is out of the range of its type; such an event is not a
    violation.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        events: pa.Table,
        group_bys: frozenset[tuple[str, ...]] | None = None,
        tables: TableRows | None = None,
        *,
        clock: int | None = None,
    ) -> None:
        if ARRIVAL not in events.column_names:
            events = events.append_column(ARRIVAL, events.column(stream.event_time))
        self._engine = Engine(stream, ruleset.of_stream(stream.name), batch=True, group_bys=group_bys, tables=tables)
        self._engine.store.reserve(events.num_rows)
        advance = self._engine.advance(events, clock)
        self.failures: list[Failure] = advance.failures
        self.events: int = events.num_rows
        self._input_rows = advance.rows.admitted
        self.duplicates = advance.duplicates
        results: dict[tuple[str, int], list[RuleResult]] = {}
        for result in advance.rule_results:
            version = result.compiled.version
            results.setdefault(version.key, []).append(result)
        self._found = [
            _Found(version, results.get(version.key, [])) for version in ruleset.of_stream(stream.name).versions
        ]

    def refuse_failures(self) -> None:
        """Raise EvaluationError if there are failures."""
        if not self.failures:
            return
        failure = self.failures[0]
        others = f" (and {len(self.failures) - 1} more like this)" if len(self.failures) > 1 else ""
        raise EvaluationError(
            f"its exact value at event {failure.event_id} does not fit its type{others}",
            where=f"rule {failure.rule_id}: measures.{failure.measure}",
            remedy="Shorten its window, or narrow what it counts; a double holds numbers up to 1.8e308",
        )

    @property
    def verdicts(self) -> list[Verdict]:
        """One per evaluated version, in order of publication. Allow rules, which have no alerts, are not among them."""
        return [
            Verdict(
                found.version,
                sum(int(np.count_nonzero(result.sees)) for result in found.results),
                sum(len(result.violated) for result in found.results),
                Counter(by for result in found.results for by in _silencing(result)),
            )
            for found in self._found
            if found.version.rule.state not in (State.PAUSED, State.RETIRED) and not found.version.rule.allows
        ]

    @property
    def silenced(self) -> dict[str, int]:
        """How many alerts each allow rule silences, by its id."""
        running = (found.version.rule for found in self._found if found.version.rule.state.is_evaluated)
        counts = {rule.id: 0 for rule in running if rule.allows}
        for verdict in self.verdicts:
            for rule_id, silenced in verdict.silenced.items():
                counts[rule_id] = counts.get(rule_id, 0) + silenced
        return counts

    def rows(self, *, every: bool = False) -> int:
        """How many rows `tables` has."""
        return sum(verdict.evaluated if every else verdict.violations for verdict in self.verdicts)

    def tables(self, *, every: bool = False, at: Int64Array | None = None) -> Iterator[pa.Table]:
        """The violations (every: all evaluations) as RESULT_SCHEMA, rule by rule and then as they arrived.

        Each table has at most ROWS_AT_ONCE rows, all of one version; its texts are created when it is requested. at:
        the rows of the events to include (None: all).
        """
        return (self._table(result, places) for result, places in self._parts(at, every=every))

    def table(self, *, every: bool = False, at: Int64Array | None = None) -> pa.Table:
        """All of `tables` in one."""
        return pa.concat_tables([RESULT_SCHEMA.empty_table(), *self.tables(every=every, at=at)])

    def values(self, rule_id: str) -> pa.Table:
        """The evaluations of a rule in the order of arrival, with each measure in its type.

        Columns: the stream's event id, its event time, the fields of `group_by`, `violated`, and the measures.
        """
        store, parts = self._engine.store, []
        for found in (each for each in self._found if each.version.rule.id == rule_id):
            rule = found.version.rule
            fields = dict.fromkeys([store.stream.event_id, store.stream.event_time, *rule.group_by])
            kinds = {name: kind.arrow for name, kind in measure_types(rule, store.stream).items()}
            listed = [*(store.stream.schema.field(name) for name in fields), ("violated", pa.bool_()), *kinds.items()]
            schema = pa.schema(listed)
            parts.append(schema.empty_table())
            for result in found.results:
                at = found.places(result, every=True)
                columns = [store.array(name, result.rows[at]) for name in fields]
                columns.append(pa.array(_violated(result)[at]))
                columns += (measure_column(store, result.compiled, name, result.values[name], at) for name in kinds)
                parts.append(pa.table(columns, schema.names).cast(schema))
        return pa.concat_tables(parts)

    def violations(self, at: Int64Array | None = None) -> pa.Table:
        """The violations as VIOLATION_SCHEMA, with the values of their alerts.

        at: the rows of the events to include (None: all); no text is created for the others, and they mute nothing: for
        a rule with `mute` these are whole dates.
        """
        parts = (self._described(result, places) for result, places in self._parts(at, every=False))
        found = pa.concat_tables([VIOLATION_SCHEMA.empty_table(), *parts])
        versions = (found.version for found in self._found)
        mutes = {(v.rule.id, v.version): v.rule.mute for v in versions if v.rule.mute is not None}
        return found.set_column(found.column_names.index("muted"), "muted", muted_among(found, mutes))

    def _parts(self, at: Int64Array | None, *, every: bool) -> Iterator[tuple[RuleResult, np.ndarray]]:
        """Each result with at most ROWS_AT_ONCE of the places to show, of the events in the rows `at`."""
        wanted = np.ones(self.events, np.bool_)
        if at is not None:
            wanted[:] = False
            wanted[at] = True
        wanted = wanted[self._input_rows]
        for found in self._found:
            for result in found.results:
                places = found.places(result, every=every)
                places = places[wanted[result.rows[places]]]
                for start in range(0, len(places), ROWS_AT_ONCE):
                    yield result, places[start : start + ROWS_AT_ONCE]

    def _described(self, result: RuleResult, at: np.ndarray) -> pa.Table:
        store, version = self._engine.store, result.compiled.version
        rows, rule = result.rows[at], version.rule
        described = Described(store, result.compiled, result.values, rows, at, result.allowed)
        events = described.event_id.to_pylist(), store.times[rows].tolist(), described.group.to_pylist()
        ids = [alert_id(rule.id, version.version, *event) for event in zip(*events, strict=True)]
        columns = {
            "alert_id": pa.array(ids, pa.string()),
            "rule_id": pa.repeat(rule.id, len(at)),
            "rule_version": pa.repeat(version.version, len(at)),
            "rule_state": pa.repeat(rule.state.value, len(at)),
            "stream": pa.repeat(store.stream.name, len(at)),
            "group": described.group,
            "event_id": described.event_id,
            "event_time": store.array(store.stream.event_time, rows),
            "measures": described.measures,
            "severity": pa.repeat(rule.severity.value, len(at)),
            "text": described.text(),
            "muted": pa.repeat(pa.scalar(value=False), len(at)),
        }
        return table_of(columns, VIOLATION_SCHEMA)

    def _table(self, result: RuleResult, at: np.ndarray) -> pa.Table:
        store, version = self._engine.store, result.compiled.version
        rows = result.rows[at]
        described = Described(store, result.compiled, result.values, rows, at, result.allowed)
        columns = {
            "rule_id": pa.repeat(version.rule.id, len(at)),
            "rule_version": pa.repeat(version.version, len(at)),
            "event_id": described.event_id,
            "event_time": store.array(store.stream.event_time, rows),
            "violated": pa.array(_violated(result)[at]),
            "group": described.group,
            "measures": described.measures,
        }
        return table_of(columns, RESULT_SCHEMA)


def _silencing(result: RuleResult) -> list[str]:
    """The id of the allow rule of each alert that one silences."""
    return [] if result.allowed is None else [by for by in result.allowed.at(result.violated) if by is not None]


def _violated(result: RuleResult) -> np.ndarray:
    """Whether the rule holds, of each of a result's places."""
    violated = np.zeros(len(result.rows), np.bool_)
    violated[result.violated] = True
    return violated
