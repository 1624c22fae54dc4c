"""From Kafka through the job to Kafka: how long an alert takes at 1,000 events/s, against the JVM's own aggregate.

    python bench/latency.py [--seconds 60] [--turns 2] [--rate 1000]

Ten rules, every 20th event alerting; latency is receipt of the alert less the event's `sent_at`, both by this process's
clock, after a warm-up of half the time. In turns with bench/control.py: the same source, sink and settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from figures import emit, say
from pipeline import Alerts, await_line, contestant, events, message, prepare, shares

from nightjar.kafka_clients import producer
from nightjar.local_kafka import LocalKafka
from nightjar.settings import Settings, load_settings


def traffic(settings: Settings, rate: int, seconds: float, seed: int) -> None:
    """Send events at an even rate, each with the wall clock of its sending."""
    made = events(int(rate * seconds), hot=False, seed=seed)
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


def turn(name: str, settings: Settings, folder: Path, options: argparse.Namespace, seed: int) -> list[float]:
    """The latencies (ms) of one contestant's alerts in the second half of its time."""
    prepare(settings, publishing=name == "job")
    with contestant(name, settings, folder) as process:
        await_line(process, folder / f"{name}.log", "the query runs")
        alerts = Alerts(settings)
        sender = threading.Thread(target=traffic, args=(settings, options.rate, options.seconds, seed))
        sender.start()
        received = alerts.receive(options.seconds + 5)
        sender.join()
        alerts.close()
    half = received[0][0] + options.seconds / 2 if received else 0.0
    found = [latency for at, latency in received if at > half]
    if not found:
        raise SystemExit(f"error: the {name} fell silent half way, after {len(received)} alerts")
    return found


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rate", type=int, default=1000)
    options = parser.parse_args()
    found: dict[str, list[list[float]]] = {"job": [], "control": []}
    parts: dict[str, float] = {}
    for number in range(options.turns):
        for name in ("control", "job"):
            say(f"turn {number + 1} of {options.turns}: {name}")
            with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
                folder = Path(scratch)
                with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
                    found[name].append(turn(name, broker.settings, folder / name, options, number))
                    if name == "job":
                        parts = shares(broker.settings)
    for percentile in (50, 99):
        job, control = ([float(np.percentile(t, percentile)) for t in found[name]] for name in ("job", "control"))
        emit(f"latency p{percentile} at {options.rate}/s", "ms", job, "stateful JVM aggregate", control, goal=None)
    print(json.dumps({"name": "parts of a micro-batch", **parts}))


if __name__ == "__main__":
    main()
