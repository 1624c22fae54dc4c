"""Our expectation class for Great Expectations: it looks up a count.

This module imports Great Expectations, which takes seconds, so import it inside functions.

How it works: a batch is a small table with the counts of each expectation (measured.py); the metric `nightjar.observed`
looks them up. The rows themselves are counted elsewhere, in several processes, because the library's own expectations
would take one query each.
"""

# mypy: disable-error-code="override"
# Great Expectations passes all arguments by name: a method declares those it needs, and `**_` takes the rest.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, ClassVar

import great_expectations as gx
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from nightjar.expectations.measured import COLUMNS, Measured
from nightjar.expectations.suites import Suite


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


class ExpectNoneBreaking(BatchExpectation):
    """Expects that no row violates the condition."""

    name: str
    sql: str
    sentence: str

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
