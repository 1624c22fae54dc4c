"""The gate: passes the counts of each suite to Great Expectations and returns its results.

How it works: one ephemeral context for all suites, with one asset per suite; only what docs.py stores is kept on disk.
Nothing is sent to other hosts: this version has no usage statistics, and no cloud is configured.

What it does not do: read rows; the caller passes the counts of measured.py.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable
from typing import Any

import structlog

from nightjar.expectations import library
from nightjar.expectations.findings import Checked, Finding, GateError, refuse
from nightjar.expectations.measured import Measured
from nightjar.expectations.suites import Suite

__all__ = ["GateError", "check", "refuse"]

_log = structlog.get_logger(__name__)


def check(suites: Iterable[tuple[Suite, list[Measured]]]) -> list[Checked]:
    """Validate the counts of each suite with Great Expectations."""
    library.load()
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from nightjar.expectations.rows import batch_of, suite_of

    # It would log one line per failed metric; the result has the failures.
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
        findings = tuple(Finding.of(suite.name, each) for each in validation["results"])
        _log.info(
            "checked",
            suite=suite.name,
            expectations=len(findings),
            broken=[finding.expectation for finding in findings if not finding.success],
            seconds=round(time.monotonic() - began, 2),
        )
        checked.append(Checked(suite.name, findings, validation))
    return checked
