"""
### What it does

Computes yesterday's violations again from the lake, where every event has arrived, compares them with the alerts that
the stream sent, and publishes the corrections. It runs half an hour after the day's end plus the largest allowed
lateness of the declared streams (with the shipped ones at 00:40 UTC); one run is one day (UTC), and at most one run
works on the lake at a time. Running a day again is always safe: same inputs, same result, nothing is published twice.

| task | what it does | when it fails |
| --- | --- | --- |
| archive | brings Kafka's records to the lake, past the day's end | Kafka is away, or its retention was too short |
| pending | runs earlier days that were missed, or that newer rules apply to | see the day that its log names |
| evaluate | evaluates the rules over the day, into the run's staged folder | Spark: memory, disk, or a table's file |
| gate | checks events and violations; a critical expectation stops the run | **the data is wrong** |
| reconcile | gives every alert an outcome, every difference a cause | **the outcomes do not add up** |
| publish | publishes the corrections and the run's manifest | Kafka is away, or **alerts were held back** |
| night | nothing: it is green where all of the night is | a task before it failed |

### It failed: what now?

Nothing is on fire. Alerts go on, they come from the stream; what is missing are last night's corrections. A red task
has been tried three times, minutes apart; one that refuses (exit code 3) only once.

1. Open the red task, *Logs*, and read the last lines: an error says what, where, and what to do.
2. **archive, evaluate, publish**: put right what it names (broker, disk, memory), then *Clear* the task. Everything
   after it runs too, with what the tasks before it have staged. Where it says that the archive has not come far enough,
   clear from **archive**; where another run has finished since, clear from **evaluate**.
3. **gate**: open the data docs (`data_docs/site/index.html` in the lake's folder): they show the expectation that
   does not hold, and rows. Nothing has been published. Do not work around it: put the data right, then *Clear* from
   **archive**. If that cannot be tonight, leave it red.
4. **publish** says that corrections were held back: everything else of the day is published, and there is nothing to
   clear. It lists the alerts that differ from the stream's for no known reason. That is a defect of nightjar: keep the
   staged folder (its name is in the log) and open an issue with the list.
5. **pending**: the night's own day has gone on without it. Its log names each day that needs you and why; the days that
   failed stay pending, and the next night tries them again.

### Running it by hand

*Trigger* opens a form: the day, rules, groups, a dry run, publish or not. With anything in the form, earlier pending
days are left alone. Several days: *Backfill* in the same dialogue, with **one** active run at a time (a run that was
overtaken by another is refused) and the form's day empty; its dates are midnights, so the last day is run when the date
after it is included. A task that waits in *scheduled* waits for the one slot of the pool `nightjar_lake` (which must
exist: *Admin*, *Pools*).

More: docs/how-to/airflow.md in the repository.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TriggerRule, chain

from nightjar.airflow import submission
from nightjar.airflow.retries import FinalVerdict
from nightjar.airflow.tasks import PendingDays, Stage

TASKS = {
    "archive": """Brings what is new on every topic to the lake, exactly once, past the end of the day.

**Fails** when Kafka cannot be reached: clear it once Kafka is back. Or when records were deleted before they were
archived: those are gone. `nightjar archive --leave-out-deleted` goes on with the rest; then clear it.""",
    submission.PENDING: """Runs earlier days that no run has finished, or that rules published since apply to, at most
`pending_days` back; all of them one after the other.

**Fails** when one of these days is refused, which its log says; the others are run, and so is the night's own day. What
is still pending the next night tries again.""",
    "evaluate": """Evaluates the rules over the groups that the day's events touched, into the staged folder.

**Fails** when Spark does: memory (`driver_memory`), disk, a table's file. Clear it once that is put right. Or when the
archive has not come past the day: clear from archive.""",
    "gate": """Checks events and staged violations; critical expectations stop the run.

**Fails** when the data is wrong: see `data_docs/site/index.html` in the lake. Nothing has been published. Put the data
right, then clear from archive on.""",
    "reconcile": """Compares the staged violations with the stream's alerts: every alert gets an outcome, every
difference a cause. Corrections without a cause are held back.

**Fails** when the outcomes do not add up, which is a defect: keep the staged folder, open an issue.""",
    "publish": """Puts corrections on the alerts topic, each once, and writes the run's manifest. With *dry run* nothing
is written; without *publish* nothing goes to Kafka.

**Fails** when Kafka cannot be reached: clear it once Kafka is back; what was published is not published again. When
another run has finished since this one was evaluated: clear from evaluate. Or, after everything else is published, when
corrections were held back: keep the staged folder, open an issue with the alerts that the log lists.""",
}

with DAG(
    dag_id="nightly_backfill",
    schedule=CronDataIntervalTimetable(submission.schedule(), timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    user_defined_macros={"stage_arguments": submission.stage_arguments},
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=15),
        "pool": submission.LAKE_POOL,
    },
    params={
        "day": Param(
            None,
            type=["null", "string"],
            format="date",
            pattern=submission.DAY,
            title="Day",
            description="Arrival day (UTC). Empty: the last day whose run was due when the run's data interval ended, "
            "which for a run started by hand is yesterday.",
        ),
        "rules": Param(
            [],
            type=["null", "array"],
            items={"type": "string", "pattern": submission.RULE_ID},
            title="Rules",
            description="Ids of rules, one a line. Empty: all.",
        ),
        "groups": Param(
            [],
            type=["null", "array"],
            items={"type": "string", "pattern": submission.GROUP},
            title="Groups",
            description="Fields and their values, one field a line: customer_id=C1,C2. Empty: all.",
        ),
        "dry_run": Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Ends after reconcile: staged data and a report, nothing published and no table changed.",
        ),
        "publish": Param(
            default=True,
            type="boolean",
            title="Publish corrections",
            description="Put the corrections on the alerts topic. Without it, tables are written and Kafka is not.",
        ),
    },
    doc_md=__doc__,
    tags=["nightjar", "backfill"],
) as dag:
    tasks = {
        name: (PendingDays if name == submission.PENDING else Stage)(
            task_id=name,
            arguments=f"{{{{ stage_arguments('{name}', dag_run, params) }}}}",
            retry_policy=FinalVerdict(),
            doc_md=doc,
        )
        for name, doc in TASKS.items()
    }
    chain(*tasks.values())
    # An earlier day that is refused must not cost the night's own; without the archive there is nothing to evaluate.
    tasks["archive"] >> tasks["evaluate"]
    tasks["evaluate"].trigger_rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    # A run of the DAG is as red as its last task, so the pending days need one after them too.
    [tasks[submission.PENDING], tasks["publish"]] >> EmptyOperator(
        task_id="night", doc_md="Green where every task is. **Fails** never; it does not run where a task has failed."
    )
