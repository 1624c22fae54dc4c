"""Great Expectations' side of an expectation: how it is computed on Spark, and how data docs show it.

To import this module is to import Great Expectations, which takes seconds: do it inside functions.

How it works: `nightjar.breaking` is a partial aggregate, so that Great Expectations computes those of a whole suite in
one job; examples are fetched only for what is broken. The library's own UnexpectedRowsExpectation takes two jobs an
expectation, whatever it finds.
"""

from __future__ import annotations

import html
from typing import Any, ClassVar

import great_expectations as gx
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, render_suite_parameter_string
from great_expectations.expectations.metrics.metric_provider import metric_partial, metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import RenderedStringTemplateContent, RenderedTableContent
from great_expectations.render.components import LegacyDiagnosticRendererType, LegacyRendererType
from great_expectations.render.renderer.renderer import renderer
from great_expectations.validator.metric_configuration import MetricConfiguration

from expectations.suites import Suite

EXAMPLES = 5
_LONGEST = 200  # characters of a value that is shown


def _examples(rows: Any, shown: list[str]) -> list[dict[str, str | None]]:
    columns = [name for name in shown if name in rows.columns] or rows.columns
    texts = [f"left(cast(`{name}` AS string), {_LONGEST}) AS `{name}`" for name in columns]
    return [row.asDict() for row in rows.limit(EXAMPLES).selectExpr(*texts).collect()]


class Breaking(TableMetricProvider):
    """How many rows break an expectation that looks at rows one by one."""

    metric_name = "nightjar.breaking"
    value_keys = ("aggregate",)

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(cls, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:  # noqa: N805  as a classmethod
        from pyspark.sql import functions as F  # noqa: N812  the name every Spark program uses

        return F.expr(f"coalesce({metric_value_kwargs['aggregate']}, 0)"), metric_domain_kwargs, {}


class BreakingExamples(TableMetricProvider):
    """Some of those rows."""

    metric_name = "nightjar.breaking.examples"
    value_keys = ("aggregate", "breaking", "shown")

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  called as a classmethod
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        metrics: Any,
        **_: Any,
    ) -> list[dict[str, str | None]]:
        if not metrics[Breaking.metric_name] or not metric_value_kwargs["breaking"]:
            return []
        rows, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        return _examples(rows.where(metric_value_kwargs["breaking"]), metric_value_kwargs["shown"])

    @classmethod
    def _get_evaluation_dependencies(cls, metric: MetricConfiguration, **_: Any) -> dict[str, MetricConfiguration]:
        counted = {"aggregate": metric.metric_value_kwargs["aggregate"]}
        return {Breaking.metric_name: MetricConfiguration(Breaking.metric_name, metric.metric_domain_kwargs, counted)}


class Found(TableMetricProvider):
    """What a query finds: how many rows, and some of them. Where it finds nothing it runs once."""

    metric_name = "nightjar.found"
    value_keys = ("query",)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  called as a classmethod
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> dict[str, Any]:
        rows, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        found = rows.sparkSession.sql(metric_value_kwargs["query"], batch=rows)
        examples = _examples(found, [])
        return {"count": found.count() if examples else 0, "examples": examples}


class ColumnTypes(TableMetricProvider):
    """The frame's columns: name to Spark's type."""

    metric_name = "nightjar.columns"

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  called as a classmethod
        execution_engine: Any,
        metric_domain_kwargs: Any,
        **_: Any,
    ) -> dict[str, str]:
        rows, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        return {column.name: column.dataType.simpleString() for column in rows.schema.fields}


class _Shown(BatchExpectation):
    """What data docs show of an expectation: its sentence, its SQL, how many rows break it, and some of them."""

    sentence: str

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    @render_suite_parameter_string
    def _prescriptive_renderer(cls, configuration: Any = None, **_: Any) -> list[RenderedStringTemplateContent]:
        kwargs = configuration.kwargs
        sql = kwargs.get("query") or kwargs.get("breaking") or kwargs.get("aggregate") or ""
        sentence = kwargs["sentence"]
        if "warning" in str(configuration.severity):
            sentence = f"(a warning only) {sentence}"
        said = {"template": "$sentence", "params": {"sentence": sentence}}
        texts = [said, {"template": "$sql", "params": {"sql": sql}, "styling": {"classes": ["text-muted", "small"]}}]
        return [
            RenderedStringTemplateContent(content_block_type="string_template", string_template=text)
            for text in (texts if sql else texts[:1])
        ]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(cls, result: Any = None, **_: Any) -> str:
        broken = result.result.get("observed_value")
        return "could not be checked" if broken is None else "holds" if not broken else f"broken by {broken}"

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(cls, result: Any = None, **_: Any) -> list[Any] | None:
        examples = result.result.get("examples")
        if not examples:
            return None
        # what events say must never become part of a page, and cells are not escaped as other texts are
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
    """No row breaks it."""

    aggregate: str
    breaking: str = ""
    shown: list[str] = []  # noqa: RUF012  a field of a pydantic model

    metric_dependencies: ClassVar[tuple[str, ...]] = (Breaking.metric_name, BreakingExamples.metric_name)
    success_keys: ClassVar[tuple[str, ...]] = ("aggregate", "breaking", "shown")

    def _validate(self, metrics: Any, **_: Any) -> dict[str, Any]:
        broken = int(metrics[Breaking.metric_name])
        examples = metrics[BreakingExamples.metric_name]
        return {"success": not broken, "result": {"observed_value": broken, "examples": examples}}


class ExpectNothingFound(_Shown):
    """A query finds nothing."""

    query: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (Found.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("query",)

    def _validate(self, metrics: Any, **_: Any) -> dict[str, Any]:
        found = metrics[Found.metric_name]
        return {
            "success": not found["count"],
            "result": {"observed_value": found["count"], "examples": found["examples"]},
        }


class ExpectColumns(_Shown):
    """The columns are there, with these types; there may be others."""

    columns: dict[str, str]

    metric_dependencies: ClassVar[tuple[str, ...]] = (ColumnTypes.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)

    def _validate(self, metrics: Any, **_: Any) -> dict[str, Any]:
        there = metrics[ColumnTypes.metric_name]
        wrong = [
            {"column": name, "declared": kind, "found": there.get(name)}
            for name, kind in self.columns.items()
            if there.get(name) != kind
        ]
        return {"success": not wrong, "result": {"observed_value": len(wrong), "examples": wrong[:EXAMPLES]}}


def suite_of(suite: Suite) -> gx.ExpectationSuite:
    """The suite as Great Expectations has it, its expectations in order: the columns, then the suite's own."""
    columns = ExpectColumns(
        columns=dict(suite.columns), sentence="the columns have their declared types", meta={"name": "columns"}
    )
    made: list[Any] = [columns]
    for expectation in suite.expectations:
        said = {
            "sentence": expectation.sentence,
            "severity": expectation.severity,
            "meta": {"name": expectation.name},
        }
        if expectation.query:
            made.append(ExpectNothingFound(query=expectation.query, **said))
        else:
            made.append(
                ExpectNoneBreaking(
                    aggregate=expectation.aggregate, breaking=expectation.breaking, shown=list(suite.shown), **said
                )
            )
    return gx.ExpectationSuite(suite.name, expectations=made)
