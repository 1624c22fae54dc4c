"""`nightjar rules`: publishing, steering and comparing rules on a real Kafka."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from nightjar.kafka.readers import Reader
from nightjar.lake.tables import events_table
from tests.support.answering import answering
from tests.support.command import environment, run
from tests.support.lakes import STREAM, add, at, config_of
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka

RULE = """
id: burst
stream: transactions
group_by: [customer_id]
measures:
  payments: {count: "*", over: 10m}
when: "payments >= 4"
"""


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """The test's topics, made."""
    return kafka_topics.ensure()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one rule."""
    path = tmp_path / "burst.yaml"
    path.write_text(RULE)
    return path


def messages(own: TestTopics) -> list[tuple[bytes | None, dict[str, object]]]:
    """Key and value of every message on the rules topic."""
    with Reader(own.settings, own.settings.rules_topic) as topic:
        return [(record.key, json.loads(record.value)) for record in topic.all()]


def test_each_rule_is_one_message_keyed_by_its_id(own: TestTopics, file: Path) -> None:
    """Publishing sends the rule as JSON; publishing it again sends nothing."""
    assert "published" in run("rules", "publish", str(file), environment=environment(own.settings)).stdout
    assert (
        "unchanged: it is version 1" in run("rules", "publish", str(file), environment=environment(own.settings)).stdout
    )
    ((key, rule),) = messages(own)
    assert key == b"burst"
    assert rule["when"] == "payments >= 4"


def test_nothing_is_sent_of_files_with_a_bad_rule(own: TestTopics, file: Path, tmp_path: Path) -> None:
    """All files are checked before the first message goes out."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(RULE.replace("burst", "other").replace("payments >= 4", "payment >= 4"))
    done = run("rules", "publish", str(file), str(bad), code=2, environment=environment(own.settings))
    assert "payments" in done.stderr
    assert messages(own) == []


def test_waiting_shows_the_answers(own: TestTopics, file: Path) -> None:
    """With --wait the version and its effective time are shown, until it is active."""
    with answering(own):
        shown = run("rules", "publish", str(file), "--wait", environment=environment(own.settings)).stdout
    assert "burst version 1  ACCEPTED, applies from 20" in shown
    assert "burst version 1  ACTIVE" in shown


def test_a_rejected_rule_is_exit_code_1(own: TestTopics, file: Path) -> None:
    """What the job refuses although it looked right from here."""
    with answering(own):
        run("rules", "publish", str(file), "--wait", environment=environment(own.settings))
        logins = RULE.replace("transactions", "logins")
        file.write_text(logins)
        done = run("rules", "publish", str(file), "--wait", code=1, environment=environment(own.settings))
    assert "REJECTED" in done.stdout
    assert "A rule keeps its stream" in done.stdout


def test_no_answer_is_an_error_with_a_remedy(own: TestTopics, file: Path) -> None:
    """Where no job runs, --wait ends after the time given."""
    arguments = ("rules", "publish", str(file), "--wait", "--timeout", "1")
    assert "nightjar status" in run(*arguments, code=2, environment=environment(own.settings)).stderr


def test_controls_publish_another_state(own: TestTopics, file: Path) -> None:
    """Pause and resume are versions; repeating one changes nothing; the list shows what holds."""
    given = environment(own.settings)
    run("rules", "publish", str(file), environment=given)
    run("rules", "pause", "burst", environment=given)
    assert "unchanged: version 2 is paused" in run("rules", "pause", "burst", environment=given).stdout
    run("rules", "shadow", "burst", "--effective", "2026-04-01T12:00:00Z", environment=given)
    (last,) = json.loads(run("rules", "list", "--json", environment=given).stdout)
    assert (last["rule_version"], last["state"], last["effective"]) == (3, "shadow", "2026-04-01T12:00:00.000000Z")
    every = json.loads(run("rules", "list", "--all", "--json", environment=given).stdout)
    assert [version["state"] for version in every] == ["active", "paused", "shadow"]
    assert "shadow" in run("rules", "list", environment=given).stdout


def test_the_list_shows_what_became_of_each_version(own: TestTopics, file: Path) -> None:
    """With --all: superseded by which and from when, retired, or not answered yet."""
    given = environment(own.settings)
    with answering(own, clocks={"transactions": 1 << 61}):
        run("rules", "publish", str(file), "--wait", environment=given)
        run("rules", "retire", "burst", "--wait", environment=given)
        with Reader(own.settings, own.settings.rule_status_topic) as topic:
            seen: list[str] = []
            while len(seen) < 5:
                seen += [json.loads(record.value)["status"] for record in topic.poll()]
    assert seen == ["ACCEPTED", "ACTIVE", "ACCEPTED", "SUPERSEDED", "RETIRED"]
    run("rules", "resume", "burst", environment=given)
    first, second, third = json.loads(run("rules", "list", "--all", "--json", environment=given).stdout)
    assert (first["status"], first["superseded_by"], first["superseded_from"]) == ("SUPERSEDED", 2, second["effective"])
    assert (second["status"], second["superseded_by"], third["status"]) == ("RETIRED", None, None)
    table = run("rules", "list", "--all", environment=given).stdout
    assert "SUPERSEDED" in table
    assert f"until {second['effective'][:19]}Z" in table


def test_control_of_an_unknown_rule_names_the_nearest(own: TestTopics, file: Path) -> None:
    """A slip of the pen is answered before anything is sent."""
    run("rules", "publish", str(file), environment=environment(own.settings))
    done = run("rules", "retire", "brust", code=2, environment=environment(own.settings))
    assert "Did you mean burst?" in done.stderr
    assert len(messages(own)) == 1


def test_diff_shows_the_lines_that_differ(own: TestTopics, file: Path, tmp_path: Path) -> None:
    """Exit code 0 where file and topic agree, 1 where they do not, with the lines of both."""
    given = environment(own.settings)
    assert "+when: payments >= 4" in run("rules", "diff", str(file), code=1, environment=given).stdout
    run("rules", "publish", str(file), environment=given)
    assert "no differences in 1 rule" in run("rules", "diff", str(file), environment=given).stdout
    file.write_text(RULE.replace(">= 4", ">= 5"))
    shown = run("rules", "diff", str(file), code=1, environment=given).stdout
    assert "-when: payments >= 4" in shown
    assert "+when: payments >= 5" in shown
    other = tmp_path / "other.yaml"
    other.write_text(RULE.replace("burst", "other"))
    assert (
        "burst version 1 is published but not in" in run("rules", "diff", str(other), code=1, environment=given).stdout
    )


def test_a_second_person_approves(own: TestTopics, file: Path) -> None:
    """The author cannot; looking approves nothing; the list has both names, reasons and times."""
    settings = own.settings.model_copy(update={"approvals": 1})
    given = environment(settings) | {"NIGHTJAR_APPROVALS": "1"}
    by_ann = ("--author", "ann", "--reason", "trial")
    approve = ("rules", "approve", "burst", "--version", "1", "--author")
    with answering(own, settings):
        shown = run("rules", "publish", str(file), "--wait", *by_ann, environment=given).stdout
        assert "burst version 1  PROPOSED" in shown
        assert "waits for approval by somebody other than ann" in shown
        assert "which waits for approval" in run("rules", "publish", str(file), *by_ann, environment=given).stdout
        waits = run("rules", "list", environment=given).stdout
        assert "waiting for approval" in waits
        queue = run("rules", "approve", environment=given).stdout
        assert re.search(
            r"burst +│ 1 +│ ann +│ 20[0-9-]+ [0-9:]{5} UTC │ trial +│ a new rule on transactions, active", queue
        )
        assert "+when: payments >= 4" in run("rules", "approve", "burst", "--author", "bob", environment=given).stdout
        unseen = run("rules", "approve", "burst", "--author", "bob", "--reason", "x", code=2, environment=given)
        assert "name the version that you have seen" in unseen.stderr
        assert "+when: payments >= 4" in run(*approve, "bob", environment=given).stdout
        assert "of their own" in run(*approve, "ann", "--reason", "fine", code=2, environment=given).stderr
        done = run(*approve, "bob", "--reason", "three a day", "--wait", environment=given)
        assert "burst version 1  ACTIVE" in done.stdout
        run("rules", "publish", str(file), *by_ann, environment=given)
        file.write_text(RULE.replace(">= 4", ">= 5"))
        run("rules", "publish", str(file), *by_ann, "--wait", environment=given)
        changes = run("rules", "approve", "burst", "--version", "2", "--author", "bob", environment=given).stdout
        (row,) = json.loads(run("rules", "approve", "--json", environment=given).stdout)
    assert (row["rule_version"], row["author"], row["effect"]) == (2, "ann", "2 changed lines against version 1")
    assert "-when: payments >= 4" in changes
    assert "+when: payments >= 5" in changes
    first, second = json.loads(run("rules", "list", "--json", environment=given).stdout)
    assert (first["author"], first["approver"], first["approval_reason"]) == ("ann", "bob", "three a day")
    assert first["published"] < first["approved"] < first["effective"]
    assert (second["rule_version"], second["proposed"], second["effective"]) == (2, True, None)
    assert len(messages(own)) == 3


def test_a_proposal_is_declined_and_proposed_again(own: TestTopics, file: Path) -> None:
    """The list has who declined it, when and why; what is in force is shown without it."""
    settings = own.settings.model_copy(update={"approvals": 1})
    given = environment(settings) | {"NIGHTJAR_APPROVALS": "1"}
    publish = ("rules", "publish", str(file), "--author", "ann", "--reason", "trial", "--wait")
    decline = ("rules", "decline", "burst", "--version", "1", "--author", "bob", "--reason", "too many")
    with answering(own, settings):
        run(*publish, environment=given)
        assert (
            "burst version 1  DECLINED\n    bob declined it: too many"
            in run(*decline, "--wait", environment=given).stdout
        )
        assert "bob declined it" in run(*decline, code=2, environment=given).stderr
        assert "No version waits for approval" in run("rules", "approve", environment=given).stdout
        shown = run("rules", "list", environment=given).stdout
        assert "never: declined" in shown
        assert "declined: bob" in shown
        assert "burst version 2  PROPOSED" in run(*publish, environment=given).stdout
    first, second = json.loads(run("rules", "list", "--json", "--all", environment=given).stdout)
    assert (first["status"], first["declined_by"], first["decline_reason"]) == ("DECLINED", "bob", "too many")
    assert first["published"] < first["declined"] < second["published"]
    assert (second["status"], second["declined"]) == ("PROPOSED", None)
    (shown,) = json.loads(run("rules", "list", "--json", environment=given).stdout)
    assert shown["rule_version"] == 2


def test_the_list_shows_what_overtook_a_proposal(own: TestTopics, file: Path) -> None:
    """S5.5: and whoever waits for the answer to the later one sees it too."""
    settings = own.settings.model_copy(update={"approvals": 1})
    given = environment(settings) | {"NIGHTJAR_APPROVALS": "1"}
    publish = ("rules", "publish", str(file), "--author", "ann", "--reason", "trial", "--wait")
    with answering(own, settings):
        run(*publish, environment=given)
        file.write_text(RULE.replace(">= 4", ">= 5"))
        run(*publish, environment=given)
        file.write_text(RULE.replace(">= 4", ">= 6"))
        assert "burst version 3  PROPOSED" in run(*publish, environment=given).stdout
    rows = json.loads(run("rules", "list", "--all", "--json", environment=given).stdout)
    assert [(row["status"], row["superseded_by"], row["superseded_from"]) for row in rows[:2]] == [
        ("SUPERSEDED", 2, None),
        ("SUPERSEDED", 3, None),
    ]
    assert rows[2]["status"] == "PROPOSED"
    assert "overtaken" in run("rules", "list", "--all", environment=given).stdout


def test_what_a_version_changes_of_the_past_is_shown_first(own: TestTopics, file: Path, tmp_path: Path) -> None:
    """With --dry-run nothing is sent; of a version that waits for approval the approver sees that it is not applied to
    the past."""
    config = config_of(tmp_path / "lake")
    rows = [
        {"transaction_id": f"t{number}", "customer_id": "ann", "terminal_id": "m", "amount": Decimal(1)}
        | {"event_time": at(5, 12, number), "arrival_time": at(5, 12, number), "arrival_date": at(5).date()}
        | {"partition": 0, "offset": number}
        for number in range(8)
    ]
    add(config, events_table(STREAM), rows)
    given = environment(own.settings) | {
        "NIGHTJAR_LAKE_DIR": str(config.lake.root),
        "NIGHTJAR_PENDING_DAYS": "100000",
    }
    file.write_text(RULE + "effective: 2026-01-01T00:00:00Z\n")
    dry = run("rules", "publish", str(file), "--dry-run", environment=given).stdout
    assert "+when: payments >= 4" in dry
    assert "version 1 of burst applies to the past" in dry
    assert "will announce 5 and retract 0 alerts" in dry
    assert "1 rule would be published; nothing was sent" in dry
    assert messages(own) == []
    assert "announce 5 and retract 0" in run("rules", "publish", str(file), environment=given).stdout
    paused = ("rules", "pause", "burst", "--effective", "2026-01-05T12:05:00Z")
    assert "will announce 0 and retract 3 alerts" in run(*paused, "--dry-run", environment=given).stdout
    assert len(messages(own)) == 1
    file.write_text(RULE.replace("burst", "later") + "effective: 2026-01-01T00:00:00Z\n")
    given |= {"NIGHTJAR_APPROVALS": "1"}
    run("rules", "publish", str(file), "--author", "ann", "--reason", "trial", environment=given)
    shown = run("rules", "approve", "later", "--version", "1", "--author", "bob", environment=given).stdout
    assert "states 2026-01-01T00:00:00Z, which is past: it applies from its approval on" in shown


def test_rules_of_no_topic(kafka_topics: TestTopics, file: Path) -> None:
    """Before the topics are made the message says who makes them."""
    done = run("rules", "publish", str(file), code=2, environment=environment(kafka_topics.settings))
    assert "`nightjar topics create` creates the topics" in done.stderr
