"""Expectations that a team brings: what they find, what a page shows of it, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import load_settings
from nightjar.expectations import docs, gate
from nightjar.expectations.findings import Checked
from nightjar.expectations.measured import counted, measured
from nightjar.expectations.own import OwnExpectations, own_expectations
from nightjar.expectations.suites import events_suite, reconciliation_suite, violations_suite
from nightjar.rules.errors import DeclarationError
from tests.support.frames import DAY, EVENTS, NOON, STREAM, STREAMS, events, outcomes

EVENTS_SUITE = events_suite(STREAM, EVENTS.columns)
SUITES = (EVENTS_SUITE, violations_suite(), reconciliation_suite(6, 6))
CONDITIONS = """
[amount_below_100]
sentence = "an amount is below 100"
holds = "rejected IS NOT NULL OR amount < 100"
severity = "critical"

[customers_known]
sentence = "nine of ten records have a customer of ours"
holds = "rejected IS NOT NULL OR customer_id LIKE 'c%'"
at_most = 0.1

[terminal_once]
sentence = "a terminal has one payment an instant"
unique = ["terminal_id", "event_time"]
where = "rejected IS NULL"
"""
MODULE = """
import great_expectations as gx
from great_expectations.expectations.row_conditions import Column

suite = gx.ExpectationSuite("any name", expectations=[
    gx.expectations.ExpectColumnValuesToBeBetween(column="amount", min_value=0, max_value=100, severity="warning"),
    gx.expectations.ExpectColumnValuesToNotBeNull(column="terminal_id", row_condition=Column("rejected").is_null()),
    gx.expectations.ExpectTableRowCountToBeBetween(min_value=41, description="a day has more than 40 records"),
    gx.expectations.ExpectColumnValuesToBeInSet(column="customer_id", value_set=["c0", "c1", "c2"]),
])
"""


def folder_of(folder: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def broken(checked: Checked) -> dict[str, int | None]:
    """The expectations that do not hold, and how many rows break each."""
    return {found.expectation: found.observed for found in checked.findings if not found.success}


@pytest.mark.slow
def test_conditions_are_counted_like_the_shipped_ones(tmp_path: Path) -> None:
    """In the same suite; in parts and as a whole; a share of rows may break one."""
    folder = folder_of(tmp_path / "own", {"events_transactions/a.toml": CONDITIONS, "README.md": "ours"})
    suite = own_expectations(folder, SUITES).added_to(EVENTS_SUITE)
    right = events()
    assert broken(gate.check([(suite, measured(suite, right))])[0]) == {}
    at = right["event_time"][4]
    wrong = events({3: {"amount": 100}, 5: {"event_time": at}, **{n: {"customer_id": "x"} for n in range(6, 9)}})
    (checked,) = gate.check([(suite, measured(suite, wrong))])
    assert broken(checked) == {"amount_below_100": 1, "terminal_once": 1}
    assert not checked.success
    more = events({n: {"customer_id": None} for n in range(6, 11)})
    assert broken(gate.check([(suite, measured(suite, more))])[0]) == {"customers_known": 5}
    parts = [row for start in range(0, 40, 7) for row in counted(suite, more.slice(start, 7)).to_pylist()]
    assert sum(row["breaking"] for row in parts if row["expectation"] == "customers_known") == 5


@pytest.mark.slow
def test_suites_of_great_expectations_are_run_on_the_rows(tmp_path: Path) -> None:
    """From a module, and as Great Expectations stores it: what is violated, by how many rows, and which."""
    from nightjar.expectations import library

    library.load()
    from nightjar.expectations import native

    folder = folder_of(tmp_path / "own", {"events_transactions/ours.py": MODULE})
    (module,) = own_expectations(folder, SUITES).native["events_transactions"]
    stored = module.with_name("stored.json")
    stored.write_text(json.dumps(native.suite_in(module).to_json_dict()))
    rows = events({3: {"amount": 500}, 5: {"terminal_id": None}, 6: {"customer_id": "eve"}}).to_pandas()
    found = [native.check(file, EVENTS_SUITE, rows) for file in (module, stored)]
    for checked, name in zip(found, ("ours", "stored"), strict=True):
        assert checked.suite == f"events_transactions_{name}"
        assert broken(checked) == {
            "expect_column_values_to_be_between_amount": 1,
            "expect_column_values_to_not_be_null_terminal_id": 1,
            "expect_table_row_count_to_be_between": None,
            "expect_column_values_to_be_in_set_customer_id": 1,
        }
        assert not checked.success
        amount, _, count, customer = checked.findings
        assert (amount.severity, amount.examples) == ("warning", ({"amount": "500.0"},))
        assert (count.sentence, count.examples) == ("a day has more than 40 records", ({"observed": "40"},))
        assert "does not hold" in str(count)
        assert customer.examples == ({"customer_id": "eve"},)

    masked = replace(EVENTS_SUITE, masked=frozenset({"customer_id", "amount"}))
    hidden = native.check(module, masked, rows)
    assert '"eve"' not in json.dumps(hidden.as_json())
    assert '"500' not in json.dumps(hidden.as_json())
    assert broken(hidden) == broken(found[0])

    index = docs.build(found, tmp_path / "docs", run_id="r", day=DAY, at=NOON)
    assert index is not None
    (page,) = Path(str(index)).parent.glob("validations/events_transactions_ours/*/*/*.html")
    shown = page.read_text()
    assert "a day has more than 40 records" in shown
    assert "does not hold" in shown
    assert "expect column values to be in set" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("a.json", "{", "is no suite of Great Expectations: JSONDecodeError"),
        ("a.json", '{"expectations": [{"type": "expect_nothing", "kwargs": {}}]}', "expect_nothing"),
        ("a.json", '{"expectations": [{"type": "expect_column_to_exist", "kwargs": {}}]}', "column"),
        ("a.py", "suite = 1", "a module needs `suite`"),
        ("a.py", "1 / 0", "ZeroDivisionError"),
        ("a.py", "exit(0)", "SystemExit"),
    ],
)
def test_a_suite_that_is_none_is_named(tmp_path: Path, file: str, content: str, told: str) -> None:
    """With its file and the reason."""
    from nightjar.expectations import library

    library.load()
    from nightjar.expectations import native

    (tmp_path / file).write_text(content)
    with pytest.raises(DeclarationError, match=told) as refused:
        native.suite_in(tmp_path / file)
    assert str(tmp_path / file) in str(refused.value)


def declared(**changed: Any) -> str:
    """A file with one expectation, changed; None: without it."""
    members = {"sentence": "s", "holds": "amount > 0", **changed}
    return "[a]\n" + "\n".join(f"{name} = {json.dumps(of)}" for name, of in members.items() if of is not None)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"event_transactions/a.toml": ""}, "Did you mean events_transactions"),
        ({"violations": ""}, "is not a folder that has the name of a suite"),
        ({"violations/a.yaml": ""}, "is no file of expectations"),
        ({"violations/a.toml": "a = "}, "cannot be read"),
        ({"violations/a.toml": "a = 1"}, r"is not an expectation. It is a table \[a\]"),
        ({"violations/a.toml": '["a b"]\nsentence = "s"'}, "is not a name"),
        ({"violations/a.toml": declared(holds="event_exists").replace("[a]", "[event_exists]")}, "of this name"),
        (
            {f"violations/{n}.toml": declared(holds="event_exists") for n in "ab"},
            r"b.toml: a: violations has an expectation of this name",
        ),
        ({"violations/a.toml": declared(holds=None)}, "has neither `holds` nor `unique`"),
        ({"violations/a.toml": declared(unique=["alert_id"])}, "has both"),
        ({"violations/a.toml": declared(sentence="")}, r"a\.sentence"),
        ({"violations/a.toml": declared(sentence="a\x1bb")}, r"a\.sentence"),
        ({"violations/a.toml": declared(severity="high")}, r"a\.severity"),
        ({"violations/a.toml": declared(at_most=1.5)}, r"a\.at_most"),
        ({"violations/a.toml": declared(mostly=0.5)}, r"a\.mostly"),
        ({"violations/a.toml": declared(holds=None, unique=["alert"])}, r"unknown column 'alert'.*mean alert_id"),
        ({"violations/a.toml": declared(holds=None, unique=["alert_id"], at_most=0.1)}, "belongs to `holds`"),
        ({"violations/a.toml": declared(where="event_exists")}, "belongs to `unique`"),
        ({"events_transactions/a.toml": declared(holds="amonut > 0")}, "Did you mean amount"),
        ({"events_transactions/a.toml": declared(holds="amount >")}, "is not SQL that can be used"),
        ({"events_transactions/a.toml": declared(holds="amount > 0) OR (true")}, "is not SQL that can be used"),
        ({"events_transactions/a.toml": declared(holds="amount")}, "is not true or false"),
        ({"events_transactions/a.toml": declared(holds="amount < avg(amount)")}, "is not about single rows"),
        ({"events_transactions/a.toml": declared(holds="count(*) > 3")}, "is not about single rows"),
        ({"events_transactions/a.toml": declared(holds="row_number() over () > 3")}, "is not about single rows"),
        (
            {"events_transactions/a.toml": declared(holds="amount > lag(amount) over (order by event_time)")},
            "is not about single rows",
        ),
    ],
)
def test_what_cannot_be_used_is_named_before_a_run_starts(tmp_path: Path, files: dict[str, str], told: str) -> None:
    """Each with its file, its place and what would be right."""
    folder = folder_of(tmp_path / "own", files)
    with pytest.raises(DeclarationError, match=told) as refused:
        _ = backfill_config(load_settings(expectations=folder), STREAMS, spark=False).own
    assert str(folder) in str(refused.value)


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    """And one that is not there is an error."""
    assert own_expectations(None, SUITES) == OwnExpectations()
    with pytest.raises(DeclarationError, match="is no folder"):
        own_expectations(tmp_path / "own", SUITES)


def test_every_column_can_be_used(tmp_path: Path) -> None:
    """Of every suite, with the type that the rows have: what is checked on no rows can be counted on some."""
    for suite in SUITES:
        tests = [f"`{name}` IS NULL OR `{name}` = `{name}`" for name in suite.columns]
        written = "\n".join(f'[of_{n}]\nsentence = "s"\nholds = {json.dumps(t)}' for n, t in enumerate(tests))
        own = own_expectations(folder_of(tmp_path, {f"{suite.name}/a.toml": written}), [suite])
        rows = {"events_transactions": events(), "reconciliation": outcomes()}.get(suite.name)
        (tmp_path / suite.name / "a.toml").unlink()
        (tmp_path / suite.name).rmdir()
        if rows is not None:
            found = [each for each in measured(own.added_to(suite), rows) if each.expectation.startswith("of_")]
            assert {each.observed for each in found} == {0}
