"""docs/how-to/rules-in-postgres.md: its commands are run in their order, with real PostgreSQL, Debezium and Kafka."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar.jvm.jars import PROJECT, jars, java
from nightjar.kafka.readers import Reader
from nightjar.local.process import ManagedProcess, free_port
from rules.errors import NightjarError
from tests.support.answering import answering
from tests.support.command import environment
from tests.support.postgres import Postgres, binaries
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PAGE = PROJECT / "docs" / "how-to" / "rules-in-postgres.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONNECT = "connect-standalone.sh"
CHANGE = re.compile("INSERT|UPDATE|DELETE")
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


def shell(commands: str, given: dict[str, str]) -> str:
    """What commands print on standard output; one that fails fails the test."""
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=PROJECT, env=given, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def worker(folder: Path, own: TestTopics, port: int) -> ManagedProcess:
    """The worker of the examples, at the test's own addresses."""
    changes = {
        "localhost:9092": own.settings.bootstrap,
        "/opt/connectors": str(folder),
        "/var/lib/connect": str(folder),
        "hostname=localhost": "hostname=127.0.0.1",
        "port=5432": f"port={port}",
        "replacement=rules": f"replacement={own.settings.rules_topic}",
    }
    files = []
    for name in ("connect.properties", "rules.properties"):
        text = (PROJECT / "examples" / "postgres" / name).read_text()
        for written in [each for each in changes if each in text]:
            text = text.replace(written, changes.pop(written))
        if name == "connect.properties":
            text += f"listeners=http://127.0.0.1:{free_port()}\n"
        files.append(folder / name)
        files[-1].write_text(text)
    assert changes == {}, "the examples hold other addresses"
    class_path = os.pathsep.join(map(str, jars("connect", PROJECT / "tests" / "connect" / "ivy.xml")))
    options = [
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
        class_path,
        "org.apache.kafka.connect.cli.ConnectStandalone",
    ]
    return ManagedProcess(
        "Kafka Connect", [java(), *options, *map(str, files)], folder / "connect.log", NightjarError,
        environment={**os.environ, "DEBEZIUM_PASSWORD": "change me"},
    )  # fmt: skip


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
        given = {**os.environ, **environment(own.settings), **postgres.environment, "COLUMNS": "200"}
        given["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{given['PATH']}"
        connect = worker(tmp_path, own, postgres.port)
        shown, answered = "", 0
        try:
            for text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
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
