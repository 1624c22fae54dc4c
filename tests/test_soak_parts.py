"""The truth that a soak computes part by part is the whole one, and so are the differences from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checks.bench.payments import DECLARED, STREAM, rules_of
from checks.soak import parts
from checks.soak.traffic import MINUTE, Traffic
from nightjar.demo.verdict import StreamVerdict, Violations, exact_json
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import iso_text, microseconds
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet

_BEGINS = microseconds(datetime(2026, 1, 6, tzinfo=UTC))


def alerts_of(truth: Truth) -> list[dict[str, Any]]:
    """What a complete stream would have announced."""
    return [
        row
        | {
            "alert_id": alert_id(
                row["rule_id"], row["rule_version"], row["event_id"], microseconds(row["event_time"]), row["group"]
            ),
            "event_time": iso_text(microseconds(row["event_time"])),
            "group": json.loads(row["group"]),
            "measures": exact_json(row["measures"]),
        }
        for row in truth.table().to_pylist()
    ]


def sorted_of(comparison: StreamVerdict) -> tuple[int, int, Sequence[str]]:
    """The comparison, whatever the order of its differences."""
    return comparison.violations, comparison.equal, sorted(map(repr, comparison.differences))


@pytest.mark.slow
def test_parts_together_are_the_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a complete stream and of one that lacks alerts and has one too many."""
    monkeypatch.setattr(parts, "PARTS", 2)
    declared = tmp_path / "streams.toml"
    declared.write_text(DECLARED)
    streams = load_streams(declared)
    stream, written = streams[STREAM], rules_of(10, MINUTE)
    ruleset = RuleSet.of([parse_rule(rule, streams) for rule in written], _BEGINS - MINUTE)
    events: list[pa.Table] = []

    class Kept(parts.Parts):
        def add(self, added: pa.Table) -> None:
            events.append(added)
            super().add(added)

    with Kept(tmp_path / "parts", stream, {tuple(rule["group_by"]) for rule in written}) as stored:
        traffic = Traffic(stream, stored, _BEGINS, window_minutes=1, seed=1)
        for minute in range(4):
            traffic.minute(minute, rate=100)
        whole = pa.concat_tables(events)
        complete = alerts_of(Truth(stream, ruleset, whole))
        assert len(complete) > 10
        wrong = [*complete[3:], complete[0] | {"alert_id": "none", "group": {"customer_id": "nobody"}}]
        found = stored.compared(ruleset, complete, wrong)
    violations = Violations(stream, ruleset, whole)
    assert [sorted_of(each) for each in found] == [sorted_of(violations.compare(final)) for final in (complete, wrong)]
    assert (len(found[0].differences), len(found[1].differences)) == (0, 4)
