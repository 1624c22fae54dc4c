"""Measures how long a bucket needs to take in history, which holds up one of its batches.

    python -m checks.bench.priming [--events 1000000] [--turns 3]

A bucket has read events of four hours for a rule over ten minutes, and evicted most of them. It is then given these,
for a rule over four hours. The control is a restart of a bucket that has all of them in its state: what it would cost
to restart the query instead.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import pyarrow as pa
import pyarrow.compute as pc

from checks.bench.engine import HOUR, history
from checks.bench.figures import emit, log_progress, timed
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.rulebook import RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleVersion
from nightjar.streaming.buckets.bucket import Bucket
from nightjar.streaming.buckets.primed_state import ExportWriter, Lack, Taken, take_in
from nightjar.streaming.buckets.resident_buckets import Resident
from nightjar.streaming.state.state_files import BucketFiles
from nightjar.streaming.state.statelog import Head, StateLog

BATCH = 20_000
STREAMS = load_streams()
STREAM = STREAMS["transactions"]
SHUFFLE_KEY = ShuffleKey(STREAM.name, "customer_id")


def rule(over: str) -> Rule:
    """A rule that keeps the events of a window, and never alerts."""
    measures = {"n": {"count": "*", "over": over}, "spent": {"sum": "amount", "over": over}}
    written = {"id": f"over-{over}", "stream": STREAM.name, "group_by": ["customer_id"], "when": "n > 1000000000"}
    return parse_rule({**written, "measures": measures}, STREAMS)


def book(*rules: Rule) -> RuleBook:
    """These rules, in effect from the beginning."""
    found = RuleBook(STREAMS)
    for each in rules:
        found.add(RuleVersion(each, 1, 0), 0, running=[SHUFFLE_KEY])
    return found


def filled(files: BucketFiles, events: pa.Table) -> tuple[Bucket, Head]:
    """The bucket after all events, which then learns of the wide rule, and its head."""
    bucket, head, log = Bucket(STREAM, SHUFFLE_KEY, book(rule("10m"))), Head(), StateLog(files, STREAM.event_time)
    times = events.column(STREAM.event_time).cast(pa.int64())
    for at in range(0, events.num_rows, BATCH):
        part = events.slice(at, BATCH)
        engine = bucket.engine
        delta = engine.advance(part, times[min(at + BATCH, events.num_rows) - 1].as_py()).delta
        head = log.append(head, delta, engine.position)
        files.remove_before(head)
    bucket.book = book(rule("10m"), rule("4h"))
    bucket.engine.set_rules(bucket.book.ruleset, bucket.book.served_by(SHUFFLE_KEY))
    return bucket, head


def turn(events: pa.Table) -> tuple[float, float, int]:
    """Seconds to take the history in, seconds to restart with it, and how many events it has."""
    with tempfile.TemporaryDirectory() as folder:
        files = BucketFiles(Path(folder))
        bucket, head = filled(files, events)
        lack = Lack(head.settled - 4 * HOUR, head.horizon)
        writer = ExportWriter(files, STREAM, "bench", lack, first=-events.num_rows, ends={})
        evicted = pc.less(events.column(STREAM.event_time).cast(pa.int64()), head.horizon)
        writer.take(events.filter(evicted))
        count = writer.close()
        took: list[Taken] = []
        primed = timed(lambda: took.append(take_in(bucket, "bench", head, head.version + 1, files)))
        after, delta = took[0].head, took[0].delta
        engine = bucket.engine
        log = StateLog(files, STREAM.event_time)
        after = log.append(after, delta, engine.position)
        again = Resident(Bucket(STREAM, SHUFFLE_KEY, bucket.book))
        restarted = timed(lambda: again.read(after, files))
        assert again.bucket.engine.retained == engine.retained
        return primed, restarted, count


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    turn(history(10_000, hot=False, seed=0)[0])  # compiles
    turns = []
    for seed in range(options.turns):
        turns.append(turn(history(options.events, hot=False, seed=seed)[0]))
        log_progress(f"took in {turns[-1][2]:,} events in {turns[-1][0]:.2f} s, restarted in {turns[-1][1]:.2f} s")
    name = f"a bucket takes in {round(statistics.median(each[2] for each in turns), -3):,.0f} events of history"
    primed, restarted, _ = ([*values] for values in zip(*turns, strict=True))
    emit(name, "s", primed, "a restart of the bucket with all of them", restarted, goal=1.5)


if __name__ == "__main__":
    main()
