"""The DAGs `archive`, `lake_maintenance` and `stream_watchdog`, and what people hear of a failed task."""

import json
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nightjar.airflow import notifications
from nightjar.airflow.notifications import send
from nightjar.airflow.submission import ARCHIVE_NOW, LAKE_POOL
from nightjar.deployment.certificates import Authority
from nightjar.kafka.clients import producer
from tests.support.airflow import HEAVY, Airflow, settings_file
from tests.support.reports import word
from tests.support.topics import TestTopics

LOOK = """
from types import SimpleNamespace
from datetime import UTC, datetime
import archive, lake_maintenance, stream_watchdog
imported = sorted({name.partition(".")[0] for name in sys.modules})
from airflow.serialization.serialized_objects import DagSerialization

def look(dag):
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    (task,) = dag.tasks
    run = SimpleNamespace(run_id="a-run", run_after=datetime(2026, 11, 21, 1, tzinfo=UTC), data_interval_end=None)
    context = {"dag_run": run, "params": dag.params.dump()}
    rendered = {name: task.render_template(getattr(task, name), context, dag.get_template_env())
                for name in task.template_fields}
    return {"id": dag.dag_id, "pool": task.pool, "doc": task.doc_md, "page": dag.doc_md, "rendered": rendered,
            "told": len(task.on_failure_callback), "runs": dag.max_active_runs, "catchup": dag.catchup}

report({"imported": imported, "dags": [look(module.dag) for module in (archive, lake_maintenance, stream_watchdog)]})
"""
WATCH = """
import stream_watchdog
run = stream_watchdog.dag.test(run_conf={"behind": 60})
report(run.state)
"""
WATCH_AND_MAINTAIN = """
import lake_maintenance, stream_watchdog
runs = [stream_watchdog.dag.test(run_conf={"behind": 60}), lake_maintenance.dag.test()]
report([run.state for run in runs])
"""

pytestmark = pytest.mark.slow


def test_the_dags_are_wiring_only(airflow: Airflow) -> None:
    """They import nothing heavy, take the lake's slot where they write to it, and tell people of failures."""
    seen = airflow.run(LOOK)
    assert HEAVY.isdisjoint(seen["imported"])
    archive, maintenance, watchdog = seen["dags"]
    assert [archive["id"], maintenance["id"], watchdog["id"]] == ["archive", "lake_maintenance", "stream_watchdog"]
    assert archive["rendered"]["arguments"][:3] == [ARCHIVE_NOW, "--run-id", "a-run"]
    assert watchdog["rendered"] == {"behind": 60, "skew": 2}
    assert archive["pool"] == maintenance["pool"] == LAKE_POOL != watchdog["pool"]
    for dag in seen["dags"]:
        assert (dag["told"], dag["runs"], dag["catchup"]) == (1, 1, False)
        assert "**Fails**" in dag["doc"]
        assert "### What to do if it failed" in dag["page"]


@contextmanager
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """An address that takes JSON, and what it has taken: path, authorization and content."""
    taken: list[Any] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.append((self.path, self.headers.get("Authorization"), content))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Not on the test's output."""

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", taken
        server.shutdown()


@pytest.mark.kafka
def test_a_silent_job_turns_the_watchdog_red_and_people_are_told(
    kafka_topics: TestTopics, airflow: Airflow, tmp_path: Path
) -> None:
    """Through Airflow: green while the job reports; red with the remedy, which the webhook gets, once it is silent."""
    own = kafka_topics.ensure()
    airflow.make_database()
    with webhook() as (address, taken):
        connection = {"conn_type": "http", "host": f"http://{address}", "password": "key", "extra": {"path": "/hook"}}
        airflow.environment = {
            "NIGHTJAR_SETTINGS": str(settings_file(own, tmp_path)),
            "NIGHTJAR_NOTIFY_CONNECTION": "nightjar_people",
            "AIRFLOW_CONN_NIGHTJAR_PEOPLE": json.dumps(connection),
        }
        report(own, time.time_ns() // 1000 - 60_000_000)
        assert airflow.run(WATCH) == "failed"
        ((path, authorization, content),) = taken
        assert (path, authorization) == ("/hook", "Bearer key")
        assert "stream_watchdog.watch failed" in content["text"]
        assert "the job is silent: its last report is" in content["text"]
        report(own, time.time_ns() // 1000 + 60_000_000)
        (tmp_path / "data" / "lake").mkdir(parents=True)
        assert airflow.run(WATCH_AND_MAINTAIN) == ["success", "success"]
        assert len(taken) == 1


def report(own: TestTopics, at: int) -> None:
    """What a job reports at that time."""
    with producer(own.settings) as client:
        value = json.dumps(word(at, skew=0)).encode()
        client.send(own.settings.job_progress_topic, value).get()


@contextmanager
def mail_server(context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """The port of a server that speaks SMTP, with TLS from the start if it has a context, and the lines that it got."""
    lines: list[str] = []

    class Taking(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                text = line.decode().strip()
                lines.append(text)
                if text.upper() == "DATA":
                    self.wfile.write(b"354 go on\r\n")
                elif text.upper() == "QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                elif text == "." or text.upper().startswith(("EHLO", "MAIL", "RCPT")):
                    self.wfile.write(b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Taking) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], lines
        server.shutdown()


def mail_over(port: int, **given: Any) -> SimpleNamespace:
    """A connection for mail to a server of the test."""
    to = {"to": "oncall@example.com", "from": "nightjar@example.com"}
    made = SimpleNamespace(conn_type="smtp", host="127.0.0.1", port=port, login="", password="", extra_dejson=to)
    return SimpleNamespace(**{**vars(made), **given})


def test_mail_goes_to_whom_the_connection_names() -> None:
    """Over SMTP, spoken by a server of the test."""
    with mail_server() as (port, lines):
        connection = mail_over(port)
        connection.extra_dejson["disable_tls"] = True
        send(connection, "nightjar: archive.archive failed", "Kafka is away")
    assert "rcpt TO:<oncall@example.com>" in lines
    assert "Subject: nightjar: archive.archive failed" in lines
    assert "Kafka is away" in lines


@pytest.mark.parametrize("by", ["type", "port"])
def test_mail_may_be_encrypted_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """On the port for that, or for a URL smtps://; the server's certificate is verified."""
    authority = Authority.new()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "mail.pem").write_bytes(b"".join(authority.certificate_for("mail", ["127.0.0.1"])))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "mail.pem")
    with mail_server(context) as (port, lines):
        monkeypatch.setattr(notifications, "_SMTPS", port if by == "port" else 465)
        connection = mail_over(port, conn_type="smtps" if by == "type" else "smtp")
        with pytest.raises(ssl.SSLCertVerificationError):
            send(connection, "", "")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        send(connection, "nightjar: archive.archive failed", "Kafka is away")
    assert "rcpt TO:<oncall@example.com>" in lines
    assert "Kafka is away" in lines


def test_a_connection_of_another_type_is_refused() -> None:
    """By name."""
    with pytest.raises(ValueError, match="must be http"):
        send(SimpleNamespace(conn_type="aws"), "", "")
