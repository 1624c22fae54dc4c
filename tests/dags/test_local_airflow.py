"""The Airflow of this machine, started for real."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nightjar.airflow.local.airflow import HOST, USER, LocalAirflow, LocalAirflowError
from nightjar.airflow.local.client import AirflowApiError, AirflowClient
from nightjar.airflow.submission import LAKE_POOL
from nightjar.configuration.settings import load_settings

# A start takes 25 s alone, and several times that while others compile.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DAG = "nightly_backfill"
SECRET = "a-secret-of-kafka"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """One, without a schedule."""
    folder, users = tmp_path_factory.mktemp("nightjar"), {"vera": "viewer", "uli": "user"}
    settings = load_settings(data_dir=folder, airflow_port=0, spark_master="local[2]", airflow_users=users)
    kafka = {"NIGHTJAR_KAFKA": json.dumps({"sasl.jaas.config": f'x username="u" password="{SECRET}";'})}
    with LocalAirflow(settings, schedule=False, environment=kafka) as airflow:
        yield airflow


def test_it_is_healthy_and_has_read_the_dag(running: LocalAirflow) -> None:
    """All four components, no import error, no warning; the lake's pool is there."""
    client = running.client
    assert client.unwell() == []
    running.await_dag(DAG, 60)
    assert client.import_errors() == {}
    assert client.warnings(DAG) == []
    client.ensure_pool(LAKE_POOL, 1, "there is one already")


def test_what_the_form_does_not_allow_is_refused_before_it_runs(running: LocalAirflow) -> None:
    """Values of another kind, with the name of the parameter; others are refused by the first task."""
    running.await_dag(DAG, 60)
    with pytest.raises(AirflowApiError, match="rules"):
        running.client.trigger(DAG, {"rules": "a; reboot"})


def test_a_run_that_waits_too_long_is_reported_with_its_tasks(running: LocalAirflow) -> None:
    """A paused DAG's run stays queued."""
    running.await_dag(DAG, 60)
    client, seen = running.client, []
    run = client.trigger(DAG, {"day": "2026-01-05", "dry_run": True})
    with pytest.raises(AirflowApiError, match="archive"):
        client.wait(DAG, run, 0.0, seen.append)
    assert [found.state for found in seen] == ["queued"]


def test_its_secrets_are_the_owners_and_a_wrong_password_opens_nothing(running: LocalAirflow) -> None:
    """Files of mode 600, in a folder of mode 700."""
    passwords = json.loads(running.password_file.read_text())
    assert passwords.keys() == {USER, "vera", "uli"}
    assert passwords[USER] == running.new_password
    for name in ("passwords.json", "airflow.cfg"):
        assert stat.S_IMODE((running.home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(running.home.stat().st_mode) == 0o700
    with pytest.raises(AirflowApiError, match="401"):
        AirflowClient(HOST, running.port, USER, "guess").has_dag(DAG)


def test_who_looks_may_not_trigger_and_who_triggers_may_not_administer(running: LocalAirflow) -> None:
    """Nobody's role lets them change what a DAG does: the API has nothing for it."""
    running.await_dag(DAG, 60)
    viewer, user = running.client_of("vera"), running.client_of("uli")
    assert viewer.has_dag(DAG)
    for refused in (
        lambda: viewer.trigger(DAG, {"dry_run": True}),
        lambda: viewer.unpause(DAG),
        lambda: viewer.ensure_pool("another", 1, ""),
        lambda: user.ensure_pool("another", 1, ""),
    ):
        with pytest.raises(AirflowApiError, match="403"):
            refused()
    run = user.trigger(DAG, {"day": "2026-01-06", "dry_run": True})
    assert user.run(DAG, run).state == "queued"


def test_no_secret_is_in_a_command_line_or_in_what_airflow_shows(running: LocalAirflow) -> None:
    """Kafka's password is in the components' environment, and read where it is used: no DAG is made of it."""
    running.await_dag(DAG, 60)
    ours = [each for each in psutil.process_iter() if _environment(each).get("AIRFLOW_HOME") == str(running.home)]
    assert len([each for each in ours if SECRET in str(_environment(each))]) >= 4, "else this shows nothing"
    passwords = json.loads(running.password_file.read_text()).values()
    lines = " ".join(" ".join(process.cmdline()) for process in ours)
    assert not any(secret in lines for secret in (SECRET, *passwords))
    run = running.client.trigger(DAG, {"day": "2026-01-07"})
    paths = (f"dags/{DAG}/details", f"dags/{DAG}/tasks", f"dags/{DAG}/dagRuns/{run}/taskInstances", f"dagSources/{DAG}")
    shown = json.dumps([running.client._ask("GET", path) for path in paths])
    assert "stage_arguments" in shown
    assert SECRET not in shown


def test_a_second_one_on_the_folder_is_refused(running: LocalAirflow) -> None:
    """And leaves the first alone."""
    with pytest.raises(LocalAirflowError, match="already running"):
        LocalAirflow(load_settings(data_dir=running.home.parent, airflow_port=0)).start()
    running.check()


def test_a_stop_leaves_no_process_and_keeps_the_password(running: LocalAirflow, tmp_path: Path) -> None:
    """The last test: the fixture's own stop then finds nothing to do."""
    processes = psutil.Process().children(recursive=True)
    ours = [process for process in processes if _environment(process).get("AIRFLOW_HOME") == str(running.home)]
    assert len(ours) >= 4
    running.stop()
    assert [process for process in ours if process.is_running()] == []
    assert running.password_file.is_file()
    assert not (running.home / "airflow.json").exists()


def _environment(process: psutil.Process) -> dict[str, str]:
    """What it was started with; nothing where it has just ended."""
    try:
        return process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return {}
