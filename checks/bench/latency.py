"""Measures the latency of alerts from Kafka through the job to Kafka, compared with queries without Python.

    python -m checks.bench.latency [--mode real-time] [--rates 1000] [--turns 2] [--seconds 100] [--after 60]
    [--against stateful stateless]

Ten rules with two groupings; every 20th event alerts. Latency is the alert's receipt minus the event's `sent_at`, both
by this process's clock, from the second `after` on; the processor time of the job and its processes is that between
there and the last event. It runs in turns with checks/bench/baseline.py, which has the same
source, sink and settings. In real time it is compared with the job in micro-batches too, and with the stateless query
in real time: what Spark takes without an engine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from checks.bench.figures import emit, log_progress
from checks.bench.pipeline import REAL_TIME, Alerts, await_line, contestant, events, message, prepare, shares
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import producer
from nightjar.local.kafka import LocalKafka
from nightjar.processes.process import family

CONTROLS = {
    "stateful": "stateful JVM aggregate",
    "stateless": "stateless JVM query",
    "job": "the job in micro-batches",
    f"stateless{REAL_TIME}": "stateless JVM query in real time",
}
# By mode: the contestant that is measured, and its controls.
MODES = {
    "micro-batch": ("job", ["stateful", "stateless"]),
    "real-time": (f"job{REAL_TIME}", ["job", "stateless", f"stateless{REAL_TIME}"]),
}
# The rate that goals are about, where they name none.
_USUAL = 1000

# The highest acceptable ratio, by contestant and control, then by events per second and percentile.
GOALS = {
    ("job", "stateful"): {(100, 99): 1.4, (1000, 50): 1.2, (1000, 99): 1.3, (5000, 99): 1.4},
    (f"job{REAL_TIME}", "job"): {
        (100, 99): 0.25,
        (1000, 50): 0.12,
        (1000, 99): 0.2,
        (5000, 99): 0.25,
        (10000, 99): 0.25,
    },
    (f"job{REAL_TIME}", "stateless"): {(1000, 50): 0.3},
}


def traffic(settings: Settings, rate: int, seconds: float, seed: int) -> None:
    """Send events at a constant rate, each with the wall clock of its sending."""
    made = events(int(rate * seconds), hot=0, seed=seed)
    began = time.time()
    sent = 0
    with producer(settings, linger_ms=0) as client:
        while (passed := time.time() - began) < seconds:
            for event in itertools.islice(made, max(0, int(passed * rate) - sent)):
                now = time.time()
                client.send(
                    "transactions",
                    key=event[1].encode(),
                    value=message(event, int(now * 1000)),
                    headers=[("sent_at", b"%d" % int(now * 1_000_000))],
                )
                sent += 1
            time.sleep(0.002)


@dataclass
class Busy:
    """Measures the processor time of a program between two moments; a context manager, left after the second.

    between: seconds from now to the moments.
    """

    pid: int
    between: tuple[float, float]
    seconds: float = 0.0

    def __enter__(self) -> Busy:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        first, last = self.between
        time.sleep(first)
        before = self._spent()
        time.sleep(last - first)
        self.seconds = self._spent() - before

    def _spent(self) -> float:
        spent = 0.0
        for each in family(psutil.Process(self.pid)):
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                spent += times.user + times.system
        return spent


def turn(
    name: str, settings: Settings, folder: Path, rate: int, options: argparse.Namespace, seed: int
) -> tuple[list[float], float]:
    """The latencies (ms) of one contestant's alerts from the second `after` on, and its microseconds of a processor for
    each event."""
    prepare(settings, publishing=name.startswith("job"))
    with contestant(name, settings, folder) as process:
        await_line(process, folder / f"{name}.log", "the query runs")
        alerts = Alerts(settings)
        sender = threading.Thread(target=traffic, args=(settings, rate, options.seconds, seed))
        began = time.time()
        sender.start()
        with Busy(process.pid, (options.after, options.seconds)) as busy:
            received = alerts.receive(options.seconds + 5)
        sender.join()
        alerts.close()
    # Selected by when the event was sent, so that the backlog of a lagging contestant is excluded.
    found = [latency for at, latency in received if at - latency / 1000 > began + options.after]
    if not found:
        raise SystemExit(f"error: the {name} stopped emitting after {len(received)} alerts")
    return found, 1_000_000 * busy.seconds / (rate * (options.seconds - options.after))


def measured(rate: int, options: argparse.Namespace) -> bool:
    """Print the figures of one rate; return whether the goals are met."""
    subject, controls = MODES[options.mode]
    against = options.against or controls
    found: dict[str, list[list[float]]] = {name: [] for name in [*against, subject]}
    processor: dict[str, list[float]] = {name: [] for name in found}
    parts: dict[str, float] = {}
    for number in range(options.turns):
        for name, latencies in found.items():
            log_progress(f"{rate}/s, turn {number + 1} of {options.turns}: {name}")
            with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
                folder = Path(scratch)
                with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
                    alerts, spent = turn(name, broker.settings, folder / name, rate, options, number)
                    latencies.append(alerts)
                    processor[name].append(spent)
                    if name == subject:
                        parts = shares(broker.settings, options.mode)
            log_progress(
                f"  p50 {np.percentile(latencies[-1], 50):.0f} ms, p99 {np.percentile(latencies[-1], 99):.0f} ms"
            )
    met = True
    for percentile in (50, 99):
        values = {name: [float(np.percentile(t, percentile)) for t in turns] for name, turns in found.items()}
        for control in against:
            goal = GOALS.get((subject, control), {}).get((rate, percentile))
            name = f"latency p{percentile} at {rate}/s{' in real time' if subject != 'job' else ''}"
            met &= emit(name, "ms", values[subject], CONTROLS[control], values[control], goal=goal)
    for control in against if subject != "job" else ():
        goal = 1.0 if control == "job" and rate == _USUAL else None
        name = f"processor time at {rate}/s in real time"
        met &= emit(name, "us/event", processor[subject], CONTROLS[control], processor[control], goal=goal)
    print(json.dumps({"name": f"parts of the job's work at {rate}/s", **parts}), flush=True)
    return met


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=int, nargs="+", default=[1000], help="events per second")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=100, help="how long events are sent")
    parser.add_argument("--after", type=float, default=60, help="from which second on alerts count")
    parser.add_argument("--mode", choices=MODES, default="micro-batch")
    parser.add_argument("--against", nargs="+", choices=CONTROLS, help="the mode's controls, if not given")
    options = parser.parse_args()
    met = [measured(rate, options) for rate in options.rates]
    if not all(met):
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
