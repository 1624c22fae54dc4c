"""The Airflow of this machine, started for real."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nightjar.airflow.submission import LAKE_POOL
from nightjar.configuration.settings import load_settings
from nightjar.local.airflow import HOST, USER, LocalAirflow, LocalAirflowError
from nightjar.local.airflow_client import AirflowApiError, AirflowClient

# A start takes 25 s alone, and several times that while others compile.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DAG = "nightly_backfill"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """One, without a schedule."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("nightjar"), airflow_port=0, spark_master="local[2]")
    with LocalAirflow(settings, schedule=False) as airflow:
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
    """With the name of the parameter."""
    running.await_dag(DAG, 60)
    with pytest.raises(AirflowApiError, match="rules"):
        running.client.trigger(DAG, {"rules": ["a; reboot"]})


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
    assert json.loads(running.password_file.read_text()) == {USER: running.new_password}
    for name in ("passwords.json", "airflow.cfg"):
        assert stat.S_IMODE((running.home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(running.home.stat().st_mode) == 0o700
    with pytest.raises(AirflowApiError, match="401"):
        AirflowClient(HOST, running.port, USER, "guess").has_dag(DAG)


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
