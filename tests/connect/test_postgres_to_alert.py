"""docs/how-to/rules-in-postgres.md with a job that runs: what a row says decides which events become alerts."""

import time
from pathlib import Path

import pytest

from nightjar.rules.timestamps import iso_text
from tests.support.connect import CHANGE, CONNECT, clients, commands, shell, worker
from tests.support.places import Place, place_of, until
from tests.support.postgres import Postgres, binaries
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def send(place: Place, name: str, amount: int) -> None:
    """A payment of now."""
    now = time.time_ns() // 1000
    event = {
        "transaction_id": name,
        "event_time": iso_text(now),
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": amount,
    }
    place.send([(now, event)])


@pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL: apt-get install postgresql")
def test_an_inserted_row_ends_as_an_alert(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """The page's first row alerts on payments above 500, after its update on those above 800."""
    place, programs = place_of(kafka_topics, tmp_path), binaries()
    assert programs is not None
    blocks = commands()
    changes = [text for text in blocks if CHANGE.search(text) and CONNECT not in text]
    preparing = blocks[: blocks.index(changes[0])]
    with Postgres(programs) as postgres, place.job() as job:
        given, connect = clients(place.topics, postgres), worker(tmp_path, place.topics, postgres.port)
        try:
            for text in preparing:
                if CONNECT in text:
                    connect.start()
                    continue
                shell(text, given)
                if "ALTER SYSTEM" in text:
                    postgres.restart()
            for number, change in enumerate(changes[:2], 1):
                shell(change, given)
                until(job, lambda number=number: place.settled(("large", number)), f"version {number} to be active")
                for amount in (500, 600, 900):
                    send(place, f"v{number}-{amount}", amount)
            until(job, place.consumed, "the payments to be read")
        finally:
            connect.stop(60)
        assert job.stop() == 0
    found = {(alert["event_id"], alert["rule_version"]) for alert in place.alerts()}
    assert found == {("v1-600", 1), ("v1-900", 1), ("v2-900", 2)}
