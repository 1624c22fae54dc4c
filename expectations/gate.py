"""The gate: a suite run by Great Expectations over a frame of Spark's.

How it works: an ephemeral context, a data source and an asset of its own each time; nothing of Great Expectations stays
on disk but what docs.py keeps. Nothing is sent anywhere: this version has no usage statistics, and no cloud is named.

What it does not do: read or write a table; whoever calls it brings the frames.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from expectations.findings import Checked, Finding, GateError, refuse
from expectations.suites import Suite, events_suite, offsets_suite, reconciliation_suite, violations_suite
from rules.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["GateError", "check", "check_events", "check_reconciliation", "check_violations", "refuse"]

_log = structlog.get_logger(__name__)


def check_events(stream: Stream, columns: Mapping[str, str], day: DataFrame, gaps: DataFrame) -> list[Checked]:
    """A day's records of a stream by arrival, and the gaps in their offsets (suites.GAPS).

    columns: the table's, name to Spark's type.
    """
    return [check(events_suite(stream, columns), day), check(offsets_suite(stream.name), gaps)]


def check_violations(violations: DataFrame) -> Checked:
    """A run's violations as `rechecked.rechecked` returns them."""
    return check(violations_suite(), violations)


def check_reconciliation(outcomes: DataFrame, violations: int, standing: int) -> Checked:
    """The outcomes of a run that found so many violations, where the stream had so many alerts standing in scope."""
    return check(reconciliation_suite(violations, standing), outcomes)


def check(suite: Suite, frame: DataFrame) -> Checked:
    """Run a suite over a frame, in a pass over it for all that looks at single rows, and one for each other query."""
    began = time.monotonic()
    validation: dict[str, Any] = _validated(suite, frame).to_json_dict()
    findings = tuple(_finding(suite, each) for each in validation["results"])
    _log.info(
        "checked",
        suite=suite.name,
        expectations=len(findings),
        broken=[finding.expectation for finding in findings if not finding.success],
        seconds=round(time.monotonic() - began, 2),
    )
    return Checked(suite.name, findings, validation)


def _validated(suite: Suite, frame: DataFrame) -> Any:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from expectations.rows import suite_of

    # It says a line a metric that fails; what failed is in the result.
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        source = context.data_sources.add_spark("lake", persist=False)
    asset = source.add_dataframe_asset(suite.name)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame})
    return batch.validate(suite_of(suite))


def _finding(suite: Suite, result: Mapping[str, Any]) -> Finding:
    config, found = result["expectation_config"], result["result"]
    return Finding(
        suite=suite.name,
        expectation=config["meta"]["name"],
        sentence=config["kwargs"]["sentence"],
        severity=config["severity"],
        success=bool(result["success"]),
        observed=found.get("observed_value"),
        examples=tuple(found.get("examples", ())),
        problem=_problem(result["exception_info"] or {}),
    )


def _problem(raised: Mapping[str, Any]) -> str:
    """The first line of what was raised; for metrics Great Expectations gives one such mapping each."""
    if "raised_exception" not in raised:
        return next((found for each in raised.values() if (found := _problem(each))), "")
    message = str(raised.get("exception_message") or "").strip()
    return message.splitlines()[0][:500] if message else ""
