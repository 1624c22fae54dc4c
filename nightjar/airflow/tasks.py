"""The tasks of the nightly DAG: a stage each, done in the one Spark session that they share."""

import os
from typing import Any

from airflow.sdk import BaseOperator

from nightjar.airflow import submission
from nightjar.airflow.stage_client import StageClient


class Stage(BaseOperator):
    """Has a stage done by the stage server; the task's log is the stage's.

    arguments: those of `backfill_stage.py`.
    """

    template_fields = ("arguments",)
    ui_color = "#e8f0f8"

    def __init__(self, *, arguments: Any, **options: Any) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self._client: StageClient | None = None

    def execute(self, context: Any) -> None:  # noqa: ARG002  Airflow's word for it
        """Wait for the stage; where the task is killed, or cannot wait any longer, it is stopped."""
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
    """The stage that works off the days before the run's own, unless the run was asked for something."""

    def execute(self, context: Any) -> None:
        """Where the form has anything in it, pending days are left alone."""
        if submission.is_asked(context["params"]):
            self.log.info("the run was asked for something, so pending days are left alone")
            return
        super().execute(context)
