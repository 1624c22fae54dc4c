"""`nightjar rules check`: all problems of rules, reported at once; and the rules that documents show."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from nightjar.cases import check, find_cases, load_case, read_case
from nightjar.cases.simulate import simulate
from nightjar.demo import blocked
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import RULE_STATUS, events_table
from nightjar.rules.documents import read_documents
from nightjar.rules.functions import Function
from nightjar.rules.measures import HELD, Measure
from nightjar.rules.model import MAX_MEASURES, Rule, load_rules, parse_rule
from nightjar.rules.streams import SHIPPED, load_streams
from tests.support.answers import answered
from tests.support.command import run
from tests.support.lakes import STREAM, add, at, config_of

ROOT = Path(__file__).parents[2]
STREAMS = load_streams()
GOOD = """
id: {id}
stream: transactions
group_by: [customer_id]
measures: {{spent: {{sum: amount, over: 1h}}}}
when: "spent > 500"
"""
BAD = """
id: Bad Id
stream: transactions
group_by: [customer]
measures: {spent: {sum: terminal_id, over: 1 hour}, n: {count: "*"}}
when: "spent > 500 AND amonut > 3"
serverity: high
"""


def test_good_rules_are_listed(tmp_path: Path) -> None:
    """One line a file."""
    (tmp_path / "one.yaml").write_text(GOOD.format(id="a"))
    (tmp_path / "two.yaml").write_text(GOOD.format(id="b") + "---" + GOOD.format(id="c"))
    done = run("rules", "check", "one.yaml", "two.yaml", folder=tmp_path)
    assert done.stdout.splitlines() == ["one.yaml: 1 rule: a", "two.yaml: 2 rules: b, c"]


def test_every_problem_of_every_file_is_reported(tmp_path: Path) -> None:
    """With its place and what would be right; exit code 2, and the good ones are still listed."""
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "star.yaml").write_text("id: a\nmeasures:\n  n: {count: *, over: 1h}\n")
    (tmp_path / "good.yaml").write_text(GOOD.format(id="a"))
    done = run("rules", "check", "bad.yaml", "none.yaml", "star.yaml", "good.yaml", code=2, folder=tmp_path)
    assert done.stdout == "good.yaml: 1 rule: a\n"
    for place in ("id", "group_by", "measures.spent", "measures.n.over", "serverity"):
        assert f"rule Bad Id, {place}" in done.stderr
    for remedy in (
        "Did you mean customer_id?",
        "Did you mean severity?",
        'as in count: "*"',
        "none.yaml: cannot be read",
    ):
        assert remedy in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_rules_are_checked_against_the_streams_that_are_named(tmp_path: Path) -> None:
    """A field of another declaration is unknown here."""
    declared = '[streams.transactions]\nevent_id = "id"\nevent_time = "at"\nentities = ["id"]\n'
    (tmp_path / "streams.toml").write_text(
        declared + '[streams.transactions.fields]\nid = "string"\nat = "timestamp"\n'
    )
    (tmp_path / "one.yaml").write_text(GOOD.format(id="a"))
    done = run("rules", "check", "one.yaml", "--streams", "streams.toml", code=2, folder=tmp_path)
    assert "stream transactions has no field 'customer_id'" in done.stderr


@pytest.mark.slow
def test_conditions_that_never_hold_are_warnings(tmp_path: Path) -> None:
    """The rule is fine otherwise; in a pull request they are annotations at their lines."""
    (tmp_path / "night.yaml").write_text(
        GOOD.format(id="a").replace("spent > 500", "HOUR(event_time) BETWEEN 22 AND 5")
    )
    shown = run("rules", "check", "night.yaml", folder=tmp_path).stdout
    assert "warning: rule a, when: HOUR(event_time) >= 22 and HOUR(event_time) <= 5 never hold at once." in shown
    annotated = run("rules", "check", "night.yaml", "--format", "github", folder=tmp_path).stdout
    assert "::warning file=night.yaml,line=6,title=rule a::" in annotated


@pytest.mark.slow
def test_the_newest_events_of_the_lake_are_tried(tmp_path: Path) -> None:
    """How many alerts, on what, and which live rules alert on the same events; nothing of it on request."""
    config = config_of(tmp_path / "lake")
    names = [field for field in STREAM.fields if field != "amount"]
    rows = [
        dict.fromkeys(names, f"c{number % 2}")
        | {"transaction_id": f"t{number}", "amount": Decimal(number), "event_time": at(5, 10, number)}
        | {"arrival_time": at(5, 10, number), "arrival_date": at(5).date(), "partition": 0, "offset": number}
        for number in range(20)
    ]
    add(config, events_table(STREAM), rows)
    live = {"id": "large", "stream": "transactions", "group_by": [], "when": "amount >= 18"}
    (answer,) = answered({STREAM.name: STREAM}, live)
    metadata = {"original": None, "arrival_time": at(5), "partition": 0, "offset": 0}
    add(config, RULE_STATUS, [JsonReader(RULE_STATUS).row(answer.value) | metadata | {"effective": at(5)}])
    (tmp_path / "draft.yaml").write_text(GOOD.format(id="draft").replace("spent > 500", "spent > 80"))
    given = {"NIGHTJAR_LAKE_DIR": str(config.lake.root)}
    lines = run("rules", "check", "draft.yaml", folder=tmp_path, environment=given).stdout.splitlines()
    assert lines[1:4] == [
        "    draft retains about 1 event, of 20 a day",
        "    draft: 3 alerts on the newest 20 events (2026-01-05 10:00 to 2026-01-05 10:19)",
        "        2 of them where large alerts too, which has 2",
    ]
    assert [line.split()[2] for line in lines[4:]] == ["t19", "t18", "t17"]
    without = run("rules", "check", "draft.yaml", "--no-preview", folder=tmp_path, environment=given).stdout
    assert "alerts on" not in without
    streams = tmp_path / "streams.toml"
    streams.write_text(SHIPPED.read_text().replace("decimal(12,2)", "int64"))
    other = ("rules", "check", "draft.yaml", "--streams", str(streams))
    assert "but the lake has it as" in run(*other, code=2, folder=tmp_path, environment=given).stderr


@pytest.mark.slow
def test_a_version_that_applies_to_the_past_is_shown_as_such(tmp_path: Path) -> None:
    """With what the nights will change; where approvals are required it applies from its approval on."""
    config = config_of(tmp_path / "lake")
    rows = [
        {"transaction_id": f"t{number}", "customer_id": "c", "terminal_id": "m", "amount": Decimal(number)}
        | {"event_time": at(5, 10, number), "arrival_time": at(5, 10, number), "arrival_date": at(5).date()}
        | {"partition": 0, "offset": number}
        for number in range(20)
    ]
    add(config, events_table(STREAM), rows)
    past = GOOD.format(id="draft").replace("spent > 500", "spent > 80") + "effective: 2026-01-05T10:15:00Z\n"
    (tmp_path / "draft.yaml").write_text(past + "author: ann\nreason: trial\n")
    given = {"NIGHTJAR_LAKE_DIR": str(config.lake.root), "NIGHTJAR_PENDING_DAYS": "100000"}
    shown = run("rules", "check", "draft.yaml", folder=tmp_path, environment=given).stdout
    assert (
        "    version 1 of draft applies to the past, from 2026-01-05 10:15 UTC on: the next nights will announce 5 and "
        "retract 0 alerts (by 5 events of the lake, 2026-01-05 10:15 UTC to 2026-01-05 10:19 UTC)\n"
    ) in shown
    shown = run("rules", "check", "draft.yaml", folder=tmp_path, environment=given | {"NIGHTJAR_APPROVALS": "1"}).stdout
    assert "draft states 2026-01-05T10:15:00Z, which is past: it applies from its approval on, not before" in shown


@pytest.mark.slow
def test_cases_are_run_with_the_rules_of_files(tmp_path: Path) -> None:
    """In place of those of the same ids; a case about a change of the rule keeps its own, and others are not run."""
    case = ROOT / "examples" / "cases"
    shipped = (ROOT / "examples" / "rules.yaml").read_text()
    (tmp_path / "rules.yaml").write_text(shipped)
    done = run("rules", "test", "rules.yaml", "--cases", str(case), folder=tmp_path)
    assert "1 of 1 case as expected" in done.stdout
    assert "no case has terminal-compromised" in done.stdout
    (tmp_path / "rules.yaml").write_text(shipped.replace("id: card-cloned", "id: card-cloned\nwhere: amount < 0"))
    failed = run("rules", "test", "rules.yaml", "--cases", str(case), code=1, folder=tmp_path)
    assert "was expected and is missing" in failed.stdout
    changes = ROOT / "tests" / "cases" / "rule-change-by-event-time.yaml"
    text = changes.read_text()
    name = re.search(r"id: ([a-z-]+)", text)
    assert name is not None
    (tmp_path / "rules.yaml").write_text(GOOD.format(id=name[1]))
    kept = run("rules", "test", "rules.yaml", "--cases", str(changes), code=1, folder=tmp_path)
    assert "nothing was tested" in kept.stdout


CASE = """
title: nothing is found
steps:
- at: 1h
  rules: {id: one, stream: transactions, group_by: [customer_id], when: "amount > 500"}
- at: 2h
  events:
    transactions: {transaction_id: t1, event_time: 2h, customerid: ann, terminal_id: m1, amount: 600}
expect: {final: []}
"""


@pytest.mark.slow
def test_a_case_says_which_of_its_events_were_none(tmp_path: Path) -> None:
    """Else a rule passes for having found nothing, where the event that it should find has a misspelt field."""
    (tmp_path / "rules.yaml").write_text(GOOD.format(id="one"))
    (tmp_path / "case.yaml").write_text(CASE)
    shown = run("rules", "test", "rules.yaml", "--cases", "case.yaml", folder=tmp_path).stdout
    assert "quarantine: t1: missing_field" in shown
    refused = run("rules", "check", "case.yaml", code=2, folder=tmp_path).stderr
    assert "is a case, not a rule" in refused


# Documents


def blocks(document: str, language: str = "yaml") -> list[str]:
    """The code blocks of a document."""
    text = (ROOT / "docs" / "reference" / document).read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("text", blocks("rules.md"))
def test_every_rule_in_the_reference_can_be_published(text: str) -> None:
    """Whole rules as they are; keys of a rule, and measures, within a rule that has them."""
    located = load_case(ROOT / "tests" / "cases" / "impossible-travel.yaml").streams["payments"]
    streams = {**STREAMS, "located_payments": located}
    for written in read_documents(text):
        if "id" in written:
            parse_rule(written, streams)
        else:
            rule = {"id": "r", "stream": "transactions", "group_by": ["customer_id"], "when": "TRUE"}
            keys = written if written.keys() <= Rule.model_fields.keys() else {"measures": written}
            parse_rule(rule | keys, STREAMS)


@pytest.mark.parametrize("text", blocks("rules.md", "sql"))
def test_every_predicate_in_the_reference_is_one(text: str) -> None:
    """One a line, over a payment or a login, and the measures the reference names."""
    measures = {"spent": {"sum": "amount", "over": "1h"}, "usual": {"avg": "amount", "over": "1h"}}
    for line in text.splitlines():
        stream = "logins" if re.search(r"\b(status|ip|device)\b", line) else "transactions"
        wanted = measures if stream == "transactions" else {}
        parse_rule({"id": "r", "stream": stream, "group_by": [], "measures": wanted, "when": line}, STREAMS)


def test_the_reference_names_every_key_function_and_limit() -> None:
    """What a rule can say is in the reference."""
    text = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    options = [name for name in Measure.model_fields if name not in HELD]
    for name in (*Rule.model_fields, *options, *(function.value for function in Function)):
        assert f"`{name}`" in text, name
    assert f"{MAX_MEASURES} measures" in text


@pytest.mark.parametrize("text", blocks("cases.md"))
def test_every_case_in_the_documents_comes_out_as_it_says(text: str) -> None:
    """They are whole cases."""
    case = read_case(text, "docs/reference/cases.md")
    assert case.expect.rows
    assert [difference.as_dict() for difference in check(case.expect, simulate(case))] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_rules(path: Path, tmp_path: Path) -> None:
    """`examples/` holds rules for the streams that are shipped, for the list that the demo declares, and for tables
    that its own comments declare."""
    blocked.declare(tmp_path / "streams.toml")
    commented = [line.removeprefix("#   ") for line in path.read_text().splitlines() if line.startswith("#   ")]
    with (tmp_path / "streams.toml").open("a") as file:
        file.write("\n".join(["", *commented]))
    assert load_rules(path, load_streams(tmp_path / "streams.toml"))


@pytest.mark.parametrize("path", find_cases([ROOT / "examples" / "cases"]), ids=lambda path: path.name)
def test_example_cases_come_out_as_they_say(path: Path) -> None:
    """And cases for them."""
    case = load_case(path)
    assert [difference.as_dict() for difference in check(case.expect, simulate(case))] == []
