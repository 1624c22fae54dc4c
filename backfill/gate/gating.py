"""Run the gate, and keep its results in the staged folder and the data docs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import date
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from nightjar.backfill.config import RunRequest
from nightjar.backfill.division import partition_count
from nightjar.backfill.evaluate.evaluation import staged_violations
from nightjar.backfill.evaluate.survey import judged_spans
from nightjar.backfill.gate.checking import Checks, EvaluationChecks, SuiteSplit, splits_of
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.staging import EVALUATED, OUTCOMES, staged_files
from nightjar.expectations import docs
from nightjar.expectations.drift import Reading, compared_days, drift, drift_suite, numbers, values_of
from nightjar.expectations.findings import Checked, by_severity
from nightjar.expectations.gate import check, refuse
from nightjar.expectations.measured import COUNTS, Measured, detailed, kinds, measured, polars_schema, summed
from nightjar.expectations.offsets import gaps
from nightjar.expectations.suites import (
    VIOLATIONS,
    Suite,
    events_suite,
    offsets_suite,
    reconciliation_suite,
    violations_suite,
)
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import Table, events_table
from nightjar.rules.masking import names_by_stream
from nightjar.rules.streams import Stream
from nightjar.storage.paths import AnyPath, local_copy, spark_name

_CHECKED = "checked.json"
_DOCS = "data_docs"


def gate_evaluation(run: RunContext) -> dict[str, Any]:
    """Check the day's events and the staged violations.

    Raises:
        GateError: a critical expectation does not hold.
    """
    folder, checks = run.folder, _evaluation_checks(run)
    found = run.exchange(checks, COUNTS)
    suites = [
        each
        for stream, suite in zip(checks.streams, checks.suites, strict=False)
        if not stream.members  # whose records are those of its members
        for each in _of_records(run, checks, stream, suite, found)
    ]
    violations = checks.suites[-1]
    counted = summed(violations, VIOLATIONS, found)
    suites.append((violations, detailed(violations, counted, partial(_rows, checks, violations))))
    checked = [*check(suites), *_by_great_expectations(run, checks)]
    _keep(folder, checked)
    if any(not each.success for each in checked):
        publish_docs(run, checked)
    remedy = f"Nothing was published; the staged rows are in {folder}. {_repair(checked[:-1], run.request)}"
    refuse(checked, remedy=remedy)
    return {"expectations": _counted(checked), "severities": by_severity(checked)}


def _of_records(
    run: RunContext, checks: EvaluationChecks, stream: Stream, suite: Suite, found: pa.Table
) -> Iterator[tuple[Suite, list[Measured]]]:
    """What was counted of the day's records of a stream, and of their offsets. found: COUNTS of all suites."""
    table, version = events_table(stream), run.version(events_table(stream))
    columns = {**table.columns, **kinds(delta.schema(run.root, table, version))}
    yield suite, detailed(suite, summed(suite, columns, found), partial(_rows, checks, suite))
    records = partial(delta.read, run.session, run.root, table, version)
    kafka = run.config.lake.kafka.python
    missing = gaps(scan(run.root, table, version), records, stream, run.request.day, kafka)
    yield offsets_suite(stream.name), measured(offsets_suite(stream.name), missing)
    yield drift_suite(stream.name), measured(drift_suite(stream.name), _drift(run, stream))


def _drift(run: RunContext, stream: Stream) -> pl.DataFrame:
    """How the day's records of a stream differ from earlier ones."""
    table, version = events_table(stream), run.version(events_table(stream))
    columns = ["rejected", *stream.fields]
    counts = delta.counts_by_day(run.root, table, version, columns, compared_days(run.request.day))
    return drift(stream, run.request.day, counts, *readings_of(run.root, table, version, stream))


def readings_of(root: AnyPath, table: Table, version: int, stream: Stream) -> tuple[Reading, Reading]:
    """The means and the values that `drift` asks for."""
    records = scan(root, table, version).filter(pl.col("rejected").is_null())

    def means(days: list[date]) -> pl.DataFrame:
        of = [pl.col(name).cast(pl.Float64).mean() for name in numbers(stream)]
        days_rows = records.filter(pl.col("arrival_date").is_in(days))
        return days_rows.group_by("arrival_date").agg(of).collect(engine="streaming")

    return means, partial(values_of, stream, records)


def _repair(of_records: Iterable[Checked], request: RunRequest) -> str:
    """What to do. of_records: what was found of the day's records, without the violations."""
    if all(each.success for each in of_records):
        return "The day's records are whole: keep that folder, and report a defect"
    return f"`nightjar lake repair --day {request.day}` shows whether the lake can be repaired, and how"


def _evaluation_checks(run: RunContext) -> EvaluationChecks:
    ruleset, day = run.rules.every, run.request.day
    judged = [stream for stream in run.config.streams.values() if ruleset.of_stream(stream.name).versions]
    read = {source.name for stream in judged for source in stream.sources}
    streams = [stream for stream in run.config.streams.values() if stream in judged or stream.name in read]
    spans, staged = judged_spans(run.folder), staged_files(run.folder / EVALUATED)
    splits = []
    for number, stream in enumerate(streams):
        table, version = events_table(stream), run.version(events_table(stream))
        arrived = [] if stream.members else delta.files_of(run.root, table, version, "arrival_date", [(day, day)])
        near = delta.files_within(run.root, table, version, instant=stream.event_time, spans=spans)
        if not stream.members:
            splits += splits_of(number, arrived, run.parallelism, day)
        if others := [file for file in near if file not in arrived]:
            splits += splits_of(number, others, run.parallelism)
    splits += splits_of(len(streams), staged, run.parallelism)
    sensitive = names_by_stream((version.rule for version in ruleset.versions), run.config.streams)
    shipped = [*(events_suite(stream, events_table(stream).columns) for stream in streams), violations_suite(sensitive)]
    suites = [run.config.own.added_to(suite) for suite in shipped]
    partitions = partition_count(splits, run.parallelism)
    return EvaluationChecks(suites, splits, partitions, streams, ruleset, run.notes.cut, spans, staged, run.tables)


def gate_reconciliation(run: RunContext, stream_alerts: int) -> dict[str, Any]:
    """Check the staged outcomes, and make the pages about the whole run. stream_alerts: the stream's alerts in scope.

    Raises:
        GateError: a critical expectation does not hold.
    """
    folder = run.folder
    sensitive = names_by_stream((), run.config.streams)
    suite = run.config.own.added_to(reconciliation_suite(staged_violations(folder), stream_alerts, sensitive))
    splits = splits_of(0, staged_files(folder / OUTCOMES), run.parallelism)
    checks = Checks([suite], splits, partition_count(splits, run.parallelism))
    found = run.exchange(checks, COUNTS)
    columns = kinds(_schema(folder / OUTCOMES / "none.parquet"))
    counted = detailed(suite, summed(suite, columns, found), partial(_rows, checks, suite))
    checked = [*_kept(folder), *check([(suite, counted)]), *_by_great_expectations(run, checks)]
    publish_docs(run, checked)
    refuse(checked, remedy=f"Nothing was published; the staged rows are in {folder}")
    return {"expectations": _counted(checked), "severities": by_severity(checked)}


def _rows(checks: Checks, suite: Suite) -> Iterator[pl.DataFrame]:
    """The rows that a suite is about, read here, one split after the other."""
    for split in _splits(checks, suite):
        yield checks.read(split)


def _splits(checks: Checks, suite: Suite) -> Iterator[SuiteSplit]:
    """The splits of the rows that a suite is about."""
    number = _number(checks, suite)
    for split in checks.splits:
        counted = not isinstance(checks, EvaluationChecks) or split.day is not None or number >= len(checks.streams)
        if split.suite == number and split.files and counted:
            yield split


def _number(checks: Checks, suite: Suite) -> int:
    return next(place for place, each in enumerate(checks.suites) if each is suite)


def _by_great_expectations(run: RunContext, checks: Checks) -> Iterator[Checked]:
    """What suites of Great Expectations find that the team has brought, each on all rows that it is about."""
    for suite in checks.suites:
        if files := run.config.own.native.get(suite.name, ()):
            from nightjar.expectations import native

            rows = _frame(run, checks, suite)
            yield from (native.check(file, suite, rows) for file in files)


def _frame(run: RunContext, checks: Checks, suite: Suite) -> Any:
    """The rows of a suite as a frame of pandas, or of Spark where they are too many for this process."""
    files = [file for split in _splits(checks, suite) for file in split.files]
    if sum(file.rows for file in files) <= run.config.lake.max_driver_rows:
        none = pl.DataFrame(schema=polars_schema(suite.columns))
        return pl.concat([none, *_rows(checks, suite)], how="diagonal").to_pandas()
    if isinstance(checks, EvaluationChecks) and suite is not checks.suites[-1]:
        table = events_table(checks.streams[_number(checks, suite)])
        records = delta.read(run.session, run.root, table, run.version(table))
        return records.where(records["arrival_date"] == run.request.day)
    place = run.folder / (EVALUATED if isinstance(checks, EvaluationChecks) else OUTCOMES)
    found = run.session.read.parquet(f"{spark_name(place)}/*.parquet")
    return found.where("failed IS NULL") if "failed" in found.columns else found


def publish_docs(run: RunContext, checked: Iterable[Checked]) -> None:
    """Add the run's results to the data docs."""
    docs.build(checked, docs_folder(run.root), run_id=run.request.run_id, day=run.request.day)


def docs_folder(root: AnyPath) -> AnyPath:
    """Where the lake's data docs are."""
    return root / _DOCS


def _keep(folder: AnyPath, checked: Iterable[Checked]) -> None:
    (folder / _CHECKED).write_text(json.dumps([each.as_json() for each in checked]))


def _kept(folder: AnyPath) -> list[Checked]:
    file = folder / _CHECKED
    return [Checked.from_json(each) for each in json.loads(file.read_text())] if file.exists() else []


def _schema(file: AnyPath) -> pa.Schema:
    with local_copy(file) as local:
        return pq.read_schema(local)


def _counted(checked: Iterable[Checked]) -> dict[str, int]:
    findings = [finding for each in checked for finding in each.findings]
    broken = sum(not finding.success for finding in findings)
    return {"held": len(findings) - broken, "warnings": broken - sum(finding.critical for finding in findings)}
