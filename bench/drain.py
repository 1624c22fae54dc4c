"""How fast a backlog is worked off: ten rules over a million events, against the JVM's own aggregate.

    python bench/drain.py [--events 1000000] [--turns 2]

The backlog is in Kafka before the contestants start, and each reads it from the beginning; the time runs from the first
committed batch to the last, so that no start is measured. In turns with bench/control.py, once with uniform keys and
once with half of all events on one key.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from figures import emit, say
from pipeline import await_line, committed, contestant, events, message, prepare, shares

from nightjar.kafka_clients import producer
from nightjar.local_kafka import LocalKafka
from nightjar.settings import Settings, load_settings

# Less than the allowed lateness: a backlog that is sent in a minute has no late events.
_SPREAD_MS = 300_000
# A batch of this many, of which some twenty make a million: what is measured is many batches, not one.
_BATCH = 50_000


def fill(settings: Settings, count: int, *, hot: bool) -> None:
    """Put the backlog into the transactions topic, in the order of event time: all of it is within the windows."""
    began = int(time.time() * 1000) - _SPREAD_MS
    with producer(settings, linger_ms=50, batch_size=256 * 1024) as client:
        for number, event in enumerate(events(count, hot=hot, seed=7)):
            value = message(event, began + number * _SPREAD_MS // count)
            client.send("transactions", key=event[1].encode(), value=value)


def turn(name: str, settings: Settings, folder: Path, count: int) -> float:
    """Events per second of one contestant from its first committed batch to its last."""
    with contestant(name, settings, folder) as process:
        await_line(process, folder / f"{name}.log", "the query runs")
        began: tuple[float, int] | None = None
        while True:
            done = committed(folder, "transactions")
            if done and began is None:
                began = time.monotonic(), done
            if done >= count:
                break
            refuse_ended(process, folder / f"{name}.log")
            time.sleep(0.05)
    assert began is not None
    return (count - began[1]) / (time.monotonic() - began[0])


def refuse_ended(process: subprocess.Popen[bytes], log: Path) -> None:
    """An error where the contestant has ended."""
    if process.poll() is not None:
        raise SystemExit(f"{log} ends: {log.read_text(errors='replace')[-2000:]}")


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    for hot in (False, True):
        keys = "half on one key" if hot else "uniform keys"
        found: dict[str, list[float]] = {"job": [], "stateful": []}
        with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
            folder = Path(scratch)
            own = load_settings(data_dir=folder / "kafka", kafka_port=0, max_offsets_per_trigger=_BATCH)
            with LocalKafka(own) as broker:
                settings = broker.settings
                prepare(settings, publishing=True)
                say(f"{keys}: sending {options.events:,} events")
                fill(settings, options.events, hot=hot)
                for number in range(options.turns):
                    for name in ("stateful", "job"):
                        say(f"{keys}, turn {number + 1} of {options.turns}: {name}")
                        found[name].append(turn(name, settings, folder / f"{name}-{number}", options.events))
                seconds = {name: [1 / rate for rate in rates] for name, rates in found.items()}
                emit(
                    f"drain, {keys}",
                    "s/event",
                    seconds["job"],
                    "stateful JVM aggregate",
                    seconds["stateful"],
                    goal=None,
                )
                rates = {f"{name} events/s": [round(rate) for rate in found[name]] for name in found}
                print(json.dumps({"name": f"parts of a micro-batch, {keys}", **rates, **shares(settings)}), flush=True)


if __name__ == "__main__":
    main()
