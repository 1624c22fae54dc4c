"""Shared parts of checks/bench/latency.py and checks/bench/drain.py: events, topics, the contestants, and their
output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from checks.bench.figures import log_progress
from nightjar.configuration.settings import Settings
from nightjar.jvm.jars import PROJECT
from nightjar.kafka import topics
from nightjar.kafka.clients import consumer, producer
from nightjar.kafka.readers import Reader
from nightjar.rules.streams import load_streams

CUSTOMERS = 10_000
EVENTS_AN_ALERT = 20
ALERTING = "777.77"  # the amount of these events, which one rule looks for
# Half of them group by customer, half by terminal.
RULES: list[dict[str, object]] = [
    {
        "id": "exact-amount",
        "where": f"amount = {ALERTING}",
        "measures": {"n": {"count": "*", "over": "1h"}},
        "when": "n >= 1",
    },
    {"id": "count", "measures": {"n": {"count": "*", "over": "10m"}}, "when": "n > 1000000"},
    {
        "id": "sum",
        "group_by": ["terminal_id"],
        "measures": {"spent": {"sum": "amount", "over": "1h"}},
        "when": "spent > 100000000",
    },
    {
        "id": "avg",
        "measures": {"usual": {"avg": "amount", "over": "1h", "excluding_current": True}},
        "when": "amount > 1000000 * usual",
    },
    {
        "id": "min",
        "group_by": ["terminal_id"],
        "measures": {"least": {"min": "amount", "over": "1h"}},
        "when": "least > 100000",
    },
    {
        "id": "max",
        "group_by": ["terminal_id"],
        "measures": {"most": {"max": "amount", "over": "1h"}},
        "when": "most > 100000",
    },
    {"id": "stddev", "measures": {"spread": {"stddev": "amount", "over": "1h"}}, "when": "spread > 100000"},
    {
        "id": "distinct",
        "group_by": ["terminal_id"],
        "measures": {"t": {"count_distinct": "customer_id", "over": "10m"}},
        "when": "t > 100000",
    },
    {
        "id": "large",
        "group_by": ["terminal_id"],
        "measures": {"n": {"count": "*", "over": "1h", "where": "amount >= 50"}},
        "when": "n > 1000000",
    },
    {"id": "last", "measures": {"t": {"last": "terminal_id", "over": "1h"}}, "when": "t = 'nowhere'"},
]


def events(count: int, *, hot: float, seed: int) -> Iterator[tuple[bytes, str, str, str]]:
    """(id, customer, terminal, amount) of random payments; hot: the share of them that is one customer's."""
    rng = np.random.default_rng(seed)
    customers = rng.integers(1, CUSTOMERS, count)
    if hot:
        customers[rng.random(count) < hot] = 0
    terminals, cents = rng.integers(0, 1000, count), rng.integers(100, 20_000, count)
    for i in range(count):
        amount = ALERTING if i % EVENTS_AN_ALERT == 0 else f"{cents[i] / 100:.2f}"
        yield b"%d-%d" % (seed, i), f"c{customers[i]}", f"t{terminals[i]}", amount


def message(event: tuple[bytes, str, str, str], now_ms: int) -> bytes:
    """An event's JSON."""
    identifier, customer, terminal, amount = event
    return b'{"transaction_id":"%s","event_time":%d,"customer_id":"%s","terminal_id":"%s","amount":%s}' % (
        identifier,
        now_ms,
        customer.encode(),
        terminal.encode(),
        amount.encode(),
    )


def prepare(settings: Settings, *, publishing: bool, rules: Sequence[dict[str, object]] = RULES) -> None:
    """Create the topics and publish the rules, effective long ago."""
    topics.ensure(settings, load_streams().values())
    if not publishing:
        return
    with producer(settings) as client:
        for rule in rules:
            whole = {
                "stream": "transactions",
                "group_by": ["customer_id"],
                "effective": "2000-01-01T00:00:00Z",
                **rule,
            }
            client.send(settings.rules_topic, key=str(rule["id"]).encode(), value=json.dumps(whole).encode())
        client.flush()


# Ends the name of a contestant that runs in real time.
REAL_TIME = "-real-time"


@contextmanager
def contestant(name: str, settings: Settings, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job ("job") or a control ("stateful", "stateless") as a process on the settings' broker and topics; with
    REAL_TIME at the end of its name, in real time."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap,
        "NIGHTJAR_DATA_DIR": str(folder),
        "PYTHONPATH": str(PROJECT),
    }
    for field in ("partitions", "buckets", "shuffle_partitions"):
        if (value := getattr(settings, field)) is not None:
            environment[f"NIGHTJAR_{field.upper()}"] = str(value)
    for field in type(settings).model_fields:
        if field.endswith("_topic"):
            environment[f"NIGHTJAR_{field.upper()}"] = getattr(settings, field)
    if settings.streams is not None:
        environment["NIGHTJAR_STREAMS"] = str(settings.streams)
    if name == f"job{REAL_TIME}":
        environment["NIGHTJAR_LATENCY"] = "real-time"
    command = ["-m", "nightjar", "stream"] if name.startswith("job") else ["-m", "checks.bench.baseline", name]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=log, stderr=log, cwd=PROJECT, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                log_progress(f"{name} did not stop in time")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Alerts:
    """Receives a contestant's alerts from now on."""

    def __init__(self, settings: Settings) -> None:
        self._consumer = consumer(settings, settings.alerts_topic, auto_offset_reset="latest", fetch_max_wait_ms=10)
        while not self._consumer.assignment():
            self._consumer.poll(timeout_ms=50)
        for partition in self._consumer.assignment():
            self._consumer.position(partition)

    def receive(self, seconds: float) -> list[tuple[float, float]]:
        """(wall clock of receipt, milliseconds since its event was sent) of the records within some time."""
        found = []
        until = time.time() + seconds
        while (left := until - time.time()) > 0:
            for records in self._consumer.poll(timeout_ms=max(1, int(1000 * min(left, 0.05)))).values():
                now = time.time()
                for record in records:
                    sent = dict(record.headers or []).get("sent_at")
                    if sent:
                        found.append((now, now * 1000 - int(sent) / 1000))
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def reports(settings: Settings) -> list[dict[str, Any]]:
    """The reports of the job and its buckets until now, oldest first."""
    with Reader(settings, settings.job_progress_topic) as reader:
        return [json.loads(record.value) for record in reader.all()]


def shares(settings: Settings, mode: str = "micro-batch") -> dict[str, float]:
    """The share of each part in the time of the job's micro-batches, and of the buckets' own work, in percent.

    Computed from the job's reports: `run` is Spark's execution of the batch, which includes the buckets' read, evaluate
    and write (with state), summed over buckets.
    """
    parts: dict[str, float] = {}
    buckets: dict[str, float] = {}
    batches = of_buckets = 0
    for value in reports(settings):
        if value["kind"] == "job" and value["batches"] and value["mode"] == mode:
            batches += value["batches"]
            for name, milliseconds in value["parts_ms"].items():
                parts[name] = parts.get(name, 0.0) + milliseconds * value["batches"]
        elif value["kind"] == "bucket":
            of_buckets += 1
            for name, milliseconds in value["parts_ms"].items():
                buckets[name] = buckets.get(name, 0.0) + milliseconds
    whole = parts.pop("whole", 0.0) or 1.0
    found = {f"{name} %": round(100 * spent / whole, 1) for name, spent in parts.items()}
    found |= {"batch ms": round(whole / max(batches, 1), 1)}
    return found | {f"a bucket's {name} ms": round(spent / max(of_buckets, 1), 2) for name, spent in buckets.items()}


def committed(folder: Path, topic: str) -> int:
    """How many records of the topic the contestant's last committed batch had read."""
    for query in (folder / "checkpoint" / "query", folder / "checkpoint"):
        done = [int(file.name) for file in (query / "commits").glob("*") if file.name.isdigit()]
        if done:
            lines = (query / "offsets" / str(max(done))).read_text().splitlines()
            return sum(json.loads(lines[2]).get(topic, {}).values())
    return 0


def await_line(process: subprocess.Popen[bytes], log: Path, text: str, seconds: float = 300) -> None:
    """Wait until the contestant's log has the text; raise an error if it exits before, or takes longer."""
    until = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"{log} has no line {text!r}; it ends with: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
