"""What a run brings to the gate and keeps of its answer: results in the staged folder, pages in the data docs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

from backfill.config import BackfillConfig, Request
from backfill.staging import OUTCOMES, Notes, judged_spans, staged_violations
from expectations import docs
from expectations.findings import Checked
from expectations.gate import check_events, check_reconciliation, check_violations, refuse
from expectations.offsets import gaps
from expectations.rechecked import rechecked
from lake import delta
from lake.tables import events_table
from rules.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_CHECKED = "checked.json"
_DOCS = "data_docs"


def gate_evaluation(session: SparkSession, config: BackfillConfig, request: Request, notes: Notes) -> dict[str, Any]:
    """Check the day's events and the staged violations.

    Raises:
        GateError: a critical expectation does not hold.
    """
    folder, checked = request.staged(config.lake), []
    ruleset = notes.rule_book(config).ruleset
    spans = judged_spans(folder)
    events = {}
    for stream in config.streams.values():
        if not ruleset.of_stream(stream.name).versions:
            continue
        table = events_table(stream)
        records = delta.read(session, config.lake.root, table, notes.versions[table.name])
        day = records.where(F.col("arrival_date") == F.lit(request.day))
        missing = gaps(records, stream, request.day, config.python_kafka)
        checked += check_events(stream, table.columns, day, missing)
        events[stream.name] = records.where(F.col("rejected").isNull() & _within(stream, spans))
    streams = {name: config.streams[name] for name in events}
    violations = staged_violations(session, folder)
    checked.append(check_violations(rechecked(violations, events, streams, ruleset)))
    _keep(folder, checked)
    if any(not each.success for each in checked):
        publish_docs(config, request, checked)
    refuse(checked, remedy=f"Nothing was published; the staged rows are in {folder}")
    return {"expectations": _counted(checked)}


def _within(stream: Stream, spans: Iterable[tuple[int, int]]) -> Column:
    """Whether an event's time is in one of the spans (µs, both ends included)."""
    event = F.col(f"`{stream.event_time}`")
    instants = ((F.timestamp_micros(F.lit(lo)), F.timestamp_micros(F.lit(hi))) for lo, hi in spans)
    return reduce(or_, ((event >= lo) & (event <= hi) for lo, hi in instants), F.lit(False))  # noqa: FBT003


def gate_reconciliation(
    session: SparkSession, config: BackfillConfig, request: Request, standing: int
) -> dict[str, Any]:
    """Check the staged outcomes, and make the pages about the whole run. standing: the stream's alerts in scope.

    Raises:
        GateError: a critical expectation does not hold.
    """
    folder = request.staged(config.lake)
    violations = staged_violations(session, folder).count()
    outcomes = session.read.parquet(str(folder / OUTCOMES))
    checked = [*_kept(folder), check_reconciliation(outcomes, violations, standing)]
    publish_docs(config, request, checked)
    refuse(checked, remedy=f"Nothing was published; the staged rows are in {folder}")
    return {"expectations": _counted(checked)}


def publish_docs(config: BackfillConfig, request: Request, checked: Iterable[Checked]) -> None:
    """Add the run's results to the data docs."""
    docs.build(checked, docs_folder(config.lake.root), run_id=request.run_id, day=request.day)


def docs_folder(root: Path) -> Path:
    """Where the lake's data docs are."""
    return root / _DOCS


def _keep(folder: Path, checked: Iterable[Checked]) -> None:
    (folder / _CHECKED).write_text(json.dumps([each.as_json() for each in checked]))


def _kept(folder: Path) -> list[Checked]:
    file = folder / _CHECKED
    return [Checked.from_json(each) for each in json.loads(file.read_text())] if file.exists() else []


def _counted(checked: Iterable[Checked]) -> dict[str, int]:
    findings = [finding for each in checked for finding in each.findings]
    broken = sum(not finding.success for finding in findings)
    return {"held": len(findings) - broken, "warnings": broken - sum(finding.critical for finding in findings)}
