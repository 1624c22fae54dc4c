"""The operators of the nightly DAG: each task runs one stage in the Spark session that all tasks share."""

import os
from typing import Any

from airflow.sdk import BaseOperator

from nightjar.airflow import submission
from nightjar.airflow.stage_client import StageClient


class Stage(BaseOperator):
    """Runs a stage on the stage server; the task's log is the stage's log.

    arguments: the arguments of `backfill_stage.py`.
    """

    template_fields = ("arguments",)
    ui_color = "#e8f0f8"

    def __init__(self, *, arguments: Any, **options: Any) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self._client: StageClient | None = None

    def execute(self, context: Any) -> None:  # noqa: ARG002  Airflow's signature
        """Run the stage and wait for it; stop it if the task is killed or times out."""
        self._client = StageClient(os.environ.get("AIRFLOW_HOME", ""), self.arguments)
        try:
            self._client.run(self.log.info)
        finally:
            self._client.stop()

    def on_kill(self) -> None:
        """Stop the stage."""
        if self._client is not None:
            self._client.stop()


class PendingDays(Stage):
    """Runs the pending days before the run's own day, unless the form restricts the run."""

    def execute(self, context: Any) -> None:
        """Run the pending days; skip them if the form has any values."""
        if submission.has_options(context["params"]):
            self.log.info("pending days are skipped, because this run was started with options")
            return
        super().execute(context)
