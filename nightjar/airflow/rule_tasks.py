"""The operators of the DAG `rule_backtest`. Imports nothing heavy: what they do is in rule_runs.py."""

from contextlib import ExitStack
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from nightjar.airflow.reporting import reported
from nightjar.airflow.submission import APPROVAL_REASON, BACKTESTS, PUBLISH, run_folder
from nightjar.airflow.task_log import follow


class CheckRules(BaseOperator):
    """Fails at once, with all problems in words, if the form of `rule_backtest` cannot be used."""

    ui_color = "#f4f0e8"

    def execute(self, context: Any) -> None:
        """Check the form."""
        from nightjar.airflow.rule_runs import request_of

        with reported(self.log):
            request = request_of(context["params"])
        self.log.info("a backtest of %s to %s (UTC)", request.first, request.last)


class BacktestRules(BaseOperator):
    """Tries the form's rules on past days; returns what the approving person is shown, as Markdown."""

    ui_color = "#e8f0f8"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cleanup = ExitStack()

    def execute(self, context: Any) -> str:
        """Run `nightjar backtest`, and stop it if the task is killed."""
        from nightjar.airflow.rule_runs import backtest, request_of
        from nightjar.configuration.settings import load_settings

        with reported(self.log), self._cleanup:
            folder = load_settings().data_dir.resolve() / BACKTESTS / run_folder(context["dag_run"].run_id)
            return backtest(request_of(context["params"]), folder, follow(self.log), self._cleanup)

    def on_kill(self) -> None:
        """Stop the command."""
        self._cleanup.close()


class ApproveRules(ApprovalOperator):
    """Asks a person whether the rules may be published, and for the reason; asks again if an answer has none.

    Skips itself, and with it publishing, where the form says that the run is a backtest only.
    """

    def execute(self, context: Any) -> Any:
        """Ask."""
        if not context["params"].get(PUBLISH, True):
            raise AirflowSkipException("the form asks for a backtest only")
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Take the answer."""
        given = (event.get("params_input") or {}).get(APPROVAL_REASON)
        if "error" not in event and not str(given or "").strip():
            self.log.warning("the answer has no reason, and is asked for again")
            return self.execute(context)
        return super().execute_complete(context, event)


class PublishRules(BaseOperator):
    """Publishes the form's rules by the name of who started the run, approved by who answered the step `approval`."""

    ui_color = "#e8f8ec"

    def __init__(self, *, approval: str, **options: Any) -> None:
        super().__init__(**options)
        self.approval = approval

    def execute(self, context: Any) -> None:
        """Send the messages, and wait until the rules are in force."""
        from nightjar.airflow.rule_runs import people_of, publish, request_of

        with reported(self.log):
            request = request_of(context["params"])
            answer = context["ti"].xcom_pull(task_ids=self.approval) or {}
            people = people_of(context["dag_run"].triggering_user_name, request.reason, answer)
            self.log.info("author: %s; approved by: %s", people.author, people.approver)
            publish(request, people, self.log.info)
