"""What an export of history reads: bounded, in order, and only what is lacking."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from kafka import TopicPartition
from structlog.testing import capture_logs

from nightjar.configuration.job import job_config
from nightjar.kafka.clients import admin, producer
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.timestamps import iso_text
from nightjar.streaming.buckets.primed_state import LIST, Exported, Lack
from nightjar.streaming.partitioning import bucket_numbers
from nightjar.streaming.priming import export_history
from nightjar.streaming.priming.export_history import Request, Throttle, export, kafka_events
from nightjar.streaming.state.state_files import files_of, of_export
from nightjar.streaming.state.statelog import read
from tests.support.places import MINUTE, NOON
from tests.support.topics import TestTopics


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """Topics whose producers give the arrival, with a payment a minute; every second one in the other partition."""
    made = kafka_topics.with_arrival("producer").ensure()
    topic = made.streams["transactions"].topic
    with producer(made.settings) as client:
        for number in range(20):
            event = {
                "transaction_id": f"t{number}",
                "event_time": iso_text(NOON + number * MINUTE),
                "amount": 1,
                "customer_id": f"c{number % 5}",
                "terminal_id": "m",
            }
            at = (NOON + number * MINUTE) // 1000
            client.send(topic, json.dumps(event).encode(), partition=number % 2, timestamp_ms=at).get()
        client.send(topic, b"garbage", partition=0, timestamp_ms=(NOON + 20 * MINUTE) // 1000).get()
    return made


def ids(tables: Iterator[Any]) -> list[str]:
    """The ids in order of arrival."""
    rows = [row for table in tables for row in table.to_pylist()]
    return [row["transaction_id"] for row in sorted(rows, key=lambda row: row["arrival_time"])]


@pytest.mark.kafka
def test_kafka_is_read_from_the_first_record_that_can_matter(own: TestTopics) -> None:
    """Up to the offsets given, without what is unusable; the first minutes are too old, apart from the allowed skew."""
    config, stream = job_config(own.settings, own.streams), own.streams["transactions"]
    found = ids(kafka_events(config, stream, {0: (0, 11), 1: (0, 8)}, NOON + 5 * MINUTE))
    skew = stream.max_future_skew // MINUTE
    assert found == [f"t{n}" for n in range(5 - skew, 20) if n % 2 == 0 or n < 16]
    assert ids(kafka_events(config, stream, {0: (3, 5), 1: (3, 4)}, NOON)) == ["t6", "t7", "t8"]
    assert ids(kafka_events(config, stream, {}, NOON)) == []


@pytest.mark.kafka
def test_what_kafka_has_deleted_is_reported(own: TestTopics) -> None:
    """The rest is read."""
    config, stream = job_config(own.settings, own.streams), own.streams["transactions"]
    with admin(own.settings) as client:
        client.delete_records({TopicPartition(stream.topic, 0): 4})
    with capture_logs() as logged:
        assert ids(kafka_events(config, stream, {0: (1, 6)}, NOON)) == ["t8", "t10"]
    assert [line["records"] for line in logged] == [3]


@pytest.mark.kafka
def test_each_bucket_gets_what_it_lacks(own: TestTopics, tmp_path: Path) -> None:
    """Events from before its horizon, and those of offsets that its state does not have; positions precede its own."""
    config = job_config(own.settings, own.streams)
    horizons = tuple(NOON + minute * MINUTE for minute in (4, 8, 12, 16))
    key, first = ShuffleKey("transactions", "customer_id"), (0, -3, -5, 0)
    lacks = tuple(Lack(NOON + 2 * MINUTE, horizon, {1: 9}) for horizon in horizons)
    request = Request(config, "abc", 0, key, tmp_path, {0: 11, 1: 10}, lacks, first)
    assert export(request) > 0
    customers = [f"c{number % 5}" for number in range(20)]
    buckets = bucket_numbers(pa.array(customers), config.buckets)
    for bucket in range(config.buckets):
        files = files_of(tmp_path, bucket)
        listed = msgspec.msgpack.decode(files.get(of_export("abc", LIST)), type=Exported)
        rows = [row for entry in listed.entries for row in read(files.get(entry.name)).events.to_pylist()]
        lacking = [
            f"t{n}"
            for n in range(2, 20)
            if buckets[n] == bucket and (NOON + n * MINUTE < horizons[bucket] or (n % 2 == 1 and n // 2 < 9))
        ]
        assert [row["transaction_id"] for row in rows] == lacking
        assert (listed.since, listed.first) == (NOON + 2 * MINUTE, first[bucket] - 21)
        assert [row["arrival_seq"] for row in rows] == [first[bucket] - 21 + n for n in range(len(rows))]


def test_the_rate_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """On average: a day's events are read at once, and then waited for; and so is the process's share of a core."""
    now, used, slept = [0.0], [7.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    clocks = SimpleNamespace(process_time=lambda: used[0], monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(export_history, "time", clocks)  # its own name for the module: other threads sleep too
    throttle = Throttle(100)
    throttle.take(50)
    now[0] += 2
    throttle.take(100)
    throttle.take(300)
    assert slept == [0.5, 0.0, 2.0]
    assert now == [4.5]
    throttle = Throttle(1000, share=0.25)
    used[0] += 1.0
    throttle.take(1000)
    assert slept[3:] == [4.0]
