"""Runs the real job over hostile records and messages on a real Kafka, and checks the topics and the lake.

The expected fate of each record is computed from the topics with nightjar/rules/events.py: used, duplicate, late, or in
quarantine with its reason. The producer sets arrivals, so the result depends only on what was sent.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import psutil

from checks.bench.figures import log_progress
from checks.fuzz.hostile_events import HostileEvents
from checks.fuzz.hostile_messages import ANSWERS, CLOCKS, HEADERS, MESSAGES
from checks.fuzz.hostile_rules import HostileRules
from checks.fuzz.parsing import Findings, good_events
from nightjar.configuration.settings import PREFIX, Settings, load_settings
from nightjar.contracts.rule_status import fold
from nightjar.kafka import rule_topics, topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import KafkaRecord, Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import LATE_EVENTS, QUARANTINE, RULE_STATUS, events_table
from nightjar.local.job_process import JobProcess
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import await_consumed, await_running
from nightjar.processes.process import family
from nightjar.rules import rulebook
from nightjar.rules.events import Rejection, check_skew, parse_event
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.rules.versions import RuleSet
from nightjar.streaming.driver.answering import answer_to

# Resident memory (MB): of the driver's JVM, whose heap is a gigabyte; of any one Python process of the job.
LIMITS = {"jvm": 2200, "python": 900}
_HEAP = "1g"
_BEGIN = parse_timestamp("2026-01-20T12:00:00Z", zone_required=True) or 0
# Arrivals end before any event of the run is before the horizon (µs), so that its duplicates are known as such.
_SPAN = 300_000_000
_SECONDS = 240.0
_LIMIT = Decimal(100)
RULES = [
    {**rule, "effective": "2000-01-01T00:00:00Z"}
    for rule in (
        {
            "id": "large",
            "stream": "transactions",
            "group_by": ["customer_id"],
            "when": f"amount > {_LIMIT}",
            "description": "{amount} of {customer_id} at {terminal_id}",
        },
        {
            "id": "burst",
            "stream": "transactions",
            "group_by": ["terminal_id"],
            "when": "payments >= 3 AND most > 10",
            "measures": {
                "payments": {"count": "*", "over": "5m"},
                "most": {"max": "amount", "over": "5m"},
                "first": {"first": "customer_id", "over": "5m"},
            },
        },
        {
            "id": "failing",
            "stream": "logins",
            "group_by": ["customer_id"],
            "when": "failures >= 2",
            "measures": {"failures": {"count": "*", "over": "5m", "where": "status = 'FAIL'"}},
        },
    )
]


@dataclass
class Memory:
    """The most that each kind of process of the job has held (MB), looked at twice a second."""

    most: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def watched(self, pid: int) -> Iterator[None]:
        """Look while the block runs."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.5):
                self._look(psutil.Process(pid))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def held(self, findings: Findings) -> dict[str, Any]:
        """The peak memory by kind of process; adds a finding for each kind above its limit."""
        for kind, most in self.most.items():
            if most > LIMITS[kind]:
                findings.add(f"memory of {kind}", f"{most} MB, more than {LIMITS[kind]}")
        return {"name": "resident memory of the job, MB", **self.most, "limits": LIMITS}

    def _look(self, job: psutil.Process) -> None:
        for process in family(job):
            try:
                kind = "jvm" if "java" in process.name() else "python"
                self.most[kind] = max(self.most.get(kind, 0), process.memory_info().rss // 1_000_000)
            except psutil.NoSuchProcess:
                continue


@dataclass
class Expected:
    """What must come of one stream's records: (partition, offset) to a rejection; ids and times of late events, ids of
    those that `large` finds; how many can be used, how many of these are duplicates, and how many of the duplicates may
    be late once more, as their event was before the horizon."""

    rejected: dict[tuple[int, int], str] = field(default_factory=dict)
    late: set[tuple[str, str]] = field(default_factory=set)
    large: set[str] = field(default_factory=set)
    usable: int = 0
    duplicates: int = 0
    late_again: int = 0


def environment_of(settings: Settings) -> dict[str, str]:
    """What makes our commands use this broker, and arrivals that are the producer's."""
    return {
        f"{PREFIX}{name}": str(value)
        for name, value in {
            "BOOTSTRAP_SERVERS": settings.bootstrap,
            "DATA_DIR": settings.data_dir,
            "ARRIVAL": "producer",
            "ACTIVATION_DELAY": "0s",
            "DRIVER_MEMORY": _HEAP,
            "WARM_UP_BATCHES": 0,
            "SPARK_MASTER": "local[2]",
        }.items()
    }


def on_the_job(records: int, seed: int, folder: Path, findings: Findings) -> Iterator[dict[str, Any]]:
    """Run it all; return the findings about memory, records and the lake."""
    began = time.monotonic()
    streams = {name: stream for name, stream in load_streams().items() if name != "payments"}
    own = load_settings(data_dir=folder / "kafka", kafka_port=0, arrival="producer", activation_delay="0s")
    with LocalKafka(own) as broker:
        settings = broker.settings.model_copy(update={"data_dir": folder})
        topics.ensure(settings, load_streams().values())
        rule_topics.send(settings, RULES, _BEGIN - 1_000_000)
        environment = environment_of(settings)
        memory = Memory()
        with JobProcess(folder / "job.log", environment, folder) as job:
            await_running(settings, job)
            assert job.pid is not None
            with memory.watched(job.pid):
                sending = time.monotonic()
                hostile = _sent(settings, streams, records, seed)
                log_progress(f"{records:,} records sent in {time.monotonic() - sending:.0f} s")
                state = await_consumed(settings, [*streams], job, _SECONDS)
            answers = _answered(settings, findings)
            if job.stop() != 0:
                findings.add("the job did not stop cleanly", job.tail())
        yield memory.held(findings)
        expected = {name: _expected(settings, stream) for name, stream in streams.items()}
        for name, stream in streams.items():
            yield _accounted(settings, stream, expected[name], state.counts(name), findings)
        yield {"name": "hostile messages on the rules topic", "sent": hostile, "answers": answers}
        with producer(settings) as client:
            for name in ("alerts", "late_events", "rule_status", "quarantine"):
                for value in ANSWERS:
                    client.send(getattr(settings, f"{name}_topic"), value, key=b"k")
        yield _archived(settings, streams, expected, {**os.environ, **environment}, findings)
        seconds = round(time.monotonic() - began)
        yield {"name": "records on the job", "records": records, "seed": seed, "seconds": seconds}


def _sent(settings: Settings, streams: Mapping[str, Stream], records: int, seed: int) -> int:
    """Send the records, and hostile messages beside them; how many of these are on the rules topic."""
    rng = random.Random(seed)
    good = good_events(seed)
    sources = {name: HostileEvents(stream, good[name], rng, rarely=0.0005) for name, stream in streams.items()}
    messages = [*MESSAGES, *_rejected_rules(streams, seed, 200)]
    known: dict[str, dict[str, bytes | None]] = {name: {} for name in streams}
    recent: dict[str, list[bytes | None]] = {name: [] for name in streams}
    number = sent = 0
    promises = []
    with producer(settings, linger_ms=20, max_request_size=2_000_000) as client:
        while number < records:
            name = "logins" if rng.random() < 0.3 else "transactions"
            stream, arrival = streams[name], _BEGIN + number * _SPAN // records
            if recent[name] and rng.random() < 0.05:
                value = rng.choice(recent[name])
            else:
                value = sources[name].record(arrival).value
            event = parse_event(value or b"", stream)
            identity = str(number) if isinstance(event, Rejection) else event[stream.event_id]
            if not isinstance(event, Rejection) and known[name].setdefault(identity, value) != value:
                continue  # two events of one id: which of them is the first is a matter of their buckets
            recent[name] = [*recent[name][-200:], value]
            promises.append(
                client.send(
                    stream.topic,
                    value,
                    key=rng.choice((b"", b"\xff", b"k")),
                    headers=rng.choice(HEADERS),
                    partition=zlib.crc32(identity.encode()) % settings.partitions,
                    timestamp_ms=arrival // 1000,
                )
            )
            number += 1
            if sent < len(messages) and rng.random() < 1.5 * len(messages) / records:
                stamp = arrival // 1000
                promises.append(client.send(settings.rules_topic, messages[sent], key=b"k", timestamp_ms=stamp))
                sent += 1
                promises.append(client.send(settings.clock_topic, rng.choice(CLOCKS), key=b"k", timestamp_ms=stamp))
        for promise in promises:
            promise.get(_SECONDS)
    return sent


def _rejected_rules(streams: Mapping[str, Stream], seed: int, count: int) -> Iterator[bytes]:
    """Hostile rules that must be rejected."""
    rules = HostileRules(dict(streams), random.Random(seed))
    while count:
        text = rules.text().text
        _, status = judge(RuleSet(), text, 0, load_streams())
        if status.answer is Answer.REJECTED:
            count -= 1
            yield text


def _answered(settings: Settings, findings: Findings) -> Counter[str]:
    """Check that each message on the rules topic has the expected answer; return the number of each."""
    streams, expected, running = load_streams(), {}, rulebook.RuleBook(load_streams()).shuffle_keys
    book = rulebook.RuleBook(streams)
    with Reader(settings, settings.rules_topic) as reader:
        for record in reader.all():
            message = rulebook.Record(record.offset, record.arrival, record.value)
            about = f"{settings.rules_topic}-0-{record.offset}"
            _, expected[about] = answer_to(message, about, book, running, settings.activation_delay)
            fold(book, rulebook.Record(record.offset, record.arrival, json.dumps(expected[about]).encode()))
    found: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + _SECONDS
    with Reader(settings, settings.rule_status_topic) as reader:
        while len(found) < len(expected) and time.monotonic() < deadline:
            found |= {answer["message"]: answer for answer in map(_json, reader.poll()) if answer.get("message")}
    for place in found.keys() | expected.keys():
        if found.get(place) != expected.get(place):
            findings.add("answers", (place, found.get(place), expected.get(place)))
    return Counter(str(answer["status"]) for answer in found.values())


def _json(record: KafkaRecord) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(record.value)
    return read


def _expected(settings: Settings, stream: Stream) -> Expected:
    expected = Expected()
    seen: set[tuple[str, str]] = set()
    with Reader(settings, stream.topic) as reader:
        for record in reader.all():
            event = parse_event(record.value, stream)
            refused = (
                event if isinstance(event, Rejection) else check_skew(event[stream.event_time], record.arrival, stream)
            )
            if isinstance(refused, Rejection):
                expected.rejected[record.partition, record.offset] = refused.reason.value
                continue
            assert not isinstance(event, Rejection)
            identity = event[stream.event_id], iso_text(event[stream.event_time])
            expected.usable += 1
            if identity in seen:
                expected.duplicates += 1
                # its id is gone once no window needs it; on a slow machine events are read before any rule has a window
                expected.late_again += record.arrival - event[stream.event_time] > stream.allowed_lateness
                continue
            seen.add(identity)
            if record.arrival - event[stream.event_time] > stream.allowed_lateness:
                expected.late.add(identity)
            elif (event.get("amount") or 0) > _LIMIT and event["customer_id"] is not None:
                expected.large.add(event[stream.event_id])
    return expected


def _accounted(
    settings: Settings, stream: Stream, expected: Expected, counts: Mapping[str, int], findings: Findings
) -> dict[str, Any]:
    """Check the fate of each of the stream's records."""
    with Reader(settings, settings.quarantine_topic) as reader:
        rejected = {
            (record["partition"], record["offset"]): record["reason"]
            for record in map(_json, reader.all())
            if record["topic"] == stream.topic
        }
    with Reader(settings, settings.late_events_topic) as reader:
        late_records = [record for record in map(_json, reader.all()) if record["stream"] == stream.name]
        late = {(record["event_id"], record["event_time"]) for record in late_records}
    with Reader(settings, settings.alerts_topic) as reader:
        large = {
            alert["event_id"]
            for alert in map(_json, reader.all())
            if alert["rule_id"] == "large" and alert["stream"] == stream.name
        }
    for what, found, wanted in (
        ("quarantined", rejected, expected.rejected),
        ("late", late, expected.late),
        ("alerts", large, expected.large),
    ):
        if found != wanted:
            differing = sorted(map(str, set(found) ^ set(wanted)))
            findings.add(f"{stream.name}: {what}", f"{len(found)} for {len(wanted)}: {differing[:10]}")
    wanted_counts = {"events": expected.usable, "late": len(expected.late), "duplicates": expected.duplicates}
    late_counted, duplicates = counts.get("late", 0), counts.get("duplicates", 0)
    again = late_counted - len(expected.late)
    added_up = counts.get("events") == expected.usable and duplicates + again == expected.duplicates
    if not added_up or not 0 <= again <= expected.late_again:
        findings.add(f"{stream.name}: counts", (counts, wanted_counts, expected.late_again))
    used = expected.usable - expected.duplicates - len(expected.late)
    return {
        "name": f"{stream.name} accounted for",
        "records": expected.usable + len(expected.rejected),
        "used": used,
        "duplicates": expected.duplicates,
        "late": len(expected.late),
        "late again": again,
        "quarantined": len(expected.rejected),
        "alerts": len(large),
    }


def _archived(
    settings: Settings,
    streams: Mapping[str, Stream],
    expected: Mapping[str, Expected],
    environment: Mapping[str, str],
    findings: Findings,
) -> dict[str, Any]:
    """Check that `nightjar archive` copies every offset to the lake."""
    began = time.monotonic()
    command = [sys.executable, "-m", "nightjar", "archive", "--json"]
    done = subprocess.run(
        command, env=environment, cwd=settings.data_dir, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        findings.add("the archive failed", done.stderr[-3000:])
        return {"name": "lake", "seconds": round(time.monotonic() - began, 1)}
    places = {stream.topic: events_table(stream) for stream in streams.values()}
    places |= {
        settings.late_events_topic: LATE_EVENTS,
        settings.quarantine_topic: QUARANTINE,
        settings.rule_status_topic: RULE_STATUS,
    }
    rows: dict[str, int] = {}
    for topic, table in places.items():
        with Reader(settings, topic) as reader:
            ends = {place.partition: end for place, end in reader.ends().items()}
        found = scan(settings.lake, table).select("partition", "offset").sort("partition", "offset").collect()
        wanted = [(partition, offset) for partition, end in sorted(ends.items()) for offset in range(end)]
        rows[topic] = found.height
        if found.rows() != wanted:
            findings.add(f"offsets of {topic} in the lake", f"{found.height} for {len(wanted)}")
    for name, stream in streams.items():
        table = scan(settings.lake, events_table(stream)).filter(pl.col("rejected").is_not_null())
        found = {row[:2]: row[2] for row in table.select("partition", "offset", "rejected").collect().iter_rows()}
        if found != expected[name].rejected:
            findings.add(f"{name} rejected in the lake", f"{len(found)} for {len(expected[name].rejected)}")
    return {"name": "lake", "rows": rows, "seconds": round(time.monotonic() - began, 1)}
