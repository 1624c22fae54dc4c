"""Measures the time from the job's start to its first alert, compared with a query with a Python stage.

    python -m checks.bench.start [--rows 1000000] [--turns 2]

In turns: both without a checkpoint, then both on their own checkpoints, the job with a state of this many rows. Events
are waiting; the time is measured from the start of the process to the receipt of the first record. Then events arrive
at 1,000/s, and the slowest batch since "the query runs" is compared with the control's slowest one, and with a steady
one. The broker has Java's first compiler only: with the second one a broker that has just started takes a quarter of
the machine for the seconds that are measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks.bench.baseline import SLOWEST
from checks.bench.drain import fill, refuse_ended
from checks.bench.figures import emit, log_progress
from checks.bench.latency import traffic
from checks.bench.pipeline import Alerts, committed, contestant, events, message, prepare, reports
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import producer
from nightjar.local.kafka import LocalKafka

CONTROL = "plain query with a Python stage"
_WAITING = 2000
_STEADY_SECONDS = 40.0


def wait_there(settings: Settings, seed: int) -> None:
    """Send some events to the transactions topic, a hundred of which cause alerts."""
    with producer(settings) as client:
        now = time.time()
        for event in events(_WAITING, hot=0, seed=seed):
            client.send(
                "transactions",
                key=event[1].encode(),
                value=message(event, int(now * 1000)),
                headers=[("sent_at", b"%d" % int(now * 1_000_000))],
            )


def first_output(name: str, settings: Settings, folder: Path, seed: int, *, steady: bool = False) -> float:
    """Seconds from the start of a contestant to its first record; steady: then it gets traffic for a while."""
    wait_there(settings, seed)
    alerts = Alerts(settings)
    began = time.monotonic()
    with contestant(name, settings, folder) as process:
        while not alerts.receive(0.05):
            refuse_ended(process, folder / f"{name}.log")
        took = time.monotonic() - began
        if steady:
            sender = threading.Thread(target=traffic, args=(settings, 1000, _STEADY_SECONDS, seed + 1000))
            sender.start()
            sender.join()
    alerts.close()
    log_progress(f"  {name}: {took:.1f} s")
    return took


def batches(settings: Settings) -> Iterator[dict[str, float]]:
    """The job's reports until now about its micro-batches, one per second, oldest first."""
    yield from (each for each in reports(settings) if each["kind"] == "job" and each["batches"])


def slowest_of_control(log: Path) -> float:
    """Duration of its slowest batch (ms), which it prints when it ends."""
    return float(log.read_text().rpartition(SLOWEST)[2].split()[0])


def slowest_and_steady(settings: Settings) -> tuple[float, float]:
    """Duration of the slowest batch, and the median in the last quarter (ms)."""
    found = list(batches(settings))
    steady = [each["parts_ms"]["whole"] for each in found[-len(found) // 4 :]]
    return max(each["slowest_ms"] for each in found), statistics.median(steady)


@contextmanager
def broker(folder: Path) -> Iterator[Settings]:
    """Start a new broker with the topics and the rules."""
    with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0), short_lived=True) as kafka:
        prepare(kafka.settings, publishing=True)
        yield kafka.settings


def drained(settings: Settings, folder: Path, rows: int) -> None:
    """Make both contestants process this many events."""
    log_progress(f"sending {rows:,} events")
    fill(settings, rows, hot=0)
    for name in ("python", "job"):
        with contestant(name, settings, folder / name) as process:
            while committed(folder / name, "transactions") < rows:
                refuse_ended(process, folder / name / f"{name}.log")
                time.sleep(0.2)


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the state that the job starts on")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    cold: dict[str, list[float]] = {"python": [], "job": []}
    warm: dict[str, list[float]] = {"python": [], "job": []}
    slowest, steady, slowest_control = [], [], []
    for number in range(options.turns):
        for name, found in cold.items():
            log_progress(f"turn {number + 1} of {options.turns}, cold")
            with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch, broker(Path(scratch)) as settings:
                folder = Path(scratch) / name
                found.append(first_output(name, settings, folder, number, steady=True))
                if name == "python":
                    slowest_control.append(slowest_of_control(folder / f"{name}.log"))
                else:
                    most, usual = slowest_and_steady(settings)
                    slowest.append(most)
                    steady.append(usual)
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch, broker(Path(scratch)) as settings:
        drained(settings, Path(scratch), options.rows)
        for number in range(options.turns):
            for name, found in warm.items():
                log_progress(f"turn {number + 1} of {options.turns}, on a checkpoint of {options.rows:,} rows")
                found.append(first_output(name, settings, Path(scratch) / name, 100 + number))
    goals = [
        emit("first alert, cold", "s", cold["job"], CONTROL, cold["python"], goal=2.0),
        emit(f"first alert, {options.rows:,} rows", "s", warm["job"], CONTROL, warm["python"], goal=2.0),
        emit("slowest batch after the start", "ms", slowest, f"slowest of the {CONTROL}", slowest_control, goal=1.0),
        emit("slowest batch to a steady one", "ms", slowest, "steady batch at 1,000/s", steady, goal=3.0),
    ]
    if not all(goals):
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
