"""
### What it does

Tries drafts of rules on past days, shows a second person the figures, and publishes the rules once that person has
approved them. *Trigger* opens a form: paste the rules, name the days and the reason.

| task | what it does | causes of failure |
| --- | --- | --- |
| form | checks the rules and the other values of the form | **a value of the form**: the log lists all that are wrong |
| backtest | `nightjar backtest` with the drafts | no events on these days; Spark |
| approve | shows figures and changed lines, and waits for a person if the form says so | nobody answers within a week |
| publish | publishes and approves, by the names of both | the job rejects a rule or is down; both are one person |

### What to do

- **Approve or reject**: open the run's task *approve*, tab *Required Actions* (or *Browse*, *Required Actions*), read
  the figures, give a reason, and choose. The report with plots is the HTML file that is named there. After *Reject*
  nothing is published and the run ends green.
- **form** or **backtest** failed: its log names the errors and the remedies. Correct the form in a new run.
- **publish** failed: if the job was down, *Clear* it; what is published already is not sent again. If the two names are
  one person's (setting `approvals = 1`), *Clear* **approve** and ask somebody else to answer.

The names are those that Airflow has authenticated; they are in the messages on `rules` and shown by `nightjar rules
list`. More: docs/how-to/approve-rules.md in the repository.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param, chain

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.rule_tasks import ApproveRules, BacktestRules, CheckRules, PublishRules

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
        "first": Param(type="string", format="date", title="From", description="The first day (UTC)."),
        "last": Param(type="string", format="date", title="To", description="The last day."),
        "threshold": Param(
            None,
            type=["null", "string"],
            title="Threshold",
            description="A measure or field that `when` compares with a number: the report then shows how many alerts "
            "other numbers give.",
        ),
        submission.PUBLISH: Param(
            default=True,
            type="boolean",
            title="Ask for approval",
            description="Whether somebody is asked to approve, and the rules are published then. Otherwise the run "
            "ends with the backtest.",
        ),
        "reason": Param(
            type="string", minLength=1, maxLength=500, title="Reason", description="Stored with the published versions."
        ),
    },
    doc_md=__doc__,
    tags=["nightjar", "rules"],
) as dag:
    chain(
        CheckRules(
            task_id="form",
            doc_md="Checks the form before anything runs. **Fails** if a rule has an error, or another value cannot be "
            "used: the log lists all of them.",
        ),
        BacktestRules(
            task_id="backtest",
            pool=submission.LAKE_POOL,
            doc_md="Runs `nightjar backtest` over the days of the form. **Fails** if the lake has no events on these "
            "days, or if Spark fails: the last line of the log says which.",
        ),
        ApproveRules(
            task_id="approve",
            subject="Publish these rules?",
            body="{{ ti.xcom_pull(task_ids='backtest') }}",
            # Airflow needs a value before anybody has answered: the schema allows the empty one, and the task does not.
            params={
                submission.APPROVAL_REASON: Param(
                    "", type="string", maxLength=500, title="Your reason", description="Why you approve or reject."
                )
            },
            response_timeout=timedelta(days=7),
            doc_md="Waits for a person, if the form says so. **Fails** if nobody answers within seven days: start "
            "another run.",
        ),
        PublishRules(
            task_id="publish",
            approval="approve",
            doc_md="Publishes the rules, approves them if `approvals = 1`, and waits until the job uses them. "
            "**Fails** if the job rejects one or does not answer: clear it once the job runs. It may be repeated.",
        ),
    )
