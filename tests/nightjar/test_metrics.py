"""`nightjar metrics`: what Prometheus finds there, on a real broker; and the files in deploy/observability."""

import json
import re
import shutil
import subprocess
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nightjar.configuration.settings import load_settings
from nightjar.contracts.restrictions import restriction_records
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.lake.tables import ARCHIVES
from nightjar.local.kafka import LocalKafka
from nightjar.metrics.server import Endpoint
from nightjar.notifications.metrics import NotifierMetrics
from nightjar.rules.actions import Action
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import load_streams
from tests.support.answers import answered
from tests.support.certificates import certificates
from tests.support.lakes import add, add_run, config_of
from tests.support.metrics_process import running
from tests.support.reports import ALERT, word
from tests.support.topics import TestTopics

EVERYWHERE = "0.0.0.0"  # noqa: S104  what is refused
ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"
TEN = 1_767_607_200_000_000  # 2026-01-05T10:00Z, µs
ID = alert_id("burst", 2, "t1", TEN, '{"customer_id":"c7"}')
LATE = {"stream": "logins", "event_id": "l1", "event_time": "2026-01-01T00:00:00Z", "event": {"ip": "::1"}}
RULE = {"id": "burst", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 1"}


def publish(own: TestTopics, topic: str, *records: Any, sent_at: int | None = None) -> None:
    """Put records on a topic of the test."""
    headers = [] if sent_at is None else [("sent_at", str(sent_at).encode())]
    with producer(own.settings) as client:
        for record in records:
            value = record if isinstance(record, bytes) else json.dumps(record).encode()
            client.send(topic, value, headers=headers).get()


def named(own: TestTopics) -> dict[str, Any]:
    """The settings that make a command use the test's broker and topics."""
    names = [name for name in type(own.settings).model_fields if name.endswith("_topic")]
    return {name: getattr(own.settings, name) for name in ("bootstrap_servers", *names)}


def bucket(events: int) -> dict[str, Any]:
    """A report of a bucket."""
    return {
        "kind": "bucket",
        "bucket": 3,
        "stream": "transactions",
        "route": "customer_id",
        "at": 1,
        "counts": {"events": events, "duplicates": 2},
        "retained": {"customer_id": 8},
        "stored": 4096,
    }


def lake_of(folder: Path) -> Path:
    """A lake with a finished night and a failed one, and an archive."""
    config = config_of(folder / "lake")
    counts = {
        "outcomes": {"matched": 40, "missed": 2},
        "causes": {"late_event": 2},
        "held_back": 1,
        "published": 2,
        "left_to_the_stream": 0,
        "expectations": {"held": 61, "warnings": 1},
        "severities": {"critical": {"held": 50, "broken": 0}, "warning": {"held": 11, "broken": 1}},
    }
    night = datetime(2026, 1, 6, 1, tzinfo=UTC)
    add_run(config, date(2026, 1, 5), night, counts=json.dumps(counts), seconds=json.dumps({"evaluate": 2.5}))
    add_run(config, date(2026, 1, 6), night + timedelta(days=1), state="failed")
    add(config, ARCHIVES, [{"finished_at": night, "until": night, "rows": '{"alerts": 7}', "seconds": 9.5}])
    return folder / "lake"


@pytest.mark.kafka
def test_what_is_there_is_shown_and_what_comes_is_counted(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """One process sees reports, records and the lake; each name is in the reference, and each that the files use is
    served."""
    own = kafka_topics.ensure()
    settings = own.settings
    now = time.time_ns() // 1000
    ahead = now + 60_000_000  # so that the reports are young on a slow machine too
    publish(own, settings.job_progress_topic, bucket(10), word(ahead, batches=500))
    publish(own, settings.rule_status_topic, *(answer.value for answer in answered(own.streams, RULE)))
    alert = ALERT | {"alert_id": ID}
    publish(own, settings.alerts_topic, alert)  # before the start: not counted
    with running(tmp_path, **named(own), lake_dir=lake_of(tmp_path)) as metrics:
        metrics.await_value('nightjar_rules{state="active",stream="transactions"}', 1)
        metrics.await_value("nightjar_kafka_up", 1)
        assert metrics.get("/healthz").text == "ok\n"
        assert metrics.get("/readyz").status_code == 200
        publish(own, settings.job_progress_topic, bucket(30), word(ahead + 1_000_000))
        publish(own, settings.alerts_topic, alert, alert | {"revision": 2}, b"not an alert", sent_at=now)
        publish(own, settings.late_events_topic, LATE)
        publish(own, settings.quarantine_topic, {"stream": "logins", "reason": "not_json"})
        restriction = restriction_records(
            [alert], {("burst", 2): Action.model_validate({"restrict": "block", "for": "1h"})}
        )
        publish(own, settings.restrictions_topic, *(record for _, record in restriction))
        publish(own, settings.rule_status_topic, {"status": "FAILED", "rule_id": "burst", "rule_version": 1})
        metrics.await_value('nightjar_rule_answers_total{status="FAILED"}', 1)
        metrics.await_value('nightjar_restrictions_total{kind="restriction",rule="burst",source="stream"}', 1)
        found = metrics.await_value("nightjar_batches_total", 2)
        served = {family.name for family in text_string_to_metric_families(metrics.get("/metrics").text)}
    of_alert = 'kind="alert",muted="false",rule="burst",severity="high",source="stream",state="active"'
    assert {
        f"nightjar_alerts_total{{{of_alert}}}": 2,
        "nightjar_alert_latency_seconds_count": 1,
        f'nightjar_skipped_records_total{{topic="{settings.alerts_topic}"}}': 1,
        'nightjar_late_events_total{stream="logins"}': 1,
        'nightjar_quarantined_records_total{reason="not_json",stream="logins"}': 1,
        'nightjar_events_total{stream="transactions"}': 30,
        'nightjar_bucket_retained_events{bucket="3",group_by="customer_id",stream="transactions"}': 8,
        'nightjar_bucket_state_bytes{bucket="3",stream="transactions"}': 4096,
        'nightjar_lag_seconds{stream="transactions"}': 1.5,
        'nightjar_batch_seconds_total{part="whole"}': 0.08,
        "nightjar_clock_skew_seconds": 12.345678,
        "nightjar_job_up": 1,
        "nightjar_night_last_run_failed": 1,
        "nightjar_night_day_timestamp_seconds": datetime(2026, 1, 5, tzinfo=UTC).timestamp(),
        "nightjar_night_due_timestamp_seconds": datetime(2026, 1, 7, 0, 40, tzinfo=UTC).timestamp(),
        'nightjar_night_alerts{outcome="missed"}': 2,
        'nightjar_night_differences{cause="late_event"}': 2,
        'nightjar_night_expectations{result="warnings"}': 1,
        'nightjar_night_expectations_by_severity{result="broken",severity="warning"}': 1,
        'nightjar_night_stage_seconds{stage="evaluate"}': 2.5,
        'nightjar_archive_rows{table="alerts"}': 7,
        "nightjar_archive_seconds": 9.5,
        'nightjar_lake_files{table="runs"}': 2,
        "nightjar_night_held_back": 1,
        "nightjar_archive_until_timestamp_seconds": datetime(2026, 1, 6, 1, tzinfo=UTC).timestamp(),
    }.items() <= found.items()
    ours = {name for name in served if name.startswith("nightjar_")}
    notifier = NotifierMetrics(tmp_path / "outbox.sqlite", {}, lambda: 0)
    ours |= {family.name for family in notifier.registry.collect()}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert {re.sub("_total$", "", name) for name in re.findall(r"^\| `(nightjar_\w+)", page, re.MULTILINE)} == ours
    used = {re.sub("_(total|bucket)$", "", name) for name in re.findall(r"nightjar_\w+", " ".join(expressions()))}
    assert used <= ours


@pytest.mark.kafka
def test_a_job_that_does_not_run_is_not_ready(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """The process is well, and says what is not: no report, and then an old one."""
    own = kafka_topics.ensure()
    with running(tmp_path, **named(own), lake_dir=tmp_path / "none") as metrics:
        metrics.await_value("nightjar_kafka_up", 1)
        assert metrics.get("/healthz").status_code == 200
        answer = metrics.get("/readyz")
        assert (answer.status_code, answer.text) == (
            503,
            "the job has not reported yet: start `nightjar stream`\n",
        )
        publish(own, own.settings.job_progress_topic, word(time.time_ns() // 1000 - 60_000_000))
        metrics.await_value('nightjar_lag_events{stream="transactions"}', 12)
        assert metrics.metrics()["nightjar_job_up"] == 0
        assert "s old, its state was running: see its log" in metrics.get("/readyz").text
        assert metrics.get("/").status_code == 404


@pytest.mark.kafka
def test_a_broker_that_goes_away_is_reported(tmp_path: Path) -> None:
    """A client that only polls does not notice; once the broker is back, so are the metrics."""
    with LocalKafka(load_settings(data_dir=tmp_path / "data", kafka_port=0)) as kafka:
        topics.ensure(kafka.settings, load_streams().values())
        with running(tmp_path, bootstrap_servers=kafka.bootstrap, lake_dir=tmp_path / "none") as metrics:
            metrics.await_value("nightjar_kafka_up", 1)
            kafka.stop()
            metrics.await_value("nightjar_kafka_up", 0)
            with LocalKafka(kafka.settings.model_copy(update={"bootstrap_servers": "", "kafka_port": port_of(kafka)})):
                metrics.await_value("nightjar_kafka_up", 1)


def port_of(kafka: LocalKafka) -> int:
    """The port that the broker listens on."""
    return int(kafka.bootstrap.rpartition(":")[2])


@pytest.mark.slow
def test_a_broker_that_is_away_is_reported(tmp_path: Path) -> None:
    """Without a broker there are metrics all the same, which say so."""
    with running(tmp_path, bootstrap_servers="127.0.0.1:1", lake_dir=tmp_path / "none") as metrics:
        assert metrics.metrics()["nightjar_kafka_up"] == 0
        assert metrics.get("/healthz").status_code == 200
        assert metrics.get("/readyz").status_code == 503


@pytest.mark.slow
def test_strangers_need_a_certificate(tmp_path: Path) -> None:
    """An address that others reach is refused without TLS; with it, a client without a certificate gets nothing."""
    with pytest.raises(SettingsError, match="can be reached from other machines"):
        Endpoint.of(load_settings(metrics_host=EVERYWHERE))
    authority = certificates(tmp_path)
    files = {
        f"metrics_{name}": tmp_path / f"{file}.pem"
        for name, file in {"certificate": "server", "key": "server-key", "client_ca": "ca"}.items()
    }
    with pytest.raises(SettingsError, match="TLS needs three files"):
        Endpoint.of(load_settings(metrics_host=EVERYWHERE, metrics_key=files["metrics_key"]))
    with running(
        tmp_path, bootstrap_servers="127.0.0.1:1", lake_dir=tmp_path, metrics_host=EVERYWHERE, **files
    ) as metrics:
        address = metrics.address.replace(EVERYWHERE, "localhost") + "/healthz"
        assert address.startswith("https://")
        with pytest.raises(httpx.TransportError):
            httpx.get(address, verify=httpx_context(authority))
        known = httpx_context(authority, tmp_path / "client.pem", tmp_path / "client-key.pem")
        assert httpx.get(address, verify=known).text == "ok\n"


def httpx_context(authority: Path, *certificate: Path) -> Any:
    """A client's TLS context, with a certificate and its key or without."""
    import ssl

    context = ssl.create_default_context(cafile=str(authority))
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def expressions() -> list[str]:
    """Every PromQL expression in the alerting rules and in the dashboard."""
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text())["groups"]
    panels = json.loads((OBSERVABILITY / "grafana-dashboard.json").read_text())["panels"]
    return [rule["expr"] for group in groups for rule in group["rules"]] + [
        target["expr"] for panel in panels for target in panel.get("targets", ())
    ]


def test_the_runbook_has_each_alerting_rule() -> None:
    """A person who is woken up finds what to do."""
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text())["groups"]
    runbook = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    assert re.findall(r"^### (\w+)", runbook, re.MULTILINE) == names


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus")
def test_prometheus_accepts_the_rules_and_the_dashboard(tmp_path: Path) -> None:
    """Rules, their own tests, the configuration, and the dashboard's expressions, as rules that record them."""
    recorded = [
        {"record": f"panel{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    for arguments in (
        ["check", "rules", str(OBSERVABILITY / "alerts.yml"), str(tmp_path / "panels.yml")],
        ["check", "config", str(OBSERVABILITY / "prometheus.yml")],
        ["test", "rules", str(OBSERVABILITY / "alerts-test.yml")],
    ):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool, of Debian's package prometheus-alertmanager")
def test_alertmanager_routes_each_alert_by_its_severity() -> None:
    """It accepts its configuration, and has a receiver for what wakes somebody up and one for what waits."""
    file = OBSERVABILITY / "alertmanager.yml"
    subprocess.run(["amtool", "check-config", file], check=True, capture_output=True)
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text())["groups"]
    severities = {rule["labels"]["severity"] for group in groups for rule in group["rules"]}
    command = ["amtool", "config", "routes", "test", f"--config.file={file}"]
    routed = {
        severity: subprocess.run([*command, f"severity={severity}"], check=True, capture_output=True, text=True).stdout
        for severity in severities
    }
    assert routed == {"page": "page\n", "ticket": "ticket\n"}
    names = {rule["alert"] for group in groups for rule in group["rules"]}
    (inhibition,) = yaml.safe_load(file.read_text())["inhibit_rules"]
    assert set(re.findall(r"Nightjar\w+", str(inhibition))) <= names
