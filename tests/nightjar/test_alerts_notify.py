"""`nightjar alerts notify`: from a real broker to a real HTTP server, over crashes."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightjar.contracts.snoozes import snooze_record
from nightjar.kafka.clients import producer
from nightjar.notifications.outbox import Outbox, Routed
from nightjar.operations.snoozing import send_snoozes
from nightjar.rules.masking import MASK
from nightjar.rules.timestamps import microseconds
from tests.support.alert_records import alert
from tests.support.answers import answered
from tests.support.command import environment, run
from tests.support.hooks import Hooks, hooks
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = 60.0
ROOT = Path(__file__).parents[2]


class Site:
    """A test's own topics, and a server that takes webhooks."""

    def __init__(self, own: TestTopics, server: Hooks, folder: Path) -> None:
        self.own, self.server, self.folder = own, server, folder
        self.routes = folder / "routes.toml"
        self.outbox, self.streams = folder / "outbox.sqlite", folder / "streams.toml"
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text(f"whsec_{base64.b64encode(bytes(32)).decode()}")
        self.write('[[routes]]\nto = ["desk"]\nwait = "0s"\n')

    def write(self, routes: str, quiet: str = "") -> None:
        """The file of routes, after the target."""
        target = f'[targets.desk]\nkind = "webhook"\nurl = "{self.server.url}/desk"\nsecret_file = "secret"\n'
        self.routes.write_text(f"{target}{quiet}\n{routes}")

    @property
    def environment(self) -> dict[str, str]:
        """Of the command."""
        streams = {"NIGHTJAR_STREAMS": str(self.streams)} if self.streams.exists() else {}
        return (
            environment(self.own.settings)
            | streams
            | {
                "NIGHTJAR_ALERT_ROUTES": str(self.routes),
                "NIGHTJAR_OUTBOX": str(self.outbox),
                "NIGHTJAR_NOTIFIER_PORT": "0",
                "NIGHTJAR_LOG_LEVEL": "info",
                "COLUMNS": "200",
            }
        )

    def send(self, *values: dict[str, Any] | bytes) -> None:
        """Put records on the topic as the job does, by their ids."""
        with producer(self.own.settings) as client:
            for value in values:
                written = json.dumps(value).encode() if isinstance(value, dict) else value
                key = value["alert_id"].encode() if isinstance(value, dict) else b"k"
                client.send(self.own.settings.alerts_topic, written, key=key)

    @contextmanager
    def running(self, *arguments: str, bootstrap: str = "") -> Iterator["Notifier"]:
        """The command, until it is killed or the block ends, as a supervisor ends it."""
        command = [str(Path(sys.executable).with_name("nightjar")), "alerts", "notify", *arguments]
        given = {**os.environ, **self.environment}
        given |= {"NIGHTJAR_BOOTSTRAP_SERVERS": bootstrap} if bootstrap else {}
        with subprocess.Popen(command, env=given, cwd=self.folder, stderr=subprocess.PIPE, text=True) as process:
            try:
                notifier = Notifier(process)
                yield notifier
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(SECONDS) == 0, notifier.log
            finally:
                process.kill()

    def events(self) -> list[tuple[str, str]]:
        """Kind and event of everything that came."""
        return [each for request in self.server.requests for each in request.events]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.events()
            time.sleep(0.05)


class Notifier:
    """The running command, once it listens."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.lines = process, list[str]()
        self._listens = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._listens.wait(SECONDS), self.log
        (self.address,) = re.findall(r"(http://\S+)/metrics", self.log)

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append(line)
            if "/metrics" in line:
                self._listens.set()
        self._listens.set()

    @property
    def log(self) -> str:
        """What it has printed."""
        return "".join(self.lines)

    def metrics(self) -> str:
        """What Prometheus gets."""
        return httpx.get(f"{self.address}/metrics", trust_env=False, timeout=30).text

    def reads(self) -> bool:
        """Whether it knows where to read."""
        return httpx.get(f"{self.address}/readyz", trust_env=False, timeout=30).status_code == 200

    def kill(self) -> None:
        """As the machine does."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def site(kafka_topics: TestTopics, tmp_path: Path) -> Iterator[Site]:
    """With no alerts."""
    with hooks() as server:
        yield Site(kafka_topics.ensure(), server, tmp_path)


def test_alerts_and_their_retractions_are_sent(site: Site) -> None:
    """Those that come after its first start; what is no alert, or muted, is not; its metrics say what it did."""
    site.send(alert("before"))
    with site.running() as notifier:
        site.until(notifier.reads)
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        site.send(b"", alert("t1", emitted_at=now), alert("t2", muted=True), alert("t3"))
        site.until(lambda: len(site.events()) == 2)
        site.send(alert("t1", revision=2, kind="retraction"), alert("t2", revision=2, kind="retraction"))
        site.until(lambda: len(site.events()) == 3)
        served = notifier.metrics()
    assert sorted(site.events()) == [("alert", "t1"), ("alert", "t3"), ("retraction", "t1")]
    (first,) = [each for request in site.server.requests for each in request.content["alerts"] if each["revision"] == 2]
    assert first == alert("t1", revision=2, kind="retraction")
    assert 'nightjar_notifications_waiting{target="desk"} 0.0' in served
    assert 'nightjar_notification_delay_seconds_count{target="desk"} 3.0' in served
    assert "record_skipped" in notifier.log


def test_of_snoozed_groups_nothing_is_sent_but_where_a_route_wants_it(site: Site) -> None:
    """From a snooze on that was set while it ran, by event time; the number is in its metrics and its log."""
    at = microseconds(datetime.fromisoformat(alert("t1")["event_time"]))
    about = {"rule_id": "burst", "author": "kim", "reason": "travels", "now": at}
    record = snooze_record(**about, group='{"customer_id":"ann"}', since=at, until=at + 1_000_000)
    target = f'[targets.records]\nkind = "webhook"\nurl = "{site.server.url}/records"\nsecret_file = "secret"\n'
    desk, records = (f'[[routes]]\nto = ["{name}"]\nwait = "0s"\n' for name in ("desk", "records"))
    site.write(f"{target}{desk}{records}snoozed = true\n")
    with site.running() as notifier:
        site.until(notifier.reads)
        send_snoozes(site.own.settings, [record])
        ann, later = {"group": {"customer_id": "ann"}}, "2126-01-05T10:00:00.000000Z"
        site.send(alert("t1", **ann), alert("t2"), alert("t3", **ann, event_time=later))
        site.until(lambda: len(site.events()) == 5)
        site.until(lambda: 'nightjar_notifications_snoozed_total{target="desk"} 1.0' in notifier.metrics())
        assert 'nightjar_notifications_snoozed_total{target="records"} 0.0' in notifier.metrics()
    sent = {
        path: sorted(event for request in site.server.requests if request.path == path for event in request.events)
        for path in ("/desk", "/records")
    }
    assert sent["/desk"] == [("alert", "t2"), ("alert", "t3")]
    assert sent["/records"] == [("alert", "t1"), ("alert", "t2"), ("alert", "t3")]
    assert "alerts_snoozed" in notifier.log


def test_a_killed_process_loses_nothing(site: Site) -> None:
    """Whether its target accepts then or not, everything comes; what comes again has the same key and content."""
    for number, answers in enumerate([{"/desk": (503, {}, b"")}, {}]):
        site.server.answers = answers
        with site.running("--from-beginning") as notifier:
            before = len(site.server.requests)
            site.send(*(alert(f"{number}-{each}") for each in range(500)))
            site.until(lambda before=before: len(site.server.requests) > before)
            notifier.kill()
    with site.running():
        expected = {("alert", f"{number}-{each}") for number in range(2) for each in range(500)}
        site.until(lambda: set(site.events()) == expected)
    by_key: dict[str, set[bytes]] = {}
    for request in site.server.requests:
        by_key.setdefault(request.key, set()).add(request.body)
    assert all(len(bodies) == 1 for bodies in by_key.values())
    sent = [each for key in by_key for each in json.loads(next(iter(by_key[key])))["alerts"]]
    assert len(sent) == len(expected), "under different keys nothing comes twice"


def test_what_waits_for_its_group_or_the_morning_survives(site: Site) -> None:
    """A process that is killed while alerts wait has them afterwards; quiet hours hold all but what is critical."""
    now = datetime.now(UTC)
    hours = f'from = "{now - timedelta(hours=1):%H:%M}", until = "{now + timedelta(hours=2):%H:%M}"'
    site.write('[[routes]]\nto = ["desk"]\nwait = "0s"\n', f'quiet = {{{hours}, except = ["critical"]}}')
    with site.running("--from-beginning") as notifier:
        site.send(alert("t1"), alert("t2"), alert("t3", severity="critical"))
        site.until(lambda: site.events() == [("alert", "t3")])
        site.until(lambda: 'nightjar_notifications_waiting{target="desk"} 1.0' in notifier.metrics())
        assert 'nightjar_notification_overdue_seconds{target="desk"} 0.0' in notifier.metrics()
        site.send(alert("t2", revision=2, kind="retraction"))
        notifier.kill()
    site.write('[[routes]]\nto = ["desk"]\nwait = "0s"\n')
    with site.running():
        site.until(lambda: ("alert", "t1") in site.events())
    assert [event for event in site.events() if event[1] != "t2"] == [("alert", "t3"), ("alert", "t1")]


def test_routes_know_the_tags_of_rules_and_messages_no_sensitive_values(site: Site) -> None:
    """Of the version that has alerted, also if it was published after the start. Nor has the outbox such values.

    A route that takes alerts of no rule is named."""
    declared = (ROOT / "nightjar" / "rules" / "streams.toml").read_text()
    sensitive = 'customer_id = {type = "string", sensitive = true}'
    site.streams.write_text(declared.replace('customer_id = "string"', sensitive, 1))
    assert sensitive in site.streams.read_text()
    geo = '[[routes]]\nto = ["desk"]\nwait = "0s"\ntags = ["geo"]\n'
    site.write(geo + '[[routes]]\nto = ["desk"]\nrules = ["brust"]\n')
    rule = {"id": "burst", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 1"}
    with site.running("--from-beginning") as notifier:
        site.until(notifier.reads)
        with producer(site.own.settings) as client:
            for answer in answered(site.own.streams, rule, rule | {"tags": ["geo"]}):
                client.send(site.own.settings.rule_status_topic, answer.value)
        group = {"customer_id": "SECRET"}
        site.send(alert("t1", rule_version=1, group=group), alert("t2", rule_version=2, group=group))
        site.until(lambda: bool(site.events()))
        kept = b"".join(file.read_bytes() for file in site.folder.glob("outbox.sqlite*"))
    with site.running() as notifier:
        site.until(lambda: "route_matches_no_rule" in notifier.log)
        (warning,) = [json.loads(line) for line in notifier.lines if "route_matches_no_rule" in line]
        assert (warning["route"], warning["rules"]) == (2, ["brust"])
    ((sent,),) = [request.content["alerts"] for request in site.server.requests]
    assert (sent["event_id"], sent["group"]) == ("t2", {"customer_id": MASK})
    assert b"t2" in kept
    assert b"SECRET" not in kept


def test_one_notifier_has_an_outbox(site: Site) -> None:
    """A second one ends."""
    with site.running() as notifier:
        site.until(notifier.reads)
        refused = run("alerts", "notify", code=2, environment=site.environment)
        assert "a notifier is already running on it" in refused.stderr


def test_what_waits_is_sent_while_kafka_is_away(site: Site) -> None:
    """And the command waits for the broker."""
    with Outbox(site.outbox) as outbox:
        outbox.take("x", [Routed("desk", alert("t1"), "g", 0, urgent=False)], {}, 0)
    with site.running(bootstrap="127.0.0.1:1") as notifier:
        site.until(lambda: site.events() == [("alert", "t1")])
        site.until(lambda: "alerts_cannot_be_read" in notifier.log)
        assert not notifier.reads()


def test_what_was_given_up_is_shown_and_tried_again(site: Site) -> None:
    """With the reason; `--test` says whether a target accepts at all."""
    accepted = run("alerts", "notify", "--test", "desk", environment=site.environment)
    assert "desk has accepted a test" in accepted.stderr
    assert site.server.requests.pop().content["type"] == "nightjar.test"
    with Outbox(site.outbox) as outbox:
        outbox.take("x", [Routed("desk", alert("t1"), "g", 0, urgent=False)], {}, 0)
        sealed = outbox.next("desk", 1, quiet=False, listed=1, splits=True)
        assert sealed is not None
        outbox.failed(sealed, "it answers 422", given_up=2)
    shown = run("alerts", "undelivered", "--retry", environment=site.environment)
    assert "1 message given up" in shown.stdout
    assert "it answers 422" in shown.stdout
    assert "1 message will be tried again" in shown.stderr
    with site.running():
        site.until(lambda: site.events() == [("alert", "t1")])
