"""Sends hostile records to the topics that nightjar itself writes, while all their readers run.

A job on a real Kafka processes payments in three parts: the first alone, to produce genuine records to damage; the
second while hostile records flood all topics; the third after its checkpoint was rebuilt from the lake. The expected
results depend on the payments alone, and the backfill must find that stream and truth agree. Each hostile record must
be counted by the reader that skips it, and be in the lake.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from checks.bench.figures import log_progress
from checks.fuzz.hostile_records import HostileRecords
from checks.fuzz.job import RULES, Memory, environment_of
from checks.fuzz.parsing import Findings
from nightjar.configuration.settings import Settings, load_settings
from nightjar.kafka import rule_topics, topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, QUARANTINE, RULE_STATUS
from nightjar.local.job_process import JobProcess
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import JobState, await_consumed, await_running
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import iso_text, parse_timestamp

_DAY = "2026-01-20"
_BEGIN = parse_timestamp(f"{_DAY}T12:00:00Z", zone_required=True) or 0
_SECOND = 1_000_000
_SECONDS = 300.0
_LARGE = 100


@dataclass
class _Site:
    """Where it all runs. forged: the places of hostile records, by topic; large: ids of payments that `large` finds."""

    settings: Settings
    folder: Path
    environment: Mapping[str, str]
    findings: Findings
    rng: random.Random
    forged: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    sent: int = 0

    def pay(self, count: int) -> None:
        """Send payments, a hundred per second of arrival, some of them late, and two malformed ones."""
        rng = self.rng
        with producer(self.settings) as client:
            for number in range(self.sent, self.sent + count):
                arrival = _BEGIN + number * _SECOND // 100
                is_late = rng.random() < 0.01
                amount = rng.randrange(1, 2 * _LARGE * 100) / 100
                payment = {
                    "transaction_id": f"t{number}",
                    "event_time": iso_text(arrival - (900 * _SECOND if is_late else 0)),
                    "customer_id": f"c{rng.randrange(50)}",
                    "terminal_id": f"m{rng.randrange(20)}",
                    "amount": f"{amount:.2f}",
                }
                if amount > _LARGE and not is_late:
                    self.large.add(f"t{number}")
                value, partition = json.dumps(payment).encode(), number % self.settings.partitions
                client.send("transactions", value, partition=partition, timestamp_ms=arrival // 1000)
            for value in (b"{", b'{"transaction_id": 1}'):
                client.send("transactions", value, partition=0, timestamp_ms=arrival // 1000)
        self.sent += count

    def flood(self, records: int) -> None:
        """Send hostile records to every topic of nightjar's own."""
        names = ("clock", "job_progress", "rule_status", "alerts", "late_events", "quarantine")
        own = [getattr(self.settings, f"{name}_topic") for name in names]
        honest = {}
        for topic in own:
            with Reader(self.settings, topic) as reader:
                honest[topic] = [record.value for record in reader.last(200)]
        source = HostileRecords(self.settings, honest, self.rng)
        sent: dict[str, list[Any]] = {topic: [] for topic in own}
        began = time.monotonic()
        with producer(self.settings, linger_ms=20) as client:
            for number in range(records):
                topic = self.rng.choice(own)
                value = source.record(topic)
                sent[topic].append(client.send(topic, value, key=self.rng.choice((b"", b"k", b"\xff", b"job"))))
                if number % 20_000 == 0:
                    log_progress(f"{number:,} hostile records sent after {time.monotonic() - began:.0f} s")
        written = {topic: [promise.get(_SECONDS) for promise in of] for topic, of in sent.items()}
        self.forged = {topic: {(each.partition, each.offset) for each in of} for topic, of in written.items()}

    def run(self, *arguments: str, code: int = 0) -> str:
        """The output of one of our commands; a finding where it ends with another code than that."""
        done = subprocess.run(
            [sys.executable, "-m", "nightjar", *arguments],
            env={**os.environ, **self.environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode != code or "Traceback" in done.stderr:
            self.findings.add(f"nightjar {arguments[0]}", f"code {done.returncode}: {done.stderr[-3000:]}")
        return done.stdout

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Note a finding where they differ."""
        if found != wanted:
            self.findings.add(what, (found, wanted))


def on_the_topics(records: int, seed: int, folder: Path, findings: Findings) -> Iterator[dict[str, Any]]:
    """Run it all; return the counts."""
    began = time.monotonic()
    own = load_settings(data_dir=folder / "kafka", kafka_port=0, arrival="producer", activation_delay="0s")
    memory = Memory()
    with LocalKafka(own) as broker:
        settings = broker.settings.model_copy(update={"data_dir": folder})
        environment = environment_of(settings)
        site = _Site(settings, folder, environment, findings, random.Random(seed))
        topics.ensure(settings, load_streams().values())
        rule_topics.send(settings, RULES, _BEGIN - _SECOND)
        with JobProcess(folder / "job.log", environment, folder) as job:
            await_running(settings, job)
            assert job.pid is not None
            with memory.watched(job.pid):
                site.pay(5000)
                await_consumed(settings, ["transactions"], job, _SECONDS)
                site.flood(records)
                site.pay(5000)
                await_consumed(settings, ["transactions"], job, _SECONDS)
                yield _watched(site)
            site.expect("the job's exit code", job.stop(), 0)
        yield memory.held(findings)
        yield _night(site)
        site.run("stream", "rebuild", "--json")
        with JobProcess(folder / "again.log", environment, folder) as job:
            await_running(settings, job)
            site.pay(2000)
            await_consumed(settings, ["transactions"], job, _SECONDS)
        _alerts(site)
    seconds = round(time.monotonic() - began)
    yield {"name": "hostile records on topics of our own", "records": records, "seed": seed, "seconds": seconds}


def _watched(site: _Site) -> dict[str, Any]:
    """Check the outputs while the job runs: its alerts, its counts, `status` and `alerts tail`."""
    settings, forged = site.settings, {topic: len(places) for topic, places in site.forged.items()}
    alerts = _alerts(site)
    answers = settings.rule_status_topic
    state = _settled_state(settings)
    counted = {
        "reports": state.skipped.counts.total(),
        "answers": (state.driver or {}).get("rules", {}).get("skipped"),
        "answers and clocks": sum(state.counts(stream).get("skipped", 0) for stream in load_streams()),
    }
    site.expect(
        "hostile records counted",
        counted,
        {
            "reports": forged[settings.job_progress_topic],
            "answers": forged[answers],
            "answers and clocks": forged[answers] + forged[settings.clock_topic],
        },
    )
    site.run("status", "--json")  # its exit code says that the job runs
    site.run("status")
    tail = site.run("alerts", "tail", "--from-beginning", "--json", "--count", str(alerts))
    site.expect("alerts tail", len(tail.splitlines()), alerts)
    site.run("rules", "list")
    return {"name": "counted while the job runs", **counted, "forged": forged, "alerts": alerts}


def _settled_state(settings: Settings) -> JobState:
    """The job's reported state once its driver has read all answers."""
    with Reader(settings, settings.rule_status_topic) as reader:
        end = sum(reader.ends().values())
    state, deadline = JobState(), time.monotonic() + _SECONDS
    with Reader(settings, settings.job_progress_topic) as reader:
        while (state.driver or {}).get("rules", {}).get("answers", 0) < end and time.monotonic() < deadline:
            for record in reader.poll(500):
                state.take(record)
    return state


def _alerts(site: _Site) -> int:
    """The number of alerts of the job; adds a finding if those of `large` are not the expected ones."""
    settings = site.settings
    with Reader(settings, settings.alerts_topic) as reader:
        every = [each for each in reader.all() if (each.partition, each.offset) not in site.forged[each.topic]]
    found = [alert for alert in (json.loads(each.value) for each in every) if alert["source"] == "stream"]
    large = {alert["event_id"] for alert in found if alert["rule_id"] == "large"}
    site.expect("alerts", sorted(large ^ site.large)[:10], [])
    return len(found)


def _night(site: _Site) -> dict[str, Any]:
    """The lake, the night and an explanation: all offsets, what is unreadable, no difference but of late events."""
    settings = site.settings
    site.run("archive", "--json")
    places = {
        settings.alerts_topic: ALERTS,
        settings.late_events_topic: LATE_EVENTS,
        settings.quarantine_topic: QUARANTINE,
        settings.rule_status_topic: RULE_STATUS,
        settings.job_progress_topic: PROGRESS,
    }
    unreadable = {}
    for topic, table in places.items():
        with Reader(settings, topic) as reader:
            ends = {place.partition: end for place, end in reader.ends().items()}
        rows = scan(settings.lake, table).select("partition", "offset", "original").collect()
        unread = rows.filter(pl.col("original").is_not_null()).select("partition", "offset").rows()
        unreadable[table.name] = len(unread)
        held = Counter(rows["partition"].to_list())
        # the archive itself writes reports, after what it has read
        missing = {p: end for p, end in ends.items() if held[p] != end and table is not PROGRESS}
        site.expect(f"offsets of {topic} in the lake", missing, {})
        if table in (ALERTS, LATE_EVENTS, RULE_STATUS):
            site.expect(f"unreadable rows of {topic}", set(unread) ^ site.forged[topic], set())
    night = json.loads(site.run("backfill", "--day", _DAY, "--json") or "{}")
    site.expect("causes of the night", {*night.get("causes", {"no night": 1})} - {"late_event"}, set())
    alert = scan(settings.lake, ALERTS).filter(pl.col("alert_id").is_not_null()).select("alert_id").head(1).collect()
    site.run("explain", alert.item(), "--json")
    site.run("explain", alert.item())
    return {"name": "lake and night", "unreadable": unreadable, "night": night}
