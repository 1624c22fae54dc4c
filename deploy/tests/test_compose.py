"""The installation of docker-compose.yaml for real: built, started, used, killed part by part, and removed.

`make compose-test` runs it: it takes many minutes and several GB of memory, so it is not part of `make test`.
"""

import csv
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from nightjar.configuration.settings import Settings, load_settings
from nightjar.deployment.secrets import AIRFLOW_USERS, LOGINS
from nightjar.kafka.readers import Reader

ROOT = Path(__file__).parents[2]
PROJECT = "nightjar-compose-test"
# Everything starts at once, on a machine that may have two cores.
START_SECONDS, HEAL_SECONDS, NIGHT_SECONDS = 900, 300, 900
POLL_SECONDS = 2.0
NIGHTS = "/api/v2/dags/nightly_backfill/dagRuns"

# Parts that run until they are stopped, with the user that may kill their processes (none: the container's own).
PARTS: Mapping[str, str | None] = {
    "kafka": None,
    "object-store": None,
    "postgres": "postgres",
    "spark-master": None,
    "spark-worker-1": None,
    "spark-worker-2": None,
    "job": None,
    "metrics": None,
    "connect": None,
    "schema-registry": None,
    "airflow": None,
    "airflow-scheduler": None,
    "airflow-dag-processor": None,
    "airflow-triggerer": None,
}
RULE = {
    "id": "large",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 100",
    "description": "{customer_id} paid {amount}",
}


def _succeeds(*command: str) -> bool:
    found = shutil.which(command[0])
    return found is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not _succeeds("docker", "info"), reason="no Docker daemon answers"),
    pytest.mark.timeout(3 * START_SECONDS),
]


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Site:
    """A running installation; folder: for files of the test."""

    folder: Path
    environment: Mapping[str, str]

    def compose(self, *arguments: str, seconds: float = 180, code: int | None = 0) -> str:
        """Run `docker compose`; its standard output. code: the exit code to expect; None: any."""
        command = ["docker", "compose", "--project-name", PROJECT, *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert code in (None, done.returncode), f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
        return done.stdout

    def remove(self, *options: str) -> None:
        """Remove all containers, those of profiles that a test has started too."""
        self.compose("--profile", "*", "down", "--remove-orphans", *options, seconds=START_SECONDS)

    def backup(self, action: str, file: Path) -> subprocess.CompletedProcess[str]:
        """Run the backup's script."""
        return subprocess.run(
            [ROOT / "deploy" / "compose" / "backup.sh", action, file],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **self.environment, "COMPOSE_PROJECT_NAME": PROJECT},
        )

    def run(self, service: str, *arguments: str, file: Path | None = None, code: int = 0) -> str:
        """Run a command with a login; a file of the test is /input in the container."""
        mounted = [] if file is None else ["--volume", f"{file}:/input:ro"]
        return self.compose("run", "--rm", "--no-deps", "-T", *mounted, service, *arguments, code=code)

    def secret(self, name: str) -> str:
        """A secret, as the guide says to look one up."""
        return self.compose("run", "--rm", "--no-deps", "-T", "secrets", "--show", name).rstrip("\n")

    def settings(self, login: str) -> Settings:
        """Settings of a client outside, with a login."""
        ca, password = self.folder / "ca.pem", self.folder / f"{login}.password"
        ca.write_text(self.secret(f"{login}/ca.pem"))
        password.write_text(self.secret(f"{login}/kafka-password"))
        security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
        }
        address = f"localhost:{self.environment['KAFKA_PORT']}"
        return load_settings(
            bootstrap_servers=address, kafka=security, kafka_username=f"nightjar-{login}", kafka_password_file=password
        )

    def airflow(self, user: str) -> httpx.Client:
        """A client of Airflow's REST API, logged in."""
        trust = ssl.create_default_context(cadata=self.secret("airflow/ca.pem"))
        address = f"https://localhost:{self.environment['AIRFLOW_PORT']}"
        given = {"username": user, "password": self.secret(f"airflow-users/{user}")}
        answer = httpx.post(f"{address}/auth/token", json=given, verify=trust, timeout=60, trust_env=False)
        headers = {"Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}
        return httpx.Client(base_url=address, headers=headers, verify=trust, timeout=60, trust_env=False)

    def state(self, service: str) -> dict[str, Any]:
        """What Docker knows about a part's container."""
        identity = self.compose("ps", "--all", "--quiet", service).strip()
        shown = subprocess.run(["docker", "inspect", identity], capture_output=True, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(shown)[0]
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Built and started; removed at the end, with its data."""
    environment = {
        "AIRFLOW_PORT": str(free_port()),
        "KAFKA_PORT": str(free_port()),
        "ARRIVAL": "producer",
        "SCHEMA_REGISTRY_PORT": str(free_port()),
        "COMPOSE_PROFILES": "rules-table,schema-registry",
        "DEMO_SPEED": "7200",
    }
    made = Site(tmp_path_factory.mktemp("compose"), environment)
    made.remove("--volumes")
    try:
        made.compose("build", seconds=2 * START_SECONDS)
        made.compose("up", "--detach", "--wait", seconds=START_SECONDS)
        yield made
    finally:
        made.remove("--volumes")
    left = subprocess.run(
        ["docker", "volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert left == ""


def day() -> datetime:
    """The past day of the test's events: its night is due."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)


def send(site: Site, first: int, hour: float, *options: str) -> None:
    """Three payments of 500, which the rule alerts on, at this hour from the beginning of the day."""
    file = site.folder / f"events-{first}.csv"
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["transaction_id", "event_time", "customer_id", "terminal_id", "amount"])
        for number in range(first, first + 3):
            at = day() + timedelta(hours=hour, seconds=number)
            rows.writerow([f"t{number}", at.isoformat(), "ann", "till", "500.00"])
    file.chmod(0o644)
    copied = file.rename(file.with_suffix(".sent.csv"))
    mounted = f"{copied}:/input.csv:ro"
    site.compose(
        "run",
        "--rm",
        "--no-deps",
        "-T",
        "--volume",
        mounted,
        "producer",
        "replay",
        "/input.csv",
        "--stream",
        "transactions",
        "--keep-times",
        "--speed",
        "max",
        *options,
    )


def alerts(site: Site) -> dict[str, str]:
    """Event id to the source of its alert, as a client outside reads them."""
    settings = site.settings("readers")
    with Reader(settings, settings.alerts_topic) as reader:
        found = [json.loads(record.value) for record in reader.all()]
    return {alert["event_id"]: alert["source"] for alert in found if alert["kind"] == "alert"}


def wait_for(condition: Any, what: str, seconds: float) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds:.0f} s for {what}"
        time.sleep(POLL_SECONDS)


def test_a_published_rule_alerts_on_events_of_the_past_day(site: Site) -> None:
    """Rules come from the analyst's login, events from the producer's; a client outside reads alerts."""
    rule = site.folder / "rule.yaml"
    rule.write_text(json.dumps({**RULE, "effective": day().isoformat()}))
    rule.chmod(0o644)
    site.folder.chmod(0o755)
    site.run("analyst", "rules", "publish", "/input", "--wait", file=rule)
    send(site, 1, 10)
    wait_for(lambda: {"t1", "t2", "t3"} <= alerts(site).keys(), "alerts of the stream", HEAL_SECONDS)


def test_a_login_does_its_part_only(site: Site) -> None:
    """The producer cannot read alerts."""
    refused = subprocess.run(
        ["docker", "compose", "--project-name", PROJECT, "run", "--rm", "--no-deps", "-T", "producer", "rules", "list"],
        cwd=ROOT,
        env={**os.environ, **site.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert refused.returncode == 2
    assert "or this login may not read it" in refused.stderr


def test_only_writers_change_objects(site: Site) -> None:
    """The reader's login at the object store lists objects, and can neither write nor remove one."""
    tries = """
import sys
from nightjar.configuration.settings import load_settings
import obstore
store = load_settings().checkpoint._store
print(any(obstore.list(store)))
for change in (lambda: obstore.put(store, "forged", b""), lambda: obstore.delete(store, "forged")):
    try:
        change()
    except Exception as refused:
        print(type(refused).__name__)
"""
    done = site.compose("run", "--rm", "--no-deps", "-T", "--entrypoint", "python", "reader", "-c", tries)
    assert done.split() == ["True", "GenericError", "GenericError"]


def test_a_changed_row_changes_a_rule(site: Site) -> None:
    """Through logical decoding, with the connector's own logins in the database and on Kafka."""
    row = """INSERT INTO rules (id, author, rule) VALUES (
        'tiny', 'ann', '{stream: transactions, group_by: [customer_id], when: amount < 1}'
    )"""
    psql = ("psql", "-U", "airflow", "-d", "fraud", "-c", row)
    site.compose("exec", "-T", "--user", "postgres", "postgres", *psql)
    wait_for(lambda: "tiny" in site.run("analyst", "rules", "list"), "the row's rule", HEAL_SECONDS)


def run_night(site: Site, client: httpx.Client, conf: Mapping[str, str]) -> None:
    """Trigger the DAG with these values in its form, and wait until the run has succeeded."""
    run = client.post(NIGHTS, json={"logical_date": None, "conf": conf}).raise_for_status().json()["dag_run_id"]
    state: dict[str, str] = {}

    def is_finished() -> bool:
        state.update(client.get(f"{NIGHTS}/{run}").raise_for_status().json())
        return state["state"] in ("success", "failed")

    wait_for(is_finished, f"the night; {site.compose('logs', '--tail', '20', 'airflow-scheduler')}", NIGHT_SECONDS)
    tasks = client.get(f"{NIGHTS}/{run}/taskInstances").raise_for_status().json()["task_instances"]
    failed = [f"{task['task_id']}:\n{log_of(client, run, task)}" for task in tasks if task["state"] == "failed"]
    assert state["state"] == "success", "\n".join([str([(task["task_id"], task["state"]) for task in tasks]), *failed])


def log_of(client: httpx.Client, run: str, task: Mapping[str, Any]) -> str:
    """The end of the log of a task's last try: it is gone with the containers."""
    place = f"{NIGHTS}/{run}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
    return client.get(place, headers={"Accept": "application/x-ndjson"}).text[-8000:]


def test_a_night_corrects_what_arrived_late(site: Site) -> None:
    """Triggered over the REST API by a user who may; its data docs are behind the same login."""
    send(site, 11, 12, "--late", "1", "--max-late", "10m")
    conf = {"day": f"{day():%Y-%m-%d}"}
    with site.airflow("viewer") as viewer:
        refused = viewer.post(NIGHTS, json={"logical_date": None, "conf": conf})
        assert refused.status_code == httpx.codes.FORBIDDEN
    with site.airflow("analyst") as client:
        run_night(site, client, conf)
        assert client.get("/data-docs/index.html").raise_for_status().headers["content-type"].startswith("text/html")
        outside = "/data-docs/%2e%2e/%2e%2e/runs/_delta_log/00000000000000000000.json"
        assert client.get(outside).status_code == httpx.codes.NOT_FOUND
        del client.headers["Authorization"]
        assert client.get("/data-docs/index.html").status_code == httpx.codes.UNAUTHORIZED
    assert {"t11", "t12", "t13"} <= {event for event, source in alerts(site).items() if source == "backfill"}


def test_the_pages_answer_behind_the_login(site: Site) -> None:
    """With what the night found, alerts of now and the job's figures; an analyst labels, and a viewer looks."""
    with site.airflow("analyst") as client, site.airflow("viewer") as viewer:
        for each in (client, viewer):
            page = each.get(f"/nightjar/alerts?first={day():%Y-%m-%d}&last={day():%Y-%m-%d}").raise_for_status().text
            assert "ann paid 500.00" in page
            assert f"{day():%Y-%m-%d}" in each.get("/nightjar/nights").raise_for_status().text
            assert "large" in each.get("/nightjar/rules").raise_for_status().text
            each.get("/nightjar/stream").raise_for_status()
            with each.stream("GET", "/nightjar/live") as live:
                assert "data: live" in islice(live.iter_lines(), 20)
        (path, *_) = re.findall(r'href="\.?/?(alerts/[0-9a-f]{32})', page)
        form = {"label": "fraud", "reason": "she called", "seal": _seal(client.get(f"/nightjar/{path}").text)}
        assert viewer.post(f"/nightjar/{path}/label", data=form).status_code == httpx.codes.FORBIDDEN
        assert client.post(f"/nightjar/{path}/label", data=form).status_code == httpx.codes.SEE_OTHER
        assert "she called" in client.get(f"/nightjar/{path}").raise_for_status().text
        form = {"do": "snooze", "length": "1h", "since": "now", "reason": "known", "seal": form["seal"]}
        assert client.post(f"/nightjar/{path}/snooze", data=form).status_code == httpx.codes.SEE_OTHER
        del client.headers["Authorization"]
        assert client.get("/nightjar/alerts").status_code == httpx.codes.UNAUTHORIZED


def _seal(page: str) -> str:
    """What a form on the page carries."""
    (found,) = set(re.findall(r'name="seal" value="([0-9a-f]{64})"', page))
    return str(found)


def test_an_analyst_triggers_nights_and_edits_nothing(site: Site) -> None:
    """Neither other DAGs, nor runs, nor what tasks use."""
    with site.airflow("analyst") as client:
        run = client.get(NIGHTS).raise_for_status().json()["dag_runs"][0]["dag_run_id"]
        pool = {"name": "nightjar_lake", "slots": 9, "description": "", "include_deferred": False}
        answers = [
            client.post("/api/v2/dags/lake_maintenance/dagRuns", json={"logical_date": None}),
            client.patch("/api/v2/dags/lake_maintenance", json={"is_paused": True}),
            client.patch(f"{NIGHTS}/{run}", json={"state": "failed"}),
            client.post(f"{NIGHTS}/{run}/clear", json={"dry_run": False}),
            client.delete(f"{NIGHTS}/{run}"),
            client.delete("/api/v2/dags/nightly_backfill"),
            client.post("/api/v2/variables", json={"key": "a", "value": "b"}),
            client.post("/api/v2/connections", json={"connection_id": "a", "conn_type": "http"}),
            client.patch("/api/v2/pools/nightjar_lake", json=pool),
            client.get("/api/v2/config"),
        ]
        assert {answer.status_code for answer in answers} == {httpx.codes.FORBIDDEN}, answers


def test_no_secret_shows_outside_of_files(site: Site) -> None:
    """Neither what Docker shows of the containers, nor any command line, nor a process's environment has one."""
    names = [f"{login}/kafka-password" for login in LOGINS] + [f"airflow-users/{name}" for name in AIRFLOW_USERS]
    names += ["postgres/password", "airflow/jwt-secret", "airflow/api-secret-key", "airflow/fernet-key"]
    names += ["rules-database/debezium-password"]
    secrets = {name: site.secret(name) for name in names}
    for name in ("job/s3-credentials", "readers/s3-credentials"):
        secrets[name] = site.secret(name).split("aws_secret_access_key = ")[1]
    secrets["connect"] = site.secret("connect/passwords.properties").split("kafka=")[1].split()[0]
    secrets["spark"] = site.secret("spark/spark-defaults.conf").split("spark.authenticate.secret ")[1].split()[0]
    shown = "".join(json.dumps(site.state(part)) for part in PARTS)
    shown += "".join(site.compose("top", part) for part in PARTS) + site.compose("config")
    shown += site.compose("logs", "--no-color", seconds=300)
    # Spark's workers and PostgreSQL's own start hand theirs on by environment, within their container.
    for part in PARTS.keys() - {"spark-worker-1", "spark-worker-2", "postgres"}:
        shown += site.compose("exec", "-T", part, "sh", "-c", "cat /proc/[0-9]*/environ", code=None)
    assert [name for name, secret in secrets.items() if secret in shown] == []


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_heals(site: Site, part: str) -> None:
    """All its processes are killed at once; Docker starts it again, and it becomes healthy."""
    before = site.state(part)["RestartCount"]
    user = PARTS[part]
    given = [] if user is None else ["--user", user]
    site.compose("exec", "-T", *given, part, "sh", "-c", "kill -9 -1", code=None)

    def is_well() -> bool:
        found = site.state(part)
        return bool(found["RestartCount"] > before and found["State"]["Health"]["Status"] == "healthy")

    wait_for(is_well, f"{part} to heal; it is {site.state(part)['State']}", HEAL_SECONDS)


def test_alerts_are_published_after_all_of_that(site: Site) -> None:
    """Nothing that was alerted before is gone, and new events find the same rule."""
    before = alerts(site)
    send(site, 21, 14)
    wait_for(lambda: {"t21", "t22", "t23"} <= alerts(site).keys(), "new alerts", HEAL_SECONDS)
    assert before.items() <= alerts(site).items()


def test_the_demonstration_alerts_again_and_again(site: Site) -> None:
    """It publishes the example rules; events of its second pass are not duplicates, and the night takes them all."""
    site.compose("up", "--detach", "--wait", "simulator", seconds=START_SECONDS)
    assert "card-cloned" in site.run("analyst", "rules", "list")

    def has_a_second_pass() -> bool:
        passes = {event.partition("-")[0] for event in alerts(site) if "-" in event}
        return len(passes - {"history"}) > 1

    wait_for(has_a_second_pass, "alerts of two passes", HEAL_SECONDS)
    site.compose("stop", "simulator")
    with site.airflow("analyst") as client:
        run_night(site, client, {})


def test_prometheus_scrapes_the_job(site: Site) -> None:
    """With a certificate of its own."""
    image = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]["prometheus"]["image"]
    if not any(_succeeds("docker", *command, image) for command in (("image", "inspect"), ("pull", "--quiet"))):
        pytest.skip(f"the image {image} cannot be had here")
    site.compose("up", "--detach", "--wait", "prometheus", seconds=START_SECONDS)
    query = ("wget", "-q", "-O", "-", "http://localhost:9090/api/v1/query?query=nightjar_job_up")

    def is_up() -> bool:
        found = json.loads(site.compose("exec", "-T", "prometheus", *query))["data"]["result"]
        return [each["value"][1] for each in found] == ["1"]

    wait_for(is_up, "the job's metrics in Prometheus", HEAL_SECONDS)
    site.compose("stop", "prometheus")


def test_a_backup_brings_everything_back(site: Site) -> None:
    """Even where all volumes were lost; and certificates are renewed, under which everything still knows each other."""
    backup = site.folder / "backup.tar"
    before = alerts(site)
    running = site.backup("save", backup)
    assert running.returncode == 1
    assert "containers are running" in running.stderr
    site.remove()
    assert site.backup("save", backup).returncode == 0
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    site.remove("--volumes")
    done = site.backup("restore", backup)
    assert done.returncode == 0, done.stderr
    site.compose("run", "--rm", "secrets", "--renew")
    site.compose("up", "--detach", "--wait", seconds=START_SECONDS)
    listed = site.run("analyst", "rules", "list")
    assert "large" in listed
    assert "tiny" in listed
    assert before.items() <= alerts(site).items()
    # the demonstration's events happened a moment ago, so those of a past day would be late
    send(site, 31, (datetime.now(UTC) - day()) / timedelta(hours=1) - 1 / 60)
    wait_for(lambda: {"t31", "t32", "t33"} <= alerts(site).keys(), "alerts after the restore", HEAL_SECONDS)
    with site.airflow("analyst") as client:
        run_night(site, client, {})
