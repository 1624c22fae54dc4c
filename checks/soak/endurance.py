"""Checks that a job under a steady load for hours loses nothing, explains every difference, and stays the size it is.

    python -m checks.soak.endurance [--minutes 120] [--share 0.8] [--rate R] [--window-minutes 10] [--seed 1]

Real broker, real job, real archive, real backfill. The capacity is measured first: a minute of payments is planned,
sent as fast as possible, processed and archived, one after the other, and its records divided by the seconds of all
that. Then payments come at a share of it (or at the given rate), with late, disordered, repeated and malformed records,
across a midnight. Every minute a rule is changed, every five minutes the archive runs, every ten minutes a Python
worker of the job is killed. At the end `nightjar backfill` runs both days.

Checks: every record is accounted for and in the lake once, every difference has a cause, the corrected alerts equal the
truth, which is computed independently and part by part (checks/soak/parts.py), and the job's memory does not grow
(where the windows are full before the second quarter). A sender or a job that fails, or falls behind, ends it at once.
Prints one JSON line per fact; exits with 0 if all checks pass, with 130 if interrupted. In the folder for temporary
files (TMPDIR) it needs about 300 bytes for each record, and for the nights as much again.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from checks.bench.figures import log_progress
from checks.bench.payments import DECLARED, STREAM, rules_of
from checks.bench.processes import Memory
from checks.soak.end_to_end import (
    conclude,
    consumed,
    fact,
    lake_checks,
    log_unexplained,
    manifests,
    night_checks,
    pass_nights,
    print_state,
    stage,
)
from checks.soak.kill_targets import Job, Nightly
from checks.soak.load import Load, publish
from checks.soak.parts import Parts
from checks.soak.traffic import MINUTE, Traffic
from nightjar.configuration.settings import Settings
from nightjar.demo.report import Check, checks
from nightjar.demo.sandbox import own_settings
from nightjar.demo.watching import Tally, Watch
from nightjar.kafka import rule_topics, topics
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import await_consumed, await_running
from nightjar.replay import send
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.terminal.stages import terminated_as_interrupt

_MIDNIGHT = microseconds(datetime(2026, 1, 6, tzinfo=UTC))
_LATENESS = DECLARED.replace('"12h"', '"1m"')
_DRAIN_SECONDS = 1200.0
# The minute of the measurement: its last duplicates of late events arrive before the first minute.
_PROBED = -5
# Until the alerts of the measurement of the capacity have been received.
_SETTLED_SECONDS = 10.0
_PROBE = 10_000  # payments a second, from which the capacity is measured
# What the memory of the last quarter may be of that of the second, when the windows are full.
_FLAT = 1.1
_MEGABYTE = 1 << 20
_BLOCK = 512  # bytes; Kafka's index files are larger than the blocks they have


def capacity_of(settings: Settings, traffic: Traffic, job: Job, nightly: Nightly) -> float:
    """Records a second that the machine can plan, send, process and archive, one after the other."""
    began, at = time.monotonic(), dict[str, float]()

    def done(what: str) -> None:
        at[what] = round(time.monotonic() - began, 1)

    records = traffic.minute(_PROBED, _PROBE)
    done("planned")
    send(settings, traffic.stream, [records], speed=math.inf, shifted=False)
    done("sent")
    await_consumed(settings, [STREAM], job.process, _DRAIN_SECONDS)
    done("processed")
    nightly.run("archive")
    done("archived")
    fact("capacity, seconds until all records were", records=records.num_rows, **at)
    capacity: float = records.num_rows / at["archived"]
    return capacity


def print_latencies(tally: Tally, before: dict[str, int]) -> None:
    """Print those of the load. before: the number of alerts until then."""
    for name, of_all in tally.latencies.items():
        each = np.array(of_all[before.get(name, 0) :]) / 1000
        if not each.size:
            continue
        p50, p99 = np.percentile(each, [50, 99])
        quarters = [round(float(np.median(part))) for part in np.array_split(each, 4) if part.size]
        fact(
            f"latency, ms: {name}",
            alerts=each.size,
            p50=round(p50),
            p99=round(p99),
            most=round(each.max()),
            p50_of_each_quarter=quarters,
        )


def memory_checks(quarters: dict[str, dict[str, Any]], minutes: int, window_minutes: int) -> list[Check]:
    """Checks that no part of the job grows once the windows are full: none where they are full too late."""
    if minutes < 4 * (window_minutes + 2):
        log_progress("the windows are not full in the second quarter: whether the memory is flat is not checked")
        return []
    medians = {part: each["median of each quarter"] for part, each in quarters.items()}
    return [
        Check(f"memory: MB of the {part} that it has grown by", max(0, round(last - _FLAT * second)), 0)
        for part, (_, second, _, last) in medians.items()
    ]


def print_sizes(data: Path, parts: Path) -> None:
    """Print what is on disk, and the most memory that this process had."""
    folders = {"kafka": data / "kafka", "lake": data / "lake", "checkpoint": data / "checkpoint", "parts": parts}
    sizes = {
        name: sum(file.stat().st_blocks * _BLOCK for file in folder.rglob("*") if file.is_file()) // _MEGABYTE
        for name, folder in folders.items()
    }
    fact("on disk, MB", **sizes)
    fact("memory of the soak itself, MB", most=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=120)
    parser.add_argument("--share", type=float, default=0.8, help="of the capacity")
    parser.add_argument("--rate", type=int, help="payments a second; without it a share of the capacity")
    parser.add_argument("--window-minutes", type=int, default=10, help="the widest window")
    parser.add_argument("--rules", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Send, run the backfill, and print the facts; exit with 1 if a check fails, with 130 if interrupted."""
    options = options_of()
    began = time.monotonic()
    try:
        with terminated_as_interrupt(), tempfile.TemporaryDirectory(prefix="nightjar-soak-") as folder:
            declared = Path(folder) / "streams.toml"
            declared.write_text(_LATENESS)
            memory = {"driver_memory": "2g", "kafka_heap": "512m"}
            with own_settings(streams=str(declared), buckets=4, **memory) as given:
                found = run(given, load_streams(declared), Path(folder) / "parts", options)
    except KeyboardInterrupt:
        fact("interrupted", after_minutes=round((time.monotonic() - began) / 60, 1))
        raise SystemExit(130) from None
    fact("whole run", minutes=round((time.monotonic() - began) / 60, 1))
    conclude(found)


def run(given: Settings, streams: dict[str, Stream], folder: Path, options: argparse.Namespace) -> list[Check]:
    """Run everything on its own broker; return the checks. folder: for the planned events."""
    stream, rng = streams[STREAM], np.random.default_rng(options.seed)
    rules = rules_of(options.rules, options.window_minutes * MINUTE)
    begins = _MIDNIGHT - options.minutes * MINUTE // 2
    with ExitStack() as running:
        broker = running.enter_context(LocalKafka(given))
        settings = broker.settings
        topics.ensure(settings, streams.values())
        parts = running.enter_context(Parts(folder, stream, {tuple(rule["group_by"]) for rule in rules}))
        traffic = Traffic(stream, parts, begins, options.window_minutes, options.seed)
        job, nightly = running.enter_context(Job(settings, broker, rng)), Nightly(settings, rng)
        with stage("starting the job"):
            await_running(settings, job.process)
        publish(settings, rules, begins + (_PROBED - 1) * MINUTE)
        watch = running.enter_context(Watch(settings, lambda _: None))
        with stage("measuring the capacity"):
            capacity = capacity_of(settings, traffic, job, nightly)
            time.sleep(_SETTLED_SECONDS)
        of_capacity = {name: len(each) for name, each in watch.tally.latencies.items()}
        rate = options.rate or int(options.share * capacity)
        fact("rate", payments_per_second=rate, capacity=round(capacity), share=round(rate / capacity, 2))
        load = Load(settings, traffic, job, nightly, watch, rules, options.minutes, rate)
        memory = Memory(lambda: job.process.pid)
        try:
            with memory, stage("steady load"):
                load.run()
            with stage("processing the rest"):
                state = await_consumed(settings, [STREAM], job.process, _DRAIN_SECONDS)
        finally:
            load.print_facts()
            fact("memory of the job, MB", **memory.quarters())
        job.process.stop()
        print_state(settings)
        tally = watch.finish()
        print_latencies(tally, of_capacity)
        with stage("the nights"):
            code = pass_nights(settings, begins + _PROBED * MINUTE, traffic.ends)
        if code:
            log_unexplained(settings)
        manifests(settings)
        with stage("reading the corrected alerts"):
            corrected = consumed(settings)
        with stage("the truth"):
            ruleset = rule_topics.rule_book(settings, streams).ruleset
            finals = tally.final_alerts(STREAM), corrected.final_alerts(STREAM)
            before, after = parts.compared(ruleset, *finals)
        counts = {name: sum(getattr(tally, name).values()) for name in ("announced", "revisions", "retractions")}
        fact("alerts", violations=before.violations, **counts, equal=before.equal)
        with stage("checking the lake"):
            of_lake = lake_checks(settings, stream, traffic.records, tally)
        print_sizes(settings.data_dir, folder)
        return [
            *load.checks(),
            *memory_checks(memory.quarters(), options.minutes, options.window_minutes),
            *checks({STREAM: traffic}, tally, state, {STREAM: before}),
            *of_lake,
            *night_checks(settings, code, tally, before, after),
        ]


if __name__ == "__main__":
    main()
