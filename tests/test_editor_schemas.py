"""The schemas by which an editor completes rules and cases, against what the readers themselves accept."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nightjar.cases import find_cases, load_case
from nightjar.cases.simulate import simulate
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.streams import load_streams
from tools.editor_schemas import case_file, rules_file

ROOT = Path(__file__).parents[1]
RULES = Draft202012Validator(rules_file())
CASE = Draft202012Validator(case_file())
GOOD: dict[str, Any] = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1h", "per": ["terminal_id"], "excluding_current": True}},
    "when": "n > 1",
    "state": "shadow",
    "severity": "high",
    "effective": "2026-01-01",
}


class _Words(yaml.SafeLoader):
    """YAML as editors read it: a point in time is text."""


_Words.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path) -> list[Any]:
    """The documents of a file, as an editor sees them."""
    return list(yaml.load_all(path.read_text(), Loader=_Words))


def test_the_shipped_rules_are_valid() -> None:
    """In the forms that a file may have."""
    parse_rule(GOOD, load_streams())
    shipped = [written for name in ("rules", "logins") for written in read(ROOT / "examples" / f"{name}.yaml")]
    for written in (*shipped, GOOD, [GOOD], {"rules": [GOOD]}):
        RULES.validate(written)


@pytest.mark.parametrize(
    "changes",
    [
        {"serverity": "high"},
        {"state": "on"},
        {"id": "Burst"},
        {"id": 5},
        {"group_by": "customer_id"},
        {"when": 5},
        {"measures": {"n": {"variance": "amount", "over": "1h"}}},
        {"measures": {"n": {"percentile": "amount", "over": "1h"}}},
        {"measures": {"n": {"percentile": {"of": "amount", "p": 0.95}, "over": "1h"}}},
        {"measures": {"n": {"count": "*"}}},
        {"measures": {"n": {"count": "*", "over": "1h", "episode": "1h"}}},
        {"measures": {"n": {"count": "*", "sum": "amount", "over": "1h"}}},
        {"measures": {"n": {"count": "*", "over": "1h", "wher": "amount > 1"}}},
        {"measures": {"n": {"function": "count", "field": None, "over": "1h"}}},
    ],
)
def test_what_the_reader_refuses_by_its_shape_is_marked(changes: dict[str, Any]) -> None:
    """Alone, in a list, and in a case."""
    assert not RULES.is_valid(GOOD | changes)
    assert not RULES.is_valid([GOOD, GOOD | changes])
    case = {"steps": [{"at": "1m", "rules": [GOOD | changes]}]}
    assert not CASE.is_valid(case)
    assert CASE.is_valid({"steps": [{"at": "1m", "rules": GOOD}]})


@pytest.mark.parametrize("missing", [name for name, field in Rule.model_fields.items() if field.is_required()])
def test_a_key_that_a_rule_needs_is_missed(missing: str) -> None:
    """As the model says."""
    assert not RULES.is_valid({key: value for key, value in GOOD.items() if key != missing})


@pytest.mark.slow
def test_the_cases_are_valid() -> None:
    """All whose rules are accepted: what others show is often a rule of a wrong shape."""
    valid = 0
    for path in find_cases([ROOT / "tests" / "cases"]):
        if all(answer["status"] != "REJECTED" for answer in simulate(load_case(path)).rule_status):
            (case,) = read(path)
            CASE.validate(case)
            valid += 1
    assert valid > 80


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"steps": []} | {"titel": "x"},
        {"steps": [{"rules": []}]},
        {"steps": [{"at": "1m", "event": {}}]},
        {"steps": [{"at": "1m"}], "settings": {"activation": "0s"}},
        {"steps": [{"at": "1m"}], "expect": {"alert": []}},
        {"steps": [{"at": "1m"}], "expect": {"alerts": [{"evnt_id": "t1"}]}},
        {"steps": [{"at": "1m", "control": {"control": "stop", "rule": "x"}}]},
    ],
)
def test_a_misspelt_key_of_a_case_is_marked(case: dict[str, Any]) -> None:
    """At each level."""
    assert not CASE.is_valid(case)
