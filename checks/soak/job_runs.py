"""Checks that random runs on the real job, over several Kafka partitions, equal the truth after a backfill.

    python -m checks.soak.job_runs [--runs 300] [--at-once 100] [--seed 1] [--cluster]

Several of the runs that checks/soak/truth.py applies to the operator alone run together on one job, and are archived
and backfilled (see tests/support/runs_on_job.py). The same seed draws the same runs; the division into batches, and on
a cluster (`--cluster`: two workers of one core) the placement of buckets, is up to the job. Prints one JSON line per
round, preceded by one per error; exits with 1 if there was an error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from checks.bench.figures import log_progress
from nightjar.configuration.settings import load_settings
from nightjar.local.kafka import LocalKafka
from tests.support.object_store import S3Server
from tests.support.runs_on_job import RunsOnJob, drawn, with_topics_of_its_own
from tests.support.sessions import session_of
from tests.support.spark_cluster import SparkCluster


def main() -> None:
    """Run, and print; exit with 1 if anything is wrong."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=300)
    arguments.add_argument("--at-once", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--cluster", action="store_true")
    arguments.add_argument("--store", action="store_true", help="lake and checkpoints in an object store")
    arguments.add_argument("--real-time", action="store_true", help="each start in real time or in micro-batches")
    options = arguments.parse_args()
    latencies = ("real-time", "micro-batch") if options.real_time else ("micro-batch",)
    complaints = 0
    with tempfile.TemporaryDirectory(prefix="nightjar-runs-") as folder, ExitStack() as running:
        master: dict[str, Any] = {"spark_master": "local[2]"}
        if options.cluster:
            cluster = running.enter_context(SparkCluster(Path(folder) / "cluster"))
            os.environ.update(cluster.own_environment)
            master = cluster.settings
        if options.store:
            store = running.enter_context(S3Server(Path(folder) / "store"))
            master |= store.settings("runs")
        own = load_settings(data_dir=Path(folder) / "kafka", kafka_port=0, driver_memory="1g", **master)
        with LocalKafka(own, short_lived=True) as broker:
            session = session_of(broker.settings, "runs")
            for number, done in enumerate(range(0, options.runs, options.at_once)):
                began, mark = time.monotonic(), uuid.uuid4().hex[:8]
                several = drawn(options.seed * 1000 + number, min(options.at_once, options.runs - done))
                ours = with_topics_of_its_own(broker.settings, mark, Path(folder))
                judged = RunsOnJob(
                    session,
                    ours,
                    f"{mark}-things",
                    several,
                    options.seed * 1000 + number,
                    latencies=latencies,
                    log=log_progress,
                )
                for line in judged.complaints:
                    print(json.dumps({"complaint": line}), flush=True)
                complaints += len(judged.complaints)
                seconds = round(time.monotonic() - began, 1)
                print(
                    json.dumps({**judged.counts, "complaints": len(judged.complaints), "seconds": seconds}), flush=True
                )
            session.stop()
    raise SystemExit(1 if complaints else 0)


if __name__ == "__main__":
    main()
