"""At most so many alerts of a rule and hour are shown; the others are counted."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nightjar.operations import alert_cap
from nightjar.operations.alert_cap import AlertCap

RECORDS = st.lists(st.tuples(st.sampled_from("rs"), st.integers(9, 11), st.integers(0, 5)), max_size=60)


def record(rule: str, hour: int, number: int) -> dict[str, Any]:
    """A record about an alert."""
    return {"rule_id": rule, "event_time": f"2026-01-05T{hour:02}:30:00.000000Z", "alert_id": f"{rule}{hour}{number}"}


@given(RECORDS, st.integers(1, 4))
def test_the_first_alerts_of_an_hour_are_shown_with_their_revisions(records: list[Any], most: int) -> None:
    """Of each rule by itself; what is not shown is counted."""
    cap, shown, left_out = AlertCap(most), dict[tuple[str, int], list[int]](), Counter[str]()
    for rule, hour, number in records:
        first = shown.setdefault((rule, hour), [])
        if number not in first and len(first) < most:
            first.append(number)
        left_out[rule] += number not in first
        assert cap.admits(record(rule, hour, number)) == (number in first)
    assert cap.left_out == +left_out


def test_hours_long_past_are_forgotten(monkeypatch: Any) -> None:
    """Memory is bounded however many rules and hours there are."""
    monkeypatch.setattr(alert_cap, "_REMEMBERED", 1)
    cap = AlertCap(1)
    assert [cap.admits(record("r", hour, number)) for hour, number in ((9, 0), (9, 1), (10, 0), (9, 1))] == [
        True,
        False,
        True,
        True,
    ]
