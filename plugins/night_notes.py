"""Notes on each run of `nightly_backfill` which day it evaluates, where Airflow shows runs.

How it works: the scheduler tells its listeners that a run has started, and stores what they change of it. Neither a
task nor a DAG can set a note in Airflow 3.3. A note that somebody has written stays.
"""

import sys

from airflow.listeners import hookimpl
from airflow.models import DagRun
from airflow.plugins_manager import AirflowPlugin

from nightjar.airflow import submission
from nightjar.rules.errors import NightjarError

_DAG = "nightly_backfill"


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:  # noqa: ARG001  Airflow's signature
    """Note the day; nothing where the form has none that can be used, which the first task reports."""
    if dag_run.dag_id != _DAG or dag_run.note:
        return
    try:
        dag_run.note = f"Evaluates {submission.described(dag_run, dag_run.conf or {})}."
    except NightjarError:
        return


class NightNotes(AirflowPlugin):
    """Adds the listener."""

    name = "night_notes"
    listeners = [sys.modules[__name__]]  # noqa: RUF012  Airflow's form
