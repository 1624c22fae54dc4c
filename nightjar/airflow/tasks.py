"""The operators of the nightly DAG: a check of its form, and tasks that run a stage each in a shared Spark session."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from airflow.sdk import BaseOperator

from nightjar.airflow import submission
from nightjar.airflow.addresses import docs_address
from nightjar.airflow.reporting import reported
from nightjar.airflow.stage_client import StageClient
from nightjar.airflow.task_log import RULES, STAGE_DONE, SUMMARY, follow, message_of

# Airflow's variable with the ids of the published rules, which the forms offer.
KNOWN_RULES = "nightjar_rules"
# Messages of the stages of a pending day: its summary says what matters.
_OF_STAGES = frozenset({STAGE_DONE, "archived", "checked"})


def known_rules() -> list[str]:
    """The ids of the published rules, as the last archive found them; none if it has not run."""
    from airflow.sdk import Variable

    known = None
    with suppress(Exception):  # a form without suggestions is better than a DAG that cannot be loaded
        known = Variable.get(KNOWN_RULES, default=None)
    return known.split() if isinstance(known, str) else []


class CheckForm(BaseOperator):
    """Fails at once, with all problems in words, if the form of `nightly_backfill` cannot be used."""

    ui_color = "#f4f0e8"

    def execute(self, context: Any) -> dict[str, Any]:
        """Check the form; returns the day and what the run is limited to."""
        from datetime import UTC, datetime

        from nightjar.airflow.forms import check_night
        from nightjar.configuration.settings import load_settings
        from nightjar.rules.streams import load_streams

        params, run = context["params"], context["dag_run"]
        with reported(self.log):
            settings = load_settings()
            check_night(params, run, settings, load_streams(settings.streams), datetime.now(UTC))
        self.log.info("this run evaluates %s", submission.described(run, params))
        return {"day": submission.run_day(run, params.get("day")).isoformat(), **submission.options(params)}


class Stage(BaseOperator):
    """Runs a stage on the stage server; the task's log shows what the stage prints, and its XCom what it counted.

    arguments: the arguments of `backfill_stage.py`; docs: whether the stage adds to the data docs, so that the log has
    a link to them.
    """

    template_fields = ("arguments",)
    ui_color = "#e8f0f8"

    hidden: frozenset[str] = frozenset({SUMMARY, RULES})

    def __init__(self, *, arguments: Any, docs: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self.docs = docs
        self._client: StageClient | None = None
        self._summaries: list[dict[str, Any]] = []

    def execute(self, context: Any) -> None:
        """Run the stage and wait for it; stop it if the task is killed or times out.

        What it has counted is pushed even if it fails in the end, as publishing does if corrections are held back.
        """
        self.log.info("%s for %s", self.arguments[0], submission.described(context["dag_run"], context["params"]))
        self._client = StageClient(os.environ.get("AIRFLOW_HOME", ""), self.arguments)
        show = follow(self.log)
        try:
            self._client.run(lambda line: self._take(line, show))
        finally:
            self._client.stop()
            address = docs_address(submission.run_folder(context["dag_run"].run_id)) if self.docs else ""
            if address:
                self.log.info("data docs: %s", address)
            if self._summaries:
                context["ti"].xcom_push("return_value", self.result(address))

    def result(self, address: str) -> Any:
        """The XCom. address: of the data docs."""
        return self._summaries[-1] | ({"data_docs": address} if address else {})

    def on_kill(self) -> None:
        """Stop the stage."""
        if self._client is not None:
            self._client.stop()

    def _take(self, line: str, show: Callable[[str], None]) -> None:
        message = message_of(line) or {}
        if message.get("event") == SUMMARY:
            self._summaries.append(message["summary"])
        elif message.get("event") == RULES:
            _remember(message["rules"])
        if message.get("event") not in self.hidden or message.get("level") not in {"info", "debug"}:
            show(line)


class PendingDays(Stage):
    """Runs the pending days before the run's own day, unless the form restricts the run."""

    hidden = Stage.hidden | _OF_STAGES

    def execute(self, context: Any) -> None:
        """Run the pending days; skip them if the form has any values."""
        if submission.has_options(context["params"]):
            self.log.info("pending days are skipped, because this run was started with options")
            return
        super().execute(context)

    def result(self, address: str) -> Any:
        """A summary of each day."""
        return {"days": self._summaries, "data_docs": address}


def _remember(rules: list[str]) -> None:
    from airflow.sdk import Variable

    if known_rules() != rules:
        # Text, because Airflow looks for secrets among the values of JSON, and warns of short ones.
        Variable.set(KNOWN_RULES, " ".join(rules), description="Offered by the forms of nightjar's DAGs")
