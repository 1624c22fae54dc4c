"""Adds the results of rules.violation_checks to violations: the input of the violations' suite."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.expectations.suites import VIOLATIONS
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.streams import Stream
from nightjar.rules.versions import RuleSet
from nightjar.rules.violation_checks import RECHECKED, recheck

_RECORDED = [name for name in VIOLATIONS if name not in RECHECKED.names and not name.endswith("_json")]
# Of records with the same event id, the first in this order is the event.
ARRIVAL = ("arrival_time", "partition", "offset")


def rechecked(
    violations: pa.Table,
    events: Mapping[str, pa.Table],
    streams: Mapping[str, Stream],
    ruleset: RuleSet,
    tables: TableRows | None = None,
) -> pa.Table:
    """Recheck violations; the result has the columns VIOLATIONS.

    RECHECKED's columns are NULL if a violation's stream is not in `events`.

    violations: VIOLATION_SCHEMA. events: by stream, its fields and ARRIVAL of usable records including duplicates; they
    must include the events of the violations. ruleset: all versions that the run used. tables: their rows,
    if some are declared.
    """
    recorded = violations.select(_RECORDED)
    of_streams = pc.is_in(recorded.column("stream"), value_set=pa.array(list(events), pa.string()))
    parts = [recorded.filter(pc.invert(of_streams))]
    for name in pc.unique(recorded.filter(of_streams).column("stream")).to_pylist():
        own = recorded.filter(pc.equal(recorded.column("stream"), name))
        answers = recheck(own, _first_arrivals(events[name], streams[name]), streams[name], ruleset, tables)
        parts.append(pa.table([*own.columns, *answers.columns], [*own.column_names, *answers.column_names]))
    whole = pa.concat_tables(parts, promote_options="default")
    for name in RECHECKED.names:
        if name not in whole.column_names:
            whole = whole.append_column(name, pa.nulls(whole.num_rows, RECHECKED.field(name).type))
    for name in ("group", "measures"):
        objects = pa.array([_is_object(text) for text in whole.column(name).to_pylist()], pa.bool_())
        whole = whole.append_column(f"{name}_json", objects)
    return whole.select(list(VIOLATIONS))


def _first_arrivals(events: pa.Table, stream: Stream) -> pa.Table:
    """The stream's fields of the events; only the first arrival of each event id."""
    table = events.sort_by([(name, "ascending") for name in ARRIVAL])
    places = pa.table({"id": table.column(stream.event_id), "place": pa.array(range(table.num_rows), pa.int64())})
    first = table.take(places.group_by("id", use_threads=False).aggregate([("place", "min")]).column("place_min"))
    return pa.table({name: first.column(name).cast(kind.arrow) for name, kind in stream.fields.items()})


def _is_object(text: str | None) -> bool:
    try:
        return isinstance(json.loads(text or ""), dict)
    except (ValueError, RecursionError):
        return False
