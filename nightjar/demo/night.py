"""The nights after the demo's days: the first by Airflow's DAG, as it runs every night, the others by one command."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from backfill.gating import docs_folder
from lake.scanning import scan
from lake.tables import CORRECTIONS, RECONCILIATION, RUNS, events_table
from nightjar.cli.stages import Stages
from nightjar.configuration.settings import Settings
from nightjar.demo.history import History
from nightjar.local.airflow import LocalAirflow
from nightjar.local.airflow_client import RunResult
from rules.errors import NightjarError
from rules.streams import Stream
from rules.timestamps import from_microseconds

DAG = "nightly_backfill"

# Where the data docs stay when everything else of the demo is removed.
DOCS = Path(".nightjar") / "demo" / "data_docs"


@dataclass(frozen=True)
class Night:
    """What the nights came to.

    archived: records by stream; runs: the manifests' counts by day; docs: the first page; outcomes, causes: alerts by
    the last night that judged them; corrected: alerts that were put right.
    """

    archived: Mapping[str, int]
    runs: Mapping[date, dict[str, Any]]
    explained: str
    docs: Path
    outcomes: Counter[str]
    causes: Counter[str]
    corrected: int


def pass_nights(stages: Stages, settings: Settings, streams: Mapping[str, Stream], history: History) -> Night:
    """Run every day's backfill.

    Raises:
        NightjarError: a run failed; its log is shown.
    """
    first, last = (from_microseconds(instant).date() for instant in (history.begins, history.ends))
    environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap}
    airflow = LocalAirflow(settings, environment=environment, folder=settings.data_dir, schedule=False)
    try:
        with (
            stages.stage("Airflow", "a local one with nightjar's DAG: API server, scheduler, DAG processor, triggerer"),
            stages.waiting("half a minute on a slow machine"),
        ):
            airflow.start()
        with (
            stages.stage(f"Night of {first}", f"the DAG {DAG}, its tasks in one Spark"),
            stages.waiting("a minute or two"),
        ):
            _through_airflow(stages, airflow, first)
    finally:
        airflow.stop()
    rest = f"{first + timedelta(days=1)}..{last}"
    with stages.stage("Nights after", f"nightjar backfill --days {rest}, in one session"), stages.waiting("a minute"):
        _nightjar(environment, "backfill", "--days", rest, "--json")
    with stages.stage("One alert", "nightjar explain: its rule, its window, its revisions, and what became of it"):
        alert_id = _worth_explaining(settings)
        explained = _nightjar(environment, "explain", alert_id)
        stages.say(f"nightjar explain {alert_id}")
    return _night(settings, streams, explained)


def _through_airflow(stages: Stages, airflow: LocalAirflow, day: date) -> None:
    told: set[str] = set()

    def tell(run: RunResult) -> None:
        for task in run.tasks:
            if task.state in {"success", "failed"} and task.name not in told:
                told.add(task.name)
                stages.say(f"{task.name}: {task.state} after {task.seconds:.0f} s")

    result = airflow.run(DAG, {"day": day.isoformat()}, told=tell)
    if result.state != "success":
        failed = next((task for task in result.tasks if task.state == "failed"), None)
        log = [] if failed is None else airflow.client.log(DAG, result.run_id, failed.name, failed.tries)
        raise NightjarError("\n".join([f"ended as {result.state}; its log ends:", *log[-30:]]), where=f"DAG {DAG}")


def _nightjar(environment: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "nightjar", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NightjarError(
            f"ended with exit code {done.returncode}:\n{done.stderr[-4000:]}", where=f"nightjar {' '.join(arguments)}"
        )
    return done.stdout


def _worth_explaining(settings: Settings) -> str:
    """An alert, of those that were revised if there are any."""
    outcomes = scan(settings.lake, RECONCILIATION).collect()
    rank = pl.col("outcome").replace_strict({"revised": 0, "retracted": 1, "missed": 2, "matched": 3})
    return str(outcomes.sort(rank, "event_time").get_column("alert_id")[0])


def _night(settings: Settings, streams: Mapping[str, Stream], explained: str) -> Night:
    root = settings.lake
    archived = {
        name: scan(root, events_table(stream)).select(pl.len()).collect().item() for name, stream in streams.items()
    }
    manifests = scan(root, RUNS).filter(pl.col("state") == "finished").sort("finished_at").collect()
    runs = {row["day"]: json.loads(row["counts"]) for row in manifests.iter_rows(named=True)}
    outcomes = scan(root, RECONCILIATION).sort("day").collect().unique("alert_id", keep="last")
    shutil.rmtree(DOCS, ignore_errors=True)
    shutil.copytree(docs_folder(root) / "site", DOCS)
    return Night(
        archived,
        runs,
        explained,
        (DOCS / "index.html").resolve(),
        Counter(outcomes.get_column("outcome").to_list()),
        Counter(outcomes.get_column("cause").drop_nulls().to_list()),
        scan(root, CORRECTIONS).select(pl.col("alert_id").n_unique()).collect().item(),
    )
