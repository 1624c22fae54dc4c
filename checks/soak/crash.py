"""Kills every part of the system at random moments, and checks that nothing is lost, wrong or duplicated.

    python -m checks.soak.crash [--kills 20] [--seed 1] [--events 4000] [--each 10] [--cluster] [--store]
    [--real-time]

Days of simulated payments and logins, with out-of-order, late, duplicate and malformed events, are sent to a real Kafka
while the job reads them. Each day each of these is killed `--each` times by SIGKILL, at moments and in an order drawn
from the seed: the job with all its processes, the same while it writes state, its JVM, its Python driver, a Python
worker, the broker; and after the day the archive and the backfill, which then run to the end. After each day and at the
end all records are counted, and a consumer's final alerts are compared with the truth. On a cluster (`--cluster`: two
workers, with a core each for the job and one for nights) Python workers are the executors', which outlive a killed job
for a moment. Prints one JSON line per kill, per day and for the whole; exits with 0 if nothing is lost, wrong or
duplicated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from checks.bench.figures import log_progress
from checks.soak.kill_targets import NIGHTLY, Job, Kind, Nightly, drawn_kinds
from nightjar.configuration.settings import PREFIX, Settings, load_settings
from nightjar.demo.history import DemoHistory, plan_history
from nightjar.demo.run import RULES as SHIPPED
from nightjar.demo.sandbox import own_settings
from nightjar.demo.verdict import compare, exact_json
from nightjar.generate import Options
from nightjar.kafka import clients, rule_topics, topics
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, CORRECTIONS, LATE_EVENTS, QUARANTINE, RULE_STATUS, RULES, events_table
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import JobState, await_consumed, await_running
from nightjar.replay import RecordKind as Sent
from nightjar.replay import send_together
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.canonical import canonical
from nightjar.rules.model import load_rules, rule_to_mapping
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import from_microseconds, microseconds, parse_timestamp
from nightjar.terminal.stages import terminated_as_interrupt
from tests.support.object_store import S3Server
from tests.support.spark_cluster import SparkCluster

HOUR = 3_600_000_000
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
# A kill falls into this time, in which its share of the day is replayed.
SECONDS_A_SHARE = 8.0
_PATIENCE = 240.0
UNEXPLAINED = "unexplained"


@dataclass
class Found:
    """Errors found, by kind; empty if all is well."""

    losses: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    def counted(self, what: str, expected: int, found: int) -> None:
        """Compare a count: a lower one is a loss, a higher one is wrong."""
        if found < expected:
            self.losses[what] += expected - found
        self.refused(what, found - expected)

    def refused(self, what: str, count: int) -> None:
        """Add this many errors of a kind."""
        if count > 0:
            self.wrong[what] += count

    def join(self, other: Found) -> None:
        """Merge the errors of a later check, which covers the same things and more."""
        self.losses |= other.losses
        self.wrong |= other.wrong

    def as_json(self) -> dict[str, Any]:
        """For a line."""
        totals: dict[str, Any] = {"losses": sum(self.losses.values()), "wrong": sum(self.wrong.values())}
        return totals | {name: dict(counts) for name, counts in self._named if counts}

    @property
    def _named(self) -> list[tuple[str, Counter[str]]]:
        return [("what is lost", self.losses), ("what is wrong", self.wrong)]


@dataclass(frozen=True)
class Site:
    """The environment: the broker, the streams, and the events to replay."""

    settings: Settings
    streams: dict[str, Stream]
    history: DemoHistory

    def records(self, topic: str) -> list[dict[str, Any]]:
        """All committed records of a topic, with their numbers as text."""
        with Reader(self.settings, topic) as reader:
            return [exact_json(record.value) for record in reader.all()]

    def offsets(self, *names: str) -> dict[tuple[str, int], int]:
        """The end offsets of the topics' partitions."""
        with Reader(self.settings, *names) as reader:
            return {(place.topic, place.partition): end for place, end in reader.ends().items()}

    def alerts(self, found: Found) -> list[dict[str, Any]]:
        """The record of each alert id and revision; duplicates must be identical."""
        first: dict[tuple[str, str], dict[str, Any]] = {}
        corrections: Counter[tuple[str, str]] = Counter()
        for record in self.records(self.settings.alerts_topic):
            del record["emitted_at"]
            key = record["alert_id"], record["revision"]
            corrections[key] += record["source"] == "backfill"
            found.refused("revisions with different contents", first.setdefault(key, record) != record)
            at = parse_timestamp(record["event_time"], zone_required=True) or 0
            about = record["rule_id"], int(record["rule_version"]), record["event_id"], at
            named = alert_id(*about, canonical(record["group"]))
            found.refused("alerts under another id", record["alert_id"] != named)
        found.refused("corrections published twice", sum(count > 1 for count in corrections.values()))
        return list(first.values())


def audited_stream(site: Site, state: JobState, until: int, found: Found) -> Counter[str]:
    """Check what the job published and counted for arrivals before `until` (µs); return its differences by cause."""
    settings = site.settings
    late = {(r["stream"], r["event_id"]) for r in site.records(settings.late_events_topic)}
    garbage = {(r["stream"], r["partition"], r["offset"]) for r in site.records(settings.quarantine_topic)}
    for name, plan in site.history.part(site.history.begins, until).items():
        sent = Counter(plan["kind"].to_pylist())
        counts = state.counts(name)
        found.counted("records", plan.num_rows, sum(site.offsets(site.streams[name].topic).values()))
        found.counted("events", plan.num_rows - sent[Sent.MALFORMED], counts["events"])
        found.counted("late events", sent[Sent.LATE], sum(stream == name for stream, _ in late))
        found.counted("malformed records", sent[Sent.MALFORMED], sum(stream == name for stream, *_ in garbage))
    _, causes = compared(site, until, found)
    return causes


def compared(site: Site, until: int, found: Found) -> tuple[int, Counter[str]]:
    """What a consumer is left with, against the truth about what arrived before `until` (µs): how many alerts the truth
    has, and the differences by cause."""
    last: dict[str, dict[str, Any]] = {}
    for record in sorted(site.alerts(found), key=lambda record: int(record["revision"])):
        last[record["alert_id"]] = {**record, "rule_version": int(record["rule_version"])}
    ruleset = rule_topics.rule_book(site.settings, site.streams).ruleset
    alerts, causes = 0, Counter[str]()
    for name, share in site.history.streams.items():
        events = share.events.filter(pc.less(share.events["arrival_time"], from_microseconds(until)))
        final = [record for record in last.values() if record["stream"] == name and record["kind"] == "alert"]
        comparison = compare(site.streams[name], ruleset, events, final)
        alerts += comparison.violations
        causes.update(difference.cause or UNEXPLAINED for difference in comparison.differences)
    found.refused("alerts that nothing explains", causes[UNEXPLAINED])
    return alerts, +causes


def audited_lake(site: Site, found: Found) -> None:
    """Check that the lake has every record once, and that every published correction is in its table."""
    root, settings = site.settings.lake, site.settings
    for name in site.history.streams:
        stream = site.streams[name]
        offsets = scan(root, events_table(stream)).select("partition", "offset").collect()
        for (_, partition), end in site.offsets(stream.topic).items():
            rows = offsets.filter(pl.col("partition") == partition)["offset"].sort()
            found.counted(f"rows of {name}", end, rows.len())
            found.refused("offsets with a gap", rows.to_list() != list(range(rows.len())))
    published = (
        (ALERTS, settings.alerts_topic),
        (LATE_EVENTS, settings.late_events_topic),
        (QUARANTINE, settings.quarantine_topic),
        (RULE_STATUS, settings.rule_status_topic),
        (RULES, settings.rules_topic),
    )
    for table, topic in published:
        rows = scan(root, table).select("partition", "offset").collect()
        found.refused(f"repeated rows of {table.name}", rows.height - rows.unique().height)
        with Reader(settings, topic) as reader:
            found.counted(f"rows of {table.name}", sum(1 for _ in reader.all()), rows.height)
    noted = scan(root, CORRECTIONS).select("alert_id", pl.col("revision").cast(pl.String)).collect()
    corrections = {(r["alert_id"], r["revision"]) for r in site.alerts(found) if r["source"] == "backfill"}
    found.counted("corrections noted", len(corrections), noted.height)
    found.refused("corrections in the table but not published", len(set(noted.iter_rows()) - corrections))


@contextmanager
def replayed(site: Site, begin: int, end: int, seconds: float) -> Iterator[None]:
    """Replay the records with arrivals in [begin, end) (µs) within some seconds, in the background of the block."""
    failures: list[BaseException] = []

    def send() -> None:
        try:
            speed = (end - begin) / 1_000_000 / seconds
            send_together(site.settings, site.streams, site.history.part(begin, end), speed=speed, begins=begin)
        except BaseException as failure:  # noqa: BLE001  raised where it is waited for
            failures.append(failure)

    thread = threading.Thread(target=send, name="replay", daemon=True)
    thread.start()
    yield
    thread.join(_PATIENCE)
    if failures or thread.is_alive():
        raise SystemExit(f"the replay failed: {failures or 'it does not end'}")


def main() -> None:
    """Replay the days, kill, audit, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=4_000, help="payments a day, beside half as many logins")
    parser.add_argument("--each", type=int, default=10, help="kills a day")
    parser.add_argument("--cluster", action="store_true", help="job and nights on a Spark standalone cluster")
    parser.add_argument("--store", action="store_true", help="lake and checkpoint in an object store")
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="the job in real time, in batches of a second: some kills come between two",
    )
    options = parser.parse_args()
    clients.CONNECT_TIMEOUT_MS = 120_000  # the replay outlives a broker that was killed on a busy machine
    rng = np.random.default_rng(options.seed)
    kinds = drawn_kinds(options.kills, rng)
    days = -(-options.kills // options.each)
    streams = load_streams()
    simulation = Options(
        events=options.events * days,
        days=days,
        customers=max(200, options.events // 10),
        terminals=max(50, options.events // 60),
        logins=0.5,
        fraud=0.02,
        start=FIRST,
        seed=options.seed,
    )
    how = {"latency": "real-time", "real_time_batch": "1s"} if options.real_time else {}
    with terminated_as_interrupt(), ExitStack() as running:
        folder = running.enter_context(own_settings(**how)).data_dir
        cluster = None
        if options.cluster:
            cluster = running.enter_context(SparkCluster(folder / "cluster", cores=2, memory="4g"))
            os.environ.update(cluster.own_environment)
            use(cluster.settings | {"spark_conf": cluster.settings["spark_conf"] | {"spark.cores.max": "2"}})
        if options.store:
            use(running.enter_context(S3Server(folder / "store")).settings("crash"))
        given = load_settings()
        broker = running.enter_context(LocalKafka(given, short_lived=True))
        site = Site(broker.settings, streams, plan_history(streams, simulation))
        topics.ensure(site.settings, streams.values())
        job = running.enter_context(Job(site.settings, broker, rng, cluster))
        await_running(site.settings, job.process)
        publish_rules(site)
        raise SystemExit(0 if play(site, job, kinds, days, rng) else 1)


def use(given: Mapping[str, Any]) -> None:
    """Let this process and those that it starts use these settings."""
    os.environ.update(
        {f"{PREFIX}{name}".upper(): of if isinstance(of, str) else json.dumps(of) for name, of in given.items()}
    )


def publish_rules(site: Site) -> None:
    """Publish the shipped rules, effective before the first event."""
    messages = [rule_to_mapping(rule) for rule in load_rules(SHIPPED, site.streams)]
    with rule_topics.AnswerReader(site.settings) as answers:
        rule_topics.send(site.settings, messages, site.history.begins - HOUR)
        for status in answers.until_settled(messages, _PATIENCE):
            log_progress(f"{status.rule_id} is {status.answer}")


def play(site: Site, job: Job, kinds: list[Kind], days: int, rng: np.random.Generator) -> bool:
    """Run all days; return whether every check passed."""
    lateness = max(stream.allowed_lateness for stream in site.streams.values())
    nightly, total, causes = Nightly(site.settings, rng), Found(), Counter[str]()
    recovered: list[float] = []
    begin = site.history.begins
    for number, share in enumerate(np.array_split(np.array(kinds, dtype=object), days)):
        day = (FIRST + timedelta(days=number)).date()
        end = microseconds(FIRST + timedelta(days=number + 1)) + lateness  # the day is settled then
        recovered += replay_day(site, job, [kind for kind in share if kind not in NIGHTLY], day, begin, end, rng)
        begin, found = end, Found()
        differing = audited_stream(site, settled(site, job), end, found)
        for kind in (kind for kind in share if kind in NIGHTLY):
            command = ["archive"] if kind is Kind.ARCHIVE else ["backfill", "--day", day.isoformat()]
            line("kill", day, kind=kind, **{"after s": nightly.kill(*command)})
        took = nightly.run("backfill", "--day", day.isoformat())
        alerts, _ = audited_night(site, nightly, end, found)
        figures = {"night s": took, "alerts": alerts, "differences by cause": dict(differing)}
        line("day", day, **figures, **found.as_json())
        total.join(found)
        causes += differing
    with replayed(site, begin, site.history.ends, 1.0):
        pass
    settled(site, job)
    nightly.run("backfill", "--day", from_microseconds(begin).date().isoformat())
    last = Found()
    alerts, left = audited_night(site, nightly, site.history.ends, last)
    total.join(last)
    total.refused("alerts that differ in the end", left.total())
    whole = {
        "name": "crash",
        "kills": dict(Counter(kinds)),
        "recovery s p50": round(statistics.median(recovered), 1) if recovered else None,
        "recovery s max": max(recovered, default=None),
        "starts": job.starts,
        "orphaned JVM s": max(job.orphaned, default=None),
        "records": site.history.records,
        "events": sum(share.events.num_rows for share in site.history.streams.values()),
        "alerts": alerts,
        "differences by cause": dict(causes),
        "differences in the end": left.total(),
        **total.as_json(),
    }
    print(json.dumps(whole), flush=True)
    return not total.losses and not total.wrong


def replay_day(
    site: Site, job: Job, kinds: list[Kind], day: date, begin: int, end: int, rng: np.random.Generator
) -> list[float]:
    """Replay what arrives in [begin, end) (µs) in shares, a kill in each but the last; the seconds of each recovery."""
    bounds = np.linspace(begin, end, len(kinds) + 2).astype(np.int64).tolist()
    recovered = []
    for kind, first, last in zip(kinds, bounds[:-2], bounds[1:-1], strict=True):
        with replayed(site, first, last, SECONDS_A_SHARE):
            job.process.wait(rng.uniform(0, SECONDS_A_SHARE))
            killed = job.kill(kind)
        recovered.append(killed.seconds)
        line("kill", day, kind=kind, **killed.as_json())
    with replayed(site, bounds[-2], end, SECONDS_A_SHARE / 4):
        pass
    return recovered


def settled(site: Site, job: Job) -> JobState:
    """The job's state once it has read everything."""
    await_running(site.settings, job.process)
    return await_consumed(site.settings, site.history.streams, job.process, _PATIENCE)


def audited_night(site: Site, nightly: Nightly, until: int, found: Found) -> tuple[int, Counter[str]]:
    """Check the lake and the corrections; returns as `compared` does."""
    nightly.run("archive")
    audited_lake(site, found)
    return compared(site, until, found)


def line(name: str, day: date, **values: object) -> None:
    """Print a line of JSON."""
    print(json.dumps({"name": name, "day": day.isoformat(), **values}), flush=True)


if __name__ == "__main__":
    main()
