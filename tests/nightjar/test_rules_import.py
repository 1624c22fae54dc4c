"""`nightjar rules import`: files of rule messages in any form, as rules of ours."""

import json
from pathlib import Path

import pytest

from nightjar.kafka.readers import Reader
from nightjar.rules.model import load_rules
from nightjar.rules.streams import load_streams
from tests.support.command import environment, run
from tests.support.topics import TestTopics

STREAMS = load_streams()
FLINK = {
    "ruleId": 3,
    "ruleState": "ACTIVE",
    "groupingKeyNames": ["payeeId"],
    "unique": ["beneficiaryId"],
    "aggregateFieldName": "paymentAmount",
    "aggregatorFunctionType": "AVG",
    "limitOperatorType": "GREATER",
    "limit": 50.1,
    "windowMinutes": 20,
}
TEXT = """
# of the old job
1,(active),(payeeId),,(paymentAmount),(SUM),(>),(50),(20)
2,(active),(payeeId),,(COUNT_FLINK),(SUM),(>),(10),(20)
2,(pause),(payeeId),,(COUNT_FLINK),(SUM),(>),(10),(20)
"""


def imported(text: str, folder: Path, name: str = "rules.txt") -> list[str]:
    """The ids of the rules that a file comes to; what is printed is a file of rules."""
    (folder / name).write_text(text)
    (folder / "printed.yaml").write_text(run("rules", "import", name, folder=folder).stdout)
    return [rule.id for rule in load_rules(folder / "printed.yaml", STREAMS)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FLINK),
        json.dumps(FLINK, indent="\t"),
        json.dumps([FLINK, {**FLINK, "ruleId": 4}]),
        json.dumps({"rules": [FLINK]}),
        "\n".join(json.dumps({**FLINK, "ruleId": number}) for number in (3, 4)),
        "{op: c, after: {rule_id: 3, rule: '" + json.dumps(FLINK) + "'}}",
        "ruleId: 3\nruleState: delete\n---\n" + json.dumps(FLINK) + "\n---\n",
    ],
    ids=["object", "tabs", "list", "rules", "lines", "envelope", "documents"],
)
@pytest.mark.slow
def test_a_file_has_one_message_or_many(text: str, tmp_path: Path) -> None:
    """JSON, JSON lines, YAML; a message without an equivalent rule is refused."""
    if "delete" in text:
        (tmp_path / "rules.txt").write_text(text)
        done = run("rules", "import", "rules.txt", code=2, folder=tmp_path)
        assert "rules.txt: line 1: ruleId: is not a published rule" in done.stderr
        assert "flink-3" in done.stdout
    else:
        assert imported(text, tmp_path)[0] == "flink-3"


@pytest.mark.slow
def test_the_last_message_about_a_rule_decides(tmp_path: Path) -> None:
    """A comment has the place of each rule, and differences in meaning."""
    (tmp_path / "rules.txt").write_text(TEXT + json.dumps(FLINK) + "\n")
    done = run("rules", "import", "rules.txt", folder=tmp_path)
    first, second, third = done.stdout.split("---\n")
    assert first.startswith("# from rules.txt: line 3\nid: flink-1\n")
    assert second.startswith("# from rules.txt: line 5\nid: flink-2\n")
    assert "state: paused" in second
    assert "# unique is not used" in third
    assert "when: avg_paymentAmount > 50.1" in third


@pytest.mark.slow
def test_what_cannot_be_converted_is_reported_with_its_line(tmp_path: Path) -> None:
    """The others are shown all the same, and nothing is written."""
    refused = '{"ruleState": "CONTROL", "controlType": "DELETE_RULES_ALL"}\n{"ruleId": \nnonsense\n'
    (tmp_path / "rules.txt").write_text(TEXT + refused)
    done = run("rules", "import", "rules.txt", "none.txt", code=2, folder=tmp_path)
    assert "flink-1" in done.stdout
    assert "rules.txt: line 6: controlType: DELETE_RULES_ALL is refused" in done.stderr
    assert "rules.txt: line 7: is not JSON" in done.stderr
    assert "rules.txt: line 8: is not JSON" in done.stderr
    assert "none.txt: cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    run("rules", "import", "rules.txt", "--to", "out", code=2, folder=tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "# nothing\n", "a: {", "[]"])
@pytest.mark.slow
def test_a_file_without_a_message_is_refused(text: str, tmp_path: Path) -> None:
    """With its name and a remedy."""
    (tmp_path / "rules.txt").write_text(text)
    assert "error: rules.txt: " in run("rules", "import", "rules.txt", code=2, folder=tmp_path).stderr


@pytest.mark.slow
def test_a_folder_gets_one_file_per_rule(tmp_path: Path) -> None:
    """What somebody has changed there since is not overwritten."""
    (tmp_path / "rules.txt").write_text(TEXT)
    done = run("rules", "import", "rules.txt", "--to", "out", folder=tmp_path)
    assert done.stdout.splitlines() == ["out/flink-1.yaml", "out/flink-2.yaml"]
    run("rules", "import", "rules.txt", "--to", "out", folder=tmp_path)
    assert run("rules", "check", *done.stdout.split(), folder=tmp_path).stdout.count("1 rule") == 2
    (tmp_path / "out" / "flink-1.yaml").write_text("# mine\n")
    assert "exists and differs" in run("rules", "import", "rules.txt", "--to", "out", code=2, folder=tmp_path).stderr


@pytest.mark.kafka
def test_imported_rules_are_published_in_our_form(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """Once: importing the file again publishes nothing; a rule that ends retired is not published at all."""
    own = kafka_topics.ensure()
    (tmp_path / "rules.txt").write_text(TEXT + "1,(delete),(payeeId),,(paymentAmount),(SUM),(>),(50),(20)\n")
    for reported in ("flink-2  published on", "flink-2  unchanged"):
        done = run("rules", "import", "rules.txt", "--publish", folder=tmp_path, environment=environment(own.settings))
        assert done.stdout.startswith(reported)
    with Reader(own.settings, own.settings.rules_topic) as topic:
        (message,) = [json.loads(record.value) for record in topic.all()]
    assert (message["id"], message["state"], message["when"]) == ("flink-2", "paused", "count_events > 10")
