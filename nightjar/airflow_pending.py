"""The task that works off pending days: nothing is started where there are none."""

from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from nightjar import submission


class PendingDays(SparkSubmitOperator):
    """Submits its program where days before the run's own are pending; else it is done at once."""

    def execute(self, context: Any) -> None:
        """Look without Spark, which takes half a minute to start, and submit only where there is something to do."""
        days = submission.pending(context["dag_run"], context["params"])
        for day in days:
            self.log.warning("pending: %s", day)
        if days:
            super().execute(context)
        else:
            self.log.info("no earlier day is pending")
