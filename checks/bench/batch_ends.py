"""Measures how long alerts wait at the end of a real-time batch, compared with a query without an engine.

    python -m checks.bench.batch_ends [--turns 2] [--seconds 100] [--after 40] [--batch 5] [--rate 1000]

While Spark commits a batch and starts the next one, no task reads, and at first nobody does. The slowest of the alerts
whose events came within the length of a batch has waited for that, so its latency is the pause; of a turn the median
over its batches counts. Events and alerts are those of checks/bench/latency.py. The control has the same source, sink
and settings.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from checks.bench.figures import emit, log_progress
from checks.bench.latency import CONTROLS, traffic
from checks.bench.pipeline import REAL_TIME, Alerts, await_line, contestant, prepare
from nightjar.configuration.settings import load_settings
from nightjar.local.kafka import LocalKafka

SUBJECT, CONTROL = f"job{REAL_TIME}", f"stateless{REAL_TIME}"
# What a user of an alert within tens of milliseconds would like.
GOAL = 100.0


def latencies(name: str, rate: int, seconds: float, seed: int) -> list[tuple[float, float]]:
    """Of each alert of a contestant when its event was sent (seconds from the beginning), and its latency (ms)."""
    with (
        tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch,
        LocalKafka(load_settings(data_dir=Path(scratch) / "kafka", kafka_port=0)) as broker,
    ):
        folder = Path(scratch) / name
        prepare(broker.settings, publishing=name == SUBJECT)
        with contestant(name, broker.settings, folder) as process:
            await_line(process, folder / f"{name}.log", "the query runs")
            alerts = Alerts(broker.settings)
            sender = threading.Thread(target=traffic, args=(broker.settings, rate, seconds, seed))
            began = time.time()
            sender.start()
            received = alerts.receive(seconds + 5)
            sender.join()
            alerts.close()
    return [(at - latency / 1000 - began, latency) for at, latency in received]


def pauses(name: str, options: argparse.Namespace, seed: int) -> list[float]:
    """The slowest alert (ms) of each batch from the second `after` on."""
    slowest = defaultdict[int, float](float)
    for sent, latency in latencies(name, options.rate, options.seconds, seed):
        if sent > options.after:
            batch = int((sent - options.after) / options.batch)
            slowest[batch] = max(slowest[batch], latency)
    if not slowest:
        raise SystemExit(f"error: the {name} stopped emitting")
    return [*slowest.values()]


def main() -> None:
    """Measure in turns and print the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=100, help="how long events are sent")
    parser.add_argument("--after", type=float, default=40, help="from which second on batches count")
    parser.add_argument("--batch", type=float, default=5, help="how long a batch lasts, in seconds")
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    options = parser.parse_args()
    os.environ["NIGHTJAR_REAL_TIME_BATCH"] = f"{options.batch:g}s"  # of the contestants' processes
    found: dict[str, list[float]] = {SUBJECT: [], CONTROL: []}
    for turn in range(options.turns):
        for name, of_turns in found.items():
            of_turns.append(statistics.median(pauses(name, options, turn)))
            log_progress(f"turn {turn + 1} of {options.turns}, {name}: {of_turns[-1]:.0f} ms")
    figure = "slowest alert at the end of a real-time batch"
    if not emit(figure, "ms", found[SUBJECT], CONTROLS[CONTROL], found[CONTROL], goal=None, at_most=GOAL):
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
