"""Checks S9 on the whole system: replays real history through Kafka, the job, the lake and the backfill.

    python -m checks.soak.end_to_end EVENTS.parquet --days 7 [--late 0.01 --disorder 0.03 --duplicates 0.005
        --malformed 0.001 --seed S] [--rules 20] [--kills K] [--rule-changes R] [--window-hours H] [--rate 8000]
        [--batch 5000] [--uneven MINUTES] [--keep FOLDER]
    python -m checks.soak.end_to_end --generated 200000 ...

EVENTS is a Parquet file of card payments (see agree.py). They are replayed to a real Kafka with their original times
and every kind of flaw, optionally with some partitions behind the others. The job runs in its own process, is killed K
times with all its processes, and rules are changed R times meanwhile. Then `nightjar backfill` runs all days in one
session. Checks: every record is accounted for and in the lake once, every difference between stream and truth has a
cause, and a consumer's final alerts after the corrections equal the truth, which is computed independently. Prints one
JSON line per fact; exits with 0 if all checks pass.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from checks.bench.figures import log_progress
from checks.bench.payments import DECLARED, STREAM, change_of, of_file, rules_of, simulated
from checks.bench.processes import KilledJob, Memory, quarters
from checks.soak.kill_targets import killed_if_left
from nightjar.backfill.staging import OUTCOMES
from nightjar.configuration.settings import Settings
from nightjar.contracts.run_manifest import RunState, read_manifest
from nightjar.demo.history import DemoHistory, history_of, planned
from nightjar.demo.report import Check, checks
from nightjar.demo.sandbox import own_settings
from nightjar.demo.verdict import StreamVerdict, compare
from nightjar.demo.watching import Tally, Watch
from nightjar.kafka import rule_topics, topics
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, COORDINATES, CORRECTIONS, LATE_EVENTS, RECONCILIATION, RUNS, events_table
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import JobState, await_consumed, await_running
from nightjar.replay import ReplayOptions, send
from nightjar.replay.sending import partition_of
from nightjar.rules.publishing import Answer
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import from_microseconds, iso_text, microseconds
from nightjar.terminal.stages import terminated_as_interrupt

_DAY = 86_400_000_000
# Rules arrive this long before the first event, and a change this long before it takes effect.
_HOUR = 3_600_000_000
_ANSWER_SECONDS = 300.0
_DRAIN_SECONDS = 1200.0


def fact(name: str, **values: Any) -> None:
    """Print one."""
    print(json.dumps({"name": name, **values}), flush=True)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Log what is being done, and print how long it took."""
    log_progress(name)
    began = time.monotonic()
    yield
    fact("stage", stage=name, seconds=round(time.monotonic() - began, 1))


def events_of(options: argparse.Namespace) -> pa.Table:
    """The events selected by the options."""
    if options.events is None:
        return simulated(options.generated, options.days, options.seed)
    return of_file(options.events, options.days)


def play(
    settings: Settings, stream: Stream, history: DemoHistory, rules: list[dict[str, Any]], options: argparse.Namespace
) -> None:
    """Send the history, and at even distances in it change rules; a change holds an hour after it is published."""
    share = history.streams[STREAM]
    span = history.ends - history.begins
    speed = span / 1_000_000 / (share.records / options.rate)
    changes = [
        history.begins + span * (number + 1) // (options.rule_changes + 1) for number in range(options.rule_changes)
    ]
    for number, (begin, end) in enumerate(zip([history.begins, *changes], [*changes, history.ends], strict=True)):
        if number:
            publish(settings, [change_of(number - 1, rules, begin + _HOUR)], begin)
        part = history.part(begin, end)[STREAM]
        if part.num_rows:
            send_unevenly(settings, stream, part, speed, options.uneven * 60 / speed)


def send_unevenly(settings: Settings, stream: Stream, part: pa.Table, speed: float, behind: float) -> None:
    """Send each partition's records in the order of arrival, those of every other one so many seconds later."""

    def replay(records: pa.Table, wait: float) -> None:
        time.sleep(wait)
        if records.num_rows:
            send(settings, stream, [records], speed=speed, shifted=False)

    keys = pc.unique(part["key"]).to_pylist()
    lagging = pa.array([key for key in keys if behind and partition_of(key, settings.partitions) % 2], pa.string())
    lags = pc.is_in(part["key"], value_set=lagging)
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(replay, part.filter(of), wait) for of, wait in ((pc.invert(lags), 0.0), (lags, behind))]
        for each in sent:
            each.result()


def publish(settings: Settings, messages: list[dict[str, Any]], arrival: int) -> None:
    """Publish rule messages and wait until they are active."""
    log_progress(f"publishing {len(messages)} rule messages, arriving at {iso_text(arrival)}")
    with rule_topics.AnswerReader(settings) as answers:
        rule_topics.send(settings, messages, arrival)
        for status in answers.until_settled(messages, _ANSWER_SECONDS):
            assert status.answer is not Answer.REJECTED, f"{status.rule_id}: {status.reasons}"


def pass_nights(settings: Settings, begins: int, ends: int) -> int:
    """Run `nightjar backfill` for every day of these times (µs), in its own process; return its exit code."""
    days = f"{from_microseconds(begins).date()}..{from_microseconds(ends).date()}"
    command = [sys.executable, "-m", "nightjar", "backfill", "--days", days, "--json"]
    environment = {**os.environ, "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    memory = Memory(lambda: process.pid if process.poll() is None else None)
    with killed_if_left(process), memory:
        assert process.stdout is not None
        for line in process.stdout:
            fact("night", **json.loads(line))
        code = process.wait()
    fact("memory of the nights, MB", **memory.quarters())
    return code


def consumed(settings: Settings) -> Tally:
    """The final alerts of a consumer that reads everything now."""
    with Watch(settings, lambda _: None) as watch:
        return watch.finish()


def compared(settings: Settings, streams: Mapping[str, Stream], history: DemoHistory, tally: Tally) -> StreamVerdict:
    """Compare the final alerts with the truth of the rule versions on the rules topic."""
    ruleset = rule_topics.rule_book(settings, streams).ruleset
    share = history.streams[STREAM]
    return compare(share.stream, ruleset, share.events, tally.final_alerts(STREAM))


def print_state(settings: Settings) -> None:
    """Print the state in the job's reports since the first event: retained rows, and size."""
    state, held, stored = JobState(), [], []
    with Reader(settings, settings.job_progress_topic) as reader:
        for record in reader.all():
            state.take(record)
            report = json.loads(record.value)
            rows = sum(bucket["held"] for bucket in state.buckets.values())
            if rows and report["kind"] == "bucket":
                held.append((report["at"], float(rows)))
                stored.append((report["at"], state.stored / (1 << 20)))
    fact("state, rows held by all buckets", **quarters(held), needed_at_the_end=state.retained(STREAM))
    fact("state, MB in the checkpoint", **quarters(stored))


def lake_checks(settings: Settings, stream: Stream, sent: int, tally: Tally) -> list[Check]:
    """Checks that each record of each topic is in the lake once. sent: to the stream's."""
    found = [Check("lake: records of the stream", _rows(settings, events_table(stream)), sent)]
    with Reader(settings, stream.topic) as reader:
        ends = sum(reader.ends().values())
    found.append(Check("lake: offsets of the stream's topic", _offsets(settings, events_table(stream)), ends))
    for table in (ALERTS, LATE_EVENTS):
        found.append(Check(f"lake: {table.name}, each offset once", _offsets(settings, table), _rows(settings, table)))
    alerts = scan(settings.lake, ALERTS).filter(pl.col("source") == "stream").collect()
    contents = alerts.select(pl.exclude("original", "emitted_at", *COORDINATES))
    revisions = contents.select("alert_id", "revision").n_unique()
    fact("alert records published again after kills", count=alerts.height - revisions)
    return [
        *found,
        Check("lake: alerts of the stream", contents.get_column("alert_id").n_unique(), len(tally.final)),
        Check("alerts: distinct records, one per revision", contents.n_unique(), revisions),
    ]


def _rows(settings: Settings, table: Any) -> int:
    return int(scan(settings.lake, table).select(pl.len()).collect().item())


def _offsets(settings: Settings, table: Any) -> int:
    """How many there are, counted one partition after another: those of a hundred million records take a gigabyte."""
    rows = scan(settings.lake, table)
    partitions = rows.select(pl.col("partition").unique()).collect(engine="streaming").to_series()
    of_each = (rows.filter(pl.col("partition") == partition).select("offset") for partition in partitions)
    return sum(int(offsets.collect().to_series().n_unique()) for offsets in of_each)


def night_checks(
    settings: Settings, code: int, tally: Tally, before: StreamVerdict, after: StreamVerdict
) -> list[Check]:
    """Checks that every alert has an outcome, every difference a cause, and the corrected alerts equal the truth."""
    corrections = scan(settings.lake, CORRECTIONS).sort("revision").collect()
    last = corrections.unique("alert_id", keep="last", maintain_order=True)
    # An alert that one night published and a later one retracted ends as the stream had left it.
    withdrawn = last.filter(pl.col("kind") == "retraction")["alert_id"].to_list()
    back = (pl.col("outcome") == "missed") & pl.col("alert_id").is_in(withdrawn)
    whole = scan(settings.lake, RECONCILIATION).sort("day").collect()
    whole = whole.unique("alert_id", keep="last", maintain_order=True).filter(~back)
    outcomes = Counter(whole.get_column("outcome").to_list())
    causes = Counter(whole.get_column("cause").drop_nulls().to_list())
    corrected = set(last["alert_id"])
    fact("outcomes", **outcomes)
    fact("causes", **causes)
    fact("corrections", alerts=len(corrected), unexplained=causes["unexplained"])
    differing = {difference.alert_id for difference in before.differences}
    alerts = sum(record["kind"] == "alert" for record in tally.final.values())
    return [
        Check("nights: exit code of nightjar backfill", code, 0),
        Check("nights: unexplained", causes["unexplained"], 0),
        Check("nights: the stream's alerts that have an outcome", outcomes.total() - outcomes["missed"], alerts),
        Check("nights: violations, each with an outcome", outcomes.total() - outcomes["retracted"], after.violations),
        Check("nights: differences to the truth, each with a cause", causes.total(), len(differing)),
        Check("nights: differences to the truth that were corrected", len(differing & corrected), len(differing)),
        Check("after corrections: alerts that equal the truth", after.equal, after.violations),
        Check("after corrections: alerts that differ", len(after.differences), 0),
    ]


def manifests(settings: Settings) -> None:
    """Print what the nights' stages took."""
    runs = scan(settings.lake, RUNS).filter(pl.col("state") == RunState.FINISHED.value).collect()
    stages: dict[str, list[float]] = {}
    for manifest in filter(None, map(read_manifest, runs.iter_rows(named=True))):
        for name, seconds in manifest.seconds.items():
            stages.setdefault(name, []).append(seconds)
    for name, seconds in stages.items():
        fact("stage of a night", stage=name, nights=len(seconds), median=float(np.median(seconds)), most=max(seconds))


def log_unexplained(settings: Settings) -> None:
    """Log the unexplained differences of a backfill with corrections held back."""
    for file in sorted(settings.lake.glob(f"staging/*/{OUTCOMES}/*.parquet")):
        for row in pl.read_parquet(file).filter(pl.col("cause") == "unexplained").head(20).to_dicts():
            log_progress(f"unexplained, {file.parent.parent.name}: {row}")


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=Path, nargs="?")
    parser.add_argument("--generated", type=int, default=50_000)
    parser.add_argument("--days", type=int, default=3)
    for flaw, share in (("late", 0.01), ("disorder", 0.03), ("duplicates", 0.005), ("malformed", 0.001)):
        parser.add_argument(f"--{flaw}", type=float, default=share)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", type=int, default=10)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--rule-changes", type=int, default=1)
    parser.add_argument("--window-hours", type=float, help="the widest window; without it a sixth of the days")
    parser.add_argument(
        "--uneven", type=float, default=0, help="minutes of arrival by which every other partition is read behind"
    )
    parser.add_argument("--rate", type=float, default=8000, help="records sent a second")
    # a backlog is then many batches, between any of which a kill may fall
    parser.add_argument("--batch", type=int, default=5_000, help="the most records of a micro-batch")
    parser.add_argument("--keep", type=Path, help="copy everything written to this folder at the end")
    return parser.parse_args()


def main() -> None:
    """Replay, run the backfills, and print the facts; exit with 1 if a check fails."""
    options = options_of()
    with terminated_as_interrupt(), tempfile.TemporaryDirectory(prefix="nightjar-bench-") as folder:
        declared = Path(folder) / "streams.toml"
        declared.write_text(DECLARED)
        found = played(options, declared)
    conclude(found)


def conclude(found: list[Check]) -> NoReturn:
    """Print the checks; exit with 1 if one fails."""
    for check in found:
        fact("check", what=check.what, found=check.found, expected=check.expected, holds=check.holds)
    held = all(check.holds for check in found)
    fact("all holds", value=held)
    raise SystemExit(0 if held else 1)


def played(options: argparse.Namespace, declared: Path) -> list[Check]:
    """Generate the history and replay it; return the checks."""
    streams = load_streams(declared)
    stream = streams[STREAM]
    widest = int(options.window_hours * _HOUR) if options.window_hours else options.days * _DAY // 6
    flaws = ReplayOptions(
        late=options.late,
        disorder=options.disorder,
        duplicates=options.duplicates,
        malformed=options.malformed,
        seed=options.seed,
        max_delay=stream.allowed_lateness * 9 // 10,
        max_late=widest // 2,
    )
    with stage("planning the history"):
        share = planned(events_of(options).cast(stream.schema), stream, flaws)
        history = history_of({STREAM: share}, microseconds(pc.min(share.events["event_time"]).as_py()))
        rules = rules_of(options.rules, widest)
    fact("sent", records=share.records, events=share.events.num_rows, **share.kinds, reasons=share.reasons)
    fact("rules", rules=len(rules), changes=options.rule_changes, widest_window_days=round(widest / _DAY, 2))
    memory = {"driver_memory": "2g", "kafka_heap": "512m"}
    with own_settings(streams=str(declared), buckets=4, max_offsets_per_trigger=options.batch, **memory) as given:
        try:
            return run(given, streams, history, rules, options)
        finally:
            if options.keep is not None:
                shutil.copytree(given.data_dir, options.keep, dirs_exist_ok=True)


def run(
    given: Settings,
    streams: dict[str, Stream],
    history: DemoHistory,
    rules: list[dict[str, Any]],
    options: argparse.Namespace,
) -> list[Check]:
    """Run everything on its own broker; return the checks."""
    with ExitStack() as running:
        settings = running.enter_context(LocalKafka(given)).settings
        topics.ensure(settings, streams.values())
        share = history.streams[STREAM]
        job = running.enter_context(KilledJob(settings, STREAM, share.records, options.kills, options.seed))
        with stage("starting the job"):
            await_running(settings, job.process)
        publish(settings, rules, history.begins - _HOUR)
        with Memory(lambda: job.process.pid) as memory, stage("replay"):
            job.begin()
            play(settings, share.stream, history, rules, options)
            job.settle()
            state = await_consumed(settings, history.streams, job.process, _DRAIN_SECONDS)
        fact("kills", kills=len(job.downtimes), seconds_until_it_runs_again=job.downtimes)
        fact("memory of the job, MB", **memory.quarters())
        job.process.stop()
        print_state(settings)
        with stage("truth, before the nights"):
            tally = consumed(settings)
            before = compared(settings, streams, history, tally)
        counts = {name: sum(getattr(tally, name).values()) for name in ("announced", "revisions", "retractions")}
        fact("alerts", violations=before.violations, **counts, equal=before.equal)
        with stage("the nights"):
            code = pass_nights(settings, history.begins, history.ends)
        if code:
            log_unexplained(settings)
        manifests(settings)
        with stage("truth, after the nights"):
            after = compared(settings, streams, history, consumed(settings))
        return [
            Check("kills", len(job.downtimes), options.kills),
            *checks(history.streams, tally, state, {STREAM: before}),
            *lake_checks(settings, share.stream, share.records, tally),
            *night_checks(settings, code, tally, before, after),
        ]


if __name__ == "__main__":
    main()
