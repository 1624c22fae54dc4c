"""What a version that applies to the past changes there, from the events of a lake."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.lake.tables import events_table
from nightjar.operations.past_effect import past_effect
from nightjar.rules.model import parse_rule
from nightjar.rules.publishing import judge
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import RuleSet
from tests.support.lakes import STREAM, add, at, config_of

STREAMS = {STREAM.name: STREAM}
NOW = microseconds(at(8))
# Over two payments within an hour, so that the events before the effective time count in the first windows after it.
RULE: dict[str, Any] = {
    "id": "spending",
    "stream": STREAM.name,
    "group_by": ["customer_id"],
    "measures": {"spent": {"sum": "amount", "over": "1h"}},
    "when": "spent > 30",
}


def lake(tmp_path: Path, **changed: Any) -> BackfillConfig:
    """Payments of ann: 20 every half hour on 5 January from 10:00 to 14:30, and the same again on the 6th."""
    config = config_of(tmp_path / "lake", **changed)
    rows = [
        {"transaction_id": f"t{day}-{number}", "event_time": when, "customer_id": "ann", "terminal_id": "m"}
        | {"amount": Decimal(20), "arrival_time": when, "arrival_date": when.date(), "partition": 0, "offset": number}
        for day in (5, 6)
        for number, when in enumerate(at(day, 10 + number // 2, number % 2 * 30) for number in range(10))
    ]
    add(config, events_table(STREAM), rows)
    return config


def effect(config: BackfillConfig, rule: dict[str, Any], *, known: RuleSet | None = None, **options: Any) -> Any:
    """The effect of a rule published now."""
    known = RuleSet() if known is None else known
    made, _ = judge(known, rule, NOW, STREAMS)
    assert made is not None
    return past_effect(config.lake.root, STREAMS, known, made, NOW, pending_days=config.pending_days, **options)


def live() -> RuleSet:
    """Version 1, in force all along."""
    return RuleSet.of([parse_rule(RULE, STREAMS)], 0)


def test_a_version_that_applies_from_now_on_changes_nothing(tmp_path: Path) -> None:
    """Neither does one that states a time to come."""
    config = lake(tmp_path)
    assert effect(config, RULE) is None
    assert effect(config, RULE | {"effective": "2026-02-01T00:00:00Z"}) is None


def test_alerts_of_the_new_version_replace_those_of_the_old(tmp_path: Path) -> None:
    """From 12:00 on the 5th: six payments of that day and ten of the next, with windows that begin before; the first
    payment of a day spends 20 only, so version 1 alerts 15 times, and version 2, from 60 on, 6 + 8 times."""
    found = effect(lake(tmp_path), RULE | {"when": "spent >= 60", "effective": "2026-01-05T12:00:00Z"}, known=live())
    assert (found.announced, found.retracted) == (14, 15)
    assert (found.events, found.skipped) == (16, 0)
    assert (found.first, found.last) == (at(5, 12), at(6, 14, 30))
    assert str(found) == (
        "version 2 of spending applies to the past, from 2026-01-05 12:00 UTC on: the next nights will announce 14 and "
        "retract 15 alerts (by 16 events of the lake, 2026-01-05 12:00 UTC to 2026-01-06 14:30 UTC)"
    )


def test_a_pause_in_the_past_retracts(tmp_path: Path) -> None:
    """A control message is a version like any other."""
    pause = {"control": "pause", "rule": "spending", "effective": "2026-01-06T12:00:00Z"}
    found = effect(lake(tmp_path), pause, known=live())
    assert (found.announced, found.retracted) == (0, 6)


def test_a_new_rule_announces(tmp_path: Path) -> None:
    """And retracts nothing."""
    found = effect(lake(tmp_path), RULE | {"effective": "2026-01-01T00:00:00Z"})
    assert (found.version, found.announced, found.retracted) == (1, 18, 0)


# Points for the alerts of `spending`.
POINTS: dict[str, Any] = {
    "id": "points",
    "stream": STREAM.name,
    "group_by": ["customer_id"],
    "measures": {"points": {"sum": "score", "over": "1h", "over_alerts": ["spending"]}},
    "when": "points >= 20",
}


def test_alerts_of_rules_that_count_those_of_the_version_change(tmp_path: Path) -> None:
    """`spending` alerts from 10:30 on. With 10 points for each, `points` alerts from 11:00 on: 20, then 30. With 20
    points from the 6th on it alerts at 10:30 of that day too, and later alerts have 40 and 60."""
    known = RuleSet.of([parse_rule(each, STREAMS) for each in (RULE | {"score": 10}, POINTS)], 0)
    found = effect(lake(tmp_path), RULE | {"score": 20, "effective": "2026-01-06T00:00:00Z"}, known=known)
    assert (found.announced, found.retracted, found.revised) == (9 + 1, 9, 8)
    assert "announce 10, retract 9 and revise 8 alerts" in str(found)


@pytest.mark.parametrize("again", [False, True])
def test_alerts_that_an_allow_rule_silences_are_revised(tmp_path: Path, *, again: bool) -> None:
    """An allow rule has no alerts; those of others are revised. Published again, it changes nothing more."""
    allow = RULE | {"id": "known", "measures": {}, "when": "amount = 20", "allows": ["spending"]}
    known = live()
    if again:
        known = RuleSet((*known.versions, *RuleSet.of([parse_rule(allow, STREAMS)], 0).versions))
    given = allow | {"when": "amount >= 20", "effective": "2026-01-06T00:00:00Z"}
    found = effect(lake(tmp_path), given, known=known)
    assert (found.announced, found.retracted, found.revised) == (0, 0, 0 if again else 9)


def test_a_pause_retracts_what_counts_its_alerts(tmp_path: Path) -> None:
    """And the version that is judged may be among those that are known."""
    known = RuleSet.of([parse_rule(each, STREAMS) for each in (RULE | {"score": 10}, POINTS)], 0)
    pause = {"control": "pause", "rule": "spending", "effective": "2026-01-06T00:00:00Z"}
    made, _ = judge(known, pause, NOW, STREAMS)
    assert made is not None
    with_it, config = RuleSet((*known.versions, made)), lake(tmp_path)
    for each in (known, with_it):
        found = past_effect(config.lake.root, STREAMS, each, made, NOW, pending_days=config.pending_days)
        assert found is not None
        assert (found.announced, found.retracted, found.revised) == (0, 9 + 8, 0)


def test_nights_do_not_go_back_beyond_the_pending_days(tmp_path: Path) -> None:
    """What is before them stays until a person asks for these days; of a proposal nothing is changed at all."""
    config = lake(tmp_path, pending_days=2)
    found = effect(config, RULE | {"effective": "2026-01-01T00:00:00Z"})
    assert (found.since, found.events, found.announced) == (datetime(2026, 1, 6, tzinfo=UTC), 10, 9)
    assert "nights go back to 2026-01-06, `nightjar backfill --days` corrects days before" in str(found)
    given = RULE | {"effective": "2026-01-01T00:00:00Z", "author": "ann", "reason": "trial"}
    proposed, _ = judge(RuleSet(), given, NOW, STREAMS, approvals=1)
    assert proposed is not None
    assert past_effect(config.lake.root, STREAMS, RuleSet(), proposed, NOW, pending_days=2) is None


def test_events_that_are_too_many_are_counted(tmp_path: Path) -> None:
    """The newest are evaluated."""
    found = effect(lake(tmp_path), RULE | {"effective": "2026-01-05T12:00:00Z"}, most=4)
    assert (found.events, found.skipped, found.announced) == (4, 12, 3)
    assert "12 earlier events were not evaluated, and change more" in str(found)


@pytest.mark.parametrize("made", [True, False])
def test_a_lake_without_events_says_so(tmp_path: Path, *, made: bool) -> None:
    """Or none at all."""
    config = config_of(tmp_path / "lake")
    if not made:
        config = BackfillConfig(type(config.lake)(tmp_path / "none", STREAMS), "broker")
    found = effect(config, RULE | {"effective": "2026-01-05T12:00:00Z"})
    assert (found.events, found.announced, found.retracted) == (0, 0, 0)
    assert "the lake has no events since then, so it is not known how many alerts that changes" in str(found)
