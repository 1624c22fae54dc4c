"""Measures the pages over a large lake: how long each takes, the server's memory, and a live page with many readers.

    python -m checks.bench.pages [--events 10000000] [--days 10] [--alerts 1000000] [--readers 50] [--turns 3]

The lake has the events of some days, a tenth of which alert, and the results of each day's night but the last's. Days
that a night has judged are in few files, as after upkeep, and the last one is in 96. A server, `nightjar pages`, is
started for each page, and asked for it once it has made itself ready (pages/readiness.py), when it has used no
processor time for a while: `first`. The control is the second answer, and `renewed` is the one after the archive has
added alerts. `cold` is the answer of another server that is asked as soon as it listens, while it makes itself ready.
Processor time, which others on the machine do not add to, has lines of its own.

Then readers follow the live page at once while alerts come, ten a second. Latency is from before an alert is sent until
a reader has its row. The control of the server's memory is what it takes without a reader.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import psutil

from checks.bench.figures import emit, log_progress
from checks.bench.lakes import DAY, STREAM, answers_to, fill_day, publish_rules
from nightjar.configuration.settings import Settings, load_settings
from nightjar.contracts.alerts import ALERT, message
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.lake import delta, scanning
from nightjar.lake.config import LakeConfig
from nightjar.lake.tables import ALERTS, LABELS, RECONCILIATION, RUNS, Table, events_table
from nightjar.local.kafka import LocalKafka
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.timestamps import from_microseconds, microseconds
from nightjar.storage.paths import AnyPath

# Goals: of a first answer, seconds; of the server, bytes; of a row, seconds.
_FIRST, _MEMORY, _LATENCY = 0.3, 1 << 30, 1.0
# A server that uses less than this share of a processor for so many seconds is at rest; the most that is waited for it.
_REST, _FOR, _PATIENCE = 0.05, 1.5, 240.0
# How many alerts come while readers follow, and how many a second.
_LIVE, _RATE = 100, 10
RULE = {
    "id": "large",
    "stream": STREAM.name,
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1h"}},
    "when": "amount > 900",
    "description": "{customer_id} paid {amount}",
}
_EVENTS = events_table(STREAM)


@dataclass
class Server:
    """A running `nightjar pages`."""

    client: httpx.Client
    process: psutil.Process
    address: str
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        """Resident, bytes."""
        found: int = self.process.memory_info().rss
        return found

    @property
    def processor(self) -> float:
        """Processor time so far, seconds."""
        found = self.process.cpu_times()
        return float(found.user + found.system)

    def await_rest(self) -> float:
        """Wait until it has made itself ready; how long that took, seconds."""
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE:
            before = self.processor
            time.sleep(_FOR)
            if self.processor - before < _REST * _FOR:
                return time.monotonic() - began - _FOR
        raise AssertionError("the server does not come to rest")


@contextmanager
def serving(settings: Settings) -> Iterator[Server]:
    """A server of its own, which has answered that it lets us in."""
    given = {
        "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "NIGHTJAR_LAKE_DIR": str(settings.lake),
        "NIGHTJAR_DATA_DIR": str(settings.data_dir),
        "COLUMNS": "200",
    }
    command = [str(Path(sys.executable).with_name("nightjar")), "pages", "--port", "0"]
    with subprocess.Popen(
        command, env=os.environ | given, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as its:
        try:
            found = next(each for line in its.stdout or () if (each := re.search(r"http://\S+", line)))
            with httpx.Client(base_url=found[0].split("?")[0], trust_env=False, timeout=300) as client:
                _let_in(client, found[0])
                client.get("/assets/application.css").raise_for_status()
                yield Server(client, psutil.Process(its.pid), str(client.base_url), dict(client.cookies))
        finally:
            its.terminate()


def _let_in(client: httpx.Client, address: str) -> None:
    """Exchange the token for a cookie, once the server listens."""
    until = time.monotonic() + 60
    while True:
        try:
            client.get(address, follow_redirects=False)
            return
        except httpx.ConnectError:
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.1)


def fill(config: LakeConfig, options: argparse.Namespace) -> tuple[str, str]:
    """Fill the lake; returns an alert and its customer."""
    events, alerts = options.events // options.days, options.alerts // options.days
    chosen = "", ""
    for number in range(options.days):
        day, is_last = DAY + timedelta(days=number), number + 1 == options.days
        fill_day(config, events, day, first=number * events, files=96 if is_last else 4)
        rows = _alerts_of(config, day, alerts)
        for at, part in enumerate(rows.iter_slices(-(-rows.height // (96 if is_last else 4)))):
            _add(config, ALERTS, part, at)
        if not is_last:
            _add(config, RECONCILIATION, _judged(rows, day), 0)
            at = microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC)) + 26 * 3_600_000_000
            manifest = RunManifest(f"{day}", day, RunState.FINISHED, at, at, cut=at)
            _add(config, RUNS, pl.DataFrame([manifest.row()]), 0)
            _add(config, LABELS, _labels(rows), 0)
        last = rows.row(rows.height // 2, named=True)
        chosen = last["alert_id"], json.loads(last["group"])["customer_id"]
        log_progress(f"{day}: {events:,} events, {rows.height:,} alerts")
    publish_rules(config, [RULE])
    return chosen


def _alerts_of(config: LakeConfig, day: date, count: int) -> pl.DataFrame:
    """So many of the day's events over the limit, as alerts of the stream."""
    over = scanning.rows(config.root, _EVENTS).filter(pl.col("arrival_date") == day, pl.col("amount") > 900)
    found = over.sort("arrival_time").collect().head(count)
    groups = ('{"customer_id":"' + found.get_column("customer_id") + '"}').alias("group")
    about = zip(found["transaction_id"], found["event_time"].dt.epoch("us"), groups, strict=True)
    ids = [alert_id("large", 1, event, at, group) for event, at, group in about]
    return found.select(
        pl.Series("alert_id", ids),
        groups,
        pl.col("transaction_id").alias("event_id"),
        "event_time",
        pl.format("{} paid {}", "customer_id", "amount").alias("text"),
        pl.col("arrival_time").alias("emitted_at"),
        pl.lit(day).alias("arrival_date"),
        pl.Series("offset", np.arange(found.height)),
        *(
            pl.lit(value).alias(name)
            for name, value in {
                "revision": 1,
                "kind": "alert",
                "rule_id": "large",
                "rule_version": 1,
                "rule_state": "active",
                "stream": STREAM.name,
                "measures": '{"n":1}',
                "severity": "medium",
                "muted": False,
                "source": "stream",
                "partition": 0,
            }.items()
        ),
    )


def _judged(alerts: pl.DataFrame, day: date) -> pl.DataFrame:
    """What the night found: one in a hundred was retracted."""
    one = pl.int_range(pl.len()) % 100 == 0
    return alerts.with_columns(
        pl.lit(day).alias("day"),
        pl.when(one).then(pl.lit("retracted")).otherwise(pl.lit("matched")).alias("outcome"),
        pl.when(one).then(pl.lit("late_event")).alias("cause"),
        pl.lit(1).alias("stream_revision"),
    )


def _labels(alerts: pl.DataFrame) -> pl.DataFrame:
    """Of one alert in a thousand."""
    return alerts.gather_every(1000).select(
        "alert_id",
        "stream",
        "arrival_date",
        pl.lit("fraud").alias("label"),
        pl.col("emitted_at").alias("known_at"),
        pl.col("emitted_at").alias("arrival_time"),
        pl.lit(0).alias("partition"),
        "offset",
    )


def _add(config: LakeConfig, table: Table, rows: pl.DataFrame, number: int) -> None:
    """Rows, what they lack NULL, in one file."""
    known = pl.DataFrame(table.arrow.empty_table()).schema
    given = [pl.col(name) if name in rows.columns else pl.lit(None, kind).alias(name) for name, kind in known.items()]
    name = f"bench-{rows.get_column('arrival_date' if 'arrival_date' in rows.columns else 'day')[0]}"
    written = rows.select(given).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(table.arrow)
    delta.add(config.root, table, written, name, number)


def pages_of(lake: AnyPath, alert: str, customer: str, last: date) -> dict[str, str]:
    """Pages by the names of their figures."""
    week = last - timedelta(days=6)
    at = _time_of(lake, alert)
    return {
        "alerts": "/alerts",
        "alerts_of_a_week": f"/alerts?first={week}&last={last}",
        "alerts_of_a_text": f"/alerts?text={customer}%20paid",
        "alert": f"/alerts/{alert}?at={at}",
        "alert_by_its_id": f"/alerts/{alert}",
        "entity": f"/entity?field=customer_id&value={customer}",
        "nights": "/nights",
        "night": f"/nights/{last - timedelta(days=1)}",
        "rules": "/rules",
        "rule": "/rules/large",
        "edit": "/rules/large/edit",
        "stream": "/stream",
        "tables": "/tables",
    }


def _time_of(lake: AnyPath, alert: str) -> int:
    """When an alert's event was (µs), as a link to it says."""
    known = scanning.rows(lake, ALERTS).filter(pl.col("alert_id") == alert).select(pl.col("event_time").dt.epoch("us"))
    found: int = known.collect().item(0, 0)
    return found


def measure(settings: Settings, name: str, path: str, turns: int) -> bool:
    """A page's answers, of two servers each; returns whether goals were met."""
    answers: dict[str, list[float]] = {"cold": [], "first": [], "second": [], "renewed": []}
    worked: dict[str, list[float]] = {kind: [] for kind in answers}
    memory: list[float] = []
    rest: list[float] = []

    def ask(server: Server, kind: str) -> None:
        began, before = time.perf_counter(), server.processor
        answer = server.client.get(path)
        answers[kind].append(time.perf_counter() - began)
        worked[kind].append(server.processor - before)
        assert answer.is_success, f"{path}: {answer.status_code}\n{answer.text[:2000]}"

    for _ in range(turns):
        with serving(settings) as server:
            ask(server, "cold")
        with serving(settings) as server:
            server.await_rest()
            rest.append(server.memory / 1e6)
            ask(server, "first")
            ask(server, "second")
            _archive(settings)
            ask(server, "renewed")
            memory.append(server.memory / 1e6)
    second = answers["second"]
    met = emit(f"pages_{name}_first", "s", answers["first"], "the second answer", second, goal=None, at_most=_FIRST)
    met &= emit(f"pages_{name}_renewed", "s", answers["renewed"], "the second", second, goal=None, at_most=_FIRST)
    emit(f"pages_{name}_cold", "s", answers["cold"], "the second answer", second, goal=None)
    for kind in ("first", "renewed"):
        emit(f"pages_{name}_{kind}_processor", "s", worked[kind], f"the {kind} answer", answers[kind], goal=None)
    limit = _MEMORY / 1e6
    return emit(f"pages_{name}_memory", "MB", memory, "at rest", rest, goal=None, at_most=limit) and met


def _archive(settings: Settings) -> None:
    """Add a file of alerts of the last day, as an archive does that brings some again."""
    known = scanning.rows(settings.lake, ALERTS)
    newest = pl.lit(known.select(pl.col("arrival_date").max()).collect().item())
    last = known.filter(pl.col("arrival_date") == newest, pl.col("event_time").dt.date() == newest).head(100).collect()
    written = last.select(list(ALERTS.columns)).to_arrow(compat_level=pl.CompatLevel.oldest())
    delta.add(settings.lake, ALERTS, written.cast(ALERTS.arrow), "bench-archive", time.time_ns())


async def _follow(server: Server, received: dict[str, list[float]], ready: asyncio.Barrier) -> None:
    """Follow the live page until all alerts have come."""
    given: dict[str, Any] = {"trust_env": False, "timeout": 60, "cookies": server.cookies}
    left = _LIVE
    async with (
        httpx.AsyncClient(base_url=server.address, **given) as client,
        client.stream("GET", "/live") as answer,
    ):
        assert answer.is_success
        waiting = True
        async for line in answer.aiter_lines():
            if waiting and line == "data: live":
                waiting = False
                await ready.wait()
            for event in re.findall(r"live-(\d+)-", line)[:1]:
                if len(received.setdefault(event, [])) < ready.parties - 1:
                    received[event].append(time.time())
                    left -= 1
            if left == 0:
                return


async def _send(settings: Settings, sent: dict[str, float], ready: asyncio.Barrier) -> None:
    """Send the alerts once all follow."""
    await ready.wait()
    with producer(settings) as client:
        for number in range(_LIVE):
            now = microseconds(datetime.now(UTC))
            event, group = f"live-{number}-", '{"customer_id":"ann"}'
            values = {"event_id": event, "event_time": from_microseconds(now), "group": group, "measures": '{"n":1}'}
            values |= {"alert_id": alert_id("large", 1, event, now, group), "text": f"ann paid 1000.00, {event}"}
            values |= {"revision": 1, "kind": "alert", "rule_id": "large", "rule_version": 1, "rule_state": "active"}
            values |= {"stream": STREAM.name, "severity": "medium", "muted": False, "source": "stream", "cause": None}
            key, value = message(ALERT.record({**values, "emitted_at": now}))
            sent[str(number)] = time.time()
            client.send(settings.alerts_topic, key=key, value=value)
            client.flush()
            await asyncio.sleep(1 / _RATE)


async def _all(settings: Settings, server: Server, readers: int) -> list[float]:
    """The latencies of all rows, seconds."""
    ready = asyncio.Barrier(readers + 1)
    sent: dict[str, float] = {}
    received: dict[str, list[float]] = {}
    await asyncio.gather(_send(settings, sent, ready), *(_follow(server, received, ready) for _ in range(readers)))
    return [at - sent[number] for number, of in received.items() for at in of]


def follow(settings: Settings, readers: int) -> bool:
    """Measure the live page; returns whether goals were met."""
    with serving(settings) as server:
        server.await_rest()
        before = server.memory / 1e6
        alone = asyncio.run(_all(settings, server, 1))
        latencies = asyncio.run(_all(settings, server, readers))
        after = server.memory / 1e6
    met = True
    for share in (50, 99):
        found, control = (float(np.percentile(each, share)) for each in (latencies, alone))
        met &= emit(f"pages_live_p{share}", "s", [found], "one reader", [control], goal=None, at_most=_LATENCY)
    limit = _MEMORY / 1e6
    return emit("pages_live_memory", "MB", [after], "without readers", [before], goal=None, at_most=limit) and met


def main() -> None:
    """Measure, and print; exit with 1 where a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--alerts", type=int, default=1_000_000)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="some of the pages")
    parser.add_argument("--lake", type=Path, help="a folder that keeps the lake for another time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightjar-pages-") as folder:
        root = options.lake or Path(folder) / "lake"
        own = load_settings(data_dir=Path(folder) / "data", kafka_port=0, kafka_heap="384m", lake_dir=str(root))
        config = LakeConfig(root, {STREAM.name: STREAM})
        note = root / "chosen.json"
        if not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps(fill(config, options)))
        alert, customer = json.loads(note.read_text())
        with LocalKafka(own, short_lived=True) as broker:
            settings = broker.settings
            topics.ensure(settings, [STREAM])
            with producer(settings) as client:
                for answer in answers_to(config.streams, [RULE]):
                    client.send(settings.rule_status_topic, value=answer).get(60)
            met = True
            for name, path in pages_of(root, alert, customer, DAY + timedelta(days=options.days - 1)).items():
                if name in (options.only or (name,)):
                    met &= measure(settings, name, path, options.turns)
            if not options.only:
                met &= follow(settings, options.readers)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
