"""
### What it does

Looks after the lake once a week, on Sunday at noon (UTC), as `nightjar lake maintain` does: merges the small files that
the archive writes, deletes files that no version of a table needs any more (`lake_file_retention`), removes rows by age
(`lake_retention`), and removes the staged folders of old runs. What was done to each table is the task's return value
(*XCom*), and in its log.

### What to do if it failed

There is no emergency: queries only become slower. Each step is complete in itself, so *Clear* the task once what its
log names is mended. A task that stays *scheduled* waits for the single slot of the pool `nightjar_lake`.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.upkeep_tasks import MaintainLake

with DAG(
    dag_id="lake_maintenance",
    schedule=submission.schedule("lake_maintenance", "0 12 * * 0"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
        "pool": submission.LAKE_POOL,
        "on_failure_callback": Notify(),
    },
    doc_md=__doc__,
    tags=["nightjar", "lake"],
) as dag:
    MaintainLake(
        task_id="maintain",
        doc_md="Looks after every table. **Fails** if `lake_retention` would remove what a backfill may need, or if a "
        "table's files cannot be read or written: the log names the table.",
    )
