"""Measures the latency of live rules' alerts while a rule over 30 days is primed.

    python -m checks.bench.priming_latency [--history 400000] [--rate 500] [--turns 2]

The job has read a history of twenty days for the ten rules of checks/bench/pipeline.py, and evicted most of it. Events
then come at a constant rate, and after some time a rule over 30 days is published. Latency is the alert's receipt minus
the event's `sent_at`. The control is the time before the rule, in the same run. The slowest alerts around the moments
at which the rule is published, and so compiled, and at which its history is taken in, have lines of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from checks.bench.figures import emit, log_progress
from checks.bench.latency import traffic
from checks.bench.pipeline import Alerts, await_line, committed, contestant, events, message, prepare
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka

# Seconds: until latencies count, until the rule is published, and of traffic in all.
WARM, PUBLISHED, TRAFFIC = 30.0, 50.0, 150.0
# Seconds in which the buckets have compiled a rule that was published.
COMPILED = 3.0
SLOW = 800  # ms
DAYS = 20
WIDE = {
    "id": "wide",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n > 1000000",
    "measures": {"n": {"count": "*", "over": "30d"}, "spent": {"sum": "amount", "over": "30d"}},
}


def send_history(settings: Settings, count: int) -> None:
    """Events of twenty days, which arrive at their time, and end an hour ago."""
    end = int(time.time() * 1000) - 3_600_000
    step = DAYS * 86_400_000 / count
    with producer(settings, linger_ms=50, batch_size=1 << 18) as client:
        for number, event in enumerate(events(count, hot=0, seed=99)):
            at = end - int((count - number) * step)
            client.send("transactions", key=event[1].encode(), value=message(event, at), timestamp_ms=at)
        client.flush()


def publish_later(settings: Settings, began: float, moments: dict[str, float]) -> None:
    """Publish the wide rule when it is time, and note when, and when it is ACTIVE."""
    with Reader(settings, settings.rule_status_topic) as reader, producer(settings) as client:
        time.sleep(max(0.0, began + PUBLISHED - time.time()))
        client.send(settings.rules_topic, key=b"wide", value=json.dumps(WIDE).encode()).get(10)
        moments["published"] = time.time()
        while "active" not in moments and time.time() < began + TRAFFIC:
            for record in reader.poll(50):
                answer = json.loads(record.value)
                if (answer["status"], answer["rule_id"]) == ("ACTIVE", "wide") and "priming" in answer:
                    moments["active"] = time.time()


def turn(folder: Path, options: argparse.Namespace) -> tuple[list[float], list[float], float, float]:
    """Latencies (ms) before the rule and while it is primed; the longest as it is published, and taken in."""
    with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
        settings = broker.settings
        prepare(settings, publishing=True)
        send_history(settings, options.history)
        with contestant("job", settings, folder / "job") as process:
            await_line(process, folder / "job" / "job.log", "the query runs")
            while committed(folder / "job", "transactions") < options.history:
                time.sleep(0.5)
            alerts, began, moments = Alerts(settings), time.time(), dict[str, float]()
            others = [
                threading.Thread(target=traffic, args=(settings, options.rate, TRAFFIC, 1)),
                threading.Thread(target=publish_later, args=(settings, began, moments)),
            ]
            for other in others:
                other.start()
            received = [(at - latency / 1000, latency) for at, latency in alerts.receive(TRAFFIC + 5)]
            for other in others:
                other.join()
            alerts.close()
    if "active" not in moments:
        raise SystemExit("error: the rule was not primed in time")
    log_progress(f"primed in {moments['active'] - moments['published']:.1f} s")
    slow = [round(sent - moments["published"], 1) for sent, latency in received if latency > SLOW]
    log_progress(f"seconds from the publication at which alerts took more than {SLOW} ms: {sorted({*slow})}")

    def between(first: float, last: float) -> list[float]:
        return [latency for sent, latency in received if first <= sent < last]

    active = moments["active"]
    return (
        between(began + WARM, moments["published"]),
        between(moments["published"] + COMPILED, active - 1),
        max(between(moments["published"], moments["published"] + COMPILED)),
        max(between(active - 1, active + 10)),
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=400_000, help="events that are primed")
    parser.add_argument("--rate", type=int, default=500, help="live events per second")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    os.environ["NIGHTJAR_ARRIVAL"] = "producer"
    turns = []
    for _ in range(options.turns):
        with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
            turns.append(turn(Path(scratch), options))
    before, during, published, taken = ([*each] for each in zip(*turns, strict=True))
    met = True
    for percentile, goal in ((50, 1.25), (99, 1.5)):
        name = f"latency p{percentile} at {options.rate}/s while {options.history:,} events are primed"
        values, control = ([float(np.percentile(t, percentile)) for t in of] for of in (during, before))
        met &= emit(name, "ms", values, "the same before", control, goal=goal)
    after = [max(each) for each in before]
    emit("slowest alert as any rule is published", "ms", published, "slowest before", after, goal=None)
    emit("slowest alert as the history is taken in", "ms", taken, "slowest before", after, goal=None)
    if not met:
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
