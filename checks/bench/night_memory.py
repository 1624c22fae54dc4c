"""Measures a backfill's memory as the day grows: Spark's driver in Python, and its JVM.

    python -m checks.bench.night_memory [EVENTS ...]

EVENTS (1,000,000 and 10,000,000) are payments of one day; two rules alert on about every hundredth. For each, a
separate process with a JVM of 1 GiB runs the stages from the evaluation to the result tables; nothing is published to
Kafka.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks.bench.figures import emit, log_progress
from checks.bench.lakes import DAY, STREAM, fill_day, publish_rules
from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.run import STAGES, Run
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.jvm.jars import jars
from nightjar.lake.config import LakeConfig
from nightjar.lake.session import open_session

GOAL = 2.0
RULES = [
    {
        "id": "busy",
        "stream": STREAM.name,
        "group_by": ["customer_id"],
        "when": "n >= 5 AND spent > 1000",
        "measures": {"n": {"count": "*", "over": "1h"}, "spent": {"sum": "amount", "over": "1h"}},
    },
    {
        "id": "twice",
        "stream": STREAM.name,
        "group_by": ["customer_id"],
        "when": "n >= 4",
        "measures": {"n": {"count": "*", "over": "20m", "per": ["terminal_id"]}},
    },
]


def config_of(root: Path) -> LakeConfig:
    """The configuration of the benchmark's own lake."""
    return LakeConfig(root, {STREAM.name: STREAM}, spark=SparkConfig("local[2]", "1g", tuple(jars("spark"))))


def night(root: Path) -> None:
    """Run the stages; print their durations and the driver's peak memory (MiB)."""
    config = BackfillConfig(config_of(root), arrival="producer")
    session = open_session(config.lake)
    run, began = Run(session, config, RunRequest("night", DAY, publish=False)), time.perf_counter()
    for stage in STAGES:
        if stage != "archive":
            run.do(stage)
    jvm = session.sparkContext._gateway.proc.pid  # noqa: SLF001  PySpark has no other way to it
    status = dict(line.split(":", 1) for line in Path(f"/proc/{jvm}/status").read_text().splitlines())
    figures = {
        "seconds": time.perf_counter() - began,
        "python": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "jvm": int(status["VmHWM"].split()[0]) / 1024,
        "violations": run.counts["violations"],
    }
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Measure, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("events", type=int, nargs="*", default=[1_000_000, 10_000_000])
    arguments.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child:
        night(options.child)
        return
    found = []
    for events in options.events:
        with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as folder:
            log_progress(f"a day of {events:,} events")
            fill_day(config_of(Path(folder)), events)
            publish_rules(config_of(Path(folder)), RULES)
            command = [sys.executable, "-m", "checks.bench.night_memory", "--child", folder]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        log_progress(json.dumps(found[-1]))
    met, (few, many) = True, (f"{events:,} events" for events in (options.events[0], options.events[-1]))
    for what, goal in (("python", GOAL), ("jvm", GOAL), ("seconds", None), ("violations", None)):
        name = {"python": "the driver's memory", "jvm": "its JVM's memory", "seconds": "a night"}.get(what, what)
        unit = {"seconds": "s", "violations": ""}.get(what, "MiB")
        met &= emit(f"{name}, {many}", unit, [found[-1][what]], few, [found[0][what]], goal=goal)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
