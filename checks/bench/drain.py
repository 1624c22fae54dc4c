"""Measures how fast a backlog is processed: ten rules over a million events, compared with a JVM aggregate.

    python -m checks.bench.drain [--mode real-time] [--events 1000000] [--turns 2] [--backlogs uniform half one]

The backlog is in Kafka before the contestants start, and each reads it from the beginning. The time is measured from
the first committed batch to the last, so it excludes the start; in real time from the first group of records to the
last alert, and it is compared with the job in micro-batches too. The job chooses its batch size itself; the control
uses about the size that the job chooses. It runs in turns with checks/bench/baseline.py: with uniform keys; with half
of all events on one key; and, in micro-batches, with all events on one key and one rule, whose window holds 20,000 of
them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from checks.bench.figures import emit, log_progress
from checks.bench.pipeline import (
    EVENTS_AN_ALERT,
    REAL_TIME,
    RULES,
    await_line,
    committed,
    contestant,
    events,
    message,
    prepare,
    shares,
)
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka
from nightjar.streaming.state.order_log import LoggedPositions

CONTROLS = {"stateful": "stateful JVM aggregate", "job": "the job in micro-batches"}
# By mode: the contestant that is measured, and its controls.
MODES = {"micro-batch": ("job", ["stateful"]), "real-time": (f"job{REAL_TIME}", ["job", "stateful"])}
# The highest time per event in real time, as a ratio to that in micro-batches.
_GOAL_IN_REAL_TIME = 1 / 0.9
# Less than the allowed lateness: a backlog that is sent in a minute has no late events.
_SPREAD_MS = 300_000
_HELD = 20_000


@dataclass(frozen=True)
class Backlog:
    """A backlog. hot: share of its events on one key. goal: highest time per event, as a ratio to the control."""

    name: str
    hot: float
    goal: float | None

    def rules(self, count: int) -> list[dict[str, object]]:
        """The rules to drain it with, for this number of events."""
        if self.hot < 1:
            return RULES
        window = f"{_SPREAD_MS * _HELD // count}ms"
        measures = {"spent": {"sum": "amount", "over": window}}
        return [{"id": "sum", "measures": measures, "when": "spent > 100000000"}]


BACKLOGS = {
    "uniform": Backlog("uniform keys", 0, 1 / 0.7),
    "half": Backlog("half on one key", 0.5, 1 / 0.6),
    "one": Backlog(f"one key, one rule, {_HELD:,} events held", 1, None),
}


def fill(settings: Settings, count: int, *, hot: float) -> None:
    """Send the backlog to the transactions topic in order of event time; all of it is within the windows."""
    began = int(time.time() * 1000) - _SPREAD_MS
    with producer(settings, linger_ms=50, batch_size=256 * 1024) as client:
        for number, event in enumerate(events(count, hot=hot, seed=7)):
            value = message(event, began + number * _SPREAD_MS // count)
            client.send("transactions", key=event[1].encode(), value=value)


def turn(name: str, settings: Settings, folder: Path, count: int, topic: str = "transactions") -> float:
    """Events per second of one contestant."""
    with Reader(settings, settings.alerts_topic) as alerts:
        wanted = sum(alerts.ends().values()) + count // EVENTS_AN_ALERT
        with contestant(name, settings, folder) as process:
            log = folder / f"{name}.log"
            await_line(process, log, "the query runs")
            if not name.endswith(REAL_TIME):
                return _rate_of_batches(process, log, folder, count, topic)
            logged = LoggedPositions(folder / "checkpoint" / "state")
            while not logged.after(1):
                refuse_ended(process, log)
                time.sleep(0.02)
            began = time.monotonic()
            while sum(alerts.ends().values()) < wanted:
                refuse_ended(process, log)
                time.sleep(0.02)
            return count / (time.monotonic() - began)


def _rate_of_batches(process: subprocess.Popen[bytes], log: Path, folder: Path, count: int, topic: str) -> float:
    began: tuple[float, int] | None = None
    while True:
        done = committed(folder, topic)
        if done and began is None:
            began = time.monotonic(), done
        if done >= count:
            break
        refuse_ended(process, log)
        time.sleep(0.05)
    assert began is not None
    return (count - began[1]) / (time.monotonic() - began[0])


def refuse_ended(process: subprocess.Popen[bytes], log: Path) -> None:
    """Raise an error if the contestant has exited."""
    if process.poll() is not None:
        raise SystemExit(f"{log} ends with: {log.read_text(errors='replace')[-2000:]}")


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="micro-batch")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--backlogs", nargs="+", choices=BACKLOGS)
    options = parser.parse_args()
    # the one rule of "one" has no alerts, which end a turn in real time
    possible = [name for name in BACKLOGS if options.mode != "real-time" or name != "one"]
    if lacking := set(options.backlogs or ()) - set(possible):
        parser.error(f"{', '.join(lacking)}: not in real time")
    met = [
        measured(BACKLOGS[name], options.events, options.turns, options.mode) for name in options.backlogs or possible
    ]
    if not all(met):
        raise SystemExit("a goal is missed")


def measured(backlog: Backlog, count: int, turns: int, mode: str) -> bool:
    """Print the figures of a backlog; return whether its goals are met."""
    subject, controls = MODES[mode]
    found: dict[str, list[float]] = {name: [] for name in [*controls, subject]}
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
        folder = Path(scratch)
        with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
            settings = broker.settings
            prepare(settings, publishing=True, rules=backlog.rules(count))
            log_progress(f"{backlog.name}: sending {count:,} events")
            fill(settings, count, hot=backlog.hot)
            for number in range(turns):
                for name, rates in found.items():
                    log_progress(f"{backlog.name}, turn {number + 1} of {turns}: {name}")
                    rates.append(turn(name, settings, folder / f"{name}-{number}", count))
            seconds = {name: [1_000_000 / rate for rate in rates] for name, rates in found.items()}
            title = f"drain of {count:,}, {backlog.name}{', in real time' if mode == 'real-time' else ''}"
            met = True
            for control in controls:
                goal = _GOAL_IN_REAL_TIME if control == "job" else backlog.goal
                met &= emit(title, "us/event", seconds[subject], CONTROLS[control], seconds[control], goal=goal)
            shown = {f"{name} events/s": [round(rate) for rate in rates] for name, rates in found.items()}
            parts = {"name": f"parts of the work, {backlog.name}", **shown, **shares(settings, mode)}
            print(json.dumps(parts), flush=True)
    return met


if __name__ == "__main__":
    main()
