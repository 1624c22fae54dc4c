"""Runs suites of Great Expectations that a team brings on the rows themselves.

This module imports Great Expectations, which takes seconds, so import it inside functions.

How it works: a result gets what our own have (a name, a sentence, how many rows violate it, examples), so that the gate
and the data docs treat it alike. Values of sensitive columns are removed from it.

What it does not do: read rows. A module is run with the rights of the night, as a DAG file is.
"""

from __future__ import annotations

import json
import runpy
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import structlog
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from nightjar.expectations.findings import Checked, Finding
from nightjar.expectations.measured import EXAMPLES, shown_value
from nightjar.expectations.suites import JSON_COLUMNS, Suite
from nightjar.rules.errors import DeclarationError
from nightjar.rules.masking import MASK

_log = structlog.get_logger(__name__)

_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES}
_NO_ARGUMENTS = frozenset({"batch_id", "mostly", "severity", "result_format", "catch_exceptions"})


def suite_in(file: Path) -> gx.ExpectationSuite:
    """The suite of a file.

    Raises:
        DeclarationError: the file has none, or it cannot be read.
    """
    try:
        if file.suffix == ".py":
            found: Any = runpy.run_path(str(file)).get("suite")
        else:
            written = json.loads(file.read_text(encoding="utf-8"))
            # One by one: a suite leaves out what it does not know, and only logs it.
            made = [ExpectationConfiguration(**each).to_domain_obj() for each in written["expectations"]]
            found = gx.ExpectationSuite(file.stem, expectations=made)
        if not isinstance(found, gx.ExpectationSuite):
            raise TypeError("a module needs `suite`, a great_expectations.ExpectationSuite")
        _ = [each.configuration for each in found.expectations]
    except (Exception, SystemExit) as failure:  # whatever a module raises
        what = f"is no suite of Great Expectations: {type(failure).__name__}: {failure}"
        remedy = "A suite is written by `json.dumps(suite.to_json_dict())`, or a module's variable `suite`"
        raise DeclarationError(what[:1000], where=str(file), remedy=remedy) from failure
    return found


def check(file: Path, suite: Suite, rows: Any) -> Checked:
    """Run the suite of a file. suite: whose rows it is about; rows: a frame of pandas or of Spark.

    Raises:
        DeclarationError: as of `suite_in`.
    """
    own = suite_in(file)
    own.name = f"{suite.name}_{file.stem}"
    began = time.monotonic()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = "pandas" if isinstance(rows, pd.DataFrame) else "spark"
        source = getattr(context.data_sources, f"add_{kind}")("rows")
        asset = source.add_dataframe_asset(own.name)
        batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": rows})
        validated = batch.validate(own, result_format=_FORMAT)
    validation = _as_ours(validated, suite)
    findings = tuple(Finding.of(own.name, each) for each in validation["results"])
    broken = [finding.expectation for finding in findings if not finding.success]
    seconds = round(time.monotonic() - began, 2)
    _log.info("checked", suite=own.name, expectations=len(findings), broken=broken, seconds=seconds)
    return Checked(own.name, findings, validation)


def _as_ours(validated: ExpectationSuiteValidationResult, suite: Suite) -> dict[str, Any]:
    """The validation in JSON, its results with the members that ours have."""
    written: dict[str, Any] = validated.to_json_dict()  # type: ignore[no-untyped-call]  # its only one
    taken: dict[str, int] = {}
    for each in written["results"]:
        config, found = each["expectation_config"], each["result"]
        arguments = {name: of for name, of in config["kwargs"].items() if name not in _NO_ARGUMENTS and of is not None}
        name = "_".join((config["type"], *_columns(arguments)))
        taken[name] = taken.get(name, 0) + 1
        number = f"_{taken[name]}" if taken[name] > 1 else ""
        config["meta"] = {**(config.get("meta") or {}), "name": name + number}
        config["severity"] = config.get("severity") or "critical"
        config["kwargs"]["sentence"] = config.get("description") or _sentence(config["type"], arguments)
        each["result"] = {
            "observed_value": found.get("unexpected_count", 0 if each["success"] else None),
            "examples": [] if each["success"] else list(_examples(found, arguments, suite)),
        }
    return written


def _columns(arguments: Mapping[str, Any]) -> list[str]:
    """The columns that an expectation is about."""
    named = [arguments.get(name) for name in ("column", "column_A", "column_B")]
    return [str(name) for name in (*named, *arguments.get("column_list", ())) if name is not None]


def _sentence(kind: str, arguments: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name} {json.dumps(of, default=str)}" for name, of in arguments.items())
    return f"{kind.replace('_', ' ')}: {shown}" if shown else kind.replace("_", " ")


def _examples(found: Mapping[str, Any], arguments: Mapping[str, Any], suite: Suite) -> Iterator[dict[str, str | None]]:
    """Rows of a violated expectation, or what was observed of all; nothing of columns that are not shown."""
    columns = _columns(arguments)
    hidden = suite.masked.union(JSON_COLUMNS)
    if "unexpected_count" not in found:
        # What was observed of a column may be its values.
        if "observed_value" in found and not hidden.intersection(columns):
            yield {"observed": shown_value(found["observed_value"])}
        return
    for value in found.get("partial_unexpected_list", ())[:EXAMPLES]:
        row = value if isinstance(value, dict) else dict(zip(columns, [value], strict=False))
        yield {name: MASK if name in hidden else shown_value(of) for name, of in row.items()}
