"""`nightjar alerts forward --postgres`: alerts as rows of a real PostgreSQL's table."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from nightjar.kafka.clients import producer
from nightjar.operations.alert_table import AlertTable, connection_string
from nightjar.processes.process import HOST
from nightjar.rules.errors import SettingsError
from tests.support.alert_records import alert
from tests.support.command import environment, run
from tests.support.postgres import Postgres, binaries
from tests.support.topics import TestTopics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL: apt-get install postgresql"),
]

SECONDS = 60.0
PASSWORD = "a'b @/%:ü"
ENCODED = "a%27b%20%40%2F%25%3A%C3%BC"


class Site:
    """A test's own topics and database; file: that holds the connection string."""

    def __init__(self, own: TestTopics, postgres: Postgres, folder: Path) -> None:
        self.own, self.postgres = own, postgres
        self.database = f"d{own.settings.alerts_topic.partition('-')[0]}"
        with psycopg.connect(f"host={HOST} port={postgres.port} user=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.database} ENCODING 'UTF8' TEMPLATE template0")  # type: ignore[call-overload]
        self.file = folder / "postgres"
        self.file.touch(mode=0o600)
        self.file.write_text(self.url("postgres") + "\n")

    def url(self, user: str) -> str:
        """A connection string."""
        return f"postgresql://{user}@{HOST}:{self.postgres.port}/{self.database}"

    def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """What a statement returns."""
        with psycopg.connect(self.url("postgres"), autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows by event."""
        return {row["event_id"]: row for row in self.sql("SELECT * FROM nightjar_alerts")}

    def send(self, *values: dict[str, Any] | bytes | None) -> None:
        """Put records on the topic, in one partition."""
        with producer(self.own.settings) as client:
            for value in values:
                written = json.dumps(value).encode() if isinstance(value, dict) else value
                client.send(self.own.settings.alerts_topic, written, key=b"k", partition=0).get()

    @property
    def environment(self) -> dict[str, str]:
        """Of the command."""
        return environment(self.own.settings)

    def forward(self, *arguments: str, code: int = 0) -> str:
        """Run the command to the topic's end; what it prints."""
        given = ("alerts", "forward", "--postgres", str(self.file), "--until-end", *arguments)
        return run(*given, code=code, environment=self.environment).stderr

    def started(self) -> "subprocess.Popen[str]":
        """The command, running on."""
        command = [str(Path(sys.executable).with_name("nightjar")), "alerts", "forward", "--postgres", str(self.file)]
        given = {**os.environ, **self.environment, "NIGHTJAR_LOG_LEVEL": "info"}
        return subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server, in which anybody may log in without a password, but `asked` needs one."""
    programs = binaries()
    assert programs is not None
    with Postgres(programs) as running:
        access = running.folder / "data" / "pg_hba.conf"
        access.write_text("host all asked all scram-sha-256\n" + access.read_text())
        with psycopg.connect(f"host={HOST} port={running.port} user=postgres", autocommit=True) as connection:
            connection.execute("CREATE ROLE writer LOGIN")
            connection.execute("CREATE ROLE asked LOGIN SUPERUSER")
            connection.execute(psycopg.sql.SQL("ALTER ROLE asked PASSWORD {}").format(PASSWORD))
            connection.execute("SELECT pg_reload_conf()")
        yield running


@pytest.fixture
def site(kafka_topics: TestTopics, postgres: Postgres, tmp_path: Path) -> Site:
    """With nothing in it."""
    return Site(kafka_topics.ensure(), postgres, tmp_path)


def until(condition: Callable[[], bool], shown: Callable[[], object]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.1)


def test_rows_have_the_latest_revision(site: Site) -> None:
    """Of each alert; a retraction stays as a row, and an older revision that comes later changes nothing."""
    site.send(
        alert("t1", text="first"),
        alert("t2"),
        alert("t1", revision=3, text="third", measures={"n": 3, "mean": 1.5, "last": None}),
        alert("t2", revision=2, kind="retraction"),
        alert("t1", revision=2, text="second"),
    )
    assert "Forwarded 5 records, skipped 0 that are no alerts" in site.forward()
    rows = site.rows()
    assert {name: (row["revision"], row["kind"]) for name, row in rows.items()} == {
        "t1": (3, "alert"),
        "t2": (2, "retraction"),
    }
    row = rows["t1"]
    assert row["alert_id"] == alert("t1")["alert_id"]
    assert (row["text"], row["measures"]) == ("third", {"n": 3, "mean": 1.5, "last": None})
    assert row["group"] == {"customer_id": "c7"}
    assert row["event_time"].isoformat() == "2026-01-05T10:00:00+00:00"
    assert (row["muted"], row["cause"], row["overflow"]) == (False, None, None)


def test_of_equal_revisions_the_correction_counts(site: Site) -> None:
    """Whichever comes first."""
    stream, backfill = alert("t1", text="stream"), alert("t1", source="backfill", cause="late", text="backfill")
    site.send(stream, backfill, stream)
    site.forward()
    assert (site.rows()["t1"]["text"], site.rows()["t1"]["cause"]) == ("backfill", "late")


def test_a_second_run_writes_what_is_new(site: Site) -> None:
    """It resumes from the offsets in the database, in which corrections' transactions are counted too."""
    site.send(alert("t1"))
    site.forward()
    with producer(site.own.settings, transactional_id="nightjar-test") as client:
        client.init_transactions()
        client.begin_transaction()
        correction = alert("t2", source="backfill", cause="late")
        client.send(site.own.settings.alerts_topic, json.dumps(correction).encode(), partition=0)
        client.commit_transaction()
    assert "Forwarded 1 record," in site.forward()
    assert "Forwarded 0 records," in site.forward()
    (found,) = site.sql("SELECT next_offset FROM nightjar_alerts_offsets WHERE partition = 0")
    assert found == {"next_offset": 3}


def test_a_redelivery_changes_nothing(site: Site) -> None:
    """When the offsets are lost, everything is written once more."""
    site.send(alert("t1"), alert("t1", revision=2), alert("t2"))
    site.forward()
    before = site.rows()
    site.sql("DELETE FROM nightjar_alerts_offsets")
    assert "Forwarded 3 records" in site.forward()
    assert site.rows() == before


def test_a_killed_process_loses_and_repeats_nothing(site: Site) -> None:
    """Rows and offsets change together: a trigger that counts writes counts each record once."""
    site.send(alert("t0"))
    site.forward()
    site.sql("CREATE TABLE writes (event_id text)")
    site.sql(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO writes VALUES (NEW.event_id); RETURN NEW; END $$"
    )
    site.sql("CREATE TRIGGER note BEFORE INSERT ON nightjar_alerts FOR EACH ROW EXECUTE FUNCTION note()")
    for number in range(1, 4):
        process = site.started()
        with producer(site.own.settings) as client:
            for each in range(1_000):
                record = json.dumps(alert(f"{number}-{each}")).encode()
                client.send(site.own.settings.alerts_topic, record, partition=0)
        written = len(site.sql("SELECT * FROM writes"))
        until(lambda written=written: len(site.sql("SELECT * FROM writes")) > written, site.rows)
        process.kill()
        process.communicate()
    site.forward()
    assert len(site.rows()) == 3_001
    assert len(site.sql("SELECT * FROM writes")) == 3_000


def test_a_server_that_restarts_is_waited_for(site: Site) -> None:
    """The command goes on with the records that came meanwhile, and ends with SIGTERM."""
    process = site.started()
    try:
        site.send(alert("t1"))
        until(lambda: bool(site.sql("SELECT to_regclass('nightjar_alerts') AS found")[0]["found"]), site.rows)
        until(lambda: set(site.rows()) == {"t1"}, site.rows)
        site.postgres.restart()
        site.send(alert("t2"))
        until(lambda: set(site.rows()) == {"t1", "t2"}, site.rows)
        process.send_signal(signal.SIGTERM)
        _, printed = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, printed
    assert "target_lost" in printed
    assert "Forwarded 2 records" in printed


def test_hostile_records(site: Site) -> None:
    """What is no alert is skipped; texts are stored as they are, but for NUL, which PostgreSQL lacks."""
    text = "'); DROP TABLE nightjar_alerts; --\x00\\u0000\"\u202e\x1b[2J{}%s$1"
    hostile = alert(text, group={text: text, "n": -(2**63)}, measures={"x": 1e308, "y": text}, text=text)
    site.send(
        b"",
        None,
        b"\xff",
        b"[" * 99_999,
        alert("t2") | {"alert_id": "0" * 32},
        alert("t3", text="\ud800"),
        alert("t4", measures={"n": float("nan")}),
        hostile,
        {name: value for name, value in alert("t5").items() if name != "emitted_at"},
        alert("t6", emitted_at="0001-01-01T00:00:00Z") | {"unknown": {"deep": []}},
    )
    assert "Forwarded 3 records, skipped 7 that are no alerts" in site.forward()
    rows, stored = site.rows(), text.replace("\x00", "\ufffd")
    assert set(rows) == {stored, "t5", "t6"}
    row = rows[stored]
    assert row["alert_id"] == hostile["alert_id"]
    assert row["text"] == stored
    assert row["group"] == {stored: stored, "n": -(2**63)}
    assert row["measures"] == {"x": 10**308, "y": stored}
    assert rows["t5"]["emitted_at"] is None


def test_a_table_that_somebody_else_made(site: Site) -> None:
    """Rights to read and write two tables are enough; a column that is missing is added by their owner."""
    site.forward("--table", "public.nightjar_alerts")
    site.file.write_text(site.url("writer"))
    assert "permission denied" in site.forward(code=2)
    for table in ("nightjar_alerts", "nightjar_alerts_offsets"):
        site.sql(f"GRANT SELECT, INSERT, UPDATE ON {table} TO writer")
    site.send(alert("t1"))
    site.forward()
    site.sql("ALTER TABLE nightjar_alerts DROP COLUMN overflow")
    site.send(alert("t2", overflow=True))
    assert "must be owner" in site.forward(code=2)
    site.file.write_text(site.url("postgres"))
    site.forward()
    assert site.rows()["t2"]["overflow"] is True


def test_logins(site: Site) -> None:
    """A wrong password and a server that does not run end it with a reason that has no password."""
    server = f"{HOST}:{site.postgres.port}/{site.database}"
    site.file.write_text(f"postgresql://asked:{ENCODED}@{server}")
    site.forward()
    site.file.write_text(f"postgresql://asked:wrong-word@{server}")
    printed = site.forward(code=2)
    assert 'password authentication failed for user "asked"' in printed
    assert "wrong-word" not in printed
    site.file.write_text(f"postgresql://asked:wrong-word@{HOST}:1/x")
    printed = site.forward(code=2)
    assert "Connection refused" in printed
    assert "wrong-word" not in printed


def test_a_database_without_utf8_is_refused(site: Site) -> None:
    """Before anything is written."""
    other = f"{site.database}_latin"
    site.sql(f"CREATE DATABASE {other} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    site.file.write_text(site.url("postgres").replace(site.database, other))
    assert "the database's encoding is LATIN1" in site.forward(code=2)


def test_two_writers_of_a_table_are_noticed(site: Site) -> None:
    """The one that is behind ends, and writes nothing."""
    topic = site.own.settings.alerts_topic
    with AlertTable(site.url("postgres"), "nightjar_alerts", topic) as table:
        assert table.start() == {}
        site.send(alert("t1"))
        site.forward()
        with pytest.raises(Exception, match=f"another process has written partition 0 of {topic}"):
            table.write([], {0: 1})


def test_a_topic_that_was_made_again_is_read_from_its_beginning(site: Site) -> None:
    """Its offsets are lower than those in the database."""
    site.forward()
    site.sql("INSERT INTO nightjar_alerts_offsets VALUES (%s, 0, 1000)", site.own.settings.alerts_topic)
    site.send(alert("t1"))
    assert "topic_restarted" in site.forward()
    assert set(site.rows()) == {"t1"}


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("postgresql://u:secret@h/d", 0o644, "others can read it"),
        ("", 0o600, "holds no connection string"),
        ("postgresql://u:secret@h/d\nx", 0o600, "holds no connection string"),
        ("u:secret", 0o600, "holds no connection string"),
        ("postgresql://u:sec@ret@h/d", 0o600, "the host has an @"),
        ("postgresql://u:secret@h/d?pass=secret", 0o600, "holds no connection string"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, mode: int, message: str) -> None:
    """The error says why, without what is in it."""
    file = tmp_path / "postgres"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(SettingsError, match=message) as caught:
        connection_string(file)
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b.c", 'x"y', "X", "a" * 56, "a.", ".a", "1a"])
def test_names_that_are_no_tables(name: str) -> None:
    """They are refused before anything is connected."""
    with pytest.raises(SettingsError, match="is not a table's name"):
        AlertTable("", name, "alerts")
