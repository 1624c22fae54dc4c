"""Sensitive values: what stands in their place in texts for people."""

from __future__ import annotations

from typing import Any

import pytest

from nightjar.rules.masking import MASK, alert_text, masked, masked_text, names_by_stream, sensitive_names
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import streams_from_mapping

DECLARED = {
    "event_id": "id",
    "event_time": "at",
    "entities": ["account"],
    "fields": {
        "id": "string",
        "at": "timestamp",
        "account": {"type": "string", "sensitive": True},
        "amount": "int64",
    },
}
OPEN = {**DECLARED, "fields": {**DECLARED["fields"], "account": "string"}}  # type: ignore[dict-item]
STREAMS = streams_from_mapping({"payments": DECLARED, "open": OPEN}, "tests")


def rule(stream: str = "payments", **more: Any) -> Any:
    measures = {
        "shown": "CONCAT(label, '!')",
        "label": "CONCAT(who, ' and others')",
        "twice": "2 * n",
        "n": {"count": "account", "over": "1h"},
        "who": {"last": "account", "over": "1h"},
        "s": {"sum": "amount", "over": "1h"},
    }
    written = {"id": "r", "stream": stream, "group_by": ["account"], "when": "n > 1", "measures": measures, **more}
    return parse_rule(written, STREAMS)


def test_a_measure_of_a_sensitive_field_is_sensitive_unless_it_counts() -> None:
    """And the field itself, and what is computed from them; streams without such fields are not named."""
    assert sensitive_names(rule(), STREAMS["payments"]) == {"account", "who", "label", "shown"}
    assert names_by_stream([rule(), rule("open")], STREAMS) == {"payments": {"account", "who", "label", "shown"}}


def test_an_alerts_text_made_before_its_field_was_sensitive_is_hidden() -> None:
    """All of it: where the value stands in it is not known."""
    of_account, of_count = rule(description="{account}: {n}"), rule(description="{n} payments")
    assert alert_text("DE89: 3", of_account, STREAMS["payments"]) == MASK
    assert alert_text(f"{MASK}: 3", of_account, STREAMS["payments"]) == f"{MASK}: 3"
    assert alert_text("3 payments", of_count, STREAMS["payments"]) == "3 payments"


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        (None, {"account"}, None),
        ("not JSON", set(), "not JSON"),
        ("not JSON", {"account"}, MASK),
        ("[" * 100_000, {"account"}, MASK),
        ('["DE89"]', {"account"}, MASK),
        ('{"amount": 3, "account": "DE89"}', {"account"}, f'{{"amount":3,"account":"{MASK}"}}'),
    ],
)
def test_a_text_that_may_hold_such_values_is_masked(text: str | None, names: set[str], expected: str | None) -> None:
    """One that cannot be read is hidden altogether."""
    assert masked_text(text, names) == expected


def test_null_stays_null() -> None:
    """That there is no value is shown."""
    assert masked({"account": None, "who": "x", "n": 1}, {"account", "who"}) == {"account": None, "who": MASK, "n": 1}
