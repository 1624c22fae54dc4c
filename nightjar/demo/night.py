"""Runs the demo's backfills: the first night with Airflow's DAG, the others with `nightjar backfill`."""

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

from nightjar.airflow.local.airflow import LocalAirflow
from nightjar.airflow.local.client import RunResult
from nightjar.backfill.gate.gating import docs_folder
from nightjar.configuration.settings import Settings
from nightjar.contracts.run_manifest import RunState, read_manifest
from nightjar.demo.history import DemoHistory
from nightjar.lake.scanning import scan
from nightjar.lake.tables import CORRECTIONS, RECONCILIATION, RUNS, events_table
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from nightjar.storage.paths import mirrored
from nightjar.terminal.stages import Stages

DAG = "nightly_backfill"

# The data docs are kept here when everything else of the demo is removed.
DOCS = Path(".nightjar") / "demo" / "data_docs"


@dataclass(frozen=True)
class NightResults:
    """The results of all nights."""

    archived: Mapping[str, int]
    """Records by stream."""
    runs: Mapping[date, dict[str, Any]]
    """The manifests' counts by day."""
    explained: str
    """The output of `nightjar explain`."""
    docs: Path
    """The data docs' first page."""
    outcomes: Counter[str]
    causes: Counter[str]
    """`outcomes` and `causes`: alerts by the last night that covered them."""
    corrected: int
    """Alerts with a correction."""


def pass_nights(
    stages: Stages, settings: Settings, streams: Mapping[str, Stream], history: DemoHistory
) -> NightResults:
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
            stages.waiting("takes half a minute on a slow machine"),
        ):
            airflow.start()
        with (
            stages.stage(f"Night of {first}", f"the DAG {DAG}, its tasks in one Spark session"),
            stages.waiting("takes a minute or two"),
        ):
            _through_airflow(stages, airflow, first)
    finally:
        airflow.stop()
    rest = f"{first + timedelta(days=1)}..{last}"
    with (
        stages.stage("Other nights", f"nightjar backfill --days {rest}, in one session"),
        stages.waiting("takes a minute"),
    ):
        _nightjar(environment, "backfill", "--days", rest, "--json")
    with stages.stage("One alert", "nightjar explain: its rule, window, revisions and outcome"):
        alert_id = _worth_explaining(settings)
        explained = _nightjar(environment, "explain", alert_id)
        stages.note(f"nightjar explain {alert_id}")
    return _night(settings, streams, explained)


def _through_airflow(stages: Stages, airflow: LocalAirflow, day: date) -> None:
    shown: set[str] = set()

    def show(run: RunResult) -> None:
        for task in run.tasks:
            if task.state in {"success", "failed"} and task.name not in shown:
                shown.add(task.name)
                stages.note(f"{task.name}: {task.state} after {task.seconds:.0f} s")

    result = airflow.run(DAG, {"day": day.isoformat()}, on_progress=show)
    if result.state != "success":
        failed = next((task for task in result.tasks if task.state == "failed"), None)
        log = [] if failed is None else airflow.client.log(DAG, result.run_id, failed.name, failed.tries)
        raise NightjarError(
            "\n".join([f"ended in state {result.state}; its log ends with:", *log[-30:]]), where=f"DAG {DAG}"
        )


def _nightjar(environment: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "nightjar", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NightjarError(
            f"exited with code {done.returncode}:\n{done.stderr[-4000:]}", where=f"nightjar {' '.join(arguments)}"
        )
    return done.stdout


def _worth_explaining(settings: Settings) -> str:
    """The id of an alert, preferably one that the backfill revised."""
    outcomes = scan(settings.lake, RECONCILIATION).collect()
    rank = pl.col("outcome").replace_strict({"revised": 0, "retracted": 1, "missed": 2, "matched": 3})
    return str(outcomes.sort(rank, "event_time").get_column("alert_id")[0])


def _night(settings: Settings, streams: Mapping[str, Stream], explained: str) -> NightResults:
    root = settings.lake
    archived = {
        name: scan(root, events_table(stream)).select(pl.len()).collect().item() for name, stream in streams.items()
    }
    found = scan(root, RUNS).filter(pl.col("state") == RunState.FINISHED.value).sort("finished_at").collect()
    manifests = (read_manifest(row) for row in found.iter_rows(named=True))
    runs = {manifest.day: dict(manifest.counts) for manifest in manifests if manifest is not None}
    outcomes = scan(root, RECONCILIATION).sort("day").collect().unique("alert_id", keep="last")
    shutil.rmtree(DOCS, ignore_errors=True)
    with mirrored(docs_folder(root)) as docs:
        shutil.copytree(docs / "site", DOCS)
    return NightResults(
        archived,
        runs,
        explained,
        (DOCS / "index.html").resolve(),
        Counter(outcomes.get_column("outcome").to_list()),
        Counter(outcomes.get_column("cause").drop_nulls().to_list()),
        scan(root, CORRECTIONS).select(pl.col("alert_id").n_unique()).collect().item(),
    )
