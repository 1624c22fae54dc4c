"""S10.6: which alerts of a rule are marked beyond its cap."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.hourly_cap import HOUR, HourlyCap


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Alerts, by default new ones of rule r that are not muted. at: µs."""
    default = {"rule": "r", "revision": 1, "muted": False}
    full = [default | row for row in rows]
    return pa.table(
        {
            "rule_id": pa.array([row["rule"] for row in full], pa.string()),
            "revision": pa.array([row["revision"] for row in full], pa.int64()),
            "event_time": pa.array([row["at"] for row in full], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "muted": pa.array([row["muted"] for row in full], pa.bool_()),
        }
    )


def test_the_alerts_after_the_cap_are_marked_by_rule_and_hour() -> None:
    """In the order of event time within a batch; the next hour begins anew."""
    cap = HourlyCap(2)
    rows = [{"at": 30}, {"at": 10}, {"at": 20}, {"at": HOUR}, {"at": 40, "rule": "other"}]
    assert cap.mark(table(rows)).tolist() == [True, False, False, False, False]
    assert cap.mark(table([{"at": 50}, {"at": HOUR + 1}, {"at": HOUR + 2}])).tolist() == [True, False, True]
    assert cap.mark(table([{"at": 50, "rule": "other"}])).tolist() == [False]


def test_muted_alerts_do_not_count() -> None:
    """A group that alerts all the time, and is muted, takes nothing from the others."""
    cap = HourlyCap(1)
    assert not cap.mark(table([{"at": 1, "muted": True}, {"at": 2, "muted": True}])).any()
    assert cap.mark(table([{"at": 3}, {"at": 4}])).tolist() == [False, True]


def test_a_cap_reached_elsewhere_marks_what_comes_after_what_was_announced() -> None:
    """An alert that was announced without the mark never gets it, one of a rule without alerts does at once."""
    cap = HourlyCap(100)
    cap.mark(table([{"at": 7}]))
    cap.close("r", 0)
    cap.close("other", 0)
    again = [{"at": 7, "revision": 2}, {"at": 8}, {"at": 1, "rule": "other"}, {"at": HOUR, "rule": "other"}]
    assert cap.mark(table(again)).tolist() == [False, True, True, False]


def test_what_is_closed_is_bounded() -> None:
    """A forged clock record may name any number of hours; those with alerts can still be closed."""
    cap = HourlyCap(10)
    cap.mark(table([{"at": 1}]))
    for number in range(1, 20_000):
        cap.close("r", number * HOUR)
    cap.close("r", 0)
    assert len(cap.entries) == 10_000
    assert cap.mark(table([{"at": 2}])).tolist() == [True]


def test_hours_are_dropped_once_they_are_settled() -> None:
    """Not before their end."""
    cap = HourlyCap(1)
    cap.mark(table([{"at": 1}, {"at": HOUR}]))
    cap.evict(HOUR - 1)
    assert len(cap.entries) == 2
    cap.evict(HOUR)
    assert [entry[1] for entry in cap.entries] == [HOUR]


ALERT = st.fixed_dictionaries(
    {"at": st.integers(-5, 5).map(lambda n: n * HOUR // 3), "rule": st.sampled_from("rs"), "muted": st.booleans()}
)


@given(st.lists(st.lists(ALERT, max_size=6), max_size=8), st.integers(1, 4), st.integers(0, 7))
def test_marks_are_stable_and_none_is_early(batches: list[list[dict[str, Any]]], most: int, restart: int) -> None:
    """A record of an alert that is sent again has the mark of the first one; at least so many alerts have none;
    without alerts out of order exactly those after the cap, and those of the same time, have one."""
    cap = HourlyCap(most)
    announced: list[tuple[dict[str, Any], bool]] = []
    for number, batch in enumerate(batches):
        if number == restart:
            resumed = HourlyCap(most)
            resumed.restore(cap.entries)
            cap = resumed
        rows = [*batch, *({**alert, "revision": 2} for alert, _ in announced)]
        marks = cap.mark(table(rows)).tolist()
        assert marks[len(batch) :] == [mark for _, mark in announced]
        announced += zip(batch, marks, strict=False)
    hours = {(alert["rule"], alert["at"] // HOUR) for alert, _ in announced}
    for rule, hour in hours:
        mine = [(a, mark) for a, mark in announced if (a["rule"], a["at"] // HOUR) == (rule, hour)]
        marked = [alert for alert, mark in mine if mark]
        counted = [alert for alert, mark in mine if not mark and not alert["muted"]]
        assert not marked or len(counted) >= most
        times = [alert["at"] for alert, _ in mine]
        if times == sorted(times):
            reached = [alert["at"] for alert, _ in mine if not alert["muted"]][most - 1 : most]
            assert [mark for _, mark in mine] == [bool(reached) and at > reached[0] for at in times]
