"""The job and the night on a cluster: they make the same of cases, and a machine that is lost changes nothing.

`make cluster-test` runs all of it; `make test` leaves out what takes longest.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nightjar.configuration.job import job_config
from nightjar.configuration.settings import load_settings
from nightjar.operations.job_watch import await_consumed
from nightjar.rules.streams import load_streams
from nightjar.streaming.config import JobError
from nightjar.streaming.driver.session import open_session
from tests.support.long import long
from tests.support.object_store import ObjectStore
from tests.support.places import MINUTE, RULES, SECONDS, Place, final, history, place_of, truth, until
from tests.support.spark_cluster import SparkCluster
from tests.support.topics import CLUSTER, TestTopics
from tools.dist import build

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
PROJECT = Path(__file__).parents[2]


@long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("in_store", [False, True])
def test_every_case_comes_out_as_on_one_machine(
    cluster: SparkCluster, request: pytest.FixtureRequest, *, in_store: bool
) -> None:
    """The tests of all case files, on the job and on the backfill, in a session of the cluster's; in_store: with the
    checkpoints and the lakes in an object store."""
    settings = cluster.settings
    if in_store:
        store: ObjectStore = request.getfixturevalue("store")
        settings |= store.settings("cases")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "spark", "tests/test_cases.py"]
    environment = os.environ | cluster.own_environment | {CLUSTER: json.dumps(settings)}
    ran = subprocess.run(
        [sys.executable, *command], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert " passed" in ran.stdout


@long
def test_a_machine_lost_in_mid_stream_loses_nothing(
    cluster: SparkCluster, kafka_topics: TestTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with its executor, then the executor that has all buckets since; the alerts are the truth, and all is
    counted."""
    for name, value in cluster.own_environment.items():
        monkeypatch.setenv(name, value)
    place = place_of(kafka_topics, tmp_path)
    topic = place.topics.streams["transactions"].topic
    events, repeated = history(3000)
    place.publish(*RULES, at=-MINUTE)
    conf = {name: json.dumps(of) if isinstance(of, dict) else of for name, of in cluster.settings.items()}

    def until_read(share: float) -> None:
        goal = share * len(events)
        until(job, lambda: sum(place.committed.get(topic, {}).values()) >= goal, f"{share} of the stream")

    with place.job(max_offsets_per_trigger=200, **conf) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(events)
        until_read(0.2)
        cluster.kill_worker(0)
        assert not place.consumed()
        cluster.start_worker(0)
        until_read(0.5)
        for executor in cluster.executors(1):
            os.kill(executor, signal.SIGKILL)
        assert not place.consumed()
        state = await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
        counts = state.counts("transactions")
        assert job.stop() == 0
    assert (counts["events"], counts["late"], counts["duplicates"]) == (len(events), 0, repeated)
    assert final(place) == truth(place, events)


@long
def test_executors_need_no_copy_of_the_code_and_no_shared_folder(
    cluster: SparkCluster, store: ObjectStore, kafka_topics: TestTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given the archive of `make dist` and the jars, and find the state in an object store; one is lost."""
    for name, value in cluster.own_environment.items():
        monkeypatch.setenv(name, value)
    place = place_of(kafka_topics, tmp_path)
    place = Place(
        replace(place.topics, settings=place.topics.settings.model_copy(update=store.settings(tmp_path.name))), tmp_path
    )
    topic = place.topics.streams["transactions"].topic
    events, _ = history(2000)
    place.publish(*RULES, at=-MINUTE)
    given = cluster.settings | store.settings(tmp_path.name) | {"code_archive": build(tmp_path)}
    conf = {name: json.dumps(of) if isinstance(of, dict) else of for name, of in given.items()}
    with place.job(max_offsets_per_trigger=200, **conf) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(events)
        until(job, lambda: sum(place.committed.get(topic, {}).values()) > len(events) / 3, "a third of the stream")
        cluster.kill_worker(0)
        assert not place.consumed()
        cluster.start_worker(0)
        await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
        assert job.stop() == 0
    assert final(place) == truth(place, events)
    unpacked = list((cluster.folder / "work-1").glob("*/*/nightjar-code/streaming/buckets/python_daemon.py"))
    assert unpacked
    assert list(unpacked[0].parents[1].rglob("__pycache__/*.nbi")), "the executor runs another copy of the code"


def test_a_cluster_without_a_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody has decided so."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = load_settings(spark_master="spark://127.0.0.1:1", data_dir=tmp_path)
    with pytest.raises(JobError, match="the cluster has no secret"):
        open_session(job_config(settings, load_streams()))
    decided = settings.model_copy(update={"spark_conf": {"spark.authenticate": "false"}})
    with pytest.raises(JobError, match="no Spark master responds"):
        open_session(job_config(decided, load_streams()))


@pytest.mark.parametrize(
    ("master", "message"),
    [("spark://127.0.0.1:1", "no Spark master responds"), ("spark://nowhere", "no Spark master responds")],
)
def test_a_master_that_is_not_there_is_named_at_once(master: str, message: str, tmp_path: Path) -> None:
    """Before a JVM is started."""
    decided = {"spark.authenticate": "false"}
    config = job_config(load_settings(spark_master=master, data_dir=tmp_path, spark_conf=decided), load_streams())
    with pytest.raises(JobError, match=f"{master}: {message}"):
        open_session(config)


@long
def test_a_cluster_that_gives_no_executor_is_no_wait_for_ever(cluster: SparkCluster, tmp_path: Path) -> None:
    """More memory is asked for than any worker has."""
    given = json.loads(json.dumps(cluster.settings))
    given["spark_conf"]["spark.executor.memory"] = "64g"
    script = (
        "import sys; from nightjar.streaming.driver import session; session._EXECUTOR_SECONDS = 2.0\n"
        "from nightjar.lake.session import open_session; from nightjar.configuration.lake import lake_config\n"
        "from nightjar.configuration.settings import load_settings; from nightjar.rules.streams import load_streams\n"
        "open_session(lake_config(load_settings(), load_streams()))"
    )
    environment = {
        f"NIGHTJAR_{name.upper()}": of if isinstance(of, str) else json.dumps(of) for name, of in given.items()
    }
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | cluster.own_environment | environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "LakeError" in ran.stderr
    assert "the cluster has provided no executor" in ran.stderr
