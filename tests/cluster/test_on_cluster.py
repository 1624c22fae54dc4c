"""The job and the night on a cluster: they make the same of cases, and a machine that is lost changes nothing.

`ALL_ON_CLUSTER=1 pytest tests/cluster` runs all of it; without, what takes longest is left out.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.configuration.job import job_config
from nightjar.configuration.settings import load_settings
from nightjar.operations.job_watch import await_consumed
from rules.streams import load_streams
from streaming.config import JobError
from streaming.session import open_session
from tests.support.places import MINUTE, RULES, SECONDS, final, history, place_of, truth, until
from tests.support.spark_cluster import SparkCluster
from tests.support.topics import CLUSTER, TestTopics

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
PROJECT = Path(__file__).parents[2]
long = pytest.mark.skipif("ALL_ON_CLUSTER" not in os.environ, reason="minutes; ALL_ON_CLUSTER=1 runs it")


@long
def test_every_case_comes_out_as_on_one_machine(cluster: SparkCluster) -> None:
    """The tests of all case files, on the job and on the backfill, in a session of the cluster's."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "spark", "tests/test_cases.py"]
    environment = os.environ | cluster.own_environment | {CLUSTER: json.dumps(cluster.settings)}
    ran = subprocess.run(
        [sys.executable, *command], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert " passed" in ran.stdout


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


@pytest.mark.parametrize(
    ("master", "message"),
    [("spark://127.0.0.1:1", "no Spark master responds"), ("spark://nowhere", "no Spark master responds")],
)
def test_a_master_that_is_not_there_is_named_at_once(master: str, message: str, tmp_path: Path) -> None:
    """Before a JVM is started."""
    config = job_config(load_settings(spark_master=master, data_dir=tmp_path), load_streams())
    with pytest.raises(JobError, match=f"{master}: {message}"):
        open_session(config)


@long
def test_a_cluster_that_gives_no_executor_is_no_wait_for_ever(cluster: SparkCluster, tmp_path: Path) -> None:
    """More memory is asked for than any worker has."""
    given = json.loads(json.dumps(cluster.settings))
    given["spark_conf"]["spark.executor.memory"] = "64g"
    script = (
        "import sys; from streaming import session; session._EXECUTOR_SECONDS = 2.0\n"
        "from lake.session import open_session; from nightjar.configuration.lake import lake_config\n"
        "from nightjar.configuration.settings import load_settings; from rules.streams import load_streams\n"
        "open_session(lake_config(load_settings(), load_streams()))"
    )
    environment = {
        f"NIGHTJAR_{name.upper()}": of if isinstance(of, str) else json.dumps(of) for name, of in given.items()
    }
    ran = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | cluster.own_environment | environment, cwd=PROJECT,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "LakeError" in ran.stderr
    assert "the cluster has provided no executor" in ran.stderr
