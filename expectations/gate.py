"""The gate: what was measured of each suite, judged by Great Expectations.

How it works: an ephemeral context for all suites, and an asset of its own each time; nothing of Great Expectations
stays on disk but what docs.py keeps. Nothing is sent anywhere: this version has no usage statistics, and no cloud is
named.

What it does not do: look at rows; whoever calls it brings what measured.py has counted.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from expectations import library
from expectations.findings import Checked, Finding, GateError, refuse
from expectations.measured import Measured
from expectations.suites import Suite

__all__ = ["GateError", "check", "refuse"]

_log = structlog.get_logger(__name__)


def check(suites: Iterable[tuple[Suite, list[Measured]]]) -> list[Checked]:
    """What Great Expectations says of each suite, and of what was measured of it."""
    library.bring()
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from expectations.rows import batch_of, suite_of

    # It says a line a metric that fails; what failed is in the result.
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        source = context.data_sources.add_pandas("measured")
    checked = []
    for suite, measured in suites:
        began = time.monotonic()
        asset = source.add_dataframe_asset(suite.name)
        batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": batch_of(measured)})
        validated = batch.validate(suite_of(suite))
        validation: dict[str, Any] = validated.to_json_dict()  # type: ignore[no-untyped-call]  # its only one
        findings = tuple(_finding(suite, each) for each in validation["results"])
        _log.info(
            "checked",
            suite=suite.name,
            expectations=len(findings),
            broken=[finding.expectation for finding in findings if not finding.success],
            seconds=round(time.monotonic() - began, 2),
        )
        checked.append(Checked(suite.name, findings, validation))
    return checked


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
