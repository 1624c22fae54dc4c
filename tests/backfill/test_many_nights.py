"""Nights in any order, whole and partial, over a lake that several days of a job have left."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.lake.maintenance import maintain
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, LATE_EVENTS, VIOLATIONS, events_table
from nightjar.rules.timestamps import from_microseconds
from tests.support.histories import declared
from tests.support.night_runs import NightRun
from tests.support.random_runs import Batch, Published, Restart, Run

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
MIDNIGHT = 1_800_057_600 * SECOND // DAY * DAY
STREAM = declared(("who", "place"), event_id="id", event_time="at", allowed_lateness="10m", max_future_skew="1m")
RULE = {
    "id": "twice",
    "stream": "things",
    "group_by": ["who"],
    "when": "n >= 2",
    "measures": {"n": {"count": "*", "over": "1h"}},
}


def played(folder: Path, events: Iterable[tuple[str, int, int]], *rules: dict[str, Any]) -> NightRun:
    """A job that has read these events of x, each in a batch of its own: id, when it happened, and when it arrived (µs
    after MIDNIGHT). rules: published an hour before that."""
    run = NightRun(Run(STREAM, []), folder)
    run.take(Restart(0, STREAM.allowed_lateness))
    messages = [
        Published(number, MIDNIGHT - HOUR, rule | {"author": "ann", "reason": "test"})
        for number, rule in enumerate(rules)
    ]
    for number, (name, happened, arrives) in enumerate(events):
        event = {"id": name, "at": MIDNIGHT + happened, "who": "x", "place": "p", "arrival": MIDNIGHT + arrives}
        placed = event | {"partition": 0, "offset": number}
        run.nights.send([placed])
        run.take(Batch(MIDNIGHT + arrives, messages, [placed], MIDNIGHT + arrives, again=False))
        messages = []
    return run


def passed(run: NightRun, day: int, until: int = 70 * DAY, **asked: Any) -> dict[str, Any]:
    """The night of a day, and the archive after it, until so long (µs) after MIDNIGHT."""
    counts = run.nights.night(date_of(day), now=MIDNIGHT + until - 1, **asked)
    run.nights.archive(MIDNIGHT + until)
    return counts


def date_of(day: int) -> Any:
    """The date that begins so many days after MIDNIGHT."""
    return from_microseconds(MIDNIGHT + day * DAY).date()


@pytest.mark.parametrize("asked", [{"rules": ("twice",)}, {"groups": {"who": ("x",)}}, {}])
def test_an_older_day_run_again_reverts_nothing_of_a_later_run(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Neither where that was about some rules or groups: what it has announced with a late event stands."""
    noon = 12 * HOUR
    events = [("a", noon, noon), ("late", noon - 30 * MINUTE, DAY + noon), ("z", DAY + noon, DAY + noon)]
    run = played(tmp_path, events, RULE)
    run.nights.archive(MIDNIGHT + 70 * DAY)
    assert passed(run, 0)["published"] == 0
    assert passed(run, 1, **asked)["published"] == 1
    for day in (0, 1, 0):
        counts = passed(run, day)
        assert (counts["published"], counts["violations_changed"]) == (0, 0), day
    assert [(each["event_id"], each["revision"], each["kind"]) for each in run.nights.alerts] == [("a", 1, "alert")]
    assert scan(run.nights.root, VIOLATIONS).collect().height == 1


@pytest.mark.parametrize("gone", ["events", "alerts", "late_events"])
@pytest.mark.parametrize("mute", [None, "1h"])
def test_an_event_from_before_what_is_kept_changes_nothing_there(tmp_path: Path, gone: str, mute: str | None) -> None:
    """S9.3: upkeep has removed what its alerts depend on, so nobody can judge them; they and their violations stand."""
    noon = 12 * HOUR
    events = [
        ("a", noon, noon),
        ("b", noon + MINUTE, noon + MINUTE),
        ("c", noon + 2 * MINUTE, noon + 20 * MINUTE),
        ("y", 60 * DAY, 60 * DAY),
        ("z", 60 * DAY + MINUTE, 60 * DAY + MINUTE),
        ("very-late", noon + 30 * SECOND, 60 * DAY + HOUR),
        ("late", 59 * DAY + 23 * HOUR + 30 * MINUTE, 61 * DAY + HOUR),
    ]
    run = played(tmp_path, events, RULE | ({"mute": mute} if mute else {}))
    nights, root = run.nights, run.nights.root
    nights.archive(MIDNIGHT + DAY + HOUR)
    assert passed(run, 0, until=DAY + HOUR)["published"] == 1
    nights.archive(MIDNIGHT + 70 * DAY)
    before = scan(root, VIOLATIONS).collect()
    assert sorted(before.get_column("event_id")) == ["b", "c"]
    table = {"events": events_table(STREAM), "alerts": ALERTS, "late_events": LATE_EVENTS}[gone]
    maintained = maintain(root, table, first=date_of(20), unused=timedelta(days=7))
    assert maintained is not None
    assert maintained.removed_rows > 0
    counts = passed(run, 60)
    assert (counts["published"], counts["violations_changed"], counts["causes"]) == (0, 1, {})
    assert counts["beyond_retention"] == 1
    assert scan(root, VIOLATIONS).collect().filter(pl.col("event_id") != "z").equals(before)
    assert passed(run, 61)["causes"] == {"late_event": 2}, "what is kept is corrected as ever"
    for day in (0, 60, 61):
        counts = passed(run, day)
        assert (counts["published"], counts["violations_changed"]) == (0, 0), day


def batch(run: NightRun, name: str, happened: int, arrives: int, *messages: Published) -> None:
    """The job reads an event of x. happened, arrives: µs after MIDNIGHT."""
    at = MIDNIGHT + arrives
    placed = {
        "id": name,
        "at": MIDNIGHT + happened,
        "who": "x",
        "place": "p",
        "arrival": at,
        "partition": 0,
        "offset": ord(name) - ord("a"),
    }
    run.nights.send([placed])
    run.take(Batch(at, [*messages], [placed], at, again=False))


@pytest.mark.parametrize("reported_again", [True, False])
def test_an_event_that_counted_before_allowed_lateness_was_shortened_belongs_to_its_day(
    tmp_path: Path, *, reported_again: bool
) -> None:
    """Its day is settled by the greatest `allowed_lateness` that the stream may have had about then."""
    published = RULE | {"author": "ann", "reason": "test"}
    run = NightRun(Run(STREAM, []), tmp_path)
    run.take(Restart(0, 12 * HOUR))
    batch(run, "a", 23 * HOUR, 23 * HOUR, Published(0, MIDNIGHT, published))
    batch(run, "b", 23 * HOUR + 30 * MINUTE, DAY + 3 * HOUR)
    run.take(Restart(0, 10 * MINUTE))
    again = [Published(1, MIDNIGHT + DAY + 4 * HOUR, published | {"severity": "high"})] if reported_again else []
    batch(run, "c", DAY + 5 * HOUR, DAY + 5 * HOUR, *again)
    batch(run, "d", 3 * DAY + 5 * HOUR, 3 * DAY + 5 * HOUR)
    assert [each["event_id"] for each in run.nights.alerts] == ["b"]
    run.nights.archive(MIDNIGHT + DAY + 12 * HOUR - 1)
    assert run.nights.pending() == []
    run.nights.archive(MIDNIGHT + DAY + 12 * HOUR)
    assert run.nights.pending() == [date_of(0)]
    assert passed(run, 0, DAY + 13 * HOUR)["published"] == 0
    run.nights.archive(MIDNIGHT + 4 * DAY + HOUR)
    # once an answer has reported it, the shorter one alone decides
    assert run.nights.pending() == [date_of(1), *([date_of(3)] if reported_again else [])]
    for day in (1, 3, 0):
        counts = passed(run, day, 5 * DAY)
        assert (counts["published"], counts["violations_changed"]) == (0, 0), day


def test_an_event_that_was_late_before_allowed_lateness_was_raised_is_judged(tmp_path: Path) -> None:
    """The night of its date had passed before it came, so that of its arrival has it."""
    run = NightRun(Run(STREAM, []), tmp_path)
    run.take(Restart(0, 10 * MINUTE))
    batch(run, "a", 23 * HOUR, 23 * HOUR, Published(0, MIDNIGHT, RULE | {"author": "ann", "reason": "test"}))
    run.nights.archive(MIDNIGHT + DAY + HOUR)
    assert passed(run, 0, DAY + 2 * HOUR)["published"] == 0
    batch(run, "b", 23 * HOUR + 30 * MINUTE, DAY + 3 * HOUR)
    run.take(Restart(0, 12 * HOUR))
    batch(run, "c", 2 * DAY + 5 * HOUR, 2 * DAY + 5 * HOUR)
    assert run.nights.alerts == []
    run.nights.archive(MIDNIGHT + 3 * DAY)
    assert run.nights.pending() == [date_of(1)]
    assert passed(run, 1, 3 * DAY)["published"] == 1
    assert [each["event_id"] for each in run.nights.alerts] == ["b"]
    assert passed(run, 0, 3 * DAY)["published"] == 0
