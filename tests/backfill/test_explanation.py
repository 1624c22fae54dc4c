"""Why an alert exists, of lakes that no longer fit what is declared, or hold what is no alert."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nightjar.backfill.config import BackfillError
from nightjar.backfill.explain.explanation import explain
from nightjar.backfill.explain.status import BECAUSE
from nightjar.contracts.reconciliation import Cause
from nightjar.lake.tables import ALERTS, CORRECTIONS, RECONCILIATION, VIOLATIONS
from nightjar.rules.alert_schema import ALERT_SCHEMA
from tests.support.payments import NOON, add, config_of, days, fill, payment, publish

ALERT: dict[str, Any] = {
    "alert_id": "a1",
    "revision": 1,
    "kind": "alert",
    "rule_id": "limit",
    "rule_version": 1,
    "rule_state": "active",
    "stream": "transactions",
    "group": '{"customer_id":"ann"}',
    "event_id": "t1",
    "event_time": NOON,
    "measures": "{}",
    "severity": "high",
    "text": "",
    "muted": False,
    "source": "stream",
    "emitted_at": NOON,
    "arrival_date": NOON.date(),
}
RULE = {"id": "limit", "stream": "transactions", "group_by": ["customer_id"], "when": "amount >= 1"}


def lake(root: Path, *alerts: dict[str, Any], rules: tuple[dict[str, Any], ...] = (RULE,)) -> Path:
    """A lake of one event and the records about it."""
    add(root, payment("t1", NOON))
    fill(root, ALERTS, *alerts)
    fill(root, VIOLATIONS)
    fill(root, RECONCILIATION)
    publish(root, *rules, at=NOON - days(1))
    return root


def refusal(root: Path) -> str:
    """The message where the alert cannot be explained."""
    with pytest.raises(BackfillError) as refused:
        explain(config_of(root), "a1")
    return str(refused.value)


def test_an_alert_is_explained_from_the_lake(tmp_path: Path) -> None:
    """It holds there."""
    assert explain(config_of(lake(tmp_path, ALERT)), "a1").violated


def test_what_points_come_from_is_listed(tmp_path: Path) -> None:
    """S23: the violations of the named rules in the window, with their scores; not of another group, or on trial."""
    points = {"points": {"sum": "score", "over": "1h", "over_alerts": ["large", "tried"]}}
    large = RULE | {"id": "large", "score": 40}
    rules = (large, large | {"id": "tried", "state": "shadow"}, RULE | {"measures": points, "when": "points > 0"})
    root = lake(tmp_path, ALERT, rules=rules)
    hour = timedelta(hours=1)
    add(root, payment("a0", NOON - 2 * hour), payment("t0", NOON - hour), payment("b1", NOON - hour, customer_id="bob"))
    found = explain(config_of(root), "a1").found
    assert found.measures == {"points": 80}
    assert [(each.rule_id, each.score, each.event_id) for each in found.counted] == [
        ("large", 40, "t0"),
        ("large", 40, "t1"),
    ]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_silences_an_alert_is_named(tmp_path: Path, is_known: bool) -> None:
    """S24: the allow rule that holds at its event; where the stream had announced it without, the lake has another."""
    trust = {key: RULE[key] for key in ("stream", "group_by", "when")} | {"id": "trust", "allows": ["limit"]}
    silenced = {"measures": '{"allowed_by":"trust"}', "muted": True} if is_known else {}
    status = explain(config_of(lake(tmp_path, ALERT | silenced, rules=(RULE, trust))), "a1").status
    assert status.confirmed is is_known
    assert "Allow rule trust holds at its event, and silences it." in status.reasons
    assert status.headline == ("announced by the stream, allowed by trust" if is_known else "announced by the stream")


def test_an_alert_of_a_stream_that_is_no_longer_declared(tmp_path: Path) -> None:
    """The error names the stream and the remedy."""
    assert "its stream logins is not declared" in refusal(lake(tmp_path, ALERT | {"stream": "logins"}))


def test_an_alert_of_a_rule_that_was_never_published(tmp_path: Path) -> None:
    """The error names the rule and its version."""
    assert "rule limit version 1" in refusal(lake(tmp_path, ALERT, rules=()))


@pytest.mark.parametrize("name", [name for name in ALERT_SCHEMA.names if name != "alert_id"])
def test_what_is_no_alert_is_not_explained(tmp_path: Path, name: str) -> None:
    """A record without all that an alert has may be on the topic, and is none."""
    assert "no such alert" in refusal(lake(tmp_path, ALERT | {name: None}))


def test_every_cause_has_a_sentence() -> None:
    """A new one fails here, and not in what an analyst reads."""
    assert BECAUSE.keys() == set(Cause)


@pytest.mark.parametrize("seconds", [0, 1, 90_000])
def test_the_time_of_its_event_only_helps_to_find_it(tmp_path: Path, seconds: int) -> None:
    """Another time than its own, of an address that somebody has changed, changes nothing of what is found."""
    root = lake(tmp_path, ALERT, ALERT | {"revision": 2, "kind": "retraction", "source": "backfill"})
    fill(root, CORRECTIONS)
    found = explain(config_of(root), "a1", at=NOON + timedelta(seconds=seconds))
    known = explain(config_of(root), "a1")
    assert found.revisions.equals(known.revisions)
    assert found.revisions.height == 2
    assert found.status == known.status


def test_events_of_repeated_ids_count_once(tmp_path: Path) -> None:
    """The first record of each; also where another copy names another customer, or came before the alert's own."""
    root = lake(tmp_path, ALERT, rules=(RULE | {"measures": {"n": {"count": "*", "over": "1h"}}},))
    hour = timedelta(hours=1)
    add(
        root,
        payment("t0", NOON - hour / 2, offset=11),
        payment("t0", NOON - hour / 4, NOON + hour, offset=12),
        payment("a0", NOON - hour / 2, NOON - hour / 3, customer_id="bob", offset=13),
        payment("a0", NOON - hour / 2, NOON + hour, offset=14),
    )
    found = explain(config_of(root), "a1").found
    assert found.measures == {"n": 2}
    assert not found.displaced
    add(root, payment("t1", NOON - hour, NOON - hour / 2, customer_id="bob", offset=15))
    found = explain(config_of(root), "a1").found
    assert found.displaced
    assert found.window.get_column("transaction_id").to_list() == ["t0"]
