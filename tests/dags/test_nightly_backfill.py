"""The DAG as Airflow reads it."""

from typing import Any

import pytest

from nightjar.airflow.submission import LAKE_POOL, PENDING
from nightjar.backfill.stages import STAGES
from tests.support.airflow import HEAVY, Airflow

# Reads the DAG once; what the parsing alone has imported is taken before anything is rendered.
LOOK = """
from types import SimpleNamespace
from datetime import UTC, datetime
import nightly_backfill
imported = sorted({name.partition(".")[0] for name in sys.modules})
from airflow.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
dag = nightly_backfill.dag
DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))

def accepts(name, value):
    params = dag.params.__copy__() if hasattr(dag.params, "__copy__") else dag.params
    try:
        params.get_param(name).__copy__().resolve(value)
    except ParamValidationError:
        return False
    return True

def rendered(task, **params):
    run = SimpleNamespace(run_id="a-run", run_after=datetime(2026, 11, 21, 1, tzinfo=UTC),
                          data_interval_end=datetime(2026, 11, 21, 0, 40, tzinfo=UTC))
    context = {"dag_run": run, "params": {**dag.params.dump(), **params}}
    environment = dag.get_template_env()
    if hasattr(task, "arguments"):
        return task.render_template(task.arguments, context, environment)

tried = {
    "day": [None, "2026-11-20", "2026-11-31", "yesterday", "2026-11-20 --x", 5],
    "rules": [None, [], ["burst"], ["--all"], "burst", ["a,b"], [""]],
    "groups": [None, [], ["customer_id=c1,c2"], ["customer_id"], ["a=b;c=d"], ["a=`id`"]],
    "dry_run": [True, False, None, "yes"],
    "publish": [True, False, None, 1],
}
interval = dag.timetable
report({
    "imported": imported,
    "tasks": {t.task_id: {
        "after": sorted(t.upstream_task_ids), "retries": t.retries, "exponential": bool(t.retry_exponential_backoff),
        "final": t.has_retry_policy, "pool": t.pool, "doc": t.doc_md, "type": t.task_type, "when": t.trigger_rule,
    } for t in dag.tasks},
    "schedule": [type(dag.timetable).__name__, dag.timetable.serialize() if hasattr(dag.timetable, "serialize")
                 else getattr(dag.timetable, "expression", None), dag.catchup, dag.max_active_runs],
    "doc": dag.doc_md,
    "accepted": {name: [accepts(name, value) for value in values] for name, values in tried.items()},
    "rendered": {t.task_id: rendered(t) for t in dag.tasks},
    "asked": rendered(dag.get_task("gate"), rules=["a", "b"], groups=["customer_id=c1"], day="2026-01-05",
                      dry_run=True, publish=False),
})
"""

# Importing Airflow takes five seconds by itself.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(airflow: Airflow) -> dict[str, Any]:
    """What there is to see of the DAG."""
    return airflow.run(LOOK)


def test_reading_it_imports_nothing_heavy(seen: dict[str, Any]) -> None:
    """The DAG processor reads it every half a minute."""
    assert HEAVY.isdisjoint(seen["imported"])
    assert {"lake", "backfill", "streaming", "expectations"}.isdisjoint(seen["imported"])


def test_the_stages_follow_one_another(seen: dict[str, Any]) -> None:
    """Each is a task of its own, in the lake's pool, with something to read for whoever is on call."""
    assert {name: task["after"] for name, task in seen["tasks"].items()} == {
        "form": [],
        "archive": ["form"],
        "pending": ["archive"],
        "evaluate": ["archive", "pending"],
        "gate": ["evaluate"],
        "reconcile": ["gate"],
        "publish": ["reconcile"],
        "night": ["pending", "publish"],
    }
    kinds = {"form": "CheckForm", "pending": "PendingDays", "night": "EmptyOperator"}
    for name, task in seen["tasks"].items():
        assert task["type"] == kinds.get(name, "Stage")
        assert task["pool"] == ("default_pool" if name == "form" else LAKE_POOL)
        assert "**Fails**" in task["doc"]
        assert f"| {name} |" in seen["doc"]


def test_a_rejected_day_leads_to_its_repair(seen: dict[str, Any]) -> None:
    """Whether the task's page is read or the DAG's."""
    for text in (seen["doc"], seen["tasks"]["gate"]["doc"]):
        assert "nightjar lake repair --day DAY" in text


def test_a_pending_day_that_is_refused_does_not_cost_the_night_its_own(seen: dict[str, Any]) -> None:
    """The day is evaluated where the archive has run, and the DAG's run is red in the end."""
    rules = {name: task["when"] for name, task in seen["tasks"].items()}
    assert rules.pop("evaluate") == "all_done_min_one_success"
    assert set(rules.values()) == {"all_success"}


def test_failures_are_tried_again_but_not_verdicts(seen: dict[str, Any]) -> None:
    """Twice, each time later; what a stage refuses stays refused."""
    assert {(task["retries"], task["exponential"]) for task in seen["tasks"].values()} == {(2, True)}
    assert {name for name, task in seen["tasks"].items() if task["final"]} == {*STAGES, PENDING}


def test_a_day_is_run_once_it_is_settled(seen: dict[str, Any]) -> None:
    """Half an hour after the shipped streams' lateness; once, with a data interval, and only one run at a time."""
    kind, schedule, catchup, runs = seen["schedule"]
    assert kind == "CronDataIntervalTimetable"
    assert "40 0 * * *" in str(schedule)
    assert (catchup, runs) == (False, 1)


def test_the_form_takes_values_of_the_right_kind(seen: dict[str, Any]) -> None:
    """Airflow would refuse the first wrong one with its schema; what else is wrong, the first task says in words."""
    assert seen["accepted"] == {
        "day": [True, True, False, False, False, False],
        "rules": [True, True, True, True, False, True, True],
        "groups": [True, True, True, True, True, True],
        "dry_run": [True, True, False, False],
        "publish": [True, True, False, False],
    }


def test_every_task_asks_for_its_stage(seen: dict[str, Any]) -> None:
    """With the run's folder and its day."""
    for stage in (*STAGES, PENDING):
        assert seen["rendered"][stage] == [stage, "--run-id", "a-run", "--day", "2026-11-20"]


def test_the_values_of_the_form_become_arguments(seen: dict[str, Any]) -> None:
    """As a list, through Airflow's own rendering."""
    assert seen["asked"] == [
        "gate",
        "--run-id",
        "a-run",
        "--day",
        "2026-01-05",
        "--rules",
        "a,b",
        "--groups",
        "customer_id=c1",
        "--dry-run",
        "--no-publish",
    ]


def test_only_exit_code_3_is_a_verdict(airflow: Airflow) -> None:
    """A crash (1), or Kafka being away (2), is tried again; so is an error that names no exit code."""
    decided = airflow.run(
        "from nightjar.airflow.retries import FinalVerdict\n"
        "from nightjar.airflow.stage_client import StageFailedError\n"
        "raised = [*(StageFailedError(code, 'Error code is: 3') for code in (3, 1, 2, 137, 13)), OSError('3')]\n"
        "report([FinalVerdict().evaluate(exception=each, try_number=1, max_tries=2, context=None).action.value"
        " for each in raised])\n"
    )
    assert decided == ["fail", "default", "default", "default", "default", "default"]
