"""Our expectation class for Great Expectations: it looks up a count, and renders it for the data docs.

This module imports Great Expectations, which takes seconds, so import it inside functions.

How it works: a batch is a small table with the counts of each expectation (measured.py); the metric `nightjar.observed`
looks them up. The rows themselves are counted elsewhere, in several processes, because the library's own expectations
would take one query each.
"""

# mypy: disable-error-code="override"
# Great Expectations passes all arguments by name: a method declares those it needs, and `**_` takes the rest.

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, ClassVar

import great_expectations as gx
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, render_suite_parameter_string
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import (
    LegacyDiagnosticRendererType,
    LegacyRendererType,
    RenderedStringTemplateContent,
    RenderedTableContent,
)
from great_expectations.render.renderer.renderer import renderer

from expectations.measured import COLUMNS, Measured
from expectations.suites import Suite


def batch_of(measured: Iterable[Measured]) -> pd.DataFrame:
    """The batch for Great Expectations: one row per expectation."""
    return pd.DataFrame([asdict(each) for each in measured], dtype=object)


class Observed(TableMetricProvider):
    """The metric that returns the count of one expectation."""

    metric_name = "nightjar.observed"
    value_keys = ("name",)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805  called as a classmethod
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> dict[str, Any]:
        table, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        (found,) = table[table["expectation"] == metric_value_kwargs["name"]].to_dict("records")
        if found["observed"] is None:
            raise ValueError(found["problem"])
        return {"observed_value": int(found["observed"]), "examples": [dict(row) for row in found["examples"]]}


class _Shown(BatchExpectation):
    """Renders an expectation for the data docs: its sentence, its SQL, the number of violating rows, and examples."""

    sentence: str

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    @render_suite_parameter_string
    def _prescriptive_renderer(cls, configuration: Any = None, **_: Any) -> list[RenderedStringTemplateContent]:
        sql, sentence = configuration.kwargs["sql"], configuration.kwargs["sentence"]
        if "warning" in str(configuration.severity):
            sentence = f"(warning only) {sentence}"
        texts = [
            {"template": "$sentence", "params": {"sentence": sentence}},
            {"template": "$sql", "params": {"sql": sql}, "styling": {"classes": ["text-muted", "small"]}},
        ]
        return [
            RenderedStringTemplateContent(content_block_type="string_template", string_template=text)
            for text in (texts if sql else texts[:1])
        ]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(cls, result: Any = None, **_: Any) -> str:
        rows = result.result.get("observed_value")
        if rows is None:
            return "could not be checked"
        return f"violated by {rows:,} row{'' if rows == 1 else 's'}" if rows else "holds"

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(cls, result: Any = None, **_: Any) -> list[Any] | None:
        examples = result.result.get("examples")
        if not examples:
            return None
        # Content of events must never become HTML, and Great Expectations does not escape cells.
        table = [["NULL" if value is None else html.escape(str(value)) for value in row.values()] for row in examples]
        styling = {"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}}
        return [
            RenderedTableContent(
                content_block_type="table",
                table=table,
                header_row=[html.escape(name) for name in examples[0]],
                styling=styling,
            )
        ]


class ExpectNoneBreaking(_Shown):
    """Expects that no row violates the condition."""

    name: str
    sql: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (Observed.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("name",)

    def _validate(self, metrics: Any, **_: Any) -> dict[str, Any]:
        found = metrics[Observed.metric_name]
        return {"success": not found["observed_value"], "result": found}


def suite_of(suite: Suite) -> gx.ExpectationSuite:
    """The suite for Great Expectations: the check of the columns first, then the suite's own expectations in order."""
    sentence = "the columns have their declared types"
    made = [ExpectNoneBreaking(name=COLUMNS, sql="", sentence=sentence, meta={"name": COLUMNS})]
    made += [
        ExpectNoneBreaking(
            name=each.name,
            sql=each.sql,
            sentence=each.sentence,
            severity=FailureSeverity(each.severity),
            meta={"name": each.name},
        )
        for each in suite.expectations
    ]
    return gx.ExpectationSuite(suite.name, expectations=made)
