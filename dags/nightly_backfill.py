"""
### What it does

Evaluates yesterday's events again from the lake, after all of them have arrived, compares the violations with the
stream's alerts, and publishes the corrections. It runs half an hour plus the largest allowed lateness of the declared
streams after the end of the day (at 00:40 UTC with the shipped streams). One run processes one day (UTC), and only one
run uses the lake at a time. Running a day again is always safe: it gives the same result and publishes nothing twice.

| task | what it does | causes of failure |
| --- | --- | --- |
| form | checks the values of the form | **a value of the form**: the log lists all that are wrong |
| archive | copies Kafka records to the lake, past the day's end | Kafka is down, or its retention was too short |
| pending | runs earlier days that were missed, or that have newer rules | see the day named in its log |
| evaluate | evaluates the rules over the day, into the run's staging folder | Spark: memory, disk, or a table's file |
| gate | checks events and violations; a failed critical expectation stops the run | **the data is wrong** |
| reconcile | gives every alert an outcome, and every difference a cause | **the outcomes do not add up** |
| publish | publishes the corrections and the run's manifest | Kafka is down, or **alerts were held back** |
| night | nothing: succeeds if all other tasks do | an earlier task failed |

### What to do if it failed

There is no emergency. The stream keeps publishing alerts; only last night's corrections are missing. A red task has
been tried three times, minutes apart, except if one of its checks failed (exit code 3).

1. Open the red task, *Logs*, and read the last lines: the error says what happened, where, and what to do.
2. **archive, evaluate, publish**: fix the reported problem (broker, disk, memory), then *Clear* the task. The tasks
   after it run as well and use the staged data of the tasks before it. If the error says that the archive has not
   reached the day's end, clear from **archive**; if another run has finished since, clear from **evaluate**.
3. **gate**: open the data docs (*Browse*, *Data docs*; the task's log ends with the link to this night's). They show
   the failed expectation and example rows. Nothing has been published. Do not work around it: correct the data
   (`nightjar lake repair --day DAY` shows whether the lake can be repaired, and how), then *Clear* from **archive**. If
   that is not possible tonight, leave the task red.
4. **publish** reports corrections that were held back: everything else of the day is published, and there is nothing
   to clear. The log lists alerts that differ from the stream's without a known cause. That is a defect in nightjar:
   keep the staging folder (its name is in the log) and open an issue with the list.
5. **pending**: the run has continued with its own day. The log names each day that needs attention and why. The failed
   days stay pending, and the next night tries them again.
6. **form**: nothing has run. *Trigger* another run with the values corrected.

The run's note names the day that it evaluates, which is the day before a scheduled run's date.

### Rerun one day

*Trigger* opens a form: day, rules, groups, dry run, publish or not. Choose the day, and if you like some of the rules
and groups. If the form has any value, earlier pending days are skipped. To run several days, use *Backfill* in the same
dialogue with **one** active run at a time (a run fails if another one has finished since it read the lake) and with the
form's day empty. Its dates are midnights, so include the date after the last day. A task that stays *scheduled* is
waiting for the single slot of the pool `nightjar_lake` (which must exist: *Admin*, *Pools*).

More: docs/how-to/airflow.md in the repository.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TriggerRule, chain

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.retries import FinalVerdict
from nightjar.airflow.tasks import CheckForm, PendingDays, Stage, known_rules

FORM = """Checks the form before anything runs: the day is over, the rules were published, and the groups name fields.

**Fails** at once, and is not tried again, if a value cannot be used; the log lists all of them. Or if Kafka cannot be
reached: clear it once Kafka is back."""
TASKS = {
    "archive": """Copies the new records of every topic to the lake, exactly once, past the end of the day.

**Fails** if Kafka cannot be reached: clear it once Kafka is back. Or if records were deleted before they were
archived: those are lost. Run `nightjar archive --leave-out-deleted` to archive the rest, then clear it.""",
    submission.PENDING: """Runs earlier days without a finished run, or with rules published since, at most
`pending_days` back, one after the other.

**Fails** if one of these days is rejected; the log names it. The others still run, and so does the night's own day. The
next night tries the remaining pending days again.""",
    "evaluate": """Evaluates the rules for the groups with events of the day, into the staging folder.

**Fails** if Spark does: memory (`driver_memory`), disk, a table's file. Clear it once that is fixed. Or if the archive
has not passed the end of the day: clear from archive.""",
    "gate": """Checks events and staged violations; a failed critical expectation stops the run.

**Fails** if the data is wrong: the log ends with the link to the data docs, which show rows. Nothing has been
published. Correct the data, then clear from archive: `nightjar lake repair --day DAY` shows whether the lake can be
repaired, and how.""",
    "reconcile": """Compares the staged violations with the stream's alerts: every alert gets an outcome, every
difference a cause. Corrections without a cause are held back.

**Fails** if the outcomes do not add up, which is a defect: keep the staging folder and open an issue.""",
    "publish": """Publishes corrections to the alerts topic, each once, and writes the run's manifest. With *dry run* it
writes nothing; without *publish* it sends nothing to Kafka.

**Fails** if Kafka cannot be reached: clear it once Kafka is back; published corrections are not published again. If
another run has finished since this one was evaluated: clear from evaluate. Or, after everything else is published, if
corrections were held back: keep the staging folder and open an issue with the alerts listed in the log.""",
}

NIGHTS = submission.schedule("nightly_backfill")
RULES = known_rules()

with DAG(
    dag_id="nightly_backfill",
    schedule=None if NIGHTS is None else CronDataIntervalTimetable(NIGHTS, timezone="UTC"),
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
        "on_failure_callback": Notify(),
    },
    params={
        "day": Param(
            None,
            type=["null", "string"],
            format="date",
            title="Day",
            description="Arrival day (UTC). Empty: the last day that was due at the end of the run's data interval, "
            "which is yesterday for a manual run.",
        ),
        "rules": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Rules",
            description="Ids of rules. Empty: all.",
            **({"examples": RULES} if RULES else {}),
        ),
        "groups": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Groups",
            description="Fields and their values, one field per line: customer_id=C1,C2. Empty: all.",
        ),
        "dry_run": Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Stops after reconcile: writes staged data and a report, publishes nothing, changes no table.",
        ),
        "publish": Param(
            default=True,
            type="boolean",
            title="Publish corrections",
            description="Publish the corrections to the alerts topic. If off, only tables are written.",
        ),
    },
    doc_md=__doc__,
    tags=["nightjar", "backfill"],
) as dag:
    tasks = {
        name: (PendingDays if name == submission.PENDING else Stage)(
            task_id=name,
            arguments=f"{{{{ stage_arguments('{name}', dag_run, params) }}}}",
            docs=name in {submission.PENDING, "gate", "reconcile", "publish"},
            retry_policy=FinalVerdict(),
            doc_md=doc,
        )
        for name, doc in TASKS.items()
    }
    # Not in the lake's pool, so that a wrong form fails while another run uses the lake.
    form = CheckForm(task_id="form", pool="default_pool", doc_md=FORM)
    chain(form, *tasks.values())
    # A rejected earlier day must not stop the night's own day; without the archive there is nothing to evaluate.
    tasks["archive"] >> tasks["evaluate"]
    tasks["evaluate"].trigger_rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    # A DAG run's state is that of its last task, so the failure of `pending` needs a task after it.
    [tasks[submission.PENDING], tasks["publish"]] >> EmptyOperator(
        task_id="night", doc_md="Succeeds if every task does. **Fails** never: it does not run if a task failed."
    )
