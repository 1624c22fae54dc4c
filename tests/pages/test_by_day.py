"""What is kept of days."""

import threading
from collections.abc import Sequence
from datetime import date, timedelta

from nightjar.pages.by_day import ByDay

DAYS = [date(2026, 1, 1) + timedelta(days=number) for number in range(20)]


class Made:
    """Notes which days were made."""

    def __init__(self) -> None:
        self.days: list[date] = []

    def __call__(self, days: Sequence[date]) -> dict[date, str]:
        self.days += days
        return {day: f"{day} {len(self.days)}" for day in days}


def test_a_day_is_made_once_for_a_state() -> None:
    """And again for another one."""
    made = Made()
    known = ByDay(made, at_once=7, most=100)
    first = known.of(dict.fromkeys(DAYS[:3], "a"))
    assert made.days == DAYS[2::-1]
    assert known.of({DAYS[0]: "a", DAYS[2]: "a"}) == {day: first[day] for day in (DAYS[0], DAYS[2])}
    assert known.of({DAYS[1]: "b"}) != {DAYS[1]: first[DAYS[1]]}
    assert made.days == [*DAYS[2::-1], DAYS[1]]
    assert known.known({DAYS[1]: "a", DAYS[0]: "a"}) == {DAYS[0]: first[DAYS[0]]}


def test_more_than_is_kept_can_be_asked_for() -> None:
    """What was used last stays."""
    made = Made()
    known = ByDay(made, at_once=7, most=2)
    assert known.of(dict.fromkeys(DAYS, "a")).keys() == set(DAYS)
    assert len(known.every()) == 2
    known = ByDay(made, at_once=7, most=40, size=len)  # three days, of 12 letters or 13
    known.of({DAYS[0]: "a"})
    known.of({DAYS[1]: "a"})
    known.of({DAYS[0]: "a"})
    known.of({DAYS[2]: "a"})
    known.of({DAYS[3]: "a"})
    assert known.known(dict.fromkeys(DAYS, "a")).keys() == {DAYS[0], DAYS[2], DAYS[3]}


def test_who_comes_while_a_day_is_made_waits_for_it() -> None:
    """It is not made twice."""
    made, begun, go = Made(), threading.Event(), threading.Event()

    def slowly(days: Sequence[date]) -> dict[date, str]:
        begun.set()
        assert go.wait(30)
        return made(days)

    known, found = ByDay(slowly, at_once=7, most=100), list[dict[date, str]]()
    threads = [threading.Thread(target=lambda: found.append(known.of({DAYS[0]: "a"}))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join()
    assert made.days == [DAYS[0]]
    assert found[0] == found[1]
