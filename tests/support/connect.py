"""Kafka Connect with Debezium, and the commands of docs/how-to/rules-in-postgres.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

from nightjar.jvm.jars import PROJECT, jars, java
from nightjar.processes.process import ManagedProcess, free_port
from nightjar.rules.errors import NightjarError
from tests.support.command import environment
from tests.support.postgres import Postgres
from tests.support.topics import TestTopics

CONNECT = "connect-standalone.sh"
CHANGE = re.compile("INSERT|UPDATE|DELETE")
_PAGE = PROJECT / "docs" / "how-to" / "rules-in-postgres.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The page's commands, a text each block: CONNECT starts the worker, those with a CHANGE change the table."""
    return _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))


def clients(own: TestTopics, postgres: Postgres) -> dict[str, str]:
    """The environment that leads the commands to the test's topics and database."""
    given = {**os.environ, **environment(own.settings), **postgres.environment, "COLUMNS": "200"}
    given["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{given['PATH']}"
    return given


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
        text = (PROJECT / "deploy" / "postgres" / name).read_text()
        for written in [each for each in changes if each in text]:
            text = text.replace(written, changes.pop(written))
        if name == "connect.properties":
            text += f"listeners=http://127.0.0.1:{free_port()}\n"
        files.append(folder / name)
        files[-1].write_text(text)
    assert changes == {}, "the examples hold other addresses"
    class_path = os.pathsep.join(map(str, jars("connect", PROJECT / "deploy" / "compose" / "connect" / "ivy.xml")))
    options = [
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
        class_path,
        "org.apache.kafka.connect.cli.ConnectStandalone",
    ]
    return ManagedProcess(
        "Kafka Connect",
        [java(), *options, *map(str, files)],
        folder / "connect.log",
        NightjarError,
        environment={**os.environ, "DEBEZIUM_PASSWORD": "change me"},
    )
