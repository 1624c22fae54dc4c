"""Corrections on a real broker: in small transactions, each once, whoever else publishes or was killed before."""

import json
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kafka.errors
import polars as pl
import pytest
from kafka import KafkaProducer

from nightjar.backfill.config import BackfillConfig, BackfillError
from nightjar.backfill.publish import publication
from nightjar.backfill.publish.publication import publish
from nightjar.configuration.job import topics
from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import correction_record
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.lake.config import LakeConfig
from nightjar.rules.actions import Action
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.timestamps import microseconds
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PER_TRANSACTION = publication._RECORDS_PER_TRANSACTION
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def corrections(count: int, **changed: Any) -> pl.DataFrame:
    """Corrections of alerts `a0`, `a1`, … about as many customers."""
    row = {
        "revision": 1,
        "kind": "alert",
        "cause": "late_event",
        "rule_id": "busy",
        "rule_version": 1,
        "stream": "transactions",
        "event_time": NOON,
        "rule_state": "active",
        "group": '{"customer_id":"ann"}',
        "measures": '{"n":3}',
        "severity": "high",
        "text": "",
        "muted": False,
        **changed,
    }
    of = [
        (alert_id("busy", 1, f"e{number}", microseconds(NOON), row["group"]), f"e{number}") for number in range(count)
    ]
    return pl.DataFrame([{"alert_id": alert, "event_id": event, **row} for alert, event in of])


def lake_of(settings: Settings, folder: Path) -> BackfillConfig:
    """A lake of its own on the test's topics, as its first archive leaves it."""
    (folder / "_archive").mkdir(parents=True)
    (folder / "_archive" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    lake = LakeConfig(folder, {}, kafka_config(settings), topics=topics(settings))
    return BackfillConfig(lake, arrival="broker")


def published(settings: Settings) -> Counter[tuple[str, int]]:
    """Alert id and revision of what a consumer of committed records reads, and how often each is there."""
    with Reader(settings, settings.alerts_topic) as reader:
        reported = [json.loads(record.value) for record in reader.all()]
    return Counter((record["alert_id"], record["revision"]) for record in reported)


def once(rows: pl.DataFrame) -> Counter[tuple[str, int]]:
    """Each correction, once."""
    return Counter(rows.select("alert_id", "revision").iter_rows())


@pytest.fixture
def settings(kafka_topics: TestTopics) -> Settings:
    """Settings whose topics exist."""
    return kafka_topics.ensure().settings


class Killed(Exception):  # noqa: N818  no error of the program's
    """The publisher's process is gone."""


def killed_after(monkeypatch: pytest.MonkeyPatch, transactions: int) -> None:
    """Let a publisher end within its next transaction but `transactions`, with all records of it on the broker."""
    commit, done = KafkaProducer.commit_transaction, [0]

    def hold(client: KafkaProducer) -> None:
        if done[0] == transactions:
            client.flush()
            raise Killed
        done[0] += 1
        commit(client)

    monkeypatch.setattr(KafkaProducer, "commit_transaction", hold)


def test_killed_between_transactions_the_next_try_completes_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed stays and is not repeated, what was open is aborted, and the rest follows."""
    config, wanted = lake_of(settings, tmp_path / "lake"), corrections(3 * PER_TRANSACTION + 7)
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(Killed):
            publish(config, wanted, {}, lambda: None)
    assert publish(config, wanted, {}, lambda: None) == PER_TRANSACTION + 7
    assert published(settings) == once(wanted)
    assert publish(config, wanted, {}, lambda: None) == 0


def test_a_correction_restricts_or_lifts_with_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one transaction with the alert, and no more often than that; of rules without an action nothing does."""
    config, action = lake_of(settings, tmp_path / "lake"), Action.model_validate({"restrict": "block", "for": "1h"})
    wanted = pl.concat([corrections(2), corrections(3, kind="retraction", revision=2).tail(1)])
    with monkeypatch.context() as patched:
        killed_after(patched, 0)
        with pytest.raises(Killed):
            publish(config, wanted, {}, lambda: None, {("busy", 1): action})
    for _ in range(2):
        publish(config, wanted, {}, lambda: None, {("busy", 1): action})
    publish(config, corrections(4).tail(1), {}, lambda: None, {("busy", 2): action, ("other", 1): action})
    with Reader(settings, settings.restrictions_topic) as reader:
        records = [(record.key, json.loads(record.value)) for record in reader.all()]
    assert {key for key, _ in records} == {b'{"customer_id":"ann"}'}
    found = {(record["restriction_id"], record["revision"], record["kind"]) for _, record in records}
    kinds = {"alert": "restriction", "retraction": "lift"}
    rows = wanted.select("alert_id", "revision", "kind").iter_rows()
    assert found == {(alert, revision, kinds[kind]) for alert, revision, kind in rows}
    assert len(records) == 3
    assert records[0][1]["ends_at"] == "2026-01-05T13:00:00.000000Z"


def test_a_conflict_is_found_before_anything_is_published(settings: Settings, tmp_path: Path) -> None:
    """Even where only the last of many corrections has one; the note is not taken either."""
    config, wanted = lake_of(settings, tmp_path / "lake"), corrections(2 * PER_TRANSACTION)
    publish(config, wanted.tail(1).with_columns(measures=pl.lit('{"n":4}')), {}, lambda: None)
    before, noted = published(settings), []
    with pytest.raises(BackfillError, match="another run has corrected it meanwhile"):
        publish(config, wanted, {}, lambda: noted.append(1))
    assert published(settings) == before
    assert not noted


def test_lakes_that_publish_to_one_kafka_at_once_do_not_fence_each_other(settings: Settings, tmp_path: Path) -> None:
    """Each is in the middle of its transactions when the other begins; both complete."""
    both = [corrections(4 * PER_TRANSACTION).with_columns(alert_id=pl.lit(name) + pl.col("event_id")) for name in "ab"]
    lakes = [lake_of(settings, tmp_path / name) for name in "ab"]
    together = threading.Barrier(2)

    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(publish, lake, rows, {}, lambda: together.wait(60))
            for lake, rows in zip(lakes, both, strict=True)
        ]
        assert [run.result() for run in runs] == [4 * PER_TRANSACTION] * 2
    assert published(settings) == once(both[0]) + once(both[1])


def test_one_lake_has_one_publisher(settings: Settings, tmp_path: Path) -> None:
    """Overtaken by another run of the same lake it publishes nothing more, and reports how far it came."""
    config, wanted = lake_of(settings, tmp_path / "lake"), corrections(2 * PER_TRANSACTION)

    def overtaken() -> None:
        assert publish(config, wanted.head(1), {}, lambda: None) == 1

    with pytest.raises(BackfillError, match="none of the corrections were published"):
        publish(config, wanted, {}, overtaken)
    assert published(settings) == once(wanted.head(1))


def test_whatever_anybody_writes_to_the_topic_does_not_stop_it(settings: Settings, tmp_path: Path) -> None:
    """What no alert can be is skipped; only a correction of the same alert and revision counts."""
    config, wanted = lake_of(settings, tmp_path / "lake"), corrections(1)
    ours = correction_record(wanted.row(0, named=True), 0)
    hostile: list[Any] = [
        {"source": "backfill", "alert_id": ours["alert_id"], "revision": 1},
        {**ours, "alert_id": []},
        {**ours, "revision": {}},
        {**ours, "revision": True},
        {**ours, "measures": [3]},
        {**ours, "kind": "alarm"},
        {**ours, "event_id": "e1"},
        {**ours, "source": ["backfill"]},
        {**ours, "source": "stream", "text": "another"},
        [],
        "text",
        None,
        1e999,
    ]
    with producer(settings) as client:
        for record in hostile:
            client.send(settings.alerts_topic, json.dumps(record).encode())
        for value in (b"\xff\xfe", b"{", b"[" * 100_000, None):
            client.send(settings.alerts_topic, value, key=b"k")
        client.flush()
    assert publish(config, wanted, {}, lambda: None) == 1


def test_a_broker_that_refuses_a_record_leaves_no_transaction_open(settings: Settings, tmp_path: Path) -> None:
    """Readers of committed records continue at once, and it reports how many were published before."""
    config = lake_of(settings, tmp_path / "lake")
    wanted = corrections(PER_TRANSACTION + 1)
    last = pl.col("alert_id") == wanted["alert_id"][-1]
    wanted = wanted.with_columns(text=pl.when(last).then(pl.lit("x" * 2_000_000)).otherwise("text"))
    with pytest.raises(BackfillError, match=f"only {PER_TRANSACTION} of the corrections were published") as refused:
        publish(config, wanted, {}, lambda: None)
    assert isinstance(refused.value.__cause__, kafka.errors.KafkaError)
    with producer(settings) as client:
        client.send(settings.alerts_topic, b'{"alert_id": "live", "revision": 1}', partition=0).get()
    assert published(settings) == once(wanted.head(PER_TRANSACTION)) + Counter({("live", 1): 1})
