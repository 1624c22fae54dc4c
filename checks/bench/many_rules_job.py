"""Measures the duration of the job's micro-batches and of a rule change with a thousand rules, compared with ten.

    python -m checks.bench.many_rules_job [--count 1000] [--rate 1000] [--seconds 60] [--turns 2]

Events arrive at a constant rate; the two run in turns. The rules are those of checks/bench/many_rules.py that share
windows and conditions, half of them by customer and half by terminal. Then, while events go on to arrive, one rule is
changed ten times, each time from the message's sending to the receipt of its answer ACTIVE.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

from checks.bench.figures import emit, log_progress
from checks.bench.latency import traffic
from checks.bench.many_rules import mappings
from checks.bench.pipeline import await_line, contestant, prepare
from checks.bench.start import batches
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka

FEW = 10
CHANGES = 10
LONGEST = 30.0  # seconds until a change is answered


def answered(settings: Settings, rule: dict[str, object]) -> float:
    """Median of the times until the job evaluates a new version of the rule (ms), which is changed some times."""
    found = []
    with Reader(settings, settings.rule_status_topic).to_end() as reader, producer(settings) as client:
        for number in range(CHANGES):
            time.sleep(1)
            changed = json.dumps(rule | {"when": f"n > {2_000_000 + number}"}).encode()
            began = time.monotonic()
            client.send(settings.rules_topic, key=str(rule["id"]).encode(), value=changed).get(10)
            statuses: set[str] = set()
            while "ACTIVE" not in statuses:
                answers = [json.loads(record.value) for record in reader.poll(20)]
                statuses |= {each["status"] for each in answers if each["rule_id"] == rule["id"]}
                if "REJECTED" in statuses or time.monotonic() > began + LONGEST:
                    raise SystemExit(f"error: a change was not accepted and active in {LONGEST} s: {answers}")
            found.append(1000 * (time.monotonic() - began))
    return statistics.median(found)


def turn(count: int, options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Median duration of the micro-batches in the last quarter, and of a rule change (ms), with this many rules."""
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
                sender = threading.Thread(
                    target=traffic, args=(broker.settings, options.rate, 2 * CHANGES, seed + options.turns), daemon=True
                )
                sender.start()
                change = answered(broker.settings, rules[0])
                sender.join()
    found = statistics.median(durations[-len(durations) // 4 :])
    log_progress(f"{count} rules: {found:.0f} ms a batch, {change:.0f} ms a change; the query ran after {took:.1f} s")
    print(json.dumps({"name": f"start with {count} rules", "value": round(took, 1), "unit": "s"}), flush=True)
    return found, change


def main() -> None:
    """Measure in turns and print the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    parser.add_argument("--seconds", type=float, default=60, help="how long events are sent")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    found: dict[int, list[tuple[float, float]]] = {FEW: [], options.count: []}
    for number in range(options.turns):
        for count, each in found.items():
            each.append(turn(count, options, number))
    met = True
    for at, name in enumerate(("micro-batch", "rule change")):
        few, many = ([each[at] for each in found[count]] for count in (FEW, options.count))
        met &= emit(f"{name} at {options.rate}/s, {options.count} rules", "ms", many, f"{FEW} rules", few, goal=3.0)
    if not met:
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
