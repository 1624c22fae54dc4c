"""docs/how-to/rules-in-postgres.md: its commands are run in their order, with real PostgreSQL, Debezium and Kafka."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar.kafka.readers import Reader
from tests.support.answering import answering
from tests.support.connect import CHANGE, CONNECT, clients, commands, shell, worker
from tests.support.postgres import Postgres, binaries
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = 90.0
# So large, and not to be compressed, that PostgreSQL stores it beside the row.
INSERT_LARGE = """
large=$(head -c 4000 /dev/urandom | od -An -tx1 | tr -d ' \\n')
psql -d fraud <<< "INSERT INTO rules (id, author, rule) VALUES ('long', 'eve', '
    {stream: transactions, group_by: [customer_id], when: amount > 7} # $large
')"
"""
TOUCH = "psql -d fraud -c \"UPDATE rules SET author = author || 'x' WHERE id = 'long'\""

# What follows each change of the page, in the order of the answers.
EXPECTED = [
    ["large 1 ACCEPTED", "large 1 ACTIVE"],
    ["large 2 ACCEPTED", "large 2 ACTIVE", "large 1 SUPERSEDED"],
    ["large 3 ACCEPTED", "large 2 SUPERSEDED", "large 3 RETIRED"],
    ["small 1 ACCEPTED", "small 1 ACTIVE"],
    ["small 2 ACCEPTED", "small 1 SUPERSEDED", "small 2 RETIRED"],
]


@pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL: apt-get install postgresql")
def test_each_change_of_a_row_is_answered(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """Inserted, updated, marked as deleted, deleted; also while the worker is down, and where a large rule stays."""
    own = kafka_topics.ensure()
    programs = binaries()
    assert programs is not None

    def answers() -> list[str]:
        with Reader(own.settings, own.settings.rule_status_topic) as reader:
            records = [json.loads(record.value) for record in reader.all()]
        return [f"{each['rule_id']} {each['rule_version']} {each['status']}" for each in records]

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            connect.check()
            assert time.monotonic() < deadline, f"{answers()}\n{(tmp_path / 'connect.log').read_text()}"
            time.sleep(0.1)

    with Postgres(programs) as postgres, answering(own, clocks={"transactions": 1 << 61}):
        given = clients(own, postgres)
        connect = worker(tmp_path, own, postgres.port)
        shown, answered = "", 0
        try:
            for text in commands():
                if CONNECT in text:
                    connect.start()
                    continue
                shown = shell(text, given)
                if "ALTER SYSTEM" in text:
                    postgres.restart()
                elif CHANGE.search(text):
                    answered += 1
                    expected = [each for change in EXPECTED[:answered] for each in change]
                    until(lambda expected=expected: len(answers()) >= len(expected))
                    assert answers() == expected
            assert answered == len(EXPECTED)
            assert "bob" in shown
            assert "SUPERSEDED" in shown

            connect.stop(SECONDS)
            shell(INSERT_LARGE, given)
            connect.start()
            until(lambda: "long 1 ACCEPTED" in answers())
            shell(TOUCH, given)
            until(lambda: answers().count("long 1 ACCEPTED") == 2)
            shell("psql -d fraud -c 'ALTER TABLE rules REPLICA IDENTITY DEFAULT'", given)
            shell(TOUCH, given)
            until(lambda: "long None REJECTED" in answers())
        finally:
            connect.stop(SECONDS)
