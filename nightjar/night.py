"""What the night would put right after a case: the backfill's own functions over the case's events, without a lake."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from backfill.causes import Cause, Published, Witness
from backfill.publication import correction_record
from backfill.reconciliation import Outcome, corrections, reconcile
from backfill.scope import group_bys
from rules.engine.records import ALERT_SCHEMA
from rules.streams import Stream
from rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from rules.truth import VIOLATION_SCHEMA, Truth
from rules.versions import RuleSet

_SAID = pa.schema([*ALERT_SCHEMA, ("source", pa.string()), ("cause", pa.string())])


def corrections_of(
    streams: Mapping[str, Stream],
    ruleset: RuleSet,
    arrivals: Mapping[tuple[str, int], tuple[int, int]],
    events: Mapping[str, pa.Table],
    alerts: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The records that would have to be said so that the highest revision of each alert is the truth, with causes.

    arrivals: rule id and version to the arrival of its message, and the stream's horizon then (both µs). events: by
    stream its fields, arrival_time, partition (0) and offset of all that can be used, duplicates too. alerts: the
    stream's records.
    """
    tables = [Truth(streams[name], ruleset, table).violations() for name, table in events.items()]
    truth = pl.DataFrame(pa.concat_tables([VIOLATION_SCHEMA.empty_table(), *tables]))
    said = pl.DataFrame(pa.Table.from_pylist([_row(alert) for alert in alerts], _SAID))
    differing = reconcile(truth, said).filter(pl.col("outcome") != Outcome.MATCHED.value)
    if not differing.height:
        return []
    published = {version: Published(*arrived) for version, arrived in arrivals.items()}
    found = dict(_causes(streams, ruleset, published, events, differing))
    causes = pl.DataFrame({"alert_id": list(found), "cause": [cause.value for cause in found.values()]})
    records = [correction_record(row, MIN_TIMESTAMP) for row in corrections(truth, said, causes).iter_rows(named=True)]
    return [{name: value for name, value in record.items() if name != "emitted_at"} for record in records]


def _row(alert: Mapping[str, Any]) -> dict[str, Any]:
    """The record as a row of the lake."""
    texts = {name: json.dumps(alert[name]) for name in ("group", "measures")}
    return {**alert, **texts, "event_time": datetime.fromisoformat(alert["event_time"]), "cause": None}


def _causes(
    streams: Mapping[str, Stream],
    ruleset: RuleSet,
    published: Mapping[tuple[str, int], Published],
    events: Mapping[str, pa.Table],
    differing: pl.DataFrame,
) -> Iterator[tuple[str, Cause]]:
    grouped = {(v.rule.id, v.version): v.rule.group_by for v in ruleset.versions}
    about: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
    for row in differing.with_columns(pl.col("event_time").dt.epoch("us")).to_dicts():
        about[row["stream"], grouped[row["rule_id"], row["rule_version"]]].append(row)
    for (name, fields), rows in about.items():
        stream, of_stream = streams[name], ruleset.of_stream(name)
        group_by = next(g for g in group_bys(stream, of_stream, MIN_TIMESTAMP, {}) if g.fields == fields)
        witness = Witness(
            stream, of_stream, group_by, events[name],
            published=published, consumed={0: MAX_TIMESTAMP}, conflicting=_conflicting(stream, events[name]),
        )  # fmt: skip
        yield from ((row["alert_id"], witness.cause(row)) for row in rows)


def _conflicting(stream: Stream, events: pa.Table) -> frozenset[str]:
    """The event ids that name two different events."""
    distinct = pl.DataFrame(events.select([*stream.fields])).unique()
    counted = distinct.group_by(stream.event_id).len().filter(pl.col("len") > 1)
    return frozenset(counted.get_column(stream.event_id))
