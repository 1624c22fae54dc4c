"""Measures the duration of the job's micro-batches with a thousand rules, compared with ten.

    python -m bench.many_rules_job [--count 1000] [--rate 1000] [--seconds 60] [--turns 2]

Events arrive at a constant rate; the two run in turns. The rules are those of bench/many_rules.py that share windows
and conditions, half of them by customer and half by terminal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from bench.figures import emit, log_progress
from bench.latency import traffic
from bench.many_rules import mappings
from bench.pipeline import await_line, contestant, prepare
from bench.start import batches
from nightjar.configuration.settings import load_settings
from nightjar.local.kafka import LocalKafka

FEW = 10


def steady(count: int, options: argparse.Namespace, seed: int) -> float:
    """Median duration of the micro-batches in the last quarter (ms), with this many rules."""
    rules = mappings(count, shared=True)
    for rule in rules[::2]:
        rule["group_by"] = ["terminal_id"]
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
        folder = Path(scratch)
        with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
            prepare(broker.settings, publishing=True, rules=rules)
            began = time.monotonic()
            with contestant("job", broker.settings, folder / "job") as process:
                await_line(process, folder / "job" / "job.log", "the query runs")
                took = time.monotonic() - began
                traffic(broker.settings, options.rate, options.seconds, seed)
            durations = [each["parts_ms"]["whole"] for each in batches(broker.settings)]
    found = statistics.median(durations[-len(durations) // 4 :])
    log_progress(f"{count} rules: {found:.0f} ms a batch; the query ran after {took:.1f} s")
    print(json.dumps({"name": f"start with {count} rules", "value": round(took, 1), "unit": "s"}), flush=True)
    return found


def main() -> None:
    """Measure in turns and print the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    parser.add_argument("--seconds", type=float, default=60, help="how long events are sent")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    found: dict[int, list[float]] = {FEW: [], options.count: []}
    for number in range(options.turns):
        for count, each in found.items():
            each.append(steady(count, options, number))
    name = f"micro-batch at {options.rate}/s, {options.count} rules"
    if not emit(name, "ms", found[options.count], f"{FEW} rules", found[FEW], goal=3.0):
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
