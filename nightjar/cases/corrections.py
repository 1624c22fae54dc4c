"""Computes the corrections of a case with the backfill's functions, without a lake."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa

from nightjar.backfill.evaluate.survey import CONFLICTS
from nightjar.backfill.inputs.histories import VersionHistory
from nightjar.backfill.inputs.scope import group_bys
from nightjar.backfill.reconcile.causes import CauseFinder
from nightjar.backfill.reconcile.reconciliation import by_verdict, corrections, reconcile
from nightjar.contracts.alerts import ALERT, RECORD_SCHEMA, correction_record
from nightjar.contracts.reconciliation import Outcome
from nightjar.rules.engine.store import LATE
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from nightjar.rules.truth import VIOLATION_SCHEMA, Truth
from nightjar.rules.versions import RuleSet

_VERSION = ["rule_id", "rule_version"]


def corrections_of(
    streams: Mapping[str, Stream],
    ruleset: RuleSet,
    arrivals: Mapping[tuple[str, int], tuple[int, int]],
    events: Mapping[str, pa.Table],
    alerts: list[dict[str, Any]],
    *,
    clocks: Mapping[str, int] = MappingProxyType({}),
    reported: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
    rows: TableRows | None = None,
) -> list[dict[str, Any]]:
    """The correction records, with causes, after which the highest revision of each alert equals the truth.

    arrivals: rule id and version to the arrival of its message and the stream's horizon at that time (both µs). events:
    by stream all usable events including duplicates: its fields, arrival_time, partition, offset, and whether the
    stream reported them as `late`. alerts: the stream's records. reported: by stream, of answers their arrival and the
    `allowed_lateness` of then, both µs. clocks: of streams, µs: so far all is known; else up to the latest event time.
    rows: of tables, if some are declared.
    """
    tables = [
        Truth(streams[name], ruleset, table.drop_columns(LATE), tables=rows, clock=clocks.get(name)).violations()
        for name, table in events.items()
    ]
    truth = pl.DataFrame(pa.concat_tables([VIOLATION_SCHEMA.empty_table(), *tables]))
    published_alerts = pl.DataFrame(pa.Table.from_pylist([_row(alert) for alert in alerts], RECORD_SCHEMA))
    verdict_only = by_verdict(ruleset.versions)
    differing = reconcile(truth, published_alerts, verdict_only).filter(pl.col("outcome") != Outcome.MATCHED.value)
    if not differing.height:
        return []
    published = {version: VersionHistory(*arrived) for version, arrived in arrivals.items()}
    causes = pl.concat(
        _causes(streams, ruleset, published, events, differing, clocks=clocks, reported=reported, rows=rows)
    )
    found = corrections(truth, published_alerts, causes, verdict_only).iter_rows(named=True)
    records = [correction_record(row, MIN_TIMESTAMP) for row in found]
    return [{name: value for name, value in record.items() if name != "emitted_at"} for record in records]


def _row(alert: Mapping[str, Any]) -> dict[str, Any]:
    """The record as a row of the lake."""
    return {name: ALERT.members[name].value(alert.get(name)) for name in RECORD_SCHEMA.names}


def _causes(
    streams: Mapping[str, Stream],
    ruleset: RuleSet,
    published: Mapping[tuple[str, int], VersionHistory],
    events: Mapping[str, pa.Table],
    differing: pl.DataFrame,
    *,
    clocks: Mapping[str, int],
    reported: Mapping[str, Sequence[tuple[int, int]]],
    rows: TableRows | None,
) -> Iterator[pl.DataFrame]:
    for (name,), of_stream in differing.partition_by("stream", as_dict=True).items():
        stream, rules = streams[name], ruleset.of_stream(name)
        grouped = {(v.rule.id, v.version): v.rule.group_by for v in rules.versions}
        read = pl.DataFrame(events[name])
        content = pl.struct(*stream.fields).n_unique().over(stream.event_id) > 1
        table = events[name].append_column(CONFLICTS, read.select(content).to_series().to_arrow())
        skew, consumed = stream.max_future_skew, dict.fromkeys(table.column("partition").to_pylist(), MAX_TIMESTAMP)
        for group_by in group_bys(rules.versions, published, MIN_TIMESTAMP, MAX_TIMESTAMP, {}, skew):
            mine = of_stream.filter([grouped[of] == group_by.fields for of in of_stream.select(_VERSION).iter_rows()])
            if not mine.height:
                continue
            finder = CauseFinder(
                stream,
                rules,
                group_by,
                table,
                published=published,
                consumed=consumed,
                began={},
                clock=clocks.get(name, MAX_TIMESTAMP),
                lateness=frozenset(value for _, value in reported.get(name, ())),
                tables=rows,
            )
            yield finder.causes(mine)
