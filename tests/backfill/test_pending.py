"""Which days are pending, found in small lakes."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.upkeep.pending import find_pending
from nightjar.rules.model import parse_rule
from nightjar.rules.rulebook import effective_text
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import RuleVersion
from tests.support.lakes import STREAM, add_event, add_run, at, config_of

EIGHTH = at(8)
RULE = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 3",
    "measures": {"n": {"count": "*", "over": "1h"}},
}


@pytest.fixture
def config(tmp_path: Path) -> BackfillConfig:
    """A lake with events of the 5th, 6th and 7th of January."""
    config = config_of(tmp_path)
    for day in (5, 6, 7):
        add_event(config, at(day), at(day))
    return config


def version(number: int, effective: Any) -> RuleVersion:
    """A version of a rule, from then on."""
    return RuleVersion(parse_rule(RULE, {STREAM.name: STREAM}), number, microseconds(effective))


def pending(config: BackfillConfig, until: Any = EIGHTH, *versions: RuleVersion, **asked: Any) -> dict[int, str]:
    """Day of January to why it is pending, where the archive has come so far."""
    found = find_pending(config, microseconds(until), versions, **asked)
    assert [each.day for each in found] == sorted(each.day for each in found)
    return {each.day.day: each.why for each in found}


def test_a_day_with_events_and_no_finished_run_is_pending(config: BackfillConfig) -> None:
    """A run that failed, was a dry run, or was about some rules or groups does not count."""
    add_run(config, date(2026, 1, 5), at(6, 1))
    add_run(config, date(2026, 1, 6), at(7, 1), state="failed")
    add_run(config, date(2026, 1, 6), at(7, 2), state="dry run")
    add_run(config, date(2026, 1, 6), at(7, 3), only_rules='["busy"]')
    add_run(config, date(2026, 1, 6), at(7, 4), only_groups='{"customer_id": ["ann"]}')
    assert pending(config) == {6: "no run has finished", 7: "no run has finished"}
    assert pending(config, before=date(2026, 1, 7)) == {6: "no run has finished"}
    add_run(config, date(2026, 1, 6), at(8, 1))
    assert pending(config) == {7: "no run has finished"}


def test_a_day_is_pending_once_all_its_arrivals_are_in_the_lake(config: BackfillConfig) -> None:
    """Its end and the allowed lateness (10 minutes) are behind what the archive has brought."""
    assert set(pending(config, at(8, 0, 9))) == {5, 6}
    assert set(pending(config, at(8, 0, 10))) == {5, 6, 7}


def test_a_day_waits_for_the_greatest_allowed_lateness_about_then(config: BackfillConfig) -> None:
    """As answers report it: an hour until the noon of the 6th, then the 10 minutes of today."""
    reported = {STREAM.name: [(microseconds(at(4)), 3_600_000_000), (microseconds(at(6)), 600_000_000)]}
    assert set(pending(config, at(7, 0, 59), reported=reported)) == {5}
    assert set(pending(config, at(7, 1), reported=reported)) == {5, 6}
    assert set(pending(config, at(8, 0, 10), reported=reported)) == {5, 6, 7}
    unknown = {STREAM.name: reported[STREAM.name][:1]}
    assert set(pending(config, at(8, 0, 59), reported=unknown)) == {5, 6}, "no answer has reported it since"
    assert set(pending(config, at(8, 1), reported=unknown)) == {5, 6, 7}


def test_a_day_whose_only_event_came_after_midnight_is_pending(tmp_path: Path) -> None:
    """The event belongs to the day on which it happened, if it came in time; else to that of its arrival."""
    config = config_of(tmp_path / "in-time")
    add_event(config, at(5, 23, 55), at(6, 0, 4))
    assert set(pending(config)) == {5, 6}
    config = config_of(tmp_path / "with-none-before")
    add_event(config, at(6, 0, 1), at(6, 0, 4))
    assert set(pending(config)) == {6}


def test_a_day_whose_only_event_came_the_evening_before_is_pending(tmp_path: Path) -> None:
    """An event may be dated ahead of its arrival by a minute, and belongs to the day of its date."""
    config = config_of(tmp_path)
    add_event(config, at(5), at(5))
    assert set(pending(config)) == {5}
    add_event(config, at(6, 0, 0), at(5, 23, 59))
    assert set(pending(config)) == {5, 6}


def test_days_without_events_are_not_pending(tmp_path: Path) -> None:
    """There is nothing to evaluate."""
    assert pending(config_of(tmp_path)) == {}


def test_days_that_a_newer_rule_applies_to_are_pending(config: BackfillConfig) -> None:
    """A version that no run of the day has seen, or whose effective time that run did not know yet."""
    seen, later = version(1, at(1)), version(2, at(6, 18))
    rules = f'{{"busy 1": "{effective_text(seen)}"}}'
    for day in (5, 6, 7):
        add_run(config, date(2026, 1, day), at(day + 1, 1), rules=rules)
    assert pending(config, at(8), seen) == {}
    why = "published since its last run: busy version 2"
    assert pending(config, at(8), seen, later) == {6: why, 7: why}
    assert pending(config, at(8), seen, version(2, at(8))) == {}, "it applies to none of these days"
    both = f'{{"busy 1": "{effective_text(seen)}", "busy 2": "{effective_text(later)}"}}'
    add_run(config, date(2026, 1, 6), at(8, 1), rules=both)
    assert pending(config, at(8), seen, later) == {7: why}
    unknown = f'{{"busy 1": "{effective_text(seen)}", "busy 2": null}}'
    add_run(config, date(2026, 1, 7), at(8, 2), rules=unknown)
    assert pending(config, at(8), seen, later) == {7: why}


def test_days_too_far_back_are_not_run(config: BackfillConfig, tmp_path: Path) -> None:
    """At most as many settled days as the setting allows."""
    few = config_of(tmp_path / "few", pending_days=2)
    for day in (5, 6, 7):
        add_event(few, at(day), at(day))
    assert set(pending(few, at(8))) == {6, 7}
    assert set(pending(config, at(8))) == {5, 6, 7}
