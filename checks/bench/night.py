"""Measures a nightly backfill of 30,000 events: the whole DAG on the local Airflow, and the command line.

    python -m checks.bench.night [--repeats 3] [--ground FOLDER]

A real Kafka is filled with a day of payments and logins, with flaws and rules, that the real job has processed. Its
folder is kept as the "ground" (in FOLDER, to be reused). Each turn runs on a copy of it, so that each does all the
work: first a DAG with the same number of empty tasks, which is Airflow's own cost; then the nightly DAG; then, on
another copy, `nightjar backfill --day`, compared with a bare Spark session that counts one row.

For each task `own` is its time minus that of the empty task, and `fixed` is `own` minus the seconds of its stage in the
run's manifest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from checks.bench.figures import emit, log_progress, timed
from nightjar.airflow.local.airflow import LocalAirflow
from nightjar.airflow.local.client import RunResult
from nightjar.airflow.submission import PENDING
from nightjar.backfill.stages import STAGES
from nightjar.configuration.settings import Settings
from nightjar.contracts.run_manifest import RunState, read_manifest
from nightjar.demo.history import plan_history
from nightjar.demo.run import RULES
from nightjar.demo.sandbox import own_settings
from nightjar.generate import Options
from nightjar.jvm.jars import PROJECT
from nightjar.kafka import rule_topics, topics
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RUNS
from nightjar.local.job_process import JobProcess
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import await_consumed, await_running
from nightjar.replay import send_together
from nightjar.rules.model import load_rules, rule_to_mapping
from nightjar.rules.publishing import Answer
from nightjar.rules.streams import load_streams
from nightjar.terminal.stages import terminated_as_interrupt

DAY = datetime(2026, 1, 5, tzinfo=UTC)
# 20,000 payments and 10,000 logins.
SIMULATION = Options(events=20_000, days=1, customers=2_000, terminals=400, logins=0.5, fraud=0.015, start=DAY, seed=7)
SPEED = 2_300.0
TASKS = (STAGES[0], PENDING, *STAGES[1:])

NIGHT_SECONDS = 75.0
FIXED_SECONDS = 10.0
COMMAND_SECONDS = 30.0

NOTHING = f"""
from datetime import UTC, datetime
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, chain

def nothing():
    pass

with DAG("nothing", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False) as dag:
    chain(*(PythonOperator(task_id=name, python_callable=nothing) for name in {TASKS!r}))
"""

BARE = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert session.range(1).count() == 1
"""


def prepare(ground: Path) -> None:
    """Fill a broker with a day that the job has processed, and keep its folder."""
    streams = load_streams()
    history = plan_history(streams, SIMULATION)
    with own_settings() as given:
        with LocalKafka(given) as broker:
            settings = broker.settings
            topics.ensure(settings, streams.values())
            job = JobProcess(given.data_dir / "job.log", {"NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap})
            with job:
                await_running(settings, job)
                messages = [rule_to_mapping(rule) for rule in load_rules(RULES, streams)]
                with rule_topics.AnswerReader(settings) as answers:
                    rule_topics.send(settings, messages, history.begins - 3_600_000_000)
                    for status in answers.until_settled(messages, 120.0):
                        assert status.answer is not Answer.REJECTED, status.reasons
                log_progress(f"sending {history.records:,} records")
                parts = history.part(history.begins, history.ends)
                send_together(settings, streams, parts, speed=SPEED, begins=history.begins)
                await_consumed(settings, history.streams, job, 300.0)
        ground.mkdir(parents=True, exist_ok=True)
        shutil.copytree(given.kafka_dir, ground / "kafka")


@contextmanager
def played_on(ground: Path) -> Iterator[Settings]:
    """Start a broker on a copy of the ground, with settings for this process and those it starts."""
    with own_settings() as given:
        shutil.copytree(ground / "kafka", given.kafka_dir, dirs_exist_ok=True)
        for left in ("broker.json", "port"):
            (given.kafka_dir / left).unlink(missing_ok=True)
        with LocalKafka(given) as broker:
            yield broker.settings


def through_airflow(ground: Path) -> tuple[RunResult, RunResult, dict[str, float]]:
    """The empty run, the nightly run, and the seconds of its stages in the manifest."""
    with played_on(ground) as settings:
        dags = settings.data_dir / "dags"
        dags.mkdir()
        shutil.copy(PROJECT / "dags" / "nightly_backfill.py", dags)
        (dags / "nothing.py").write_text(NOTHING)
        environment = {
            "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap,
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        }
        with LocalAirflow(settings, environment=environment, folder=settings.data_dir, schedule=False) as airflow:
            nothing = airflow.run("nothing")
            night = airflow.run("nightly_backfill", {"day": DAY.date().isoformat()})
            for task in night.tasks:
                if task.state != "success":
                    log_progress("\n".join(airflow.client.log("nightly_backfill", night.run_id, task.name, task.tries)))
        assert (nothing.state, night.state) == ("success", "success"), night
        (row,) = scan(settings.lake, RUNS).collect().to_dicts()
        run = read_manifest(row)
        assert run is not None
        assert run.state is RunState.FINISHED
        log_progress(f"counts: {run.counts}")
        return nothing, night, dict(run.seconds)


def by_command(ground: Path) -> float:
    """Seconds of `nightjar backfill --day`."""
    with played_on(ground) as settings:
        command = [sys.executable, "-m", "nightjar", "backfill", "--day", DAY.date().isoformat(), "--json"]
        environment = {**os.environ, "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap}
        return timed(lambda: subprocess.run(command, env=environment, check=True, stdout=sys.stderr))


def bare() -> float:
    """Seconds of a Spark session that counts one row."""
    return timed(lambda: subprocess.run([sys.executable, "-c", BARE], check=True, stderr=subprocess.DEVNULL))


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--ground", type=Path)
    arguments.add_argument("--only", choices=("prepare", "airflow", "command"))
    options = arguments.parse_args()
    temporary = tempfile.TemporaryDirectory(prefix="nightjar-bench-") if options.ground is None else nullcontext()
    with terminated_as_interrupt(), temporary as folder:
        ground = options.ground or Path(folder)
        if not (ground / "kafka").is_dir():
            log_progress("filling a broker with a processed day")
            prepare(ground)
        met = options.only == "prepare" or measure(ground, options.repeats, options.only)
    raise SystemExit(0 if met else 1)


def measure(ground: Path, repeats: int, only: str | None) -> bool:
    """Print every figure; return whether all goals are met."""
    whole, idle, own, fixed, empty = [], [], defaultdict(list), defaultdict(list), defaultdict(list)
    command, control = [], []
    for turn in range(repeats):
        log_progress(f"turn {turn + 1} of {repeats}")
        if only != "command":
            nothing, night, noted = through_airflow(ground)
            whole.append(night.seconds)
            idle.append(nothing.seconds)
            nothings = {task.name: task.seconds for task in nothing.tasks}
            for task in night.tasks:
                if task.name in nothings:
                    empty[task.name].append(nothings[task.name])
                    own[task.name].append(task.seconds)
                    fixed[task.name].append(task.seconds - nothings[task.name] - noted.get(task.name, 0.0))
            log_progress(f"night {night.seconds:.1f} s, nothing {nothing.seconds:.1f} s, stages {noted}")
            log_progress(", ".join(f"{task.name} {task.seconds:.1f}" for task in night.tasks))
        if only != "airflow":
            control.append(bare())
            command.append(by_command(ground))
            log_progress(f"command {command[-1]:.1f} s, bare Spark {control[-1]:.1f} s")
    met = True
    if whole:
        name = "the nightly DAG over 30,000 events"
        met &= emit(name, "s", whole, "as many tasks that do nothing", idle, goal=None, at_most=NIGHT_SECONDS)
    for task in own:
        emit(f"task {task}", "s", own[task], "a task that does nothing", empty[task], goal=None)
        name = f"task {task}, beyond its work and Airflow's"
        met &= emit(name, "s", fixed[task], "a task that does nothing", empty[task], goal=None, at_most=FIXED_SECONDS)
    if command:
        name = "nightjar backfill --day over 30,000 events"
        met &= emit(name, "s", command, "a bare Spark session", control, goal=None, at_most=COMMAND_SECONDS)
    return met


if __name__ == "__main__":
    main()
