"""Every case file, evaluated as the backfill does it: what the stream says otherwise has a cause."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from backfill.causes import Cause, Published, Witness
from backfill.evaluation import BucketEvaluator
from backfill.reconciliation import reconcile
from backfill.scope import group_bys
from nightjar.cases import Case, find_cases, load_case
from nightjar.simulate import simulate
from rules.engine.records import ALERT_SCHEMA
from rules.events import check_skew, parse_event
from rules.publication import publish
from rules.streams import Stream
from rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from rules.versions import RuleSet

CASES = find_cases([Path(__file__).parent.with_name("cases")])
# Cases with late events; in all others stream and truth are one.
WITH_LATE = {"late-event-counts-later", "on-time-means-at-most-the-allowed-lateness"}


def rules_of(case: Case) -> tuple[RuleSet, dict[tuple[str, int], Published]]:
    """The versions after all messages, and when each was published."""
    ruleset, published = RuleSet(), {}
    for step in case.steps:
        for message in step.rules:
            before = ruleset
            ruleset, _ = publish(before, message, step.at, case.streams, case.settings.activation_delay)
            for version in ruleset.versions[len(before.versions) :]:
                published[version.rule.id, version.version] = Published(step.at, MIN_TIMESTAMP)
    return ruleset, published


def events_of(case: Case, stream: Stream) -> pa.Table:
    """The usable events as the lake would hold them, duplicates too."""
    schema = [*stream.schema, ("arrival_time", pa.timestamp("us", "UTC")), ("partition", pa.int32()),
              ("offset", pa.int64())]  # fmt: skip
    rows: list[dict[str, Any]] = []
    for step in case.steps:
        for message in step.events:
            event = parse_event(message.raw, stream) if message.stream == stream.name else None
            if isinstance(event, dict) and check_skew(event[stream.event_time], step.at, stream) is None:
                rows.append(event | {"arrival_time": step.at, "partition": 0, "offset": len(rows)})
    columns = {name: [row[name] for row in rows] for name, _ in map(_named, schema)}
    arrays = [
        pa.array(columns[name], pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(columns[name], kind)
        for name, kind in map(_named, schema)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(schema))


def _named(field: Any) -> tuple[str, pa.DataType]:
    return (field.name, field.type) if isinstance(field, pa.Field) else field


def differences(case: Case) -> Iterator[tuple[str, Cause]]:
    """Stream and cause of every alert of the stream that is not the truth, or is missing."""
    ruleset, published = rules_of(case)
    said = [record | {"cause": None} for record in simulate(case).alerts]
    schema = pa.schema([*ALERT_SCHEMA, ("source", pa.string()), ("cause", pa.string())])
    for stream in case.streams.values():
        events, of_stream = events_of(case, stream), ruleset.of_stream(stream.name)
        for group_by in group_bys(stream, of_stream, MIN_TIMESTAMP, {}):
            targets = events.append_column("target", pa.array([True] * events.num_rows, pa.bool_()))
            found = pl.DataFrame(BucketEvaluator(stream, of_stream, group_by.fields).evaluated(targets))
            names = {(v.rule.id, v.version) for v in of_stream.versions if v.rule.group_by == group_by.fields}
            mine = [r for r in said if r["stream"] == stream.name and (r["rule_id"], r["rule_version"]) in names]
            alerts = pl.DataFrame(pa.Table.from_pylist([_as_text(record) for record in mine], schema))
            outcomes = reconcile(found.filter(pl.col("failed").is_null()).drop("failed"), alerts)
            witness = Witness(
                stream, of_stream, group_by, events,
                published=published, consumed={0: MAX_TIMESTAMP}, conflicting=frozenset(),
            )  # fmt: skip
            rows = outcomes.filter(pl.col("outcome") != "matched").with_columns(pl.col("event_time").dt.epoch("us"))
            yield from ((stream.name, witness.cause(row)) for row in rows.to_dicts())


def _as_text(record: dict[str, Any]) -> dict[str, Any]:
    """The record as a row of the lake."""
    texts = {name: json.dumps(record[name]) for name in ("group", "measures")}
    return record | texts | {"event_time": datetime.fromisoformat(record["event_time"])}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_backfill_explains_what_the_stream_says_otherwise(path: Path) -> None:
    """Law 9: without late events there is no difference; with them, each has its cause."""
    case = load_case(path)
    found: dict[str, set[str]] = {}
    for stream, cause in differences(case):
        found.setdefault(stream, set()).add(cause.value)
    assert found == ({"transactions": {"late_event"}} if path.stem in WITH_LATE else {})
