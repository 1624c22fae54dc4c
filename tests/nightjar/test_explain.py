"""`nightjar explain`: how an alert stands, and why, as a person reads it. A lake of few rows, without Kafka."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from nightjar.backfill.inputs.forgotten import mark_of
from nightjar.lake.tables import CORRECTIONS, FORGOTTEN, RECONCILIATION, RUNS, VIOLATIONS
from nightjar.rules.lateness import SHIPPED
from tests.support.explained_lake import GROUP, LIMIT, MIDNIGHT, MINUTES, Ground, named, small_lake
from tests.support.payments import NOON, add, days, fill, payment


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Two payments of Ann within ten minutes, the rule, and nothing published about it."""
    return small_lake(tmp_path)


def test_an_alert_that_a_night_has_confirmed(ground: Ground) -> None:
    """First how it stands."""
    ground.alert()
    ground.night(outcome="matched", stream_revision=1)
    shown = ground.explained(named())
    assert shown.splitlines()[0] == f"alert {named()}  announced by the stream"
    state = ground.mapped(named())["state"]
    assert (state["published"], state["by"], state["confirmed"], state["judged_by"]) == (
        "announced",
        "stream",
        True,
        None,
    )


def test_events_from_before_midnight_that_are_dated_after_it_count(ground: Ground) -> None:
    """As in stream and night: within `max_future_skew` an event may arrive on the date before its own."""
    at = MIDNIGHT + 60 * MINUTES
    early, window = MIDNIGHT + timedelta(seconds=5), {"customer_id": "eve", "partition": 1}
    add(
        ground.root,
        payment("e1", early, MIDNIGHT - timedelta(seconds=10), **window, offset=0),
        payment("e2", at, **window, offset=1),
    )
    mine = {"alert_id": named(1, "e2", at, '{"customer_id":"eve"}'), "group": '{"customer_id":"eve"}'}
    ground.alert(**mine, event_id="e2", event_time=at)
    found = ground.mapped(mine["alert_id"])
    assert (found["holds"], found["measures"], found["state"]["confirmed"]) == (True, {"n": 2}, True)
    assert [row["transaction_id"] for row in found["window"]] == ["e1", "e2"]


def test_a_version_is_evaluated_from_its_effective_time_on(tmp_path: Path) -> None:
    """What an earlier version would have found does not start its measures again."""
    ground = Ground(tmp_path)
    for table in (VIOLATIONS, RECONCILIATION, CORRECTIONS, RUNS):
        fill(tmp_path, table)
    add(tmp_path, *(payment(f"t{n}", NOON + (5 * n - 10) * MINUTES, offset=n) for n in range(-1, 3)))
    rule = {**LIMIT, "reset_after_alert": True}
    ground.publish({**rule, "when": "n >= 99"})
    ground.publish({**rule, "when": "n >= 3", "effective": "2026-01-05T11:58:00Z"}, at=NOON - days(29))
    ground.alert(alert_id=named(2), rule_version=2, measures='{"n":4}')
    found = ground.mapped(named(2))
    assert (found["holds"], found["measures"], found["state"]["confirmed"]) == (True, {"n": 4}, True)


def test_a_retraction_for_a_later_version_names_it_and_its_alert(ground: Ground) -> None:
    """The answer to "why was my alert retracted" is the beginning of what is shown."""
    ground.publish({**LIMIT, "when": "n >= 1", "effective": "2026-01-01T00:00:00Z"}, at=NOON + 60 * MINUTES)
    ground.alert()
    ground.corrected("retraction", "rule_propagation")
    ground.night(outcome="retracted", cause="rule_propagation", stream_revision=1)
    shown = ground.explained(named()).splitlines()
    assert shown[0] == f"alert {named()}  retracted by the night of 5 January 2026"
    assert shown[1] == (
        "  Version 2 of the rule, published 2026-01-05 13:00:00, applies to events since 2026-01-01 00:00:00, so to "
        f"this one, too: see alert {named(2)}."
    )
    assert "rule limit version 2, which applies to its event" in shown
    assert "holds" not in shown[0]
    found = ground.mapped(named())
    assert (found["holds"], found["applies"]["rule_version"], found["applies"]["alert_id"]) == (False, 2, named(2))
    assert (found["state"]["published"], found["state"]["night"]) == ("retracted", "2026-01-05")


def test_a_later_version_without_an_alert_there(ground: Ground) -> None:
    """Its measures show why."""
    ground.publish({**LIMIT, "when": "n >= 3", "effective": "2026-01-01T00:00:00Z"}, at=NOON + 60 * MINUTES)
    ground.alert()
    ground.corrected("retraction", "rule_propagation")
    shown = ground.explained(named())
    assert "so to this one, too, and has no alert at it." in shown
    assert "measures of version 2 at the event, recomputed from the lake" in shown


@pytest.mark.parametrize(("control", "state"), [("pause", "paused"), ("retire", "retired")])
def test_a_rule_that_was_switched_off_for_the_past(ground: Ground, control: str, state: str) -> None:
    """The version that switches it off is named."""
    off = {"control": control, "rule": "limit", "effective": "2026-01-05T11:59:00Z"}
    ground.publish(off, at=NOON + 60 * MINUTES)
    ground.alert()
    ground.corrected("retraction", "rule_propagation")
    shown = ground.explained(named())
    assert "Version 2 of the rule, published 2026-01-05 13:00:00," in shown
    assert f"since then the rule is {state}, and has no alerts." in shown


def test_an_alert_that_the_night_corrected_for_a_late_event(ground: Ground) -> None:
    """What the night published, and its cause in words."""
    add(ground.root, payment("late", NOON - 5 * MINUTES, NOON + 30 * MINUTES, offset=2))
    ground.alert()
    ground.corrected("alert", "late_event", measures='{"n":3}')
    ground.night(outcome="revised", cause="late_event", stream_revision=1)
    shown = ground.explained(named()).splitlines()
    assert shown[0].endswith("corrected by the night of 5 January 2026")
    assert shown[1] == (
        "  Stream and night differed because an event of its window was late for the stream, which does not count it "
        "(late_event)."
    )
    assert ground.mapped(named())["state"]["confirmed"] is True


def test_an_alert_that_no_night_has_judged(ground: Ground) -> None:
    """Which night will; an event that came meanwhile makes the difference, and is named."""
    add(ground.root, payment("late", NOON - 5 * MINUTES, NOON + 30 * MINUTES, offset=2))
    ground.alert()
    found = ground.mapped(named())["state"]
    assert (found["confirmed"], found["judged_by"]) == (False, "2026-01-05")
    shown = ground.explained(named())
    assert "By the lake as it is now it has other measures" in shown
    assert "No night has judged it yet: its event belongs to the night of 5 January 2026." in shown


def test_an_event_that_arrived_after_the_last_night(ground: Ground) -> None:
    """The night has confirmed what was announced, and the next one will not."""
    ground.alert()
    ground.night(outcome="matched", stream_revision=1)
    add(ground.root, payment("late", NOON - 5 * MINUTES, NOON + days(2), offset=2))
    shown = ground.explained(named())
    assert "1 event of its window arrived after the cut-off of the last night, and the next one counts them." in shown


def test_a_muted_alert_names_the_one_that_mutes_it(ground: Ground) -> None:
    """S10.4."""
    ground.publish({**LIMIT, "when": "n >= 1", "mute": "30m"}, at=NOON - days(1))
    ground.alert(rule_version=2, muted=True)
    shown = ground.explained(named(2)).splitlines()
    assert shown[0].endswith("announced by the stream, muted")
    muting = named(2, "t1", NOON - 10 * MINUTES)
    assert f"  Alert {muting} mutes it (mute: 30m)." in shown
    assert ground.mapped(named(2))["state"]["muted_by"] == muting


def test_an_alert_whose_event_the_lake_no_longer_has(ground: Ground) -> None:
    """Nothing is claimed about what holds."""
    at = NOON - days(3)
    mine = named(1, "old", at)
    ground.alert(alert_id=mine, event_id="old", event_time=at)
    shown = ground.explained(mine)
    assert shown.splitlines()[0] == f"alert {mine}  announced by the stream"
    assert "arrivals before 5 January 2026 have been removed (lake_retention), or never came." in shown
    assert ground.mapped(mine)["state"]["confirmed"] is None


def test_an_alert_that_depends_on_erased_events(ground: Ground) -> None:
    """S15.4: it stands, and cannot be evaluated again."""
    ground.alert(measures='{"n":3}')
    ground.night(outcome="revised", cause="forgotten", stream_revision=1)
    marks = json.dumps({"customer_id": mark_of(GROUP)})
    fill(ground.root, FORGOTTEN, {"stream": "transactions", "event_time": NOON - 5 * MINUTES, "marks": marks})
    shown = ground.explained(named())
    assert "What was announced stands." in shown
    assert "Events that it depends on may have been erased with a person" in shown
    assert ground.mapped(named())["state"]["confirmed"] is None


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("stream_down", "It is left to the stream, and later nights look again."),
        ("unexplained", "Its correction is held back."),
        ("late_event", "No correction of it is known here."),
    ],
)
def test_an_alert_whose_correction_was_not_published(ground: Ground, cause: str, words: str) -> None:
    """What the night found, and what becomes of it."""
    ground.alert(measures='{"n":1}')
    ground.night(outcome="revised", cause=cause, stream_revision=1)
    shown = ground.explained(named())
    assert "The night of 5 January 2026 found it revised" in shown
    assert words in shown


def test_an_alert_that_the_stream_itself_retracted(ground: Ground) -> None:
    """Nothing but an event out of order leads to that."""
    mine = named(1, "t1", NOON - 10 * MINUTES)
    about = {"alert_id": mine, "event_id": "t1", "event_time": NOON - 10 * MINUTES}
    ground.alert(**about)
    ground.alert(**about, revision=2, kind="retraction")
    shown = ground.explained(mine).splitlines()
    assert shown[0].endswith("retracted by the stream")
    assert shown[1] == "  The stream retracted it: an event on time, out of order, changed its window."


def test_a_violation_that_was_never_announced(ground: Ground) -> None:
    """A run without --publish leaves it in its table alone."""
    row = {"alert_id": named(), "rule_id": "limit", "rule_version": 1, "rule_state": "active", "stream": "transactions"}
    row |= {"group": GROUP, "event_id": "t2", "event_time": NOON, "measures": '{"n":2}', "event_date": NOON.date()}
    fill(ground.root, VIOLATIONS, row)
    assert ground.explained(named()).splitlines()[0].endswith("not announced")


def test_an_event_whose_id_came_before(ground: Ground) -> None:
    """S4.3: the first arrival counts, in whichever group."""
    add(ground.root, payment("t2", NOON, NOON - 9 * MINUTES, customer_id="bob", partition=1))
    ground.alert()
    found = ground.mapped(named())
    assert found["holds"] is False
    assert "Another event with the id of its event arrived first, and counts instead." in found["state"]["reasons"]


def test_where_equal_times_decide_the_order_is_named(ground: Ground) -> None:
    """S1.1: a hash of the ids, which nobody can see in the table."""
    add(ground.root, *(payment(name, NOON, offset=2 + n) for n, name in enumerate(("a", "b", "c", "d"))))
    ground.alert()
    found = ground.mapped(named())
    before, after = found["simultaneous"]["before"], found["simultaneous"]["after"]
    assert before + after == 4
    assert found["measures"] == {"n": 2 + before}
    assert [row["transaction_id"] for row in found["window"]][-1] == "t2"
    assert "4 other events of the group happened at the same time as this one: by a hash" in ground.explained(named())


def test_a_tie_breaker_orders_what_is_shown(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1.3: of three payments at one time that of t2 is the second."""
    first = "[streams.transactions]\n"
    (tmp_path / "streams.toml").write_text(SHIPPED.read_text().replace(first, first + 'tiebreaker = "amount"\n'))
    monkeypatch.setenv("NIGHTJAR_STREAMS", str(tmp_path / "streams.toml"))
    own = payment("t2", NOON)["amount"]
    add(ground.root, *(payment(f"a{n}", NOON, offset=3 + n, amount=own + n) for n in (-1, 1)))
    ground.alert()
    assert ground.mapped(named())["simultaneous"] == {"before": 1, "after": 1}
    assert ground.mapped(named())["measures"] == {"n": 3}
    assert "same time as this one: by amount, then a hash of their ids (S1.1) 1 before" in ground.explained(named())


def test_without_kafka_it_says_how_old_the_lake_is(ground: Ground) -> None:
    """Nothing fails."""
    ground.alert()
    (note,) = ground.mapped(named())["notes"]
    assert note.startswith("Kafka could not be read (Kafka at 127.0.0.1:9: no broker responds")
    assert note.endswith("so this is what the lake has: the archive has not run yet.")
