"""A field is added to a stream in use: job, lake, night, `explain` and `stream rebuild`, on Kafka, Spark and Delta."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from nightjar.backfill.explain.explanation import explain
from nightjar.backfill.reconcile.reconciliation import latest_revisions
from nightjar.backfill.run import STAGES, Run
from nightjar.cases import Step
from nightjar.cases.model import Message
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings
from nightjar.lake.archive import archive
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, RECONCILIATION, events_table
from nightjar.operations.backfill_requests import request_of
from nightjar.operations.rebuild import rebuild
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text, parse_timestamp
from nightjar.rules.types import STRING, decimal
from nightjar.terminal.stages import Stages
from tests.support.job_host import CaseRun
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

NOON = parse_timestamp("2026-01-05T12:00:00Z", zone_required=True) or 0
MINUTE = 60_000_000
QUIET = Stages(Console(file=io.StringIO()))
OLD_RULE = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 2 AND spent > 15",
    "measures": {"n": {"count": "*", "over": "2h"}, "spent": {"sum": "amount", "over": "2h"}},
}
NEW_RULE = {
    "id": "devices",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "devices >= 2 OR (device IS NULL AND without >= 3)",
    "measures": {
        "devices": {"count_distinct": "device", "over": "2h"},
        "fees": {"sum": "fee", "over": "2h"},
        "without": {"count": "*", "over": "2h", "where": "device IS NULL"},
    },
}
Streams = Mapping[str, Stream]


def step(minute: int, *events: dict[str, Any], rules: tuple[dict[str, Any], ...] = (), crash: bool = False) -> Step:
    """Events that arrive at a minute after noon; each happens then too, unless it has another minute."""
    made = []
    for number, given in enumerate(events):
        at = given.pop("minute", minute)
        event = {
            "transaction_id": f"t{minute}-{number}",
            "event_time": iso_text(NOON + at * MINUTE),
            "customer_id": "ann",
            "terminal_id": "m1",
            "amount": "10.00",
        }
        made.append(Message("transactions", json.dumps(event | given).encode()))
    published = tuple(json.dumps(rule).encode() for rule in rules)
    return Step(NOON + minute * MINUTE, crash=crash, rules=published, events=tuple(made))


def night(spark: "SparkSession", settings: Settings, streams: Streams, run_id: str) -> dict[str, Any]:
    """Run the night; what it counted."""
    config = backfill_config(settings, streams)
    run = Run(spark, config, request_of(date(2026, 1, 5), streams, run_id=run_id))
    counts: dict[str, Any] = {}
    for stage in STAGES:
        counts |= run.do(stage)
    return counts


def test_a_stream_in_use_gets_a_field(spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path) -> None:
    """On the same checkpoint and lake: events with and without it, rules old and new over windows that reach back to
    before it, and no difference between stream and night that is not explained."""
    small = {"activation_delay": 0, "warm_up_batches": 0, "buckets": 2, "partitions": 1, "data_dir": tmp_path}
    settings = kafka_topics.settings.model_copy(update=small)
    stream = kafka_topics.streams["transactions"]
    narrow = {"transactions": stream}
    added = {"device": STRING, **stream.fields, "fee": decimal(6, 2)}
    wide = {"transactions": replace(stream, fields=MappingProxyType(added), optional=frozenset({"device", "fee"}))}
    config = backfill_config(settings, wide)
    lake = config.lake
    TestTopics(settings, narrow).with_arrival("producer").ensure()
    settings = settings.model_copy(update={"arrival": "producer"})

    with CaseRun(spark, settings, narrow) as job:
        job.take(step(0, {}, rules=(OLD_RULE,)))
        archive(spark, backfill_config(settings, narrow).lake)
        job.take(step(10, {}, {"customer_id": "bob"}))
        job.await_reported()
    with CaseRun(spark, settings, wide) as job:
        job.take(step(20, {}, rules=(NEW_RULE,)))
        job.take(step(30, {}, {"device": "phone", "fee": "0.25"}, {"customer_id": "bob", "device": None}))
        job.take(step(40, {"device": "watch"}, {"device": ["no", "string"]}, crash=True))
        job.take(step(50, {"minute": 5, "customer_id": "bob", "device": "late"}, {"customer_id": "bob"}))
        job.await_reported()

    counts = night(spark, settings, wide, "first")
    rejected = scan(lake.root, events_table(wide["transactions"])).select("device", "fee", "rejected").collect()
    assert rejected["rejected"].drop_nulls().to_list() == ["mistyped_field"]
    assert sorted(rejected["device"].drop_nulls()) == ["late", "phone", "watch"]
    assert counts["outcomes"]["matched"] >= 5
    assert counts["causes"] == {"late_event": sum(n for kind, n in counts["outcomes"].items() if kind != "matched")}
    found = scan(lake.root, RECONCILIATION).filter(rule_id="devices", outcome="matched").collect().sort("event_time")
    assert found["event_id"].to_list() == ["t20-0", "t30-0", "t40-0", "t50-1"]
    why = explain(config, found["alert_id"][2])
    assert why.violated
    assert why.status.confirmed
    assert why.found.measures == {"devices": 2, "fees": "0.25", "without": 4}
    window = why.found.window["device"].to_list()  # those of one step happened at the same time
    assert (window[-1], window.count("phone"), window.count(None)) == ("watch", 1, 4)

    rebuild(settings, wide, QUIET, spark)
    with CaseRun(spark, settings, wide) as job:
        job.take(step(60, {"device": "tablet"}, {"customer_id": "bob"}))
        job.await_reported()
    counts = night(spark, settings, wide, "second")
    assert set(counts["causes"]) <= {"late_event"}
    final = latest_revisions(scan(lake.root, ALERTS).filter(event_id="t60-0", rule_id="devices").collect())
    assert json.loads(final["measures"].item()) == {"devices": 3, "fees": "0.25", "without": 4}
