"""`nightjar topics`: who may write and read each topic, in the documents, as a table and as ACL commands."""

import json
import shlex
from pathlib import Path

import pytest

from nightjar.configuration.settings import Settings, load_settings
from nightjar.demo import blocked
from nightjar.kafka import acls
from nightjar.kafka.topics import topics
from nightjar.rules.streams import load_streams
from tests.support.command import run

SECURITY = Path(__file__).parents[2] / "docs" / "reference" / "security.md"


def test_the_document_shows_the_table() -> None:
    """docs/reference/security.md is the same data."""
    assert acls.markdown() in SECURITY.read_text(encoding="utf-8")


def test_every_topic_is_in_the_table(tmp_path: Path) -> None:
    """Those that nightjar creates, where streams have lists, too, and no others; a setting that names a topic cannot be
    forgotten."""
    blocked.declare(tmp_path / "streams.toml")
    settings, streams = load_settings(), load_streams(tmp_path / "streams.toml").values()
    assert {found.topic for found in acls.topic_access(settings, streams)} == {
        topic.name for topic in topics(settings, streams)
    }
    named = {name for name in Settings.model_fields if name.endswith("_topic")}
    assert {access.setting for access in acls.ACCESS if access.setting is not None} == named


def test_the_commands_allow_what_the_table_lists() -> None:
    """Each principal gets the operations of its role on a topic, quoted for a shell."""
    given = ["--principal", "readers=User:some one's", "--command-config", "admin file.properties"]
    commands = [shlex.split(line) for line in run("topics", "--acls", *given).stdout.splitlines()]
    allowed = {
        (command[command.index("--topic") + 1], command[command.index("--allow-principal") + 1]): command
        for command in commands
        if "--topic" in command
    }
    assert "User:nightjar-producers" not in {who for topic, who in allowed if topic == "alerts"}
    reading = allowed["alerts", "User:some one's"]
    assert reading[:5] == [
        "kafka-acls",
        "--bootstrap-server",
        "127.0.0.1:19092",
        "--command-config",
        "admin file.properties",
    ]
    assert [each for at, each in enumerate(reading) if reading[at - 1] == "--operation"] == ["Read", "Describe"]
    writing = allowed["alerts", "User:nightjar-backfill"]
    assert "Write" in writing
    assert any("--transactional-id" in command for command in commands)


def test_json_lists_principals() -> None:
    """For programs that manage ACLs by other means."""
    found = {each["topic"]: each for each in json.loads(run("topics", "--json").stdout)}
    assert found["clock"]["writers"] == ["User:nightjar-job"]


@pytest.mark.parametrize("given", ["reader=User:a", "readers", "readers=a"])
def test_a_principal_that_is_none_is_refused(given: str) -> None:
    """With what would be right."""
    assert "ROLE=TYPE:NAME" in run("topics", "--principal", given, code=2).stderr
