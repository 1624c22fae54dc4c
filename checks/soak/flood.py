"""Floods the job: the usual rate, a burst of 50 times as much, the usual rate, ten times as much, half on one key.

    python -m checks.soak.flood [--rate 400] [--times 50] [--burst 6] [--seconds 15] [--real-time]

The job runs alone with its defaults and ten rules; every 20th event alerts. Reported are the lag, the largest batches,
the time to catch up after the burst and the estimates of `nightjar status` meanwhile, losses, and the latency (receipt
of an alert minus its event's `sent_at`) in each part, for the hot key and the others. Exits with 1 if an event or an
alert is lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checks.bench.figures import log_progress
from checks.bench.pipeline import REAL_TIME, await_line, contestant, events, message, prepare
from nightjar.configuration.settings import Settings, load_settings
from nightjar.contracts.headers import sent_now
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka
from nightjar.operations.throughput import pace
from nightjar.terminal.stages import terminated_as_interrupt

_STREAM = "transactions"
_HOT = "c0"
# In a job that has just started, the JVM is still compiling during the first batches.
_SETTLE_SECONDS = 15
_PATIENCE = 120.0


@dataclass(frozen=True)
class Part:
    """A part of the traffic: events per second for some seconds."""

    name: str
    rate: int
    seconds: float
    hot: bool = False


class Watching:
    """Reads the job's reports and alerts in a background thread; a context manager."""

    def __init__(self, settings: Settings) -> None:
        self.reports: list[dict[str, Any]] = []
        self.counts: dict[int, int] = {}
        self.alerts: dict[str, tuple[float, float, str]] = {}  # by event: sent at (s), latency (ms), customer
        self._progress, self._alerts = settings.job_progress_topic, settings.alerts_topic
        self._reader = Reader(settings, self._progress, self._alerts)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.__exit__()

    def _follow(self) -> None:
        while not self._stop.is_set():
            for record in self._reader.poll(50):
                parsed = json.loads(record.value)
                if record.topic == self._alerts:
                    if record.sent_at is not None:
                        sent = record.sent_at / 1_000_000
                        latency = (record.received - record.sent_at) / 1000
                        self.alerts.setdefault(parsed["event_id"], (sent, latency, parsed["group"]["customer_id"]))
                elif parsed["kind"] == "job":
                    self.reports.append(parsed)
                elif parsed["stream"] == _STREAM and parsed["route"] == "customer_id":
                    self.counts[parsed["bucket"]] = parsed["counts"]["events"]


def send(settings: Settings, part: Part, seed: int) -> tuple[float, float, int]:
    """Send a part; return its start, its end and its number of events."""
    made = events(int(part.rate * part.seconds), hot=0.5 if part.hot else 0, seed=seed)
    began, sent = time.time(), 0
    with producer(settings, linger_ms=2, batch_size=64 * 1024) as client:
        while sent < int(part.rate * part.seconds):
            due = int(min(time.time() - began, part.seconds) * part.rate) - sent
            for event in itertools.islice(made, max(0, due)):
                now = time.time()
                client.send(
                    _STREAM,
                    key=event[1].encode(),
                    value=message(event, int(now * 1000)),
                    headers=sent_now(int(now * 1_000_000)),
                )
                sent += 1
            time.sleep(0.002)
    return began, time.time(), sent


def when_caught_up(reports: Sequence[dict[str, Any]], usual: tuple[float, float, int], since: float) -> float | None:
    """When the lag was no higher than before the burst; it is never zero while events arrive."""
    lags = [(report["at"] / 1_000_000, report["lag"][_STREAM]["events"]) for report in reports]
    most = max((lag for at, lag in lags if usual[0] <= at < usual[1]), default=0)
    return next((at for at, lag in lags if at > since and lag <= most), None)


def estimates(reports: Sequence[dict[str, Any]], since: float, until: float) -> Iterator[tuple[float, float]]:
    """(actual, estimated) seconds until caught up, at each of the driver's reports in between."""
    for number, report in enumerate(reports):
        at = report["at"] / 1_000_000
        if since <= at < until and report["lag"][_STREAM]["events"]:
            found = pace(reports[max(0, number - 59) : number + 1], _STREAM)
            if found is not None and found.caught_up_in is not None:
                yield until - at, found.caught_up_in


def latency(alerts: Sequence[tuple[float, float, str]]) -> dict[str, float]:
    """Percentiles in ms."""
    took = [milliseconds for _, milliseconds, _ in alerts]
    p50, p99 = np.percentile(took, [50, 99]) if took else (0.0, 0.0)
    return {"alerts": len(took), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def emit(name: str, **figures: Any) -> None:
    """One JSON line."""
    print(json.dumps({"name": name, **figures}), flush=True)


def play(settings: Settings, parts: Sequence[Part], log: Path) -> bool:
    """Send the parts and print the results; return whether nothing was lost."""
    spans: dict[str, tuple[float, float, int]] = {}
    with Watching(settings) as watching:
        for number, part in enumerate(parts):
            log_progress(f"{part.name}: {part.rate:,} events/s for {part.seconds:.0f} s")
            spans[part.name] = send(settings, part, number)
        sent = sum(count for _, _, count in spans.values())
        deadline = time.monotonic() + _PATIENCE
        while sum(watching.counts.values()) < sent and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1)
    reports, alerts = watching.reports, watching.alerts
    lag = [report["lag"][_STREAM] for report in reports]
    caught_up = when_caught_up(reports, spans["usual"], spans["burst"][1])
    emit(
        "flood",
        sent=sent,
        burst_per_second=round(spans["burst"][2] / (spans["burst"][1] - spans["burst"][0])),
        most_behind=max(found["events"] for found in lag),
        most_behind_seconds=max(found["seconds"] for found in lag),
        largest_batch=max(report.get("most_rows", 0) for report in reports),
        slowest_batch_ms=max(report["slowest_ms"] for report in reports),
    )
    if caught_up is not None:
        estimated = list(estimates(reports, spans["burst"][1], caught_up))
        middle = estimated[len(estimated) // 2] if estimated else (None, None)
        emit(
            "catching up",
            seconds=round(caught_up - spans["burst"][1], 1),
            seconds_left=None if middle[0] is None else round(middle[0], 1),
            estimate_then=middle[1],
            estimates=len(estimated),
        )
    for part in parts:
        began, ended, _ = spans[part.name]
        mine = [alert for alert in alerts.values() if began <= alert[0] <= ended]
        if part.hot:
            emit(f"latency, {part.name}, the hot key", **latency([alert for alert in mine if alert[2] == _HOT]))
            emit(f"latency, {part.name}, the others", **latency([alert for alert in mine if alert[2] != _HOT]))
        else:
            emit(f"latency, {part.name}", **latency(mine))
    expected = sum(-(-count // 20) for _, _, count in spans.values())
    lost = {"events": sent - sum(watching.counts.values()), "alerts": expected - len(alerts)}
    emit("lost", **lost)
    if any(lost.values()):
        log_progress(log.read_text(errors="replace")[-2000:])
    return not any(lost.values())


def main() -> None:
    """Run the flood and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--burst", type=float, default=6)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--real-time", action="store_true", help="the job in real time")
    options = parser.parse_args()
    parts = [
        Part("settling", options.rate, _SETTLE_SECONDS),
        Part("usual", options.rate, options.seconds),
        Part("burst", options.rate * options.times, options.burst),
        Part("usual again", options.rate, 2 * options.seconds),
        Part("tenfold", 10 * options.rate, options.seconds),
        Part("tenfold, half on one key", 10 * options.rate, options.seconds, hot=True),
    ]
    with terminated_as_interrupt(), tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
        folder = Path(scratch)
        with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
            prepare(broker.settings, publishing=True)
            name = f"job{REAL_TIME}" if options.real_time else "job"
            log = folder / name / f"{name}.log"
            with contestant(name, broker.settings, folder / name) as process:
                await_line(process, log, "the query runs")
                kept = play(broker.settings, parts, log)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
