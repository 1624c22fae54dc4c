"""
### What it does

Brings Kafka to the lake every 15 minutes, each record exactly once, so that a night has little left to archive and a
backtest sees today's events. The nightly DAG archives too; this one only spreads the work.

### What to do if it failed

Nothing is lost: Kafka keeps the records for `event_retention`, and the next run starts where the last one stopped. If
it keeps failing, open the task's log: the last line says what happened and what to do. A task that stays *scheduled*
waits for the single slot of the pool `nightjar_lake`, which a night or the maintenance has.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.tasks import Stage

with DAG(
    dag_id="archive",
    schedule=submission.schedule("archive", "*/15 * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    user_defined_macros={"stage_arguments": submission.stage_arguments},
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "pool": submission.LAKE_POOL,
        "on_failure_callback": Notify(),
    },
    doc_md=__doc__,
    tags=["nightjar", "lake"],
) as dag:
    Stage(
        task_id="archive",
        arguments=f"{{{{ stage_arguments('{submission.ARCHIVE_NOW}', dag_run, params) }}}}",
        doc_md="Copies the new records of every topic to the lake. **Fails** if Kafka cannot be reached: the next run "
        "catches up. Or if records were deleted before they were archived: `nightjar archive --leave-out-deleted`.",
    )
