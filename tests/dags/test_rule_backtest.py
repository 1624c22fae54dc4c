"""The DAG `rule_backtest`, as Airflow reads it, and answered by a person on a real Airflow."""

import json
import re
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from nightjar.airflow.local.airflow import HOST, LocalAirflow
from nightjar.airflow.local.client import AirflowClient
from nightjar.airflow.rule_runs import past_effects
from nightjar.airflow.submission import APPROVAL_REASON, LAKE_POOL
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings, load_settings
from nightjar.contracts.rule_messages import rule_message
from nightjar.contracts.rule_status import fold
from nightjar.kafka import rule_topics
from nightjar.kafka.topics import Topic, create
from nightjar.lake.archive import make_tables
from nightjar.lake.tables import events_table
from nightjar.rules.model import parse_rule
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import SHIPPED, Stream, load_streams
from tests.support.airflow import Airflow
from tests.support.answering import answering
from tests.support.answers import answered
from tests.support.browser import session_of
from tests.support.lakes import add, at
from tests.support.topics import TestTopics

pytestmark = pytest.mark.slow

DAG, NIGHT = "rule_backtest", "nightly_backfill"
HEAVY = {"pyspark", "pandas", "numpy", "polars", "pyarrow", "numba", "great_expectations", "kafka", "deltalake"}
LOOK = """
import rule_backtest
imported = sorted({name.partition(".")[0] for name in sys.modules})
from airflow.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
dag = rule_backtest.dag
DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))

def accepts(name, value):
    try:
        dag.params.get_param(name).__copy__().resolve(value)
    except ParamValidationError:
        return False
    return True

tried = {
    "rules": ["id: a", "", None, 5],
    "first": ["2026-01-05", "2026-01-35", "--x", None],
    "last": ["2026-01-05", "tomorrow"],
    "threshold": [None, "spent", "--all", "a b"],
    "reason": ["stolen cards", "", None, "r" * 501],
}
report({
    "imported": imported,
    "tasks": {t.task_id: [t.task_type, sorted(t.upstream_task_ids), t.pool, t.doc_md] for t in dag.tasks},
    "told": {t.task_id: [type(each).__name__ for each in t.on_failure_callback] for t in dag.tasks},
    "accepted": {name: [accepts(name, value) for value in values] for name, values in tried.items()},
    "scheduled": dag.timetable.can_be_scheduled,
    "doc": dag.doc_md,
})
"""
RULE = """
id: large
stream: transactions
group_by: [customer_id]
when: "amount >= 15"
"""


def test_what_there_is_to_see_of_it(airflow: Airflow) -> None:
    """Backtest, a person, publishing; a form that refuses what cannot be; people hear of failures; nothing heavy."""
    seen: Any = airflow.run(LOOK)
    assert HEAVY.isdisjoint(seen["imported"])
    assert {"lake", "backfill", "streaming", "expectations"}.isdisjoint(seen["imported"])
    assert {name: task[:2] for name, task in seen["tasks"].items()} == {
        "form": ["CheckRules", []],
        "backtest": ["BacktestRules", ["form"]],
        "approve": ["ApproveRules", ["backtest"]],
        "publish": ["PublishRules", ["approve"]],
    }
    assert seen["tasks"]["backtest"][2] == LAKE_POOL
    assert seen["told"] == {name: ["Notify"] for name in seen["tasks"]}
    for name, task in seen["tasks"].items():
        assert "**Fails**" in task[3]
        assert f"| {name} |" in seen["doc"]
    assert seen["accepted"] == {
        "rules": [True, False, False, False],
        "first": [True, False, False, False],
        "last": [True, False],
        "threshold": [True, True, True, True],
        "reason": [True, False, False, False],
    }
    assert not seen["scheduled"]


def settings_file(own: TestTopics, folder: Path) -> Path:
    """A file of the test's settings: its topics and streams, a list, and approvals."""
    streams = SHIPPED.read_text()
    for name, stream in own.streams.items():
        streams = streams.replace(f'topic = "{name}"', f'topic = "{stream.topic}"')
    (folder / "streams.toml").write_text(streams + '[tables.blocked]\napproved_from = "2026-01-01T00:00:00Z"\n')
    names = {name for name in type(own.settings).model_fields if name.endswith("_topic")}
    written = own.settings.model_dump(include=names)
    written |= {"bootstrap_servers": own.settings.bootstrap, "data_dir": str(folder / "data"), "approvals": 1}
    written |= {"streams": str(folder / "streams.toml"), "spark_master": "local[2]", "driver_memory": "1g"}
    path = folder / "nightjar.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in written.items()))
    return path


def fill_lake(own: TestTopics, folder: Path) -> None:
    """Twenty payments of a day."""
    fill_lake_of(own.settings.model_copy(update={"data_dir": folder / "data"}), own.streams)


def fill_lake_of(settings: Settings, streams: Mapping[str, Stream]) -> None:
    """The same."""
    config = backfill_config(settings, streams)
    make_tables(config.lake)
    names = [field for field in streams["transactions"].fields if field != "amount"]
    rows = [
        dict.fromkeys(names, f"c{number % 2}")
        | {"transaction_id": f"t{number}", "amount": Decimal(number), "event_time": at(5, 10, number)}
        | {"arrival_time": at(5, 10, number), "arrival_date": at(5).date(), "partition": 0, "offset": number}
        for number in range(20)
    ]
    add(config, events_table(streams["transactions"]), rows)


def awaited(airflow: LocalAirflow, client: AirflowClient, run: str, task: str, states: set[str], dag: str = DAG) -> str:
    """The state of a task, once it is one of these."""
    deadline = time.monotonic() + 240
    while True:
        airflow.check()
        found = {each.name: each.state or "" for each in client.run(dag, run).tasks}
        if found.get(task) in states:
            return found[task]
        assert found.get("backtest") != "failed", "\n".join(client.log(DAG, run, "backtest", 1))
        assert time.monotonic() < deadline, f"{found}"
        time.sleep(1)


def await_answerable(scheduler_log: Path, run: str) -> None:
    """Wait until the scheduler knows that the worker of `approve` has ended.

    Airflow takes an answer that comes before that, as no person's does, for a task that was killed, and fails it.
    """
    deadline = time.monotonic() + 60
    while True:
        lines = scheduler_log.read_text().splitlines()
        started = sum("Trying to enqueue tasks" in line and f"{DAG}.approve {run}" in line for line in lines)
        ended = f"task_id='approve', run_id='{run}'"
        if started == sum("Received executor event with state success" in line and ended in line for line in lines):
            return
        assert time.monotonic() < deadline, "\n".join(lines[-20:])
        time.sleep(0.2)


def await_asked_again(airflow: LocalAirflow, client: AirflowClient, run: str) -> None:
    """Wait until the approval step waits again, after an answer that it has not taken."""
    deadline = time.monotonic() + 120
    while True:
        airflow.check()
        asked = client.required_action(DAG, run, "approve")
        states = {each.name: each.state for each in client.run(DAG, run).tasks}
        if not asked["response_received"] and states["approve"] == "awaiting_input":
            return
        assert states["approve"] not in {"success", "failed"}, "\n".join(client.log(DAG, run, "approve", 1))
        assert time.monotonic() < deadline, f"{states}"
        time.sleep(0.5)


def tried_in_the_pages(airflow: LocalAirflow) -> str:
    """Bob tries a rule from the page that writes it, as himself; the run, once its page has the figures."""
    bob, text = (
        session_of(airflow, "bob"),
        {"text": RULE, "first": "2026-01-05", "last": "2026-01-05", "act": "backtest"},
    )
    (seal,) = set(re.findall(r'name="seal" value="([0-9a-f]{64})"', bob.get("/nightjar/edit").text))
    assert session_of(airflow, "vic").post("/nightjar/edit", data=text | {"seal": seal}).status_code == 403
    answer = bob.post("/nightjar/edit", data=text | {"seal": seal})
    assert answer.status_code == 303, answer.text
    deadline, path = time.monotonic() + 240, answer.headers["location"]
    while "It has ended." not in (page := bob.get(f"/nightjar/{path}").text):
        airflow.check()
        assert "It failed." not in page
        assert time.monotonic() < deadline, page
        time.sleep(1)
    assert "5, 5.0 a day, of 2 groups" in page
    assert "by the number in amount &gt;= …; now 15" in page
    assert "<h1>Backtest</h1>" in bob.get(f"/nightjar/{path}/report").text
    assert bob.get("/nightjar/backtests/none").status_code == 404
    run = unquote(path.removeprefix("backtests/"))
    assert airflow.client._ask("GET", f"dags/{DAG}/dagRuns/{quote(run)}")["triggering_user_name"] == "bob"
    return run


def change_a_list_in_the_pages(airflow: LocalAirflow) -> None:
    """The admin orders changes, of which Bob approves one and declines the other; Vic only looks."""
    path, users = "/nightjar/tables/blocked", {name: session_of(airflow, name) for name in ("admin", "bob", "vic")}
    seals = {
        name: set(re.findall(r'name="seal" value="([0-9a-f]{64})"', client.get(path).text))
        for name, client in users.items()
    }
    assert [len(seals[name]) for name in users] == [1, 1, 0]

    def sent(name: str, act: str, code: int = 303, **form: str) -> str:
        (seal,) = seals[name] or {""}
        answer = users[name].post(f"{path}/{act}", data={"seal": seal, **form})
        assert answer.status_code == code, answer.text
        return answer.headers.get("location", "")

    def ordered(key: str) -> str:
        address = sent("admin", "change", keys=key, reason="stolen", change="set")
        assert "waits until somebody else approves it" in users["admin"].get(f"{path}/{address}").text
        return parse_qs(urlsplit(address).query)["sent"][0]

    first, second = ordered("c1"), ordered("c2")
    for act in ("change", "approve", "decline"):
        sent("vic", act, 403, id=first, keys="c1", reason="no", change="set")
    sent("admin", "approve", 400, id=first)
    sent("bob", "approve", id=first)
    sent("bob", "decline", id=second, reason="a customer of ours")
    page = users["vic"].get(f"{path}?sent={second}").text
    assert "It is declined, and never takes effect." in page
    assert "by bob: a customer of ours" in page
    assert "It is on the list." in users["vic"].get(f"{path}?key=c1").text
    assert "It is not on the list." in users["vic"].get(f"{path}?key=c2").text


def test_a_version_that_applies_to_the_past_is_shown_as_such(tmp_path: Path) -> None:
    """With the alerts that it adds and retracts; with approvals it applies from the approval on, and changes none."""
    streams = load_streams()
    fill_lake_of(load_settings(data_dir=tmp_path / "data"), streams)
    live = parse_rule(RULE, streams)
    book = RuleBook(streams)
    for answer in answered(streams, rule_message(live)):
        fold(book, answer)
    past = parse_rule(RULE.replace("15", "18") + "effective: 2026-01-05T00:00:00Z\n", streams)
    later = parse_rule(RULE + "effective: 2999-01-01T00:00:00Z\n", streams)
    settings = load_settings(data_dir=tmp_path / "data", pending_days=3650)
    (text,) = past_effects(settings, streams, [past, live], book)
    assert text.startswith(
        "**It changes the past:** version 2 of large applies to the past, from 2026-01-05 00:00 UTC on"
    )
    assert "will announce 2 and retract 5 alerts" in text
    (text,) = past_effects(settings, streams, [later], book)
    assert text.endswith("if it is approved later than that, it changes the alerts since then.")
    (text,) = past_effects(settings.model_copy(update={"approvals": 1}), streams, [past], book)
    assert text.endswith("or from its approval on if that is later: it changes no earlier alert.")


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_second_person_approves_in_airflow(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """Who started the run cannot approve it; whoever else does is named with the version; what is rejected is not
    published."""
    own = kafka_topics.ensure()
    create(own.settings, Topic(own.settings.tables_topic, 1))
    path = settings_file(own, tmp_path)
    fill_lake(own, tmp_path)
    settings = own.settings.model_copy(update={"approvals": 1, "data_dir": tmp_path / "data", "airflow_port": 0})
    environment = {
        "NIGHTJAR_SETTINGS": str(path),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,bob:admin,vic:viewer",
    }
    with answering(own, settings), LocalAirflow(settings, environment=environment, schedule=False) as airflow:
        scheduler_log = tmp_path / "data" / "airflow" / "scheduler.log"
        airflow.await_dag(DAG, 120)
        ann = airflow.client
        ann.unpause(DAG)
        bob = AirflowClient(HOST, airflow.port, "bob", json.loads(airflow.password_file.read_text())["bob"])
        form = {"rules": RULE, "first": "2026-01-05", "last": "2026-01-05", "reason": "stolen cards"}
        wrong = ann.trigger(DAG, {**form, "rules": RULE + "x: 1", "first": "2026-01-06", "threshold": "a b"})
        assert awaited(airflow, ann, wrong, "form", {"success", "failed"}) == "failed"
        told = "\n".join(ann.log(DAG, wrong, "form", 1))
        for problem in ("rule large, x", "threshold 'a b': is not a name", "first 2026-01-06: is after the last day"):
            assert problem in told

        run = ann.trigger(DAG, form)
        assert awaited(airflow, ann, run, "approve", {"awaiting_input", "failed"}) == "awaiting_input"
        asked = bob.required_action(DAG, run, "approve")
        assert "| large | 5 | 5.0 |" in asked["body"]
        assert "+when: amount >= 15" in asked["body"]
        (report,) = re.findall(r"\]\(([^)]*/plugin/data-docs/data-docs/backtests/[^)]*)\)", asked["body"])
        page = report.partition("/plugin/data-docs")[2]
        assert session_of(airflow, None).get(page).status_code == 401
        reader = session_of(airflow, "bob")
        assert "<h1>Backtest</h1>" in reader.get(page).text
        for other in ("%2e%2e", "manual__2026"):
            assert reader.get(f"/data-docs/backtests/{other}").status_code == 404
        assert rule_topics.rule_book(own.settings, own.streams).every == []

        change_a_list_in_the_pages(airflow)
        tried = tried_in_the_pages(airflow)
        assert awaited(airflow, ann, tried, "publish", {"skipped", "failed", "success"}) == "skipped"
        assert session_of(airflow, "vic").get(f"/nightjar/backtests/{quote(tried, safe='')}").status_code == 200

        assert asked["params"][APPROVAL_REASON]["value"] == "", "the author's reason is not the approver's"

        await_answerable(scheduler_log, run)
        ann.answer(DAG, run, "approve", "Approve", {APPROVAL_REASON: "looks right"})
        assert awaited(airflow, ann, run, "publish", {"success", "failed"}) == "failed"
        assert "nobody approves a version of their own" in "\n".join(ann.log(DAG, run, "publish", 1))
        assert rule_topics.rule_book(own.settings, own.streams).every == []

        # The scheduler ends the run seconds after its last task; one that is cleared at that moment ends with the run.
        assert ann.wait(DAG, run, 60).state == "failed"
        ann.clear(DAG, run, "approve")
        awaited(airflow, ann, run, "publish", {"", "queued", "scheduled"})
        assert awaited(airflow, ann, run, "approve", {"awaiting_input", "failed"}) == "awaiting_input"
        await_answerable(scheduler_log, run)
        bob.answer(DAG, run, "approve", "Approve", {APPROVAL_REASON: "five a day"})
        assert awaited(airflow, ann, run, "publish", {"success", "failed"}) == "success"
        (version,) = rule_topics.rule_book(own.settings, own.streams).ruleset.versions
        assert (version.rule.author, version.rule.reason) == ("admin", "stolen cards")
        assert version.approval is not None
        assert (version.approval.author, version.approval.reason) == ("bob", "five a day")

        ann.unpause(NIGHT)
        night = ann.trigger(NIGHT, {"day": "2026-01-05", "rules": ["larg"]})
        assert awaited(airflow, ann, night, "form", {"success", "failed"}, NIGHT) == "failed"
        assert "rules larg: was never published. Did you mean large?" in "\n".join(ann.log(NIGHT, night, "form", 1))
        noted = ann._ask("GET", f"dags/{NIGHT}/dagRuns/{quote(night)}")["note"]
        assert noted == "Evaluates the day 2026-01-05 (UTC), rules larg, all groups."

        second = ann.trigger(DAG, {**form, "rules": RULE.replace("15", "16")})
        assert awaited(airflow, ann, second, "approve", {"awaiting_input", "failed"}) == "awaiting_input"
        asked = bob.required_action(DAG, second, "approve")
        assert "| large | 4 | 4.0 |" in asked["body"]
        assert "-when: amount >= 15\n" in asked["body"]
        await_answerable(scheduler_log, second)
        bob.answer(DAG, second, "approve", "Approve", {APPROVAL_REASON: " "})
        await_asked_again(airflow, bob, second)
        await_answerable(scheduler_log, second)
        bob.answer(DAG, second, "approve", "Reject", {APPROVAL_REASON: "no"})
        assert awaited(airflow, ann, second, "publish", {"success", "failed", "skipped"}) == "skipped"
        assert ann.wait(DAG, second, 60).state == "success"
        assert rule_topics.rule_book(own.settings, own.streams).every == [version]
