"""The rules of examples/logins.yaml, each with a case of its name that shows what it is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightjar.cases import load_case
from nightjar.rules.model import Rule, load_rules, parse_rule
from nightjar.rules.streams import load_streams

ROOT = Path(__file__).parents[2]
STREAMS = load_streams()


@pytest.mark.parametrize("shipped", load_rules(ROOT / "examples" / "logins.yaml", STREAMS), ids=lambda rule: rule.id)
def test_a_case_shows_the_rule_as_shipped(shipped: Rule) -> None:
    """tests/test_cases.py plays it on every host."""
    case = load_case(ROOT / "tests" / "cases" / f"{shipped.id}.yaml")
    (written,) = (message for step in case.steps for message in step.rules)
    assert parse_rule(json.loads(written), STREAMS) == shipped
