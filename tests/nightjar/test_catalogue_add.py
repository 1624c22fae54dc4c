"""`nightjar rules catalogue add`: rules of the catalogue in the names of somebody's own stream."""

from dataclasses import replace
from pathlib import Path

import pytest

from nightjar.cases import check, load_case, read_case
from nightjar.cases.simulate import simulate
from nightjar.catalogue import Adaptation, Entry, catalogue, entry_named
from nightjar.kafka.readers import Reader
from nightjar.rules.errors import RuleError, SettingsError
from nightjar.rules.model import load_rules, parse_rule
from nightjar.rules.states import State
from nightjar.rules.streams import load_streams
from tests.support.command import environment, run
from tests.support.topics import TestTopics

STREAMS = """
[streams.pay]
event_id = "id"
event_time = "at"
entities = ["pan_hash", "device"]

[streams.pay.fields]
id = "string"
at = "timestamp"
pan_hash = "string"
device = "string"
kind = "string"
result = "string"
value = "double"
way = "string"
cards = "int64"
"""
NAMES = ["card_id=pan_hash", "device_id=device", "status=result", "amount=value", "channel=way"]
FIELDS = [part for name in [*NAMES, "cards=numbers"] for part in ("--field", name)]
FOR_PAY = ("rules", "catalogue", "add", "card-testing", "--stream", "pay", "--streams", "streams.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a declaration."""
    (tmp_path / "streams.toml").write_text(STREAMS)
    return tmp_path


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.id)
def test_a_rule_in_other_names_concludes_the_same(entry: Entry) -> None:
    """Every field and measure has another name, the stream too; the case that is written along still comes out."""
    fields = {f"{name}_of_mine": kind for name, kind in entry.stream.fields.items()}
    stream = replace(entry.stream, name="mine", fields=fields, event_time=f"{entry.stream.event_time}_of_mine")
    names = {name: f"{name}_of_mine" for name in (*entry.fields, *entry.rule.measures)}
    adaptation = Adaptation.of(entry, stream, names)
    parse_rule(adaptation.rule, {"mine": stream})
    case = read_case(adaptation.case(), "the case")
    expected = {row["event_id"] for row in entry.case.expect.rows["final"]}
    outcome = simulate(case)
    assert {row["event_id"] for row in outcome.final} == expected
    assert check(case.expect, outcome) == []


def test_names_are_replaced_where_they_are_read() -> None:
    """In lists of fields, predicates and the text; not in quotes, and not what other words end or begin with."""
    entry = entry_named("small-then-large")
    fields = {
        **entry.stream.fields,
        "approved": entry.stream.fields["status"],
        "shop": entry.stream.fields["merchant_id"],
    }
    stream = replace(entry.stream, fields=fields)
    rule = Adaptation.of(entry, stream, {"status": "approved", "merchant_id": "shop", "small": "tiny"}).rule
    assert rule["where"] == "kind = 'purchase' AND approved = 'approved' AND channel IN ('ecom', 'moto')"
    assert rule["measures"]["small_here"]["per"] == ["shop"]
    assert rule["measures"]["first_at"]["first"] == "shop"
    assert rule["when"] == "amount >= 200 AND tiny > small_here"
    assert rule["description"].startswith("{amount} at {shop}, after {tiny} payments")


def test_everything_that_a_stream_lacks_is_named() -> None:
    """With its type and meaning, what is nearest, and a measure whose name is taken."""
    entry, stream = entry_named("structuring"), load_streams()["transactions"]
    stream = replace(stream, fields={**stream.fields, "total": stream.fields["amount"]})
    with pytest.raises(RuleError) as refused:
        Adaptation.of(entry, stream, {"account_id": "custommer_id"})
    assert [problem.place for problem in refused.value.problems] == ["account_id", "direction", "method", "total"]
    first, second, _, taken = map(str, refused.value.problems)
    assert "no field 'custommer_id' (string: The account that is watched)" in first
    assert "--field account_id=NAME. Did you mean customer_id?" in first
    assert "`in` or `out`" in second
    assert "'total' is a field of the stream, too. Give the measure a name of its own" in taken


def test_a_name_that_the_rule_does_not_have_is_refused() -> None:
    """It would change nothing."""
    entry = entry_named("structuring")
    with pytest.raises(SettingsError, match=r"acount_id: is not a name in structuring. Did you mean account_id?"):
        Adaptation.of(entry, entry.stream, {"acount_id": "x"})


def test_a_shadow_rule_has_no_action() -> None:
    """Nor does its case expect a restriction."""
    entry = entry_named("login-after-guessing")
    adaptation = Adaptation.of(entry, entry.stream, {}, state=State.SHADOW)
    assert parse_rule(adaptation.rule, {"logins": entry.stream}).action is None
    case = read_case(adaptation.case(), "the case")
    outcome = simulate(case)
    assert check(case.expect, outcome) == []
    assert {alert["rule_state"] for alert in outcome.final} == {"shadow"}


@pytest.mark.slow
def test_what_is_printed_is_a_file_of_rules(folder: Path) -> None:
    """With a comment that names its origin; which values the rule expects is said beside it."""
    done = run(*FOR_PAY, *FIELDS, folder=folder)
    assert done.stdout.startswith("# One device tries many cards")
    assert "values of result in the rule are those of the catalogue" in done.stderr
    (folder / "printed.yaml").write_text(done.stdout)
    assert run("rules", "check", "printed.yaml", "--streams", "streams.toml", folder=folder).stdout


@pytest.mark.slow
def test_a_file_keeps_what_is_in_it(folder: Path) -> None:
    """The rule is a document of its own behind the others, and the case runs with the rule of the file."""
    rules, case = folder / "rules.yaml", folder / "testing.case.yaml"
    before = "# ours\nid: mine\nstream: pay\ngroup_by: [device]\nwhen: value > 5 # high"
    rules.write_text(before)
    done = run(*FOR_PAY, *FIELDS, "--to", "rules.yaml", "--case", "testing.case.yaml", folder=folder)
    assert done.stdout == "rules.yaml: added card-testing\ntesting.case.yaml: the case of card-testing\n"
    assert rules.read_text().startswith(before + "\n---\n# One device")
    assert [rule.id for rule in load_rules(rules, load_streams(folder / "streams.toml"))] == ["mine", "card-testing"]
    assert load_case(case).streams["pay"].event_time == "at"
    given = {"NIGHTJAR_STREAMS": str(folder / "streams.toml")}
    tested = run("rules", "test", "rules.yaml", "--cases", "testing.case.yaml", folder=folder, environment=given)
    assert "1 of 1 case as expected" in tested.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "more", "refusal"),
    [
        ("rules.yaml", "{rule}", [], "has a rule card-testing already"),
        ("rules.json", "", [], "is JSON, to which nothing can be added"),
        ("rules.yaml", '[{"id": 1}]', [], "is JSON, to which nothing can be added"),
        ("rules.yaml", "id: broken", [], "rule broken, stream: is missing"),
        ("none/rules.yaml", None, [], "cannot be written (No such file or directory)"),
        ("rules.yaml", "", ["--case", "streams.toml"], "streams.toml: exists"),
        ("rules.yaml", "", ["--id", "No"], "id: is 'No'"),
        ("rules.yaml", "", ["--field", "kind"], "--field kind: is not NAME=YOURS"),
        ("rules.yaml", "", ["--field", "status=kind"], "--field status: is given twice"),
        ("rules.yaml", "", ["--field", "attempts=numbers"], "'numbers' is another measure, too"),
    ],
)
def test_what_cannot_be_added_changes_no_file(
    folder: Path, name: str, content: str | None, more: list[str], refusal: str
) -> None:
    """Each refusal says why, and the exit code is 2."""
    file = folder / name
    if content is not None:
        written = run(*FOR_PAY, *FIELDS, folder=folder).stdout
        file.write_text(content.replace("{rule}", written))
    before = {path.name: path.read_text() for path in folder.iterdir()}
    case = [] if "--case" in more else ["--case", "new.yaml"]
    done = run(*FOR_PAY, *FIELDS, "--to", name, *case, *more, code=2, folder=folder)
    assert refusal in done.stderr
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_a_field_of_another_type_is_refused(folder: Path) -> None:
    """By the check of rules, which says what the predicate compares."""
    wrong = [field.replace("amount=value", "amount=way") for field in FIELDS]
    refused = run(*FOR_PAY, *wrong, code=2, folder=folder).stderr
    assert "where" in refused
    assert "way" in refused


@pytest.mark.slow
def test_a_rule_without_its_stream_asks_for_one(folder: Path) -> None:
    """The shipped streams have no transfers."""
    refused = run("rules", "catalogue", "add", "structuring", code=2, folder=folder).stderr
    assert "transfers: is not a declared stream. Name yours with --stream" in refused


@pytest.mark.kafka
def test_a_rule_is_published(kafka_topics: TestTopics, tmp_path: Path) -> None:
    """As `nightjar rules publish` would; nothing is printed but that."""
    own = kafka_topics.ensure()
    add = ("rules", "catalogue", "add", "login-after-guessing", "--shadow", "--publish")
    done = run(*add, environment=environment(own.settings), folder=tmp_path)
    assert done.stdout == f"login-after-guessing  published on {own.settings.rules_topic}\n"
    with Reader(own.settings, own.settings.rules_topic) as topic:
        (record,) = topic.all()
    assert b'"state": "shadow"' in record.value.replace(b'":"', b'": "')
