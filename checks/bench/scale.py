"""Measures the job on several executors and the costs of its parts, and extrapolates to larger clusters.

    python -m checks.bench.scale [--executors 1 2 4] [--events 80000] [--turns 1] [--bytes-an-event 115]

Spark standalone clusters on this machine, with as many workers of one core as executors, process the same backlog in
batches of 10,000. A machine with fewer cores than executors shows the overhead of executors, not their speed-up. The
buckets' reports show whether they stay with their engines. Then the costs of the parts are measured separately
(scale_costs.py) and combined to a model of larger clusters (scale_model.py); its lines are marked "extrapolated".
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from checks.bench.drain import fill, refuse_ended
from checks.bench.figures import emit, log_progress
from checks.bench.pipeline import await_line, committed, contestant, prepare
from checks.bench.scale_costs import local_costs, scheduling_costs
from checks.bench.scale_model import Costs, as_json, most
from nightjar.configuration.job import job_config
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import consumer
from nightjar.local.kafka import LocalKafka
from nightjar.rules.streams import load_streams
from nightjar.streaming.driver.session import open_session
from nightjar.terminal.stages import terminated_as_interrupt
from tests.support.spark_cluster import SparkCluster

_A_BATCH = 10_000
# Two cores take 12 us an event to work off a backlog in large batches (docs/figures/drain.jsonl).
_CORE_US = 24.0
_CORES = 4  # of an executor, where clusters are extrapolated


@dataclass
class Drained:
    """A cluster's run over the backlog. rate: events/s; parts, buckets: ms by part, of batches and of buckets in them;
    moved: share of a bucket's reports that come from another engine than the one before; megabytes: of all Pythons."""

    rate: float
    megabytes: float
    parts: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, float] = field(default_factory=dict)
    moved: float = 0.0
    restored: int = 0

    def as_json(self, executors: int) -> dict[str, Any]:
        """For a JSON line."""
        return {
            "name": f"parts on {executors} executors",
            "events/s": round(self.rate),
            "batch ms": self.parts,
            "a bucket's ms": self.buckets,
            "moved": round(self.moved, 3),
            "entries read again": self.restored,
            "MB of all Pythons": round(self.megabytes),
        }


def environment_of(cluster: SparkCluster) -> dict[str, str]:
    """Environment that makes our programs use the cluster."""
    given = {name: of if isinstance(of, str) else json.dumps(of) for name, of in cluster.settings.items()}
    given |= {"max_offsets_per_trigger": str(_A_BATCH), "warm_up_batches": "3"}
    return cluster.own_environment | {f"NIGHTJAR_{name.upper()}": of for name, of in given.items()}


def drained(settings: Settings, folder: Path, executors: int, count: int) -> Drained:
    """Process the backlog on a new cluster."""
    with SparkCluster(folder / "cluster", workers=executors, memory="1g") as cluster:
        os.environ.update(environment_of(cluster))
        with contestant("job", settings, folder) as process:
            await_line(process, folder / "job.log", "the query runs")
            began: tuple[float, int] | None = None
            while (done := committed(folder, "transactions")) < count:
                if done and began is None:
                    began = time.monotonic(), done
                refuse_ended(process, folder / "job.log")
                time.sleep(0.05)
            assert began is not None
            rate = (count - began[1]) / (time.monotonic() - began[0])
            megabytes = sum(_unshared(pid) for worker in range(executors) for pid in cluster.executors(worker)) / 1e6
    return reported(settings, Drained(rate, megabytes))


def _unshared(pid: int) -> int:
    """Bytes that the children of an executor share with no other process."""
    return sum(int(child.memory_full_info().uss) for child in psutil.Process(pid).children(recursive=True))


def reported(settings: Settings, run: Drained) -> Drained:
    """Add the figures from the job's reports."""
    parts: dict[str, list[float]] = defaultdict(list)
    buckets: dict[str, list[float]] = defaultdict(list)
    engines: dict[int, list[str]] = defaultdict(list)
    with consumer(settings, settings.job_progress_topic, consumer_timeout_ms=3000) as client:
        for record in client:
            value = json.loads(record.value)
            if value["kind"] == "bucket":
                engines[value["bucket"]].append(value["engine"])
                run.restored += value["restored"]
            for name, spent in value["parts_ms"].items():
                (buckets if value["kind"] == "bucket" else parts)[name] += [spent] * value.get("batches", 1)
    run.parts = {name: round(statistics.mean(spent), 1) for name, spent in parts.items() if spent}
    run.buckets = {name: round(statistics.mean(spent), 2) for name, spent in buckets.items()}
    pairs = [pair for of in engines.values() for pair in itertools.pairwise(of)]
    run.moved = sum(one != other for one, other in pairs) / max(len(pairs), 1)
    return run


def clusters(sizes: list[int], count: int, turns: int) -> dict[int, list[Drained]]:
    """The runs of each size, in turns."""
    found: dict[int, list[Drained]] = {size: [] for size in sizes}
    for turn, size in itertools.product(range(turns), sizes):
        log_progress(f"turn {turn + 1} of {turns}: {size} executors of a core")
        with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
            folder = Path(scratch)
            given = load_settings(
                data_dir=folder / "kafka", kafka_port=0, partitions=max(sizes), shuffle_partitions=max(2, size)
            )
            with LocalKafka(given, short_lived=True) as broker:
                prepare(broker.settings, publishing=True)
                fill(broker.settings, count, hot=False)
                run = drained(broker.settings, folder / "job", size, count)
            found[size].append(run)
            print(json.dumps(run.as_json(size)), flush=True)
    return found


def main() -> None:
    """Measure, fit, extrapolate, and print the figures; exit with 1 if buckets move between executors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--events", type=int, default=80_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument(
        "--bytes-an-event", type=int, default=115, help="with two group-bys; see checks/bench/memory.py"
    )
    parser.add_argument(
        "--core-us-an-event", type=float, default=_CORE_US, help="of the whole job; see checks/bench/drain.py"
    )
    options = parser.parse_args()
    with terminated_as_interrupt():
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """All of it."""
    found = clusters(options.executors, options.events, options.turns)
    met, one = True, found[options.executors[0]]
    control = f"{options.executors[0]} executor, as many cores of this machine ({os.cpu_count()})"
    for size, runs in found.items():
        seconds, of_one = ([1 / run.rate for run in of] for of in (runs, one))
        emit(f"drain on {size} executors of a core", "s/event", seconds, control, of_one, goal=None)
        met &= all(run.moved <= 0.05 for run in runs)  # a bucket moves when executors come and go, never else
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
        local = local_costs(Path(scratch), [4, 16, 64], [500, 5_000, 20_000])
        with SparkCluster(Path(scratch) / "cluster", workers=1) as cluster:
            os.environ.update(environment_of(cluster) | {"NIGHTJAR_DATA_DIR": scratch})
            session = open_session(job_config(load_settings(), load_streams()))
            scheduling = scheduling_costs(session, [4, 16, 64, 128])
            session.stop()
    # where executors do not take the driver's processors
    driver = sum(one[-1].parts.get(name, 0.0) for name in ("offsets", "plan", "log", "commit")) / 1000
    costs = Costs(local, scheduling, driver, options.core_us_an_event / 1e6)
    print(json.dumps(as_json(costs)), flush=True)
    for executors, zipf in itertools.product((10, 100, 1000), (0.0, 0.8, 1.1)):
        print(json.dumps(most(costs, executors * _CORES, zipf) | {"executors": executors}), flush=True)
    for retained in (10_000_000, 100_000_000, 1_000_000_000):
        gigabytes = retained * options.bytes_an_event / 2**30
        line = {"bytes an event": options.bytes_an_event, "value": round(gigabytes, 1), "unit": "GiB"}
        print(json.dumps({"name": f"extrapolated: engines that retain {retained:,} rows", **line}), flush=True)
    if not met:
        raise SystemExit("buckets wander")


if __name__ == "__main__":
    main()
