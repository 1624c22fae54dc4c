"""A day whose backfill is killed, for real and at the worst moments, and runs of one day that overlap."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pytest

from nightjar.backfill.config import BackfillError
from nightjar.backfill.publish import publication
from nightjar.backfill.publish.verdicts import OutdatedError
from nightjar.backfill.staging import CORRECTED
from nightjar.configuration.settings import PREFIX
from nightjar.kafka.clients import consumer, producer
from nightjar.kafka.readers import Reader
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import CORRECTIONS, VIOLATIONS, events_table
from nightjar.rules.durations import format_duration
from nightjar.rules.streams import recorded_streams
from nightjar.rules.timestamps import iso_text, microseconds
from tests.support.nights import DAY, FirstNight, Night, expected, latest_alerts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 120.0
SHARED = {"arrival", "data_dir", "bootstrap_servers"}

# `nightjar`, but that it stays in a batch of the archive once one of its tables has its part.
IN_A_BATCH = """
import runpy, threading
from nightjar.lake import delta

def holding(write):
    def hold(*given):
        write(*given)
        threading.Event().wait()
    return hold

delta.add, delta.append = holding(delta.add), holding(delta.append)
runpy.run_module("nightjar", run_name="__main__")
"""

# The stage that publishes, but that it stays in its transaction once the broker has all of it.
IN_THE_TRANSACTION = """
import runpy, threading
from kafka import KafkaProducer

def hold(producer):
    producer.flush()
    threading.Event().wait()

KafkaProducer.commit_transaction = hold
runpy.run_module("nightjar.airflow.backfill_stage", run_name="__main__")
"""

# The same, but that it stays between Kafka and the tables.
BEFORE_THE_TABLES = """
import runpy, threading
from nightjar.backfill.publish import results

results.publish_violations = lambda *_: threading.Event().wait()
runpy.run_module("nightjar.airflow.backfill_stage", run_name="__main__")
"""


def environment(night: Night) -> dict[str, str]:
    """What leads a process to the night's topics and lake."""
    declared = night.settings.data_dir / "streams.toml"
    with declared.open("w") as file:
        for name, stream in night.config.streams.items():
            if stream.members:
                members = json.dumps([member.stream.name for member in stream.members])
                file.write(f"[streams.{name}]\nunion = {members}\nentities = {json.dumps(stream.entities)}\n")
                continue
            file.write(
                f"[streams.{name}]\ntopic = {json.dumps(stream.topic)}\nevent_id = {json.dumps(stream.event_id)}\n"
                f"event_time = {json.dumps(stream.event_time)}\nentities = {json.dumps(stream.entities)}\n"
                f"allowed_lateness = {json.dumps(format_duration(stream.allowed_lateness))}\n"
                f"max_future_skew = {json.dumps(format_duration(stream.max_future_skew))}\n[streams.{name}.fields]\n"
            )
            file.writelines(f"{field} = {json.dumps(str(kind))}\n" for field, kind in stream.fields.items())
    every = night.settings.model_dump()
    given = {name: value for name, value in every.items() if name.endswith("_topic") or name in SHARED}
    given |= {"streams": declared, "driver_memory": "1g", "spark_master": "local[2]"}
    return {**os.environ, **{f"{PREFIX}{name}".upper(): str(value) for name, value in given.items()}}


def killed_when(night: Night, condition: Callable[[], bool], *command: str) -> None:
    """Run Python with these arguments, and kill it and all that it has started at the moment the condition holds."""
    log = night.settings.data_dir / "killed.log"
    with log.open("wb") as out:
        process = psutil.Popen([sys.executable, *command], stdout=out, stderr=subprocess.STDOUT, env=environment(night))
    try:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert process.poll() is None, f"it ended by itself:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"it did not get there:\n{log.read_text()}"
            time.sleep(0.002)
    finally:
        family = [process, *process.children(recursive=True)]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family)


def stage(name: str, run_id: str) -> list[str]:
    """The arguments of a stage's program."""
    return [name, "--run-id", run_id, "--day", DAY.date().isoformat()]


def corrections_of(night: Night) -> list[tuple[str, int]]:
    """(alert id, revision) of the corrections that are on Kafka, repeated ones too, in order."""
    reports = night.alerts().filter(pl.col("source") == "backfill")
    return sorted(reports.select("alert_id", "revision").iter_rows())


def noted(night: Night) -> list[tuple[str, int]]:
    """The same of the table of corrections."""
    rows = scan(night.config.lake.root, CORRECTIONS).select("alert_id", "revision").collect()
    return sorted(rows.iter_rows())


@contextmanager
def uncommitted(night: Night) -> Iterator[Callable[[], int]]:
    """How many corrections have come to the topic so far, in open transactions, too."""
    count = 0
    with consumer(night.settings, night.settings.alerts_topic, isolation_level="read_uncommitted") as client:

        def counted() -> int:
            nonlocal count
            for records in client.poll(timeout_ms=20).values():
                count += sum(json.loads(record.value)["source"] == "backfill" for record in records)
            return count

        yield counted


def test_killed_and_run_again_it_publishes_everything_once(first_night: FirstNight, copied: Night) -> None:
    """Killed in mid-batch of the archive, in its transaction, and between Kafka and the tables."""
    night = copied
    root = night.config.lake.root
    events = [events_table(stream) for stream in recorded_streams(night.config.streams.values())]

    def archived() -> list[bool]:
        return [(root / table.name / "_delta_log" / f"{1:020}.json").exists() for table in events]

    killed_when(night, lambda: any(archived()), "-c", IN_A_BATCH, "backfill", "--day", DAY.date().isoformat())
    assert not (root / "_archive" / "commits" / "0").exists(), "it was killed in the middle of a batch"
    night.run("killed", "archive")
    for name, share in night.history.streams.items():
        offsets = scan(root, events_table(night.config.streams[name])).select("offset").collect()["offset"]
        assert offsets.sort().to_list() == list(range(share.plan.num_rows)), name

    count, reports = night.run("killed", "evaluate", "reconcile")["corrections"], night.alerts()
    assert count == first_night.counts["corrections"] > 0

    with uncommitted(night) as come:
        first = min(count, publication._RECORDS_PER_TRANSACTION)
        killed_when(night, lambda: come() == first, "-c", IN_THE_TRANSACTION, *stage("publish", "killed"))
    assert night.alerts().height == reports.height, "records that are not committed were not published"

    killed_when(
        night, lambda: len(corrections_of(night)) == count, "-c", BEFORE_THE_TABLES, *stage("publish", "killed")
    )
    assert delta.version(root, VIOLATIONS) == 0, "it was killed before the tables"

    assert night.run("killed", "publish")["published"] == 0
    assert night.alerts().height == reports.height + count
    assert corrections_of(night) == noted(night) == sorted(set(noted(night)))
    assert latest_alerts(night.alerts()) == expected(night)
    assert night.results() == first_night.results
    again = night.run("again", "archive", "evaluate", "reconcile", "publish")
    assert (again["corrections"], again["published"], again["violations_changed"]) == (0, 0, 0)
    assert corrections_of(night) == noted(night)
    assert night.results() == first_night.results


def test_runs_of_one_day_that_overlap_say_nothing_twice(copied: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that another has overtaken publishes nothing, as what it found may no longer hold; run again, it does."""
    night = copied
    count = night.run("a", "archive", "evaluate", "reconcile")["corrections"]
    assert count > 0
    staging = night.config.lake.root / "staging"
    shutil.copytree(staging / "a", staging / "b")  # a run that began at the same time
    late = late_payment(night)
    assert night.run("c", "archive", "evaluate", "reconcile")["corrections"] >= count

    emitted = []
    published_since = publication._published_since

    def overtaken(*given: Any) -> Any:
        found = published_since(*given)
        monkeypatch.undo()
        emitted.append(night.run("b", "publish")["published"])
        return found

    monkeypatch.setattr(publication, "_published_since", overtaken)
    with pytest.raises(BackfillError, match="none of the corrections were published"):
        night.run("a", "publish")
    assert emitted == [count]
    reports, results = corrections_of(night), night.results()
    assert reports == noted(night) == sorted(set(reports))
    for overtaken_run in ("a", "c"):
        with pytest.raises(OutdatedError, match="b finished since this run read the lake"):
            night.run(overtaken_run, "publish")
        assert (corrections_of(night), night.results()) == (reports, results)

    night.run("d", "archive", "evaluate", "reconcile", "publish")
    assert corrections_of(night) == noted(night) == sorted(set(noted(night)))
    assert set(noted(night)) > set(reports)
    assert latest_alerts(night.alerts()) == expected(late)


def late_payment(night: Night) -> Night:
    """One more payment comes in the evening, that counts for a correction which is staged; the night with it."""
    stream = night.config.streams["transactions"]
    staged = pl.read_parquet(night.config.lake.root / "staging" / "a" / CORRECTED / "*.parquet")
    about = staged.filter((pl.col("rule_id") == "busy") & (pl.col("kind") == "alert")).sort("event_time")
    at, customer = about["event_time"][0] - timedelta(seconds=1), json.loads(about["group"][0])["customer_id"]
    arrival = DAY + timedelta(hours=23)
    event = {
        "transaction_id": "evening",
        "event_time": iso_text(microseconds(at)),
        "customer_id": customer,
        "terminal_id": "another",
        "amount": "60.00",
    }
    with Reader(night.settings, night.settings.job_progress_topic) as reader:
        progress = [json.loads(record.value) for record in reader.all()]
    emitted = [record for record in progress if record["kind"] == "job"][-1]
    emitted["consumed"][stream.topic]["0"] += 1  # as if the job had read it, and reported it as late
    with producer(night.settings) as client:
        stamp = microseconds(arrival) // 1000
        sent = client.send(stream.topic, json.dumps(event).encode(), key=customer.encode(), timestamp_ms=stamp).get()
        late = {
            "stream": stream.name,
            "event_id": event["transaction_id"],
            "event_time": event["event_time"],
            "arrival_time": iso_text(microseconds(arrival)),
            "partition": 0,
            "offset": sent.offset,
            "event": event,
        }
        client.send(night.settings.late_events_topic, json.dumps(late).encode()).get()
        client.send(night.settings.job_progress_topic, json.dumps(emitted).encode(), key=b"job").get()
    share = night.history.streams["transactions"]
    row = {**event, "event_time": at, "amount": Decimal(event["amount"]), "arrival_time": arrival}
    added = pa.Table.from_pylist([row], share.events.schema)
    both = replace(share, events=pa.concat_tables([share.events, added]))
    history = replace(night.history, streams={**night.history.streams, "transactions": both})
    return replace(night, history=history)
