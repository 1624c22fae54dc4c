"""
### What it does

Looks every five minutes whether the job is well, by its own reports on Kafka. Its task is red if the job is silent, if
events have waited longer than they may (*Behind*), or if the clock of its host differs from the brokers' (*Skew*).

### What to do if it failed

Open the red task, *Logs*: the last lines say what is wrong and what to do. `nightjar status` shows the same, and more.
Nothing is lost while the job is down: events wait in Kafka, and the next night corrects what the stream missed.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from nightjar.airflow import submission
from nightjar.airflow.notifications import Notify
from nightjar.airflow.upkeep_tasks import WatchStream

with DAG(
    dag_id="stream_watchdog",
    schedule=submission.schedule("stream_watchdog", "*/5 * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"execution_timeout": timedelta(minutes=4), "on_failure_callback": Notify()},
    params={
        "behind": Param(60, type="number", minimum=1, maximum=86_400, title="Behind", description="Seconds."),
        "skew": Param(2, type="number", minimum=0.1, maximum=3600, title="Skew", description="Seconds."),
    },
    doc_md=__doc__,
    tags=["nightjar", "stream"],
) as dag:
    WatchStream(
        task_id="watch",
        behind="{{ params.behind }}",
        skew="{{ params.skew }}",
        doc_md="Reads the job's last reports. **Fails** if the job is silent, behind, or on a host whose clock is off; "
        "or if Kafka cannot be read.",
    )
