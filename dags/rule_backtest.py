"""
### What it does

Tries drafts of rules on past days, shows a second person the figures, and publishes the rules once that person has
approved them. *Trigger* opens a form: paste the rules, name the days and the reason.

| task | what it does | causes of failure |
| --- | --- | --- |
| backtest | `nightjar backtest` with the drafts | an error in the rules; no events on these days; Spark |
| approve | shows figures and changed lines, and waits for a person | nobody answers within a week |
| publish | publishes and approves, by the names of both | the job rejects a rule or is down; both are one person |

### What to do

- **Approve or reject**: open the run's task *approve*, tab *Required Actions* (or *Browse*, *Required Actions*), read
  the figures, give a reason, and choose. The report with plots is the HTML file that is named there. After *Reject*
  nothing is published and the run ends green.
- **backtest** failed: the last line of its log names the error and the remedy. Correct the rules in a new run.
- **publish** failed: if the job was down, *Clear* it; what is published already is not sent again. If the two names are
  one person's (setting `approvals = 1`), *Clear* **approve** and ask somebody else to answer.

The names are those that Airflow has authenticated; they are in the messages on `rules` and shown by `nightjar rules
list`. More: docs/how-to/approve-rules.md in the repository.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, chain

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.rule_tasks import BacktestRules, PublishRules

with DAG(
    dag_id="rule_backtest",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"on_failure_callback": Notify()},
    params={
        "rules": Param(
            type="string",
            format="multiline",
            minLength=1,
            maxLength=200_000,
            title="Rules",
            description="The drafts as YAML or JSON, in one of the forms that `nightjar rules check` reads.",
        ),
        "first": Param(
            type="string", format="date", pattern=submission.DAY, title="From", description="The first day (UTC)."
        ),
        "last": Param(type="string", format="date", pattern=submission.DAY, title="To", description="The last day."),
        "threshold": Param(
            None,
            type=["null", "string"],
            pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$",
            title="Threshold",
            description="A measure or field that `when` compares with a number: the report then shows how many alerts "
            "other numbers give.",
        ),
        "reason": Param(
            type="string", minLength=1, maxLength=500, title="Reason", description="Stored with the published versions."
        ),
    },
    doc_md=__doc__,
    tags=["nightjar", "rules"],
) as dag:
    chain(
        BacktestRules(
            task_id="backtest",
            pool=submission.LAKE_POOL,
            doc_md="Runs `nightjar backtest` over the days of the form. **Fails** if the rules have an error, if the "
            "lake has no events on these days, or if Spark fails: the last line of the log says which.",
        ),
        ApprovalOperator(
            task_id="approve",
            subject="Publish these rules?",
            body="{{ ti.xcom_pull(task_ids='backtest') }}",
            params={
                "reason": Param(
                    type="string", minLength=1, maxLength=500, title="Reason", description="Why you approve or reject."
                )
            },
            response_timeout=timedelta(days=7),
            doc_md="Waits for a person. **Fails** if nobody answers within seven days: start another run.",
        ),
        PublishRules(
            task_id="publish",
            approval="approve",
            doc_md="Publishes the rules, approves them if `approvals = 1`, and waits until the job uses them. "
            "**Fails** if the job rejects one or does not answer: clear it once the job runs. It may be repeated.",
        ),
    )
